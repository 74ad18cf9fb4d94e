//! /sys/devices/virtual/net: one directory for each interface of the reader's network namespace; /sys/class/net leads there.

use crate::bridge;
use abi::{Errno, Result};
use kernfs::{At, Child, Entry, Names, What, dir, line, text};
use netstack::counters::{Counter, Link};
use netstack::iface::Iface;
use spec::Interface;
use std::sync::Arc;
use std::sync::atomic::Ordering;

static LINK: Entry = Entry { name: "link", mode: 0o555, what: What::Dir(&IN_LINK, Some(&bridge::OfBridges)) };
static IN_LINK: [Entry; 26] = [
    text("addr_assign_type", |_| line(0)),
    text("addr_len", |at| line(link(at)?.address.len())),
    text("address", |at| line(colons(&link(at)?.address))),
    text("broadcast", |at| line(broadcast(&link(at)?))),
    text("carrier", |at| match link(at)?.flags & UP {
        // As Linux answers for an interface that is down.
        0 => Err(Errno::EINVAL),
        _ => line(u8::from(has_carrier(at))),
    }),
    text("carrier_changes", |_| line(0)),
    text("dev_id", |_| line("0x0")),
    text("dev_port", |_| line(0)),
    text("dormant", |at| if link(at)?.flags & UP == 0 { Err(Errno::EINVAL) } else { line(0) }),
    text("duplex", no_setting),
    text("flags", |at| {
        let own = own(at).map_or(0, |own| own.own_flags());
        line(format_args!("{:#x}", (link(at)?.flags | own) & 0xffff & !RUNNING))
    }),
    text("ifalias", |at| match own(at).map(|own| own.shown.alias.read().clone()) {
        Some(alias) if !alias.is_empty() => line(alias),
        _ => Ok(Vec::new()),
    }),
    text("ifindex", |at| line(at.n)),
    text("iflink", |at| {
        let lower = own(at).map_or(0, |own| own.about().lower);
        line(if lower == 0 { at.n } else { lower.into() })
    }),
    text("link_mode", |_| line(0)),
    text("mtu", |at| line(link(at)?.mtu)),
    text("netdev_group", |at| line(own(at).map_or(0, |own| own.shown.group.load(Ordering::Relaxed)))),
    text("operstate", state),
    text("proto_down", |_| line(0)),
    text("speed", no_setting),
    dir("statistics", &STATISTICS),
    kernfs::link("subsystem", |_| Ok(b"../../../../class/net".to_vec())),
    text("testing", |at| if link(at)?.flags & UP == 0 { Err(Errno::EINVAL) } else { line(0) }),
    text("tx_queue_len", |at| line(own(at).map_or(1000, |own| own.shown.queue_len.load(Ordering::Relaxed)))),
    text("type", |at| line(link(at)?.kind)),
    text("uevent", |at| {
        let link = link(at)?;
        Ok(format!("INTERFACE={}\nIFINDEX={}\n", link.name, link.index).into_bytes())
    }),
];

static STATISTICS: [Entry; 23] = [
    text("collisions", none),
    text("multicast", |at| count(at, |c| &c.multicast)),
    text("rx_bytes", |at| count(at, |c| &c.rx_bytes)),
    text("rx_compressed", none),
    text("rx_crc_errors", none),
    text("rx_dropped", |at| count(at, |c| &c.rx_dropped)),
    text("rx_errors", |at| count(at, |c| &c.rx_errors)),
    text("rx_fifo_errors", none),
    text("rx_frame_errors", none),
    text("rx_length_errors", none),
    text("rx_missed_errors", none),
    text("rx_nohandler", none),
    text("rx_over_errors", none),
    text("rx_packets", |at| count(at, |c| &c.rx_packets)),
    text("tx_aborted_errors", none),
    text("tx_bytes", |at| count(at, |c| &c.tx_bytes)),
    text("tx_carrier_errors", none),
    text("tx_compressed", none),
    text("tx_dropped", |at| count(at, |c| &c.tx_dropped)),
    text("tx_errors", |at| count(at, |c| &c.tx_errors)),
    text("tx_fifo_errors", none),
    text("tx_heartbeat_errors", none),
    text("tx_packets", |at| count(at, |c| &c.tx_packets)),
];

const UP: u32 = 1;
/// IFF_RUNNING, which sysfs leaves out.
const RUNNING: u32 = 0x40;
/// ARPHRD_LOOPBACK.
const LOOPBACK: u16 = 772;

/// The number of the interface that a directory is of, or is below.
pub(crate) fn index_of(at: &At) -> u32 {
    at.n as u32
}

/// The interface with the number of the directory.
fn link(at: &At) -> Result<Interface> {
    let net = at.nsproxy().net.interfaces();
    net.links.iter().find(|link| i64::from(link.index) == at.n).cloned().ok_or(Errno::ENOENT)
}

/// The same as the stack has it, unless it is only shown.
pub(crate) fn own(at: &At) -> Option<Arc<Iface>> {
    let net = at.nsproxy().net.clone();
    net.stack().link(index_of(at)).filter(|_| net.shows_stack())
}

fn has_carrier(at: &At) -> bool {
    own(at).is_none_or(|own| !own.about().no_carrier)
}

fn state(at: &At) -> Result<Vec<u8>> {
    let link = link(at)?;
    let about = own(at).map(|own| own.about()).unwrap_or_default();
    line(match (link.kind, link.flags & UP) {
        (LOOPBACK, UP) => "unknown",
        (_, 0) => "down",
        _ if about.no_carrier && about.lower_stack == Some(at.nsproxy().net.inum) => "lowerlayerdown",
        _ if about.no_carrier => "down",
        _ if matches!(about.kind, "dummy" | "tun") => "unknown",
        _ => "up",
    })
}

/// Virtual interfaces have neither speed nor duplex mode.
fn no_setting(_at: &At) -> Result<Vec<u8>> {
    Err(Errno::EINVAL)
}

fn none(at: &At) -> Result<Vec<u8>> {
    link(at)?;
    line(0)
}

fn count(at: &At, of: fn(&Link) -> &Counter) -> Result<Vec<u8>> {
    link(at)?;
    line(own(at).map_or(0, |own| of(&own.counters).get()))
}

pub(crate) fn colons(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}

fn broadcast(link: &Interface) -> String {
    let byte = if link.kind == LOOPBACK { 0 } else { 0xff };
    colons(&vec![byte; link.address.len()])
}

/// One directory per interface, with its index as `At::n`.
pub(crate) struct Links;

/// One link per interface.
pub(crate) struct ClassLinks;

static FROM_CLASS: Entry =
    kernfs::link("link", |at| Ok(format!("../../devices/virtual/net/{}", link(at)?.name).into_bytes()));

fn find(at: &At, name: &[u8], entry: &'static Entry) -> Result<Child> {
    let net = at.nsproxy().net.interfaces();
    let link = net.links.iter().find(|link| link.name.as_bytes() == name).ok_or(Errno::ENOENT)?;
    Ok(Child { entry, proc: None, n: link.index.into() })
}

fn list(at: &At, entry: &'static Entry) -> Vec<(u64, String, Child)> {
    let net = at.nsproxy().net.interfaces();
    let child = |index: u32| Child { entry, proc: None, n: index.into() };
    net.links.iter().map(|link| (link.index.into(), link.name.clone(), child(link.index))).collect()
}

impl Names for Links {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        find(at, name, &LINK)
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        Ok(list(at, &LINK))
    }
    fn subdirs(&self, at: &At) -> u64 {
        at.nsproxy().net.interfaces().links.len() as u64
    }
}

impl Names for ClassLinks {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        find(at, name, &FROM_CLASS)
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        Ok(list(at, &FROM_CLASS))
    }
}

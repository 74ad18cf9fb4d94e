//! Interfaces as RTM_NEWLINK describes them, and the requests for one or all.

use super::answer::Asker;
use super::error::Refusal;
use super::wire::{self, Message};
use crate::net_ns::NetNamespace;
use abi::Errno;
use netstack::iface::{Iface, Kind};
use netstack::monitor::How;
use spec::Interface;
use std::sync::atomic::Ordering;

/// Length of `struct ifinfomsg`.
pub(super) const IFINFO: usize = 16;
/// Attributes that libc lacks.
pub(super) const IFLA_EXT_MASK: u16 = 29;
const IFLA_CARRIER_CHANGES: u16 = 35;
const IFLA_PROTO_DOWN: u16 = 39;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_MIN_MTU: u16 = 50;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_ALLMULTI: u16 = 61;
/// Attributes of IFLA_LINKINFO.
pub(super) const IFLA_INFO_KIND: u16 = 1;
pub(super) const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
/// Attributes of a VLAN's and a TUN's IFLA_INFO_DATA.
pub(super) const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_FLAGS: u16 = 2;
pub(super) const IFLA_VLAN_PROTOCOL: u16 = 5;
const IFLA_TUN_TYPE: u16 = 3;
const IFLA_INET_CONF: u16 = 1;
const IFLA_INET6_FLAGS: u16 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
/// IN6_ADDR_GEN_MODE_NONE: interfaces get no link-local address by themselves.
const GEN_MODE_NONE: u8 = 1;
/// IPV4_DEVCONF_MAX.
const DEVCONF: usize = 33;
/// IFF_LOWER_UP, which libc lacks.
const LOWER_UP: u32 = 1 << 16;
/// IF_OPER_*.
const UNKNOWN: u8 = 0;
const DOWN: u8 = 2;
const LOWER_DOWN: u8 = 3;
const UP: u8 = 6;
/// VLAN_FLAG_REORDER_HDR, with all bits as mask.
const REORDER: [u8; 8] = [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];

/// What is told of an interface.
pub(super) struct Facts {
    pub(super) index: u32,
    pub(super) name: String,
    flags: u32,
    arphrd: u16,
    mtu: u32,
    address: Vec<u8>,
    pub(super) kind: &'static str,
    lower: u32,
    pub(super) master: Option<u32>,
    vlan: Option<u16>,
    carrier: bool,
    queue_len: u32,
    /// It has a queue that was set (`pfifo`).
    queued: bool,
    group: u32,
    alias: String,
    tap: bool,
    /// The first nine of `struct rtnl_link_stats64`.
    stats: [u64; 9],
}

impl Facts {
    /// Of an interface of the stack.
    pub(super) fn of(iface: &Iface) -> Facts {
        let (about, shown) = (iface.about(), crate::shown::interface(iface));
        let up = (libc::IFF_RUNNING as u32) | LOWER_UP;
        let flags = if about.no_carrier { shown.flags & !up } else { shown.flags };
        let c = &iface.counters;
        let stats = [
            &c.rx_packets,
            &c.tx_packets,
            &c.rx_bytes,
            &c.tx_bytes,
            &c.rx_errors,
            &c.tx_errors,
            &c.rx_dropped,
            &c.tx_dropped,
            &c.multicast,
        ];
        Facts {
            flags: flags | iface.shown.flags.load(Ordering::Relaxed),
            kind: about.kind,
            lower: about.lower,
            master: iface.master_index(),
            vlan: about.vlan,
            carrier: iface.is_up() && !about.no_carrier,
            queue_len: iface.shown.queue_len.load(Ordering::Relaxed),
            queued: iface.fifo().is_some(),
            group: iface.shown.group.load(Ordering::Relaxed),
            alias: iface.shown.alias.read().clone(),
            tap: iface.kind == Kind::Ethernet,
            stats: stats.map(|counter| counter.get()),
            ..Facts::of_shown(&shown)
        }
    }

    /// Of an interface that is only shown.
    fn of_shown(link: &Interface) -> Facts {
        Facts {
            index: link.index,
            name: link.name.clone(),
            flags: link.flags,
            arphrd: link.kind,
            mtu: link.mtu,
            address: link.address.clone(),
            kind: "",
            lower: 0,
            master: None,
            vlan: None,
            carrier: link.flags & libc::IFF_UP as u32 != 0,
            queue_len: 1000,
            queued: false,
            group: 0,
            alias: String::new(),
            tap: false,
            stats: [0; 9],
        }
    }

    /// The queueing discipline.
    fn discipline(&self) -> &'static str {
        match self.flags & libc::IFF_UP as u32 {
            _ if self.queued => "pfifo",
            0 => "noop",
            _ => "noqueue",
        }
    }

    fn state(&self) -> u8 {
        let never_told = matches!(self.kind, "dummy" | "tun");
        match self.flags & libc::IFF_UP as u32 {
            0 => DOWN,
            _ if self.flags & libc::IFF_LOOPBACK as u32 != 0 => UNKNOWN,
            _ if self.carrier && never_told => UNKNOWN,
            _ if self.carrier => UP,
            _ if self.lower != 0 => LOWER_DOWN,
            _ => DOWN,
        }
    }
}

/// The interfaces of a namespace, by index.
pub(super) fn all(net: &NetNamespace) -> Vec<Facts> {
    let shown = net.interfaces();
    let of_stack = |link: &Interface| net.stack().link(link.index).filter(|_| net.shows_stack());
    let mut all: Vec<_> = shown
        .links
        .iter()
        .map(|link| match of_stack(link).filter(|iface| iface.name() == link.name) {
            Some(iface) => Facts::of(&iface),
            None => Facts::of_shown(link),
        })
        .collect();
    all.sort_by_key(|facts| facts.index);
    all
}

/// All interfaces that a dump asks for: of a kind, or ports of a bridge.
pub(super) fn dump(asker: &Asker<'_>) -> Vec<Vec<u8>> {
    let number = |kind| {
        let value = wire::attribute(asker.message, IFINFO, kind)?;
        value.first_chunk().copied().map(u32::from_ne_bytes)
    };
    let info = wire::attribute(asker.message, IFINFO, libc::IFLA_LINKINFO);
    let kind = info.and_then(|info| wire::find(info, IFLA_INFO_KIND));
    let kind = kind.map(|kind| kind.strip_suffix(&[0]).unwrap_or(kind));
    let master = number(libc::IFLA_MASTER).filter(|master| *master != 0);
    let wanted = |facts: &Facts| {
        kind.is_none_or(|kind| facts.kind.as_bytes() == kind)
            && master.is_none_or(|master| facts.master == Some(master))
    };
    let filtered = if kind.is_some() || master.is_some() { super::answer::FILTERED } else { 0 };
    let all = all(asker.net);
    let wanted = all.iter().filter(|facts| wanted(facts));
    wanted.map(|facts| describe(asker.reply(libc::RTM_NEWLINK, filtered), facts, How::Set)).collect()
}

/// One interface, by index or name.
pub(super) fn get(asker: &Asker<'_>) -> Result<Vec<u8>, Refusal> {
    if asker.body().len() < IFINFO {
        return Err(Refusal::with(Errno::EINVAL, "Invalid header for get link"));
    }
    let index = asker.word(4);
    let name = wire::attribute(asker.message, IFINFO, libc::IFLA_IFNAME);
    let name = name.or_else(|| wire::attribute(asker.message, IFINFO, IFLA_ALT_IFNAME));
    let name = name.map(|name| name.strip_suffix(&[0]).unwrap_or(name));
    if index == 0 && name.is_none() {
        return Err(Errno::EINVAL.into());
    }
    let is = |facts: &&Facts| match name {
        _ if index != 0 => facts.index == index,
        Some(name) => facts.name.as_bytes() == name,
        None => false,
    };
    let all = all(asker.net);
    let facts = all.iter().find(is).ok_or(Errno::ENODEV)?;
    Ok(describe(asker.reply(libc::RTM_NEWLINK, 0), facts, How::Set))
}

/// IFLA_ALT_IFNAME: a name like any other to look for; interfaces have no further ones.
const IFLA_ALT_IFNAME: u16 = 53;

pub(super) fn describe(message: Message, link: &Facts, how: How) -> Vec<u8> {
    let loopback = link.flags & libc::IFF_LOOPBACK as u32 != 0;
    let mut fixed = vec![libc::AF_UNSPEC as u8, 0];
    fixed.extend(link.arphrd.to_ne_bytes());
    fixed.extend(link.index.to_ne_bytes());
    fixed.extend(link.flags.to_ne_bytes());
    // ifi_change is all ones in a farewell.
    fixed.extend((if how == How::Gone { u32::MAX } else { 0 }).to_ne_bytes());
    let broadcast = vec![if loopback { 0 } else { 0xff }; link.address.len()];
    let has = |flag: i32| u32::from(link.flags & flag as u32 != 0);
    let (least, most) = if loopback { (0, 0) } else { (68, 65_535) };
    let mut message = message
        .fixed(&fixed)
        .text(libc::IFLA_IFNAME, &link.name)
        .number(libc::IFLA_TXQLEN, link.queue_len)
        .attribute(libc::IFLA_OPERSTATE, &[link.state()])
        .attribute(libc::IFLA_LINKMODE, &[0])
        .number(libc::IFLA_MTU, link.mtu)
        .number(IFLA_MIN_MTU, least)
        .number(IFLA_MAX_MTU, most)
        .number(libc::IFLA_GROUP, link.group)
        .number(libc::IFLA_PROMISCUITY, has(libc::IFF_PROMISC))
        .number(IFLA_ALLMULTI, has(libc::IFF_ALLMULTI))
        .number(libc::IFLA_NUM_TX_QUEUES, 1)
        .number(IFLA_GSO_MAX_SEGS, 65_535)
        .number(IFLA_GSO_MAX_SIZE, 65_536)
        .number(libc::IFLA_NUM_RX_QUEUES, 1);
    if link.lower != 0 {
        message = message.number(libc::IFLA_LINK, link.lower);
    }
    if let Some(master) = link.master {
        message = message.number(libc::IFLA_MASTER, master);
    }
    // An interface that is down has a carrier as far as nobody has looked.
    let carrier = link.carrier || (link.flags & libc::IFF_UP as u32 == 0 && link.kind != "veth");
    message =
        message.attribute(libc::IFLA_CARRIER, &[carrier.into()]).text(libc::IFLA_QDISC, link.discipline());
    if !link.alias.is_empty() {
        message = message.text(libc::IFLA_IFALIAS, &link.alias);
    }
    message = message
        .number(IFLA_CARRIER_CHANGES, 0)
        .attribute(IFLA_PROTO_DOWN, &[0])
        .attribute(libc::IFLA_MAP, &[0; 32]);
    if !link.address.is_empty() {
        message =
            message.attribute(libc::IFLA_ADDRESS, &link.address).attribute(libc::IFLA_BROADCAST, &broadcast);
    }
    statistics(info(message, link), link).done()
}

/// IFLA_STATS64 and IFLA_STATS.
fn statistics(message: Message, link: &Facts) -> Message {
    let mut wide = [0; 25 * 8];
    let mut narrow = [0; 24 * 4];
    for (n, value) in link.stats.iter().enumerate() {
        wide[n * 8..n * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        narrow[n * 4..n * 4 + 4].copy_from_slice(&(*value as u32).to_ne_bytes());
    }
    let inet = wire::nested(IFLA_INET_CONF, &[0; DEVCONF * 4]);
    let inet6 = [
        wire::nested(IFLA_INET6_FLAGS, &0x8000_0000u32.to_ne_bytes()),
        wire::nested(IFLA_INET6_ADDR_GEN_MODE, &[GEN_MODE_NONE]),
    ];
    let families =
        [wire::nested(libc::AF_INET as u16, &inet), wire::nested(libc::AF_INET6 as u16, &inet6.concat())];
    message
        .attribute(libc::IFLA_STATS64, &wide)
        .attribute(libc::IFLA_STATS, &narrow)
        .attribute(libc::IFLA_AF_SPEC, &families.concat())
}

/// IFLA_LINKINFO.
fn info(message: Message, link: &Facts) -> Message {
    let mut info = Vec::new();
    if !link.kind.is_empty() {
        info.extend(wire::nested(IFLA_INFO_KIND, &[link.kind.as_bytes(), &[0]].concat()));
        let data = match (link.kind, link.vlan) {
            ("vlan", Some(id)) => [
                wire::nested(IFLA_VLAN_PROTOCOL, &0x8100u16.to_be_bytes()),
                wire::nested(IFLA_VLAN_ID, &id.to_ne_bytes()),
                wire::nested(IFLA_VLAN_FLAGS, &REORDER),
            ]
            .concat(),
            // IFF_TUN is 1, IFF_TAP 2.
            ("tun", _) => wire::nested(IFLA_TUN_TYPE, &[if link.tap { 2 } else { 1 }]),
            _ => Vec::new(),
        };
        if !data.is_empty() {
            info.extend(wire::nested(IFLA_INFO_DATA, &data));
        }
    }
    if link.master.is_some() {
        info.extend(wire::nested(IFLA_INFO_SLAVE_KIND, b"bridge\0"));
    }
    if info.is_empty() { message } else { message.attribute(libc::IFLA_LINKINFO, &info) }
}

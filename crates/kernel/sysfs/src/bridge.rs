//! The files of bridges and their ports below /sys/class/net, as brctl(8) reads them: `bridge` and `brif` of a bridge,
//! `brport` of a port. There is no spanning tree, so the files about it never change, and ports have no numbers.

use crate::net::{colons, index_of, own};
use abi::{Errno, Result};
use kernfs::{At, Child, Entry, Names, What, dir, line, link, text};
use netstack::bridge::{BridgeSettings, PortSettings};
use netstack::iface::Iface;
use std::sync::Arc;
use std::time::Duration;

static BRIDGE: Entry = dir("bridge", &IN_BRIDGE);
static PORTS: Entry = Entry { name: "brif", mode: 0o555, what: What::Dir(&[], Some(&Ports)) };
static PORT: Entry = dir("brport", &IN_PORT);
static TO_PORT: Entry = link("port", |at| Ok(format!("../../{}/brport", name_of(at)?).into_bytes()));

static IN_BRIDGE: [Entry; 17] = [
    text("ageing_time", |at| line(ticks(bridge(at)?.ageing))),
    text("bridge_id", |at| line(id(at)?)),
    text("forward_delay", |at| line(ticks(bridge(at)?.forward_delay))),
    text("gc_timer", |_| line(0)),
    text("hello_time", |_| line(200)),
    text("hello_timer", |_| line(0)),
    text("max_age", |_| line(2000)),
    text("multicast_snooping", |_| line(0)),
    text("priority", |_| line(32768)),
    text("root_id", |at| line(id(at)?)),
    text("root_path_cost", |_| line(0)),
    text("root_port", |_| line(0)),
    text("stp_state", |_| line(0)),
    text("tcn_timer", |_| line(0)),
    text("topology_change", |_| line(0)),
    text("topology_change_detected", |_| line(0)),
    text("topology_change_timer", |_| line(0)),
];

static IN_PORT: [Entry; 10] = [
    link("bridge", |at| Ok(format!("../../{}", master(at)?.name()).into_bytes())),
    text("broadcast_flood", |at| line(u8::from(port(at)?.0.broadcast_flood))),
    text("hairpin_mode", |at| line(u8::from(port(at)?.0.hairpin))),
    text("isolated", |at| line(u8::from(port(at)?.0.isolated))),
    text("learning", |at| line(u8::from(port(at)?.0.learning))),
    text("multicast_flood", |at| line(u8::from(port(at)?.0.multicast_flood))),
    text("path_cost", |_| line(2)),
    text("priority", |_| line(32)),
    text("state", |at| line(if port(at)?.1 { FORWARDING } else { 0 })),
    text("unicast_flood", |at| line(u8::from(port(at)?.0.flood))),
];

/// BR_STATE_FORWARDING.
const FORWARDING: u8 = 3;
/// What tells the directories apart that one interface has, above the interface's number.
const KIND: u32 = 32;

/// Times in hundredths of a second.
fn ticks(time: Duration) -> u128 {
    time.as_millis() / 10
}

fn link_of(at: &At) -> Result<Arc<Iface>> {
    own(at).ok_or(Errno::ENOENT)
}

fn name_of(at: &At) -> Result<String> {
    Ok(link_of(at)?.name())
}

fn bridge(at: &At) -> Result<BridgeSettings> {
    link_of(at)?.about().bridge.ok_or(Errno::ENOENT)
}

/// Priority and hardware address.
fn id(at: &At) -> Result<String> {
    Ok(format!("8000.{}", colons(&link_of(at)?.mac().0).replace(':', "")))
}

fn port(at: &At) -> Result<(PortSettings, bool)> {
    link_of(at)?.as_port().ok_or(Errno::ENOENT)
}

fn master(at: &At) -> Result<Arc<Iface>> {
    let index = link_of(at)?.master_index().ok_or(Errno::ENOENT)?;
    at.nsproxy().net.stack().link(index).ok_or(Errno::ENOENT)
}

/// The directories that a bridge or a port has beside what every interface has.
pub(crate) struct OfBridges;

impl OfBridges {
    fn all(at: &At) -> Vec<Child> {
        let Some(own) = own(at) else { return Vec::new() };
        let child = |kind: i64, entry| Child { entry, proc: None, n: i64::from(index_of(at)) | kind << KIND };
        let of_bridge = own.about().bridge.map(|_| [child(1, &BRIDGE), child(2, &PORTS)]);
        let of_port = own.master_index().map(|_| child(3, &PORT));
        of_bridge.into_iter().flatten().chain(of_port).collect()
    }
}

impl Names for OfBridges {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        let named = |child: &Child| child.entry.name.as_bytes() == name;
        OfBridges::all(at).into_iter().find(named).ok_or(Errno::ENOENT)
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        let all = OfBridges::all(at).into_iter();
        Ok(all.map(|child| (child.n as u64 >> KIND, child.entry.name.to_owned(), child)).collect())
    }
    fn subdirs(&self, at: &At) -> u64 {
        OfBridges::all(at).len() as u64
    }
}

/// The ports of a bridge.
struct Ports;

impl Ports {
    fn all(at: &At) -> Vec<Arc<Iface>> {
        let links = at.nsproxy().net.stack().links();
        links.into_iter().filter(|link| link.master_index() == Some(index_of(at))).collect()
    }
}

impl Names for Ports {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        let port = Ports::all(at).into_iter().find(|port| port.name().as_bytes() == name);
        Ok(Child { entry: &TO_PORT, proc: None, n: port.ok_or(Errno::ENOENT)?.index.into() })
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        let child = |port: &Arc<Iface>| Child { entry: &TO_PORT, proc: None, n: port.index.into() };
        Ok(Ports::all(at).iter().map(|port| (port.index.into(), port.name(), child(port))).collect())
    }
}

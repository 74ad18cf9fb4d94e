//! Interfaces: configuration, addresses, multicast groups, counters, and the edges to the interfaces above and below.
//!
//! An interface belongs to one network namespace, whose [`Inbox`] it has. Above it are its VLAN interfaces and the bridge that it is a
//! port of; what is below it is its [`Driver`].
//!
//! Lock rank: `LINK_EDGES` for what is above; the others are leaves. Checkpoint: [`Config`], flags, addresses and groups are plain data; the device comes from the host again.

use super::bridge::PortSettings;
use super::driver::{Driver, Features};
use crate::addr::{Scope, is_link_local, scope};
use crate::conf::{Conf, Which};
use crate::counters::Link;
use crate::ifaddr::RouterSolicitation;
use crate::memory::LinkSlot;
use crate::nest::Upon;
use crate::wire::eth::Mac;
use lock_order::{Mutex, RwLock, rank};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The inbox of a network namespace.
pub(crate) type Inbox = super::inbox::Inbox<Iface>;
/// What the device layer needs of the layers above.
pub(crate) type Upper = dyn super::inbox::UpperLayer<Iface>;

pub use crate::ifaddr::{Address, Dad, Label, Probes};

/// Index of the loopback interface.
pub const LOOPBACK: u32 = 1;

/// Kinds of interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// The loopback interface.
    Loopback,
    /// Frames have Ethernet headers; neighbours are resolved.
    Ethernet,
    /// Frames are bare IP packets (TUN).
    Tunnel,
}

/// What an interface is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name, e.g. `eth0`.
    pub name: String,
    /// Kind.
    pub kind: Kind,
    /// Hardware address.
    pub mac: Mac,
    /// Largest IP packet.
    pub mtu: u32,
}

/// A multicast group with the number of members on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The group.
    pub ip: IpAddr,
    /// Sockets (or addresses, for solicited-node groups) that joined it.
    pub members: u32,
}

/// A queue before the device (`pfifo` of tc(8)). Devices take packets at once, so it is always empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Fifo {
    /// Its number.
    pub handle: u32,
    /// Packets that it may hold; 0 drops every packet.
    pub limit: u32,
}

/// An interface.
pub struct Iface {
    /// Index, from 1 (`lo`).
    pub index: u32,
    /// Kind.
    pub kind: Kind,
    /// Counters.
    pub counters: Link,
    /// What lists show.
    pub shown: Shown,
    /// The hardware address in the low bytes.
    mac: AtomicU64,
    name: RwLock<String>,
    mtu: AtomicU32,
    up: AtomicBool,
    addresses: RwLock<Vec<Address>>,
    groups: RwLock<Vec<Group>>,
    pub(crate) driver: Driver<Iface>,
    /// The inbox of its network namespace.
    pub(crate) inbox: Arc<Inbox>,
    features: RwLock<Features>,
    fifo: RwLock<Option<Fifo>>,
    /// Frames were sent since the last flush.
    pub(crate) unflushed: AtomicBool,
    /// The bridge's interface, for a port.
    master: RwLock<Option<(Arc<Iface>, Upon)>, { rank::LINK_EDGES }>,
    port: RwLock<PortSettings>,
    /// VLAN interfaces that stand upon this one, by their numbers. They may be in other namespaces.
    pub(crate) vlans: RwLock<BTreeMap<u16, Arc<Iface>>, { rank::LINK_EDGES }>,
    pub(crate) conf: Conf,
    /// The MTU for IPv6 that a router told, 0 without one.
    mtu6: AtomicU32,
    solicit: Mutex<RouterSolicitation>,
    /// What tells it from all other interfaces, also after a move to another stack; 0 for a loopback interface.
    pub(crate) id: u64,
    _slot: Option<LinkSlot>,
}

/// Among the flags of [`Shown`]: IFF_MULTICAST, which follows from the kind of an interface, is switched off. No flag
/// of Linux.
pub const NO_MULTICAST: u32 = 1 << 31;
/// IFF_NOARP.
const NOARP: u32 = 0x80;

/// What lists show of an interface. Of it, only IFF_NOARP has an effect.
#[derive(Debug, Default)]
pub struct Shown {
    /// `ip link set ... txqueuelen`.
    pub queue_len: AtomicU32,
    /// `ip link set ... group`.
    pub group: AtomicU32,
    /// Flags that programs set: IFF_PROMISC and its like.
    pub flags: AtomicU32,
    /// `ip link set ... alias`.
    pub alias: RwLock<String>,
    /// Further names (`ip link property add ... altname`).
    pub other_names: RwLock<Vec<String>>,
}

impl Shown {
    fn new(driver: &Driver<Iface>) -> Shown {
        let tun = matches!(driver, Driver::Device(device) if device.about().kind == "tun");
        Shown { queue_len: AtomicU32::new(if tun { 500 } else { 1000 }), ..Shown::default() }
    }
}

fn number(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// Addresses and groups that an interface may have.
pub const MAX_ADDRESSES: usize = 4096;

impl Iface {
    pub(crate) fn new(
        index: u32,
        config: Config,
        driver: Driver<Iface>,
        inbox: &Arc<Inbox>,
        slot: Option<LinkSlot>,
    ) -> Iface {
        let features = driver.features();
        Iface {
            index,
            kind: config.kind,
            counters: Link::default(),
            shown: Shown::new(&driver),
            mac: AtomicU64::new(number(config.mac)),
            name: RwLock::new(config.name),
            mtu: AtomicU32::new(config.mtu),
            up: AtomicBool::new(false),
            addresses: RwLock::default(),
            groups: RwLock::default(),
            driver,
            inbox: inbox.clone(),
            features: RwLock::new(features),
            fifo: RwLock::default(),
            unflushed: AtomicBool::new(false),
            master: RwLock::default(),
            port: RwLock::default(),
            vlans: RwLock::default(),
            conf: Conf::default(),
            mtu6: AtomicU32::new(0),
            solicit: Mutex::default(),
            id: slot.as_ref().map_or(0, |slot| slot.id),
            _slot: slot,
        }
    }

    /// A setting of its own, -1 for that of all.
    pub fn setting(&self, which: Which) -> i32 {
        self.conf.get(which)
    }

    /// True without IPv6.
    pub fn disables_v6(&self) -> bool {
        self.conf.get(Which::DisableIpv6) != 0
    }

    /// Name.
    pub fn name(&self) -> String {
        self.name.read().clone()
    }

    /// True when one of its names is this.
    pub fn is_named(&self, name: &str) -> bool {
        *self.name.read() == name || self.shown.other_names.read().iter().any(|other| other == name)
    }

    pub(crate) fn rename(&self, name: &str) {
        *self.name.write() = name.to_owned();
    }

    /// Hardware address.
    pub fn mac(&self) -> Mac {
        let [_, _, a, b, c, d, e, f] = self.mac.load(Ordering::Relaxed).to_be_bytes();
        Mac([a, b, c, d, e, f])
    }

    /// Changes the hardware address.
    pub fn set_mac(&self, mac: Mac) {
        self.mac.store(number(mac), Ordering::Relaxed);
    }

    /// Largest IP packet.
    pub fn mtu(&self) -> u32 {
        self.mtu.load(Ordering::Relaxed)
    }

    pub(crate) fn set_mtu(&self, mtu: u32) {
        self.mtu.store(mtu, Ordering::Relaxed);
        self.set_mtu6(0);
    }

    /// Largest packet of IPv6, which a router may have told.
    pub(crate) fn mtu6(&self) -> u32 {
        match self.mtu6.load(Ordering::Relaxed) {
            0 => self.mtu(),
            told => told.min(self.mtu()),
        }
    }

    pub(crate) fn set_mtu6(&self, mtu: u32) {
        self.mtu6.store(mtu, Ordering::Relaxed);
    }

    pub(crate) fn with_solicit<R>(&self, f: impl FnOnce(&mut RouterSolicitation) -> R) -> R {
        f(&mut self.solicit.lock())
    }

    /// True when the interface is up.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// The flags of [`Shown`] that are Linux's.
    pub fn own_flags(&self) -> u32 {
        self.shown.flags.load(Ordering::Relaxed) & !NO_MULTICAST
    }

    /// Whether hardware addresses are asked for and told (`ip link set ... arp on`). Without that, frames go to the interface's own
    /// address, as Linux sends them.
    pub fn resolves(&self) -> bool {
        self.shown.flags.load(Ordering::Relaxed) & NOARP == 0
    }

    pub(crate) fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed);
    }

    /// What the device can do.
    pub fn features(&self) -> Features {
        *self.features.read()
    }

    pub(crate) fn set_features(&self, features: Features) {
        *self.features.write() = features;
    }

    /// The queue before the device, if one was set.
    pub fn fifo(&self) -> Option<Fifo> {
        *self.fifo.read()
    }

    /// Sets it.
    pub fn set_fifo(&self, fifo: Option<Fifo>) {
        *self.fifo.write() = fifo;
    }

    /// The addresses.
    pub fn addresses(&self) -> Vec<Address> {
        self.addresses.read().clone()
    }

    /// The multicast groups.
    pub fn groups(&self) -> Vec<Group> {
        self.groups.read().clone()
    }

    /// True when the address belongs to this interface and is in use.
    pub fn has_address(&self, ip: IpAddr) -> bool {
        self.addresses.read().iter().any(|address| address.ip() == ip && address.is_usable())
    }

    /// True when packets to the group are to be received.
    pub fn is_member(&self, group: IpAddr) -> bool {
        let always = match group {
            IpAddr::V4(v4) => v4 == Ipv4Addr::new(224, 0, 0, 1),
            IpAddr::V6(v6) => v6.segments() == [0xff02, 0, 0, 0, 0, 0, 0, 1] || v6.octets()[1] & 0xf == 1,
        };
        always || self.groups.read().iter().any(|known| known.ip == group)
    }

    /// Runs `f` on the addresses under their lock.
    pub(crate) fn with_addresses<R>(&self, f: impl FnOnce(&mut Vec<Address>) -> R) -> R {
        f(&mut self.addresses.write())
    }

    /// Counts a member; true for the first.
    pub(crate) fn join(&self, ip: IpAddr) -> Result<bool, abi::Errno> {
        let mut groups = self.groups.write();
        if let Some(group) = groups.iter_mut().find(|group| group.ip == ip) {
            group.members = group.members.saturating_add(1);
            return Ok(false);
        }
        if groups.len() >= MAX_ADDRESSES {
            return Err(abi::Errno::ENOBUFS);
        }
        groups.push(Group { ip, members: 1 });
        Ok(true)
    }

    /// Takes a member away; true for the last.
    pub(crate) fn leave(&self, ip: IpAddr) -> bool {
        let mut groups = self.groups.write();
        let Some(place) = groups.iter().position(|group| group.ip == ip) else { return false };
        groups[place].members = groups[place].members.saturating_sub(1);
        let last = groups[place].members == 0;
        if last {
            groups.swap_remove(place);
        }
        last
    }

    /// The best source address for a destination (RFC 6724 section 5 for IPv6; the first address with a scope that
    /// reaches the destination for IPv4, addresses of the next hop's network first).
    pub fn source_for(&self, dst: IpAddr, next_hop: IpAddr) -> Option<IpAddr> {
        let addresses = self.addresses.read();
        let wanted = scope(dst);
        let of_family = addresses.iter().filter(|a| a.ip().is_ipv4() == dst.is_ipv4() && a.is_usable());
        if dst.is_ipv4() {
            let reaching = of_family.filter(|a| a.scope >= wanted || a.scope == Scope::Global);
            let near = reaching.clone().find(|a| a.prefix.contains(next_hop));
            return near.or_else(|| reaching.clone().next()).map(Address::ip);
        }
        of_family.max_by_key(|a| rank6(a, dst, wanted)).map(Address::ip)
    }

    /// The interface of the bridge that this one is a port of.
    pub(crate) fn master(&self) -> Option<Arc<Iface>> {
        self.master.read().as_ref().map(|(bridge, _)| bridge.clone())
    }

    /// True when what it sends leaves by other interfaces of this kernel.
    pub(crate) fn is_above(&self) -> bool {
        self.driver.is_above()
    }

    /// Index of the bridge that the interface is a port of.
    pub fn master_index(&self) -> Option<u32> {
        Some(self.master()?.index)
    }

    /// What it is set to as a port of a bridge.
    pub fn port_settings(&self) -> PortSettings {
        *self.port.read()
    }

    pub(crate) fn set_port_settings(&self, settings: PortSettings) {
        *self.port.write() = settings;
    }

    /// Makes it a port, with the usual settings.
    pub(crate) fn set_master(&self, master: Option<(Arc<Iface>, Upon)>) -> Option<Arc<Iface>> {
        self.set_port_settings(PortSettings::default());
        std::mem::replace(&mut *self.master.write(), master).map(|(bridge, _)| bridge)
    }

    /// The same interface as another namespace is to have it: down, without addresses, groups and master.
    pub(crate) fn elsewhere(&self, index: u32, name: String, inbox: &Arc<Inbox>, slot: LinkSlot) -> Iface {
        let (shown, own) = (Shown::default(), &self.shown);
        shown.queue_len.store(own.queue_len.load(Ordering::Relaxed), Ordering::Relaxed);
        shown.group.store(own.group.load(Ordering::Relaxed), Ordering::Relaxed);
        shown.flags.store(own.flags.load(Ordering::Relaxed), Ordering::Relaxed);
        let alias = own.alias.read().clone();
        *shown.alias.write() = alias;
        let other_names = own.other_names.read().clone();
        *shown.other_names.write() = other_names;
        let config = Config { name, kind: self.kind, mac: self.mac(), mtu: self.mtu() };
        let moved = Iface::new(index, config, self.driver.clone(), inbox, Some(slot));
        moved.counters.copy(&self.counters);
        let (features, fifo) = (RwLock::new(self.features()), RwLock::new(self.fifo()));
        Iface { shown, features, fifo, id: self.id, ..moved }
    }
}

/// Rules 1, 2, 3 and 8 of RFC 6724 section 5 as a sort key; the greatest is the best.
fn rank6(address: &Address, dst: IpAddr, wanted: Scope) -> (bool, bool, i8, bool, u8) {
    let reaches = address.scope >= wanted;
    // The narrowest scope that reaches, or else the widest that does not.
    let narrow = if reaches { -(address.scope as i8) } else { address.scope as i8 };
    let link = matches!(address.ip(), IpAddr::V6(v6) if is_link_local(v6));
    let unusual = address.is_second_choice() || (link && wanted == Scope::Global);
    let common = crate::addr::common_prefix(address.ip(), dst).unwrap_or(0);
    (address.ip() == dst, reaches, narrow, !unusual, common)
}

impl fmt::Debug for Iface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.index, *self.name.read())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Prefix;

    fn iface(addresses: &[(&str, u8)]) -> Iface {
        let config = Config { name: "eth0".into(), kind: Kind::Ethernet, mac: Mac::default(), mtu: 1500 };
        let inbox = Inbox::new(0, &Default::default());
        let iface = Iface::new(2, config, Driver::Dummy, &inbox, None);
        let list = addresses.iter().map(|(ip, len)| Address::new(Prefix::new(ip.parse().unwrap(), *len)));
        iface.with_addresses(|all| all.extend(list));
        iface
    }

    fn source(iface: &Iface, dst: &str) -> String {
        let dst = dst.parse().unwrap();
        iface.source_for(dst, dst).unwrap().to_string()
    }

    #[test]
    fn source_addresses() {
        let v4 = iface(&[("10.0.0.1", 24), ("192.168.1.1", 16)]);
        assert_eq!(source(&v4, "192.168.7.7"), "192.168.1.1");
        assert_eq!(source(&v4, "8.8.8.8"), "10.0.0.1");
        let v6 = iface(&[("fe80::1", 64), ("2001:db8:1::1", 64), ("2001:db8:2::1", 64)]);
        assert_eq!(source(&v6, "2001:db8:2::9"), "2001:db8:2::1");
        assert_eq!(source(&v6, "fe80::9"), "fe80::1");
        assert_eq!(source(&v6, "2001:db8:1::1"), "2001:db8:1::1");
    }
}

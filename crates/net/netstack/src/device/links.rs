//! The interfaces of one network namespace, by index, and the changes of their graph.
//!
//! Changes of interfaces happen one at a time (the kernel's `rtnl`). Locks: the table, then the leaves of an interface.

use super::bridge::{BridgeSettings, PortSettings};
use super::driver::{Bridge, Device, Driver, Pair, Vlan};
use super::iface::{Config, Iface, Inbox, Kind, LOOPBACK};
use super::{inbox, transmit};
use crate::buf::Pool;
use crate::conf::Conf;
use crate::memory::Memory;
use crate::nest::Upon;
use crate::wire::eth::Mac;
use abi::Errno;
use lock_order::{Mutex, RwLock, rank};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Interfaces that a network namespace may have.
const MAX_LINKS: usize = 4096;

/// The interfaces of one network namespace.
pub struct Links {
    table: RwLock<BTreeMap<u32, Arc<Iface>>, { rank::LINKS }>,
    next_index: AtomicU32,
    /// The indices that the next interfaces get, for a restore.
    wanted: Mutex<VecDeque<u32>>,
    pub(crate) inbox: Arc<Inbox>,
    /// What the queues of all sockets hold; the namespaces of a kernel share it.
    pub(crate) memory: Arc<Memory>,
    pub(crate) pool: Pool,
    /// Settings of new interfaces.
    pub(crate) defaults: Conf,
}

impl Links {
    /// A loopback interface that is down.
    pub(crate) fn new(number: u64, memory: Arc<Memory>) -> Links {
        let inbox = Inbox::new(number, &memory);
        let lo = Config { name: "lo".into(), kind: Kind::Loopback, mac: Mac::default(), mtu: 65536 };
        let lo = Arc::new(Iface::new(LOOPBACK, lo, Driver::Loopback, &inbox, None));
        Links {
            table: RwLock::new([(LOOPBACK, lo)].into()),
            next_index: AtomicU32::new(LOOPBACK + 1),
            wanted: Mutex::default(),
            inbox,
            pool: memory.pool().clone(),
            memory,
            defaults: Conf::default(),
        }
    }

    /// An interface by index.
    pub(crate) fn get(&self, index: u32) -> Option<Arc<Iface>> {
        self.table.read().get(&index).cloned()
    }

    /// An interface by one of its names.
    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Iface>> {
        self.table.read().values().find(|link| link.is_named(name)).cloned()
    }

    /// All interfaces, by index.
    pub(crate) fn all(&self) -> Vec<Arc<Iface>> {
        self.table.read().values().cloned().collect()
    }

    /// Ends the batches of all devices; adds the inboxes of other namespaces that got frames.
    pub(crate) fn flush(&self, others: &mut Vec<Arc<Inbox>>) {
        let links = self.table.read();
        links.values().filter_map(|link| transmit::flush(link)).for_each(|other| inbox::add(others, other));
    }

    /// Adds an interface that is down, with an index that no interface has.
    pub(crate) fn add(&self, config: Config, driver: Driver<Iface>) -> Result<Arc<Iface>, Errno> {
        let mut links = self.table.write();
        if links.values().any(|link| link.is_named(&config.name)) {
            return Err(Errno::EEXIST);
        }
        if links.len() >= MAX_LINKS {
            return Err(Errno::ENFILE);
        }
        let slot = self.memory.link()?;
        let index = self.free_index(&links);
        let link = Arc::new(Iface::new(index, config, driver, &self.inbox, Some(slot)));
        link.conf.copy(&self.defaults);
        links.insert(index, link.clone());
        Ok(link)
    }

    /// The same with an index that is not in use.
    pub(crate) fn add_at(
        &self,
        index: u32,
        config: Config,
        device: Arc<dyn Device>,
    ) -> Result<Arc<Iface>, Errno> {
        let mut links = self.table.write();
        if links.contains_key(&index) || links.values().any(|link| link.is_named(&config.name)) {
            return Err(Errno::EEXIST);
        }
        if links.len() >= MAX_LINKS || index == 0 || index > i32::MAX as u32 {
            return Err(Errno::ENFILE);
        }
        let slot = self.memory.link()?;
        self.next_index.fetch_max(index + 1, Ordering::Relaxed);
        let link = Arc::new(Iface::new(index, config, Driver::Device(device), &self.inbox, Some(slot)));
        link.conf.copy(&self.defaults);
        links.insert(index, link.clone());
        Ok(link)
    }

    /// Takes in an interface of another namespace, with its index if that is free.
    pub(crate) fn take_in(&self, link: &Iface, name: String) -> Result<Arc<Iface>, Errno> {
        let mut links = self.table.write();
        let others = link.shown.other_names.read().clone();
        let taken = |name: &str| links.values().any(|link| link.is_named(name));
        if taken(&name) || others.iter().any(|name| taken(name)) {
            return Err(Errno::EEXIST);
        }
        if links.len() >= MAX_LINKS {
            return Err(Errno::ENFILE);
        }
        let slot = self.memory.link()?;
        let index = if links.contains_key(&link.index) { self.free_index(&links) } else { link.index };
        let link = Arc::new(link.elsewhere(index, name, &self.inbox, slot));
        link.conf.copy(&self.defaults);
        links.insert(index, link.clone());
        Ok(link)
    }

    /// The index that the next interface gets, if it is free then.
    pub(crate) fn next_index(&self) -> u32 {
        self.next_index.load(Ordering::Relaxed)
    }

    /// The next interface that is made, after those of earlier calls, gets this index, if it is free.
    pub(crate) fn want_index(&self, index: u32) {
        self.wanted.lock().push_back(index);
    }

    /// Sets it.
    pub(crate) fn set_next_index(&self, index: u32) {
        self.next_index.store(index, Ordering::Relaxed);
    }

    /// An index that no interface has.
    fn free_index(&self, links: &BTreeMap<u32, Arc<Iface>>) -> u32 {
        let wanted = self.wanted.lock().pop_front();
        if let Some(index) = wanted.filter(|index| *index > LOOPBACK && !links.contains_key(index)) {
            return index;
        }
        loop {
            let index = self.next_index.fetch_add(1, Ordering::Relaxed) & i32::MAX as u32;
            if index > LOOPBACK && !links.contains_key(&index) {
                return index;
            }
        }
    }

    /// Takes an interface out of the table and out of bridges. A bridge that goes has no ports any more.
    pub(crate) fn remove(&self, index: u32) -> Option<Arc<Iface>> {
        let link = self.table.write().remove(&index)?;
        leave_master(&link);
        if let Driver::Bridge(bridge) = &link.driver {
            let ports = std::mem::take(&mut *bridge.ports.write());
            ports.iter().for_each(|port| drop(port.set_master(None)));
        }
        Some(link)
    }

    /// Gives an interface another name beside its own: `EEXIST` when an interface has it, `EINVAL` when it has too many.
    pub(crate) fn add_name(&self, index: u32, name: &str) -> Result<(), Errno> {
        // Held until the name is there, so that no other interface gets it meanwhile.
        let links = self.table.write();
        if links.values().any(|link| link.is_named(name)) {
            return Err(Errno::EEXIST);
        }
        let link = links.get(&index).ok_or(Errno::ENODEV)?;
        let mut names = link.shown.other_names.write();
        // What one attribute can hold of them.
        let held: usize = names.iter().map(|name| name.len() + 8).sum();
        if held + name.len() + 8 >= usize::from(u16::MAX) {
            return Err(Errno::EINVAL);
        }
        names.push(name.to_owned());
        Ok(())
    }

    /// Takes a further name away: `ENOENT` when nothing has it, `EINVAL` when it is not one of this interface's.
    pub(crate) fn remove_name(&self, index: u32, name: &str) -> Result<(), Errno> {
        let link = self.by_name(name).ok_or(Errno::ENOENT)?;
        let mut names = link.shown.other_names.write();
        let place = names.iter().position(|other| other == name).filter(|_| link.index == index);
        names.remove(place.ok_or(Errno::EINVAL)?);
        Ok(())
    }

    /// Adds a pair of interfaces that are down: one here, one in `other`, which may be the same.
    pub(crate) fn add_pair(
        &self,
        own: Config,
        other: (&Links, Config),
    ) -> Result<(Arc<Iface>, Arc<Iface>), Errno> {
        let pair = Arc::<Pair<Iface>>::default();
        let end = |end| Driver::Veth(pair.clone(), end);
        let peer = other.0.add(Config { kind: Kind::Ethernet, ..other.1 }, end(1))?;
        let own = match self.add(Config { kind: Kind::Ethernet, ..own }, end(0)) {
            Ok(own) => own,
            Err(errno) => {
                other.0.remove(peer.index);
                return Err(errno);
            }
        };
        placed(&own);
        placed(&peer);
        Ok((own, peer))
    }

    /// Adds an interface for one VLAN of an interface, which may be another namespace's. `EEXIST` when there is one, `EMLINK`
    /// when too many interfaces stand upon each other.
    pub(crate) fn add_vlan(&self, config: Config, lower: &Arc<Iface>, id: u16) -> Result<Arc<Iface>, Errno> {
        if lower.vlans.read().contains_key(&id) {
            return Err(Errno::EEXIST);
        }
        self.memory.nest.check_on_top(lower.id)?;
        let vlan = Arc::new(Vlan { id, lower: RwLock::new(Arc::downgrade(lower)), upon: Mutex::default() });
        let link = self.add(Config { kind: Kind::Ethernet, ..config }, Driver::Vlan(vlan.clone()))?;
        match Upon::new(&self.memory.nest, lower.id, link.id) {
            Ok(upon) => *vlan.upon.lock() = Some(upon),
            Err(errno) => {
                self.remove(link.index);
                return Err(errno);
            }
        }
        placed(&link);
        Ok(link)
    }

    /// Adds a bridge without ports.
    pub(crate) fn add_bridge(&self, config: Config) -> Result<Arc<Iface>, Errno> {
        let bridge = Arc::new(Bridge::default());
        self.add(Config { kind: Kind::Ethernet, ..config }, Driver::Bridge(bridge))
    }

    /// The bridge that an interface is: `ENODEV` for others.
    fn bridge(&self, index: u32) -> Result<(Arc<Iface>, Arc<Bridge<Iface>>), Errno> {
        let link = self.get(index).ok_or(Errno::ENODEV)?;
        match &link.driver {
            Driver::Bridge(bridge) => Ok((link.clone(), bridge.clone())),
            _ => Err(Errno::ENODEV),
        }
    }

    /// Whether an interface is a bridge.
    pub(crate) fn is_bridge(&self, index: u32) -> bool {
        self.bridge(index).is_ok()
    }

    /// Changes the settings of a bridge.
    pub(crate) fn set_bridge(&self, index: u32, settings: BridgeSettings) -> Result<(), Errno> {
        *self.bridge(index)?.1.settings.write() = settings;
        Ok(())
    }

    /// Changes the settings of a port of a bridge. `EOPNOTSUPP` for an interface that is none.
    pub(crate) fn set_port(&self, index: u32, change: impl FnOnce(&mut PortSettings)) -> Result<(), Errno> {
        let link = self.get(index).ok_or(Errno::ENODEV)?;
        let Some(_) = link.master() else { return Err(Errno::EOPNOTSUPP) };
        let mut settings = link.port_settings();
        change(&mut settings);
        link.set_port_settings(settings);
        Ok(())
    }

    /// Makes an interface a port of a bridge, or takes it out. `ELOOP` for a bridge, `EBUSY` for an interface that the bridge's frames
    /// leave by already or that stands upon the bridge, `EMLINK` when too many interfaces stand upon each other. The first value says
    /// whether something has changed.
    pub(crate) fn set_master(&self, port: u32, bridge: Option<u32>) -> (bool, Result<(), Errno>) {
        let found = || {
            let port = self.get(port).filter(|link| link.kind == Kind::Ethernet).ok_or(Errno::EINVAL)?;
            Ok((port, bridge.map(|index| self.bridge(index)).transpose()?))
        };
        let (port, wanted) = match found() {
            Ok(found) => found,
            Err(errno) => return (false, Err(errno)),
        };
        if wanted.is_some() && matches!(port.driver, Driver::Bridge(_)) {
            return (false, Err(Errno::ELOOP));
        }
        if let (Some((wanted, _)), Some(own)) = (&wanted, port.master())
            && Arc::ptr_eq(wanted, &own)
        {
            return (false, Ok(()));
        }
        let left = leave_master(&port);
        let taken = wanted.map_or(Ok(()), |(own, bridge)| {
            let upon = Upon::new(&self.memory.nest, port.id, own.id)?;
            port.set_master(Some((own, upon)));
            bridge.ports.write().push(port);
            Ok(())
        });
        (taken.is_ok() || left, taken)
    }
}

/// Takes a port out of its bridge; true when there was one.
fn leave_master(port: &Iface) -> bool {
    let Some(master) = port.set_master(None) else { return false };
    if let Driver::Bridge(bridge) = &master.driver {
        bridge.ports.write().retain(|other| other.index != port.index);
        bridge.table.lock().forget(port.index);
    }
    true
}

/// The driver leads to this interface from now on: it is new, or has moved here.
fn placed(link: &Arc<Iface>) {
    match &link.driver {
        Driver::Veth(pair, end) => *pair.0[*end].write() = Arc::downgrade(link),
        Driver::Vlan(vlan) => {
            let lower = vlan.lower.read().upgrade();
            if let Some(lower) = lower {
                lower.vlans.write().insert(vlan.id, link.clone());
            }
        }
        Driver::Loopback | Driver::Device(_) | Driver::Dummy | Driver::Bridge(_) => {}
    }
}

/// An interface has moved to another namespace, where it is `to`: edges lead there, and VLAN interfaces above stay where they are.
pub(crate) fn moved(from: &Iface, to: &Arc<Iface>) {
    placed(to);
    let above = std::mem::take(&mut *from.vlans.write());
    for vlan in above.values() {
        if let Driver::Vlan(vlan) = &vlan.driver {
            *vlan.lower.write() = Arc::downgrade(to);
        }
    }
    *to.vlans.write() = above;
}

/// An interface is removed: it stands upon no other any more.
pub(crate) fn removed(link: &Iface) {
    if let Driver::Vlan(vlan) = &link.driver {
        let lower = vlan.lower.read().upgrade();
        if let Some(lower) = lower {
            lower.vlans.write().remove(&vlan.id);
        }
        *vlan.upon.lock() = None;
    }
}

/// The VLAN interfaces above an interface.
pub(crate) fn vlans_above(link: &Iface) -> Vec<Arc<Iface>> {
    link.vlans.read().values().cloned().collect()
}

/// The other end of a veth pair.
pub(crate) fn partner(link: &Iface) -> Option<Arc<Iface>> {
    match &link.driver {
        Driver::Veth(pair, end) => pair.other(*end),
        _ => None,
    }
}

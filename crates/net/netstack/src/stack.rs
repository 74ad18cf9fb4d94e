//! [`Stack`]: one network namespace.

use crate::addr::Prefix;
use crate::backlog::{Arrival, Backlog, TURN, Way};
use crate::buf::{Buf, Pool};
use crate::capture::Capture;
use crate::conf::Confs;
use crate::counters::Counters;
use crate::datagram::DatagramSocket;
use crate::datagram::table::Table;
use crate::device::Device;
use crate::fanout::Fanout;
use crate::fragment::Reassembly;
use crate::frame::Frame;
use crate::hooks::Installed;
use crate::icmp::Limiter;
use crate::iface::{Address, Config, Iface, Kind, LOOPBACK};
use crate::keys::Keys;
use crate::links::{Bridge, flow_of};
use crate::memory::Memory;
use crate::monitor::{Change, How, Monitor, What};
use crate::neigh::Neighbours;
use crate::packet::PacketSocket;
use crate::pmtu::PathMtus;
use crate::route::{Entry, Routes, TABLE_LOCAL};
use crate::spare::PERIOD;
use crate::sysctl::Sysctls;
use crate::tcp::FastOpenKeys;
use crate::tcp::socket::TcpSocket;
use crate::time::Instant;
use crate::timer::{TimerId, Timers};
use crate::vlan::Above;
use crate::wire::eth::Mac;
use abi::Errno;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Interfaces that a stack may have.
const MAX_LINKS: usize = 4096;

/// How long frames wait that an operation has left.
const PAUSE: Duration = Duration::from_millis(1);

/// How many times an operation carries frames from one stack to another.
const MAX_HOPS: usize = 1000;

/// Told when a deadline is set that comes before the one that [`Stack::next_deadline`] returned last.
pub trait Alarm: Send + Sync {
    /// [`Stack::run_timers`] is to be called at `at` already. May be called with locks of the stack held.
    fn earlier(&self, at: Instant);
}

/// An alarm for callers that ask for the deadline themselves.
#[derive(Debug)]
pub struct NoAlarm;

impl Alarm for NoAlarm {
    fn earlier(&self, _at: Instant) {}
}

/// Whose deadline a timer is.
#[derive(Clone)]
pub(crate) enum Target {
    /// The neighbour table.
    Neighbours,
    /// Addresses of interfaces.
    Addresses,
    /// Fragments.
    Reassembly,
    /// Frames that an operation has left.
    Backlog,
    /// Storage kept for queues.
    Spares,
    /// A TCP socket.
    Tcp(Weak<TcpSocket>),
}

/// One network namespace; see the crate.
pub struct Stack {
    /// Its number among those that share interfaces.
    pub number: u64,
    /// Settings.
    pub sysctls: Sysctls,
    /// Counters.
    pub counters: Counters,
    /// Settings of interfaces, beside their own.
    pub(crate) confs: Confs,
    /// What the queues of all sockets hold.
    pub memory: Arc<Memory>,
    pub(crate) pool: Pool,
    pub(crate) keys: Keys,
    /// The keys of Fast Open cookies.
    pub fast_open_keys: FastOpenKeys,
    pub(crate) routes: RwLock<Routes>,
    pub(crate) neighbours: RwLock<Neighbours>,
    pub(crate) pmtus: RwLock<PathMtus>,
    pub(crate) backlog: Backlog,
    pub(crate) reassembly: Mutex<Reassembly>,
    pub(crate) limiter: Mutex<Limiter>,
    pub(crate) idents: AtomicU32,
    pub(crate) udp: Table,
    pub(crate) udp_lite: Table,
    pub(crate) ping: Table,
    pub(crate) ping6: Table,
    pub(crate) raw: RwLock<Vec<Arc<DatagramSocket>>>,
    pub(crate) tcp: crate::tcp::table::Table,
    /// What wants to see every packet: then no traffic takes a way without packets.
    pub(crate) watchers: AtomicUsize,
    pub(crate) packets: RwLock<Vec<Arc<PacketSocket>>>,
    pub(crate) fanouts: RwLock<Vec<Arc<Fanout>>>,
    pub(crate) captures: RwLock<Option<Arc<Capture>>>,
    /// Packet sockets and captures; none is the usual case.
    pub(crate) taps: AtomicUsize,
    pub(crate) bridges: RwLock<BTreeMap<u32, Arc<Bridge>>>,
    pub(crate) hooks: RwLock<Option<Installed>>,
    pub(crate) hooked: AtomicBool,
    links: RwLock<BTreeMap<u32, Arc<Iface>>>,
    /// VLAN interfaces by the interface below and their number.
    pub(crate) vlans: RwLock<BTreeMap<(u32, u16), Above>>,
    /// Stacks that frames were handed to since the last operation ended: those of VLAN interfaces that have moved away.
    pub(crate) handed: Mutex<Vec<Arc<Stack>>>,
    monitor: OnceLock<Arc<dyn Monitor>>,
    next_index: AtomicU32,
    generation: AtomicU32,
    timers: Timers<Target>,
    neighbour_timer: TimerId,
    pub(crate) address_timer: TimerId,
    /// When that is due.
    pub(crate) next_address: Mutex<Option<Instant>>,
    /// When the next route ends by itself.
    pub(crate) next_route: Mutex<Option<Instant>>,
    reassembly_timer: TimerId,
    backlog_timer: TimerId,
    spare_timer: TimerId,
    /// That is set.
    aging: AtomicBool,
    alarm: Arc<dyn Alarm>,
    reported: AtomicU64,
}

impl Stack {
    /// A stack with a loopback interface that is down, as a new network namespace has it.
    pub fn new(seed: [u8; 16], alarm: Arc<dyn Alarm>) -> Arc<Stack> {
        Stack::sharing(seed, alarm, Arc::default(), 0)
    }

    /// The same, with queues that count for a memory which other stacks use as well, and a number.
    pub fn sharing(seed: [u8; 16], alarm: Arc<dyn Alarm>, memory: Arc<Memory>, number: u64) -> Arc<Stack> {
        let timers = Timers::new();
        let keys = Keys::new(seed);
        let lo = Config { name: "lo".into(), kind: Kind::Loopback, mac: Mac::default(), mtu: 65536 };
        Arc::new(Stack {
            number,
            confs: Confs::default(),
            backlog: Backlog::new(&memory),
            sysctls: Sysctls::default(),
            counters: Counters::default(),
            memory,
            pool: Pool::new(),
            routes: RwLock::default(),
            neighbours: RwLock::default(),
            pmtus: RwLock::default(),
            reassembly: Mutex::default(),
            limiter: Mutex::default(),
            idents: AtomicU32::new(keys.random() as u32),
            udp: Table::default(),
            udp_lite: Table::default(),
            ping: Table::default(),
            ping6: Table::default(),
            raw: RwLock::default(),
            tcp: crate::tcp::table::Table::default(),
            watchers: AtomicUsize::new(0),
            packets: RwLock::default(),
            fanouts: RwLock::default(),
            captures: RwLock::default(),
            taps: AtomicUsize::new(0),
            bridges: RwLock::default(),
            hooks: RwLock::default(),
            hooked: AtomicBool::new(false),
            links: RwLock::new([(LOOPBACK, Arc::new(Iface::new(LOOPBACK, lo, None, None)))].into()),
            vlans: RwLock::default(),
            handed: Mutex::default(),
            monitor: OnceLock::new(),
            next_index: AtomicU32::new(LOOPBACK + 1),
            generation: AtomicU32::new(0),
            neighbour_timer: timers.add(Target::Neighbours),
            address_timer: timers.add(Target::Addresses),
            next_address: Mutex::default(),
            next_route: Mutex::default(),
            reassembly_timer: timers.add(Target::Reassembly),
            backlog_timer: timers.add(Target::Backlog),
            spare_timer: timers.add(Target::Spares),
            aging: AtomicBool::new(false),
            timers,
            fast_open_keys: FastOpenKeys::new(keys.fast_open()),
            keys,
            alarm,
            reported: AtomicU64::new(u64::MAX),
        })
    }

    /// Buffers for frames that come from devices.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// While the guard lives, all traffic goes by packets: a packet socket, a capture or rules want to see it.
    pub fn watch(self: &Arc<Self>) -> Watch {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Watch(self.clone())
    }

    /// Sets whom changes of interfaces, addresses, routes, rules and neighbours are told; the first one stays.
    pub fn set_monitor(&self, monitor: Arc<dyn Monitor>) {
        let _ = self.monitor.set(monitor);
    }

    pub(crate) fn tell(&self, how: How, what: What) {
        if let Some(monitor) = self.monitor.get() {
            monitor.changed(&Change { what, how });
        }
    }

    /// An interface has a name that it did not have.
    pub(crate) fn named(&self, link: &Arc<Iface>) {
        self.routes.write().attach_rules(&link.name(), link.index);
        self.tell_link(link);
    }

    fn tell_link(&self, link: &Arc<Iface>) {
        self.tell(How::Set, What::Link(link.clone()));
    }

    /// The carrier of the other end of a veth pair has changed with this end.
    fn tell_partner(&self, link: &Iface) {
        if let Some((stack, peer)) = link.partner().filter(|(_, peer)| peer.is_up()) {
            stack.tell_link(&peer);
            stack.detect_again(&peer);
        }
    }

    // Interfaces.

    /// Adds an interface that is down.
    pub fn add_link(&self, config: Config, device: Arc<dyn Device>) -> Result<Arc<Iface>, Errno> {
        let link = self.insert_link(config, device)?;
        self.named(&link);
        Ok(link)
    }

    /// The same, but nobody is told yet.
    pub(crate) fn insert_link(&self, config: Config, device: Arc<dyn Device>) -> Result<Arc<Iface>, Errno> {
        let mut links = self.links.write();
        if links.values().any(|link| link.is_named(&config.name)) {
            return Err(Errno::EEXIST);
        }
        if links.len() >= MAX_LINKS {
            return Err(Errno::ENFILE);
        }
        let slot = self.memory.link()?;
        let index = self.free_index(&links);
        let link = Arc::new(Iface::new(index, config, Some(device), Some(slot)));
        link.conf.copy(&self.confs.default);
        links.insert(index, link.clone());
        Ok(link)
    }

    /// An index that no interface has.
    fn free_index(&self, links: &BTreeMap<u32, Arc<Iface>>) -> u32 {
        loop {
            let index = self.next_index.fetch_add(1, Ordering::Relaxed) & i32::MAX as u32;
            if index > LOOPBACK && !links.contains_key(&index) {
                return index;
            }
        }
    }

    /// The same with an index that is not in use.
    pub fn add_link_at(
        &self,
        index: u32,
        config: Config,
        device: Arc<dyn Device>,
    ) -> Result<Arc<Iface>, Errno> {
        let mut links = self.links.write();
        if links.contains_key(&index) || links.values().any(|link| link.is_named(&config.name)) {
            return Err(Errno::EEXIST);
        }
        if links.len() >= MAX_LINKS || index == 0 || index > i32::MAX as u32 {
            return Err(Errno::ENFILE);
        }
        let slot = self.memory.link()?;
        self.next_index.fetch_max(index + 1, Ordering::Relaxed);
        let link = Arc::new(Iface::new(index, config, Some(device), Some(slot)));
        link.conf.copy(&self.confs.default);
        links.insert(index, link.clone());
        drop(links);
        self.named(&link);
        Ok(link)
    }

    /// Takes in an interface of another stack, with its index if that is free. Nobody is told yet.
    pub(crate) fn take_in(&self, link: &Iface, name: String) -> Result<Arc<Iface>, Errno> {
        let mut links = self.links.write();
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
        let link = Arc::new(link.elsewhere(index, name, slot));
        link.conf.copy(&self.confs.default);
        links.insert(index, link.clone());
        Ok(link)
    }

    /// Removes an interface with its addresses, routes and neighbours. The other end of a veth pair goes with it, and the ports of
    /// a bridge are free.
    pub fn remove_link(self: &Arc<Self>, index: u32) -> Result<(), Errno> {
        if index == LOOPBACK {
            return Err(Errno::EOPNOTSUPP);
        }
        // An interface goes after those above it and before the other end of its pair.
        let mut left = vec![(None, index, false)];
        while let Some((other, index, free)) = left.pop() {
            let stack: &Arc<Stack> = other.as_ref().unwrap_or(self);
            if !free {
                let above = stack.vlans_above(index);
                left.push((other, index, true));
                left.extend(above.into_iter().map(|(stack, vlan)| (Some(stack), vlan.index, false)));
                continue;
            }
            // What is not the first may be gone already.
            let gone = stack.let_go(index, How::Gone);
            let gone = if other.is_none() { gone? } else { gone.unwrap_or_default() };
            let Some(link) = gone else { continue };
            if let Some(device) = link.device() {
                device.removed();
            }
            left.extend(link.partner().map(|(stack, peer)| (Some(stack), peer.index, false)));
        }
        Ok(())
    }

    /// Takes an interface down and out, with its addresses, routes and neighbours.
    pub(crate) fn let_go(&self, index: u32, how: How) -> Result<Option<Arc<Iface>>, Errno> {
        self.set_up(index, false)?;
        let Some(link) = self.links.write().remove(&index) else { return Ok(None) };
        self.leave_bridges(&link);
        for address in link.with_addresses(std::mem::take) {
            self.tell(How::Gone, What::Address(link.clone(), address));
        }
        self.change_routes(|routes| routes.forget_link(index));
        self.routes.write().attach_rules(&link.name(), 0);
        self.tell(how, What::Link(link.clone()));
        self.changed();
        Ok(Some(link))
    }

    /// An interface by index.
    pub fn link(&self, index: u32) -> Option<Arc<Iface>> {
        self.links.read().get(&index).cloned()
    }

    /// An interface by one of its names.
    pub fn link_by_name(&self, name: &str) -> Option<Arc<Iface>> {
        self.links.read().values().find(|link| link.is_named(name)).cloned()
    }

    /// All interfaces, by index.
    pub fn links(&self) -> Vec<Arc<Iface>> {
        self.links.read().values().cloned().collect()
    }

    /// Gives an interface another name beside its own: `EEXIST` when an interface has it, `EINVAL` when it has too many.
    pub fn add_name(&self, index: u32, name: &str) -> Result<(), Errno> {
        let links = self.links.read();
        if links.values().any(|link| link.is_named(name)) {
            return Err(Errno::EEXIST);
        }
        let link = links.get(&index).cloned().ok_or(Errno::ENODEV)?;
        drop(links);
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
    pub fn remove_name(&self, index: u32, name: &str) -> Result<(), Errno> {
        let link = self.link_by_name(name).ok_or(Errno::ENOENT)?;
        let mut names = link.shown.other_names.write();
        let place = names.iter().position(|other| other == name).filter(|_| link.index == index);
        names.remove(place.ok_or(Errno::EINVAL)?);
        Ok(())
    }

    /// Renames an interface.
    pub fn rename(&self, index: u32, name: &str) -> Result<(), Errno> {
        if self.link_by_name(name).is_some() {
            return Err(Errno::EEXIST);
        }
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        self.routes.write().attach_rules(&link.name(), 0);
        link.rename(name);
        self.named(&link);
        Ok(())
    }

    /// Changes an interface's MTU.
    pub fn set_mtu(&self, index: u32, mtu: u32) -> Result<(), Errno> {
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        if !(68..=65536).contains(&mtu) {
            return Err(Errno::EINVAL);
        }
        link.set_mtu(mtu);
        self.changed();
        self.tell_link(&link);
        Ok(())
    }

    /// Changes what only lists show of an interface, and its hardware address.
    pub fn configure_link(&self, index: u32, change: impl FnOnce(&Iface)) -> Result<(), Errno> {
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        change(&link);
        self.tell_link(&link);
        Ok(())
    }

    /// Changes what the device of an interface does for the stack (`TUNSETOFFLOAD`).
    pub fn set_features(&self, link: &Iface, features: crate::device::Features) {
        link.set_features(features);
        self.changed();
    }

    /// Takes an interface up or down. Routes come and go with it, and the loopback interface gets its addresses.
    pub fn set_up(&self, index: u32, up: bool) -> Result<(), Errno> {
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        if link.is_up() == up {
            return Ok(());
        }
        link.set_up(up);
        self.tell_link(&link);
        if up {
            self.raise(&link);
        } else {
            self.change_routes(|routes| routes.forget_link_but(index, crate::address::stays));
            self.change_neighbours(|neighbours| neighbours.purge(|key| key.0 == index));
            self.drop_v6_addresses(&link);
        }
        self.changed();
        self.tell_partner(&link);
        Ok(())
    }

    pub(crate) fn raise(&self, link: &Arc<Iface>) {
        if link.index == LOOPBACK {
            let own: [(IpAddr, u8); 2] = [(Ipv4Addr::LOCALHOST.into(), 8), (Ipv6Addr::LOCALHOST.into(), 128)];
            let wanted = |ip: &IpAddr| !link.has_address(*ip) && (ip.is_ipv4() || !link.disables_v6());
            let missing = own.into_iter().filter(|(ip, _)| wanted(ip));
            let missing: Vec<_> = missing
                .map(|(ip, len)| Address {
                    scope: crate::addr::Scope::Host,
                    ..Address::new(Prefix::new(ip, len))
                })
                .collect();
            link.with_addresses(|all| all.extend(missing.iter().copied()));
            for address in missing {
                self.tell(How::Set, What::Address(link.clone(), address));
            }
        }
        self.generate_link_local(link);
        self.detect_again(link);
        self.change_routes(|routes| {
            if link.kind != Kind::Loopback && !link.disables_v6() {
                let multicast = Prefix::new(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8);
                let route = crate::route::Route::new(multicast, link.index, None);
                let _ =
                    routes.add(crate::route::Route { table: TABLE_LOCAL, metric: 256, protocol: 2, ..route });
            }
            for address in link.addresses() {
                crate::address::add_routes(routes, link, &address);
            }
        });
    }

    /// Takes addresses, routes and neighbours of IPv6 away from an interface.
    pub(crate) fn end_v6(&self, link: &Arc<Iface>) {
        let index = link.index;
        self.change_routes(|routes| {
            routes.purge(|r| r.dst.addr.is_ipv6() && r.hops().all(|hop| hop.iface == index));
        });
        self.change_neighbours(|neighbours| neighbours.purge(|key| key.0 == index && key.1.is_ipv6()));
        self.drop_v6_addresses(link);
    }

    // Routes and neighbours.

    /// Runs `f` on routes and rules; sockets look their route up again afterwards.
    pub fn with_routes<R>(&self, f: impl FnOnce(&mut Routes) -> R) -> R {
        let result = self.change_routes(f);
        self.changed();
        result
    }

    /// Runs `f` on routes and rules, and tells what it changed.
    pub(crate) fn change_routes<R>(&self, f: impl FnOnce(&mut Routes) -> R) -> R {
        let mut routes = self.routes.write();
        let result = f(&mut routes);
        for change in routes.take_changes() {
            let what = match change.entry {
                Entry::Route(route) => What::Route(route),
                Entry::Rule(rule) => What::Rule(rule),
            };
            self.tell(change.how, what);
        }
        result
    }

    /// Runs `f` on routes and rules, to read them.
    pub fn read_routes<R>(&self, f: impl FnOnce(&Routes) -> R) -> R {
        f(&self.routes.read())
    }

    /// Runs `f` on the neighbour table, to show or change it.
    pub fn with_neighbours<R>(&self, f: impl FnOnce(&mut Neighbours) -> R) -> R {
        self.change_neighbours(f)
    }

    /// Runs `f` on the neighbour table, sets its timer and tells what changed.
    pub(crate) fn change_neighbours<R>(&self, f: impl FnOnce(&mut Neighbours) -> R) -> R {
        let mut neighbours = self.neighbours.write();
        let result = f(&mut neighbours);
        self.arm(self.neighbour_timer, neighbours.deadline());
        for (key, mac, state, gone) in neighbours.take_changes() {
            self.tell(if gone { How::Gone } else { How::Set }, What::Neighbour(key, mac, state));
        }
        result
    }

    /// The number that changes with routes, addresses, interfaces and path MTUs.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    // Time.

    /// When [`Stack::run_timers`] is to be called next.
    pub fn next_deadline(&self) -> Option<Instant> {
        // Forgotten first: a deadline that is set from now on either is in the answer or rings the alarm.
        self.reported.store(u64::MAX, Ordering::SeqCst);
        let next = self.timers.next();
        if let Some(next) = next {
            self.reported.fetch_min(next.nanos(), Ordering::SeqCst);
        }
        next
    }

    /// Runs what is due.
    pub fn run_timers(self: &Arc<Self>, now: Instant) {
        // An entry that is due again at once (a bug elsewhere) must not keep the caller for ever.
        for _ in 0..100_000 {
            let Some(target) = self.timers.pop_due(now) else { break };
            self.expire(target, now);
        }
        self.finish(now);
    }

    fn expire(self: &Arc<Self>, target: Target, now: Instant) {
        match target {
            Target::Neighbours => self.expire_neighbours(now),
            Target::Addresses => self.expire_addresses(now),
            Target::Reassembly => self.expire_fragments(now),
            // The end of the operation takes them on.
            Target::Backlog => {}
            Target::Spares => {
                self.memory.spares().age(now);
                self.aging.store(false, Ordering::Release);
                self.watch_spares(now);
            }
            Target::Tcp(socket) => {
                if let Some(socket) = socket.upgrade() {
                    socket.on_timer(now);
                }
            }
        }
    }

    pub(crate) fn arm(&self, id: TimerId, at: Option<Instant>) {
        self.timers.arm(id, at);
        if let Some(at) = at
            && self.reported.fetch_min(at.nanos(), Ordering::SeqCst) > at.nanos()
        {
            self.alarm.earlier(at);
        }
    }

    pub(crate) fn add_timer(&self, target: Target) -> TimerId {
        self.timers.add(target)
    }

    pub(crate) fn remove_timer(&self, id: TimerId) {
        self.timers.remove(id);
    }

    /// Storage that queues have given back goes when nothing needs it for a while.
    pub(crate) fn watch_spares(&self, now: Instant) {
        if self.memory.spares().bytes() > 0 && !self.aging.swap(true, Ordering::AcqRel) {
            self.arm(self.spare_timer, Some(now.plus(PERIOD)));
        }
    }

    pub(crate) fn arm_reassembly(&self, at: Option<Instant>) {
        self.arm(self.reassembly_timer, at);
    }

    // Frames.

    /// Takes a frame that an interface received. Offload descriptors count from the IP header.
    pub fn receive(self: &Arc<Self>, now: Instant, iface: u32, frame: Frame) {
        if let Some(iface) = self.link(iface) {
            self.frame_input(now, &iface, frame);
            self.finish(now);
        }
    }

    /// Takes a frame as bytes; see [`Stack::receive`].
    pub fn receive_bytes(self: &Arc<Self>, now: Instant, iface: u32, bytes: &[u8]) {
        let frame = Frame::new(self.pool.copy(bytes));
        self.receive(now, iface, frame);
    }

    /// Ends an operation: processes loopback traffic, flushes devices, and does the same for stacks that got frames. No lock may be
    /// held.
    pub(crate) fn finish(self: &Arc<Self>, now: Instant) {
        // A loop of bridges keeps frames going round; each operation carries them on for a while only.
        let mut left = TURN;
        let mut others = std::mem::take(&mut *self.handed.lock());
        self.finish_here(now, &mut left, &mut others);
        for _ in 0..MAX_HOPS {
            let Some(other) = others.pop() else { break };
            other.finish_here(now, &mut left, &mut others);
        }
        others.drain(..).for_each(|other| other.put_off(now));
        self.watch_spares(now);
        let mut handed = self.handed.lock();
        if handed.capacity() == 0 {
            *handed = others;
        }
    }

    /// Like [`Stack::finish`], for this stack alone; adds other stacks that got frames.
    fn finish_here(self: &Arc<Self>, now: Instant, left: &mut usize, others: &mut Vec<Arc<Stack>>) {
        self.backlog.run(left, |arrival| self.take(now, arrival));
        // What a filter sends now may be answered here, and filtered again; a bound ends that.
        for _ in 0..MAX_HOPS {
            if !self.run_deferred(now) {
                break;
            }
            self.backlog.run(left, |arrival| self.take(now, arrival));
        }
        if *left == 0 {
            self.put_off(now);
        }
        let mut add = |other: Arc<Stack>| {
            if !others.iter().any(|known| Arc::ptr_eq(known, &other)) {
                others.push(other);
            }
        };
        self.handed.lock().drain(..).for_each(&mut add);
        let links = self.links.read();
        links.values().filter_map(|link| link.flush()).for_each(add);
    }

    fn take(self: &Arc<Self>, now: Instant, arrival: Arrival) {
        match arrival.way {
            Way::In => self.frame_input(now, &arrival.iface, arrival.frame),
            Way::Out => arrival.iface.send_cut(arrival.frame),
        }
    }

    /// Sends a frame of a VLAN interface or a bridge by an interface of this stack that is below it. What is above others again has
    /// its turn later: so calls do not nest, and what one frame becomes on its way through bridges has a bound.
    pub(crate) fn pass_down(&self, iface: &Arc<Iface>, frame: Frame) {
        if !iface.is_above() {
            return iface.send_cut(frame);
        }
        let arrival = Arrival { iface: iface.clone(), frame, way: Way::Out };
        if !self.backlog.push(flow_of(&arrival.frame.buf), arrival) {
            iface.counters.tx_dropped.bump();
        }
    }

    /// The end of the operation is to carry on with another stack.
    pub(crate) fn hand_over(&self, to: Arc<Stack>) {
        let mut handed = self.handed.lock();
        if !handed.iter().any(|known| Arc::ptr_eq(known, &to)) {
            handed.push(to);
        }
    }

    /// Leaves frames to the timer, which gives other work its turn.
    fn put_off(&self, now: Instant) {
        if self.backlog.waits() {
            self.arm(self.backlog_timer, Some(now.plus(PAUSE)));
        }
    }

    /// All bound UDP sockets, for /proc/net/udp and sock_diag.
    pub fn udp_sockets(&self) -> Vec<Arc<DatagramSocket>> {
        self.udp.all()
    }

    /// All bound UDP-Lite sockets.
    pub fn udp_lite_sockets(&self) -> Vec<Arc<DatagramSocket>> {
        self.udp_lite.all()
    }

    /// All ping sockets that are bound.
    pub fn ping_sockets(&self) -> Vec<Arc<DatagramSocket>> {
        let mut all = self.ping.all();
        all.extend(self.ping6.all());
        all
    }

    /// All raw sockets.
    pub fn raw_sockets(&self) -> Vec<Arc<DatagramSocket>> {
        self.raw.read().clone()
    }

    /// A fresh identification number.
    pub(crate) fn ident(&self) -> u32 {
        self.idents.fetch_add(1, Ordering::Relaxed)
    }

    /// An empty buffer for a message.
    pub(crate) fn buf(&self, len: usize) -> Buf {
        self.pool.get(len)
    }
}

/// Something that wants to see every packet; see [`Stack::watch`].
#[derive(Debug)]
pub struct Watch(Arc<Stack>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").field("links", &*self.links.read()).finish_non_exhaustive()
    }
}

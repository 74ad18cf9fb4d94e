//! [`Network`]: the network layer of one network namespace, and the changes of its tables.
//!
//! Lock ranks: `ROUTES`, `NEIGHBOURS`, `PATH_MTUS` (read-write locks that changes alone write), `ROUTE_EXPIRY`, `ADDRESS_TIMER`,
//! `FRAGMENTS`; the limiter of ICMP errors is a leaf.

use super::change::How;
use super::filter::Filter;
use super::fragment::Reassembly;
use super::headers::Headers;
use super::hooks::{Hooks, Point, Verdict};
use super::limiter::Limiter;
use super::monitor::{Change, Monitor, What};
use super::neigh::Neighbours;
use super::pmtu::PathMtus;
use super::route::{Entry, Key, RouteKind, Routes, TABLE_LOCAL};
use super::schedule::{Alarm, Schedule, Target};
use super::tables::Tables;
use crate::buf::{Buf, Pool};
use crate::conf::Conf;
use crate::counters::Counters;
use crate::device::capture::{Observer, Watch};
use crate::device::iface::Iface;
use crate::device::links::Links;
use crate::device::packet::{PacketRow, Taps};
use crate::frame::Frame;
use crate::ifaddr::{Address, Dad};
use crate::keys::Keys;
use crate::memory::Memory;
use crate::spare::PERIOD;
use crate::sysctl::Sysctls;
use crate::timer::TimerId;
use ktime::Ktime;
use lock_order::{Mutex, RwLock, rank};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long frames wait that an operation has left.
const PAUSE: Duration = Duration::from_millis(1);

/// The network layer of one network namespace; see the module.
pub struct Network {
    /// Its number among those that share interfaces.
    pub number: u64,
    /// Settings.
    pub sysctls: Sysctls,
    /// Counters.
    pub counters: Counters,
    /// What the queues of all sockets hold.
    pub memory: Arc<Memory>,
    /// Settings of all interfaces, beside their own.
    pub(crate) conf_of_all: Conf,
    pub(crate) keys: Keys,
    pub(crate) links: Arc<Links>,
    pub(crate) taps: Arc<Taps>,
    pub(crate) tables: Tables,
    pub(crate) filter: Filter,
    pub(crate) neighbours: RwLock<Neighbours, { rank::NEIGHBOURS }>,
    pub(crate) pmtus: RwLock<PathMtus, { rank::PATH_MTUS }>,
    pub(crate) reassembly: Mutex<Reassembly, { rank::FRAGMENTS }>,
    pub(crate) limiter: Mutex<Limiter>,
    idents: AtomicU32,
    monitor: OnceLock<Arc<dyn Monitor>>,
    generation: AtomicU32,
    pub(crate) timers: Schedule,
    neighbour_timer: TimerId,
    address_timer: TimerId,
    /// When the timer of addresses is due.
    pub(crate) next_address: Mutex<Option<Ktime>, { rank::ADDRESS_TIMER }>,
    /// When the next route ends by itself.
    pub(crate) next_route: Mutex<Option<Ktime>, { rank::ROUTE_EXPIRY }>,
    reassembly_timer: TimerId,
    backlog_timer: TimerId,
    spare_timer: TimerId,
    /// The timer of spare storage is set.
    aging: AtomicBool,
}

impl Network {
    /// A network layer with a loopback interface that is down. Its queues count for a memory that others use as well.
    pub(crate) fn new(seed: [u8; 16], alarm: Arc<dyn Alarm>, memory: Arc<Memory>, number: u64) -> Network {
        let timers = Schedule::new(alarm);
        let keys = Keys::new(seed);
        let links = Arc::new(Links::new(number, memory.clone()));
        Network {
            number,
            sysctls: Sysctls::default(),
            counters: Counters::default(),
            memory,
            conf_of_all: Conf::of_all(),
            taps: Arc::default(),
            tables: Tables { routes: RwLock::default(), links: links.clone() },
            links,
            filter: Filter::default(),
            neighbours: RwLock::default(),
            pmtus: RwLock::default(),
            reassembly: Mutex::default(),
            limiter: Mutex::default(),
            idents: AtomicU32::new(keys.random() as u32),
            monitor: OnceLock::new(),
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
            keys,
        }
    }

    /// Buffers for frames that come from devices.
    pub fn pool(&self) -> &Pool {
        &self.links.pool
    }

    /// An empty buffer for a message.
    pub(crate) fn buf(&self, len: usize) -> Buf {
        self.links.pool.get(len)
    }

    /// A fresh identification number.
    pub(crate) fn ident(&self) -> u32 {
        self.idents.fetch_add(1, Ordering::Relaxed)
    }

    /// While the guard lives, all traffic goes by packets: a packet socket, a capture or rules want to see it.
    pub fn watch(&self) -> Watch {
        self.taps.watchers.watch()
    }

    /// Shows all frames to an observer from now on, until it wants no more; there is one capture at most, the last.
    pub fn capture(&self, observer: Arc<dyn Observer>) {
        self.taps.observe(observer);
    }

    /// All packet sockets, for lists.
    pub fn packet_sockets(&self) -> Vec<PacketRow> {
        self.taps.rows()
    }

    // The packet filter.

    /// Sets the packet filter: while there are rules, and `None` when the last is gone.
    pub fn set_hooks(&self, hooks: Option<Arc<dyn Hooks>>) {
        self.filter.set(hooks, &self.taps.watchers);
    }

    /// True while there are rules.
    pub(crate) fn is_hooked(&self) -> bool {
        self.filter.is_set()
    }

    /// Shows a packet to the filter.
    pub(crate) fn pass(
        &self,
        now: Ktime,
        point: Point,
        input: Option<&Iface>,
        output: Option<&Iface>,
        headers: &mut Headers,
        frame: &mut Frame,
    ) -> Verdict {
        self.filter.pass(&self.tables, now, point, (input, output), headers, frame)
    }

    // Interfaces.

    /// An interface by index.
    pub fn link(&self, index: u32) -> Option<Arc<Iface>> {
        self.links.get(index)
    }

    /// An interface by one of its names.
    pub fn link_by_name(&self, name: &str) -> Option<Arc<Iface>> {
        self.links.by_name(name)
    }

    /// All interfaces, by index.
    pub fn links(&self) -> Vec<Arc<Iface>> {
        self.links.all()
    }

    // Changes.

    /// Sets the monitor of changes of interfaces, addresses, routes, rules and neighbours; the first one stays.
    pub fn set_monitor(&self, monitor: Arc<dyn Monitor>) {
        let _ = self.monitor.set(monitor);
    }

    pub(crate) fn tell(&self, how: How, what: What) {
        if let Some(monitor) = self.monitor.get() {
            monitor.changed(&Change { what, how });
        }
    }

    /// The number that changes with routes, addresses, interfaces and path MTUs.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Runs `f` on routes and rules; sockets look their route up again afterwards.
    pub fn with_routes<R>(&self, f: impl FnOnce(&mut Routes) -> R) -> R {
        let result = self.change_routes(f);
        self.changed();
        result
    }

    /// Runs `f` on routes and rules, and tells what it changed.
    pub(crate) fn change_routes<R>(&self, f: impl FnOnce(&mut Routes) -> R) -> R {
        let mut routes = self.tables.routes.write();
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
        self.tables.read_routes(f)
    }

    /// Runs `f` on the neighbour table, to show or change it.
    pub fn with_neighbours<R>(&self, f: impl FnOnce(&mut Neighbours) -> R) -> R {
        self.change_neighbours(f)
    }

    /// Runs `f` on the neighbour table, sets its timer and tells what changed.
    pub(crate) fn change_neighbours<R>(&self, f: impl FnOnce(&mut Neighbours) -> R) -> R {
        let mut neighbours = self.neighbours.write();
        let result = f(&mut neighbours);
        self.timers.arm(self.neighbour_timer, neighbours.deadline());
        for (key, mac, state, gone) in neighbours.take_changes() {
            self.tell(if gone { How::Gone } else { How::Set }, What::Neighbour(key, mac, state));
        }
        result
    }

    // What routes say of addresses.

    fn kind_of(&self, ip: IpAddr) -> Option<RouteKind> {
        self.tables.routes.read().lookup(&Key::to(ip), |_| true).ok().map(|route| route.kind)
    }

    /// True when the address belongs to this stack, whole loopback networks included.
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.kind_of(ip) == Some(RouteKind::Local)
    }

    /// True for broadcast addresses of the interfaces, and for that of all.
    pub(crate) fn is_broadcast(&self, ip: IpAddr) -> bool {
        ip == std::net::Ipv4Addr::BROADCAST || self.kind_of(ip) == Some(RouteKind::Broadcast)
    }

    /// The interface that an address belongs to: one that has it, or else one whose local network it is in, as 127.9.9.9 is in the
    /// loopback interface's.
    pub fn owner_of(&self, ip: IpAddr) -> Option<Arc<Iface>> {
        if let Some(link) = self.links().into_iter().find(|link| link.has_address(ip)) {
            return Some(link);
        }
        self.link(self.read_routes(|routes| {
            let local = |route: &&super::route::Route| {
                route.table == TABLE_LOCAL && route.kind == RouteKind::Local && route.dst.contains(ip)
            };
            routes.routes().iter().find(local).map(|route| route.iface)
        })?)
    }

    // Timers.

    /// The timer of addresses is to run at `at` already.
    pub(crate) fn wake_addresses(&self, at: Ktime) {
        let mut next = self.next_address.lock();
        if next.is_none_or(|next| at < next) {
            *next = Some(at);
            self.timers.arm(self.address_timer, Some(at));
        }
    }

    /// An address is new or has other times: the timer has to know.
    pub(crate) fn watch_address(&self, address: &Address) {
        let begins = matches!(address.dad, Dad::Tentative(probes) if probes.at.is_none());
        if let Some(at) = begins.then_some(Ktime::ZERO).or(address.deadline()) {
            self.wake_addresses(at);
        }
    }

    pub(crate) fn arm_reassembly(&self, at: Option<Ktime>) {
        self.timers.arm(self.reassembly_timer, at);
    }

    /// Leaves frames to the timer, which gives other work its turn.
    pub(crate) fn put_off(&self, now: Ktime) {
        if self.links.inbox.waits() {
            self.timers.arm(self.backlog_timer, Some(now.plus(PAUSE)));
        }
    }

    /// Storage that queues have given back goes when nothing needs it for a while.
    pub(crate) fn watch_spares(&self, now: Ktime) {
        let kept = self.memory.spares().bytes() > 0 || self.memory.pool().has_large();
        if kept && !self.aging.load(Ordering::Relaxed) && !self.aging.swap(true, Ordering::AcqRel) {
            self.timers.arm(self.spare_timer, Some(now.plus(PERIOD)));
        }
    }

    /// The timer of spare storage has fired.
    pub(crate) fn age_spares(&self, now: Ktime) {
        if self.memory.spares().age(now) {
            self.memory.pool().age();
        }
        self.aging.store(false, Ordering::Release);
        self.watch_spares(now);
    }

    /// Remembers a path MTU that an error told.
    pub(crate) fn learn_mtu(&self, now: Ktime, dst: IpAddr, mtu: u32) {
        let floor = if dst.is_ipv4() { self.sysctls.min_pmtu.size() as u32 } else { 1280 };
        let keep = Duration::from_secs(self.sysctls.mtu_expires.size() as u64);
        // A zero comes from routers before RFC 1191.
        let mtu = if mtu == 0 { 576 } else { mtu }.max(floor);
        if self.pmtus.write().set(dst, mtu, now, keep) {
            self.changed();
        }
    }
}

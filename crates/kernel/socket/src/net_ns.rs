//! Network namespaces: the state that the sockets of a namespace share. See network_namespaces(7).
//!
//! A namespace owns a TCP/IP stack ([`netstack::Stack`]), which has a loopback interface that is up. A subsystem with a
//! way out adds links, addresses and routes to [`NetNamespace::stack`]: `add_link` with a `Device`, `set_up`,
//! `add_address`, `with_routes`; frames that arrive go to `Stack::receive` with [`NetNamespace::now`]. The stack runs on
//! the kernel's timers and counts time by their clock.
//!
//! A namespace ends with its last process, socket and file. Interfaces of other namespaces that lead to it, and their
//! numbers for it, are weak references. The timer service's thread removes the pairs of interfaces and the numbers that
//! end with it.
//!
//! Lock rank: leaves, but for the stack's timer (`TIMER`). A checkpoint keeps the interfaces and the stack's plain data.

use crate::netlink::sockets::{NetlinkRow, Ports, Rtnl, Sockets};
use crate::shown;
use crate::unix::UnixList;
use caller::timer::{TimerHandle, TimerService};
use ktime::{Clock, Ktime};
use lock_order::{Mutex, RwLock, rank};
use netfilter::Netfilter;
use netstack::conf::{Which, Whose};
use netstack::layers::LayerState;
use netstack::{Alarm, LOOPBACK, Stack};
use nftables::Nftables;
use spec::Interfaces;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use user_ns::{NamespaceCount, UserNamespace};
use xtables::Tables;

mod nets;

pub use nets::{Nets, Pause};

/// A network namespace.
pub struct NetNamespace {
    /// Number of its nsfs inode.
    pub inum: u64,
    user_ns: Arc<UserNamespace>,
    interfaces: RwLock<Arc<Interfaces>>,
    /// Addresses of netlink sockets in use, by protocol.
    pub(crate) ports: Mutex<Ports>,
    /// The Unix sockets that have had a descriptor.
    pub(crate) unix: UnixList,
    /// All netlink sockets.
    pub(crate) netlink: Arc<Sockets>,
    stack: Arc<Stack>,
    /// Runs the stack's timers.
    timer: Option<Arc<StackTimer>>,
    netfilter: Arc<Netfilter>,
    tables: Tables,
    nftables: Nftables,
    /// What the stack had before the first program ran.
    began: RwLock<Arc<LayerState>>,
    /// The stack's interfaces are the namespace's.
    stack_shown: AtomicBool,
    /// The kernel's.
    timers: Arc<TimerService>,
    /// That of the timers, which the stack counts by.
    clock: Clock,
    initial: bool,
    nets: Arc<Nets>,
    counted: Option<NamespaceCount>,
    /// The driver of interfaces with programs at their other ends.
    programs: OnceLock<Weak<dyn Any + Send + Sync>>,
}

/// What is left of a namespace, to be taken apart.
struct Teardown {
    inum: u64,
    stack: Arc<Stack>,
    nets: Arc<Nets>,
    /// It counts as long as something is left.
    _counted: Option<NamespaceCount>,
}

impl Teardown {
    fn clear(self) {
        let rtnl = self.nets.rtnl();
        self.stack.remove_links();
        drop(rtnl);
        self.nets.forget(self.inum);
    }
}

impl Drop for NetNamespace {
    fn drop(&mut self) {
        // The kernel ends with the initial one.
        if self.initial {
            return;
        }
        let remains = Teardown {
            inum: self.inum,
            stack: self.stack.clone(),
            nets: self.nets.clone(),
            _counted: self.counted.take(),
        };
        // Locks may be held here.
        self.timers.post(move || remains.clear());
    }
}

impl NetNamespace {
    /// Remembers the driver of interfaces with programs at their other ends, once.
    pub fn keep_programs(&self, driver: &Arc<dyn Any + Send + Sync>) {
        let _ = self.programs.set(Arc::downgrade(driver));
    }

    /// That driver.
    pub fn programs(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.programs.get()?.upgrade()
    }

    /// Owned by `user_ns`, with these interfaces to show, and a stack with a loopback interface that is up.
    pub fn new(
        inum: u64,
        user_ns: Arc<UserNamespace>,
        interfaces: Interfaces,
        timers: &Arc<TimerService>,
    ) -> Arc<NetNamespace> {
        let net = NetNamespace::make(inum, user_ns, interfaces, timers, None);
        if let Err(errno) = net.stack.set_up(LOOPBACK, true) {
            log::error!("loopback interface: {errno:?}; nothing can be sent to 127.0.0.1");
        }
        net.note_beginning();
        net
    }

    /// One more of a kernel, as clone(2) makes it: a loopback interface that is down. Its queues count for the memory of this one.
    pub fn another(
        &self,
        inum: u64,
        user_ns: Arc<UserNamespace>,
        counted: NamespaceCount,
    ) -> Arc<NetNamespace> {
        let beside = Some((self, counted));
        let net = NetNamespace::make(inum, user_ns, Interfaces::default(), &self.timers, beside);
        net.show_stack();
        net
    }

    fn make(
        inum: u64,
        user_ns: Arc<UserNamespace>,
        interfaces: Interfaces,
        timers: &Arc<TimerService>,
        beside: Option<(&NetNamespace, NamespaceCount)>,
    ) -> Arc<NetNamespace> {
        let (mut seed, mut secret) = ([0; 16], [0; 16]);
        hostsys::clock::random(&mut seed);
        hostsys::clock::random(&mut secret);
        let clock = *timers.clock();
        let (memory, nets, counted) = match beside {
            Some((other, counted)) => (other.stack.memory.clone(), other.nets.clone(), Some(counted)),
            None => (Arc::default(), Arc::default(), None),
        };
        let mut timer = None;
        let alarm = |stack: &_| timer.insert(StackTimer::new(stack, timers, &nets)).clone() as Arc<dyn Alarm>;
        let stack = Stack::sharing(seed, alarm, memory, inum);
        let netlink = Arc::new(Sockets::new(inum, nets.clone(), clock));
        stack.set_monitor(netlink.clone());
        // Interfaces get link-local addresses and listen to routers; those that the host gives keep what they have there.
        for whose in [Whose::All, Whose::Default, Whose::Link(LOOPBACK)] {
            let _ = stack.set_conf(whose, Which::AddrGenMode, 0);
            let _ = stack.set_conf(whose, Which::AcceptRa, 1);
        }
        let netfilter = Netfilter::sharing(&stack, secret, nets.filters.clone());
        let net = Arc::new(NetNamespace {
            inum,
            user_ns,
            interfaces: RwLock::new(Arc::new(interfaces)),
            ports: Mutex::default(),
            tables: Tables::new(&netfilter),
            nftables: Nftables::new(netfilter.clone()),
            netfilter,
            unix: UnixList::default(),
            netlink,
            began: RwLock::default(),
            stack,
            timer,
            stack_shown: AtomicBool::new(false),
            timers: timers.clone(),
            clock,
            initial: counted.is_none(),
            nets,
            counted,
            programs: OnceLock::new(),
        });
        net.nets.add(&net);
        net
    }

    /// Sets the timer to the stack's next deadline, after a pause.
    fn rearm(&self) {
        if let Some(timer) = &self.timer {
            timer.set(&self.stack);
        }
    }

    /// The namespaces of the same kernel.
    pub fn nets(&self) -> &Arc<Nets> {
        &self.nets
    }

    /// Whether the kernel began with it: in host mode its sockets are the host's.
    pub fn is_initial(&self) -> bool {
        self.initial
    }

    /// One that has loopback alone.
    #[cfg(test)]
    pub fn alone() -> Arc<NetNamespace> {
        NetNamespace::new(1, UserNamespace::initial(), Interfaces::loopback(), &Arc::default())
    }

    /// Says where the lines go that its rules write (targets LOG and `log`). Linux writes those of the first namespace
    /// alone, unless net.netfilter.nf_log_all_netns is set.
    pub fn set_log(&self, log: Arc<dyn netfilter::Log>) {
        self.netfilter.set_log(log);
    }

    /// The user that it counts for, if it counts.
    pub fn counted_for(&self) -> Option<u32> {
        self.counted.as_ref().map(NamespaceCount::user)
    }

    /// Where capabilities over it are held.
    pub fn user_ns(&self) -> &Arc<UserNamespace> {
        &self.user_ns
    }

    /// Its netlink sockets, in the order of their making.
    pub fn netlink_rows(&self) -> Vec<NetlinkRow> {
        self.netlink.rows()
    }

    /// What it calls other namespaces (nsid), by their inode numbers; for a checkpoint.
    pub fn nsids(&self) -> Vec<(i32, u64)> {
        self.netlink.nsids()
    }

    /// Calls other namespaces so again.
    pub fn restore_nsids(&self, ids: impl Iterator<Item = (i32, u64)>) {
        self.netlink.restore_nsids(ids);
    }

    /// To be held while interfaces, addresses, routes or rules are changed on request (Linux's `rtnl_lock`).
    pub fn rtnl(&self) -> Rtnl<'_> {
        self.netlink.rtnl()
    }

    /// The clock that the stack counts by: the kernel's.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The moment now, as operations of the stack take it.
    pub fn now(&self) -> Ktime {
        self.clock.now()
    }

    /// The TCP/IP stack.
    pub fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }

    /// Chains of rules, connection tracking and NAT.
    pub fn netfilter(&self) -> &Arc<Netfilter> {
        &self.netfilter
    }

    /// The tables of iptables-legacy.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The rules of nf_tables.
    pub fn nftables(&self) -> &Nftables {
        &self.nftables
    }

    /// What the stack has now is what it began with: no program has changed anything yet. A checkpoint saves what differs from it.
    pub fn note_beginning(&self) {
        *self.began.write() = Arc::new(self.stack.layer());
    }

    /// What the stack began with.
    pub fn began(&self) -> Arc<LayerState> {
        self.began.read().clone()
    }

    /// The host has changed interfaces of the stack, which was as `before`: it counts as having begun so.
    pub fn note_followed(&self, before: &LayerState) {
        let after = self.stack.layer();
        let mut began = self.began.write();
        let mut changed = LayerState::clone(&began);
        changed.follow(before, &after);
        *began = Arc::new(changed);
    }

    /// Shows the stack's interfaces from now on, beside those that are only shown.
    pub fn show_stack(&self) {
        self.stack_shown.store(true, Ordering::Relaxed);
    }

    /// Whether the stack's interfaces are the namespace's.
    pub fn shows_stack(&self) -> bool {
        self.stack_shown.load(Ordering::Relaxed)
    }

    /// Its interfaces, addresses and routes as they are now.
    pub fn interfaces(&self) -> Arc<Interfaces> {
        let only_shown = self.interfaces.read().clone();
        if !self.shows_stack() {
            return only_shown;
        }
        let mut all = shown::interfaces(&self.stack);
        let known = all.links.clone();
        let other = |index: u32, name: &str| !known.iter().any(|l| l.index == index || l.name == name);
        let links = only_shown.links.iter().filter(|link| other(link.index, &link.name));
        let links: Vec<_> = links.cloned().collect();
        let routes = only_shown.routes.iter().filter(|r| links.iter().any(|l| l.index == r.interface));
        all.routes.extend(routes.cloned());
        all.links.extend(links);
        Arc::new(all)
    }

    /// Replaces the interfaces.
    pub fn set_interfaces(&self, interfaces: Interfaces) {
        *self.interfaces.write() = Arc::new(interfaces);
    }
}

/// Runs a stack's timers: one timer of the kernel, set to the stack's earliest deadline.
struct StackTimer {
    me: Weak<StackTimer>,
    stack: Weak<Stack>,
    timers: Arc<TimerService>,
    nets: Arc<Nets>,
    /// The timer that is set, with its moment.
    next: Mutex<Option<(Ktime, TimerHandle)>, { rank::TIMER }>,
}

impl StackTimer {
    fn new(stack: &Weak<Stack>, timers: &Arc<TimerService>, nets: &Arc<Nets>) -> Arc<StackTimer> {
        Arc::new_cyclic(|me| StackTimer {
            me: me.clone(),
            stack: stack.clone(),
            timers: timers.clone(),
            nets: nets.clone(),
            next: Mutex::default(),
        })
    }

    /// Runs what is due, and sets the timer to the next deadline.
    fn tick(&self) {
        let Some(stack) = self.stack.upgrade() else { return };
        self.nets.unless_paused(|| {
            stack.run_timers(self.timers.clock().now());
            self.set(&stack);
        });
    }

    /// Sets the timer to the stack's next deadline. Under the lock, so that an earlier one that comes meanwhile stays.
    fn set(&self, stack: &Stack) {
        let mut next = self.next.lock();
        let fresh = stack.next_deadline().map(|at| self.timer(at));
        let old = std::mem::replace(&mut *next, fresh);
        drop(next);
        drop(old);
    }

    fn timer(&self, at: Ktime) -> (Ktime, TimerHandle) {
        let me = self.me.clone();
        let tick = move || {
            if let Some(timer) = me.upgrade() {
                timer.tick();
            }
        };
        (at, self.timers.schedule(at, tick))
    }
}

impl Alarm for StackTimer {
    fn earlier(&self, at: Ktime) {
        let mut next = self.next.lock();
        if next.as_ref().is_some_and(|(set, _)| *set <= at) {
            return;
        }
        let old = next.replace(self.timer(at));
        drop(next);
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netstack::datagram::Protocol;
    use netstack::notify::Silent;

    #[test]
    fn two_namespaces_share_no_port() {
        let spaces = [NetNamespace::alone(), NetNamespace::alone()];
        for net in &spaces {
            let socket = net.stack().datagram_socket(false, Protocol::Udp, Arc::new(Silent));
            socket.bind("127.0.0.1:7777".parse().unwrap(), true).unwrap();
        }
    }

    /// A connection in TIME-WAIT or FIN-WAIT-2 ends by timers alone.
    #[test]
    fn timers_run() {
        let net = NetNamespace::alone();
        let new = || net.stack().tcp_socket(false, Arc::new(Silent));
        let (server, client) = (new(), new());
        server.bind("127.0.0.1:0".parse().unwrap(), true).unwrap();
        server.listen(1).unwrap();
        client.configure(net.now(), |options| options.linger2 = Some(std::time::Duration::from_millis(20)));
        assert_eq!(client.connect(net.now(), server.local()), Err(abi::Errno::EINPROGRESS));
        let held = server.accept(Arc::new(Silent)).unwrap();
        client.close(net.now());
        let late = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while client.state() != netstack::tcp::State::Closed && std::time::Instant::now() < late {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(client.state(), netstack::tcp::State::Closed);
        drop(held);
    }
}

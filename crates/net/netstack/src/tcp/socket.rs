//! TCP sockets as the kernel sees them (tcp(7), socket(7)).
//!
//! Locks: [`Inner`] (the connection), then the receive queue. Readers take the receive queue alone. A listener's lock is held while
//! its new connection is set up, which no other thread can find yet. Checkpoint: the connection, the queue, binding and addresses are
//! plain data.

use super::conn::{Conn, Cx, State};
use super::emit::sizes;
use super::fastopen::FastOpenKeys;
use super::listener::Listener;
use super::notices::Notice;
use super::options::TcpOptions;
use super::rx::RxQueue;
use super::table::{Program, Table, Tuple, count};
use crate::chain::Chain;
use crate::device::capture::Filter;
use crate::device::iface::Upper;
use crate::network::layer::Network;
use crate::network::path::Path;
use crate::network::route::Key;
use crate::network::schedule::Target;
use crate::notify::{Events, Notifier};
use crate::ports::Binding;
use crate::rows::Timer;
use crate::timer::TimerId;
use crate::wire::seq::Seq;
use crate::wire::tcp::{Flags, Segment};
use abi::Errno;
use ktime::Ktime;
use lock_order::{Mutex, MutexGuard, rank};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// TCP in one stack: its sockets, and the keys of Fast Open cookies.
pub(crate) struct Tcp {
    pub(crate) net: Arc<Network>,
    pub(crate) table: Table<TcpSocket>,
    pub(crate) fast_open_keys: FastOpenKeys,
    context: Mutex<Weak<TcpContext>>,
}

/// What a socket needs of its stack. All sockets of a stack share one, which keeps the stack alive.
pub(crate) struct TcpContext {
    pub(crate) net: Arc<Network>,
    pub(crate) tcp: Arc<Tcp>,
    /// Ends the operations of sockets.
    pub(crate) upper: Arc<Upper>,
}

impl Tcp {
    /// The context of sockets. `upper` is the stack itself.
    pub(crate) fn context(self: &Arc<Self>, upper: impl FnOnce() -> Arc<Upper>) -> Arc<TcpContext> {
        let mut place = self.context.lock();
        if let Some(context) = place.upgrade() {
            return context;
        }
        let context = Arc::new(TcpContext { net: self.net.clone(), tcp: self.clone(), upper: upper() });
        *place = Arc::downgrade(&context);
        context
    }

    /// TCP without sockets.
    pub(crate) fn new(net: &Arc<Network>) -> Tcp {
        let fast_open_keys = FastOpenKeys::new(net.keys.fast_open());
        Tcp { net: net.clone(), table: Table::default(), fast_open_keys, context: Mutex::default() }
    }
}

/// A TCP socket; see the module.
pub struct TcpSocket {
    pub(super) stack: Arc<TcpContext>,
    /// True for a socket of family AF_INET6.
    v6: AtomicBool,
    pub(super) notify: OnceLock<Notifier>,
    pub(super) inner: Mutex<Inner, { rank::SOCKET }>,
    pub(super) rx: Arc<Receiver>,
    pub(super) me: Weak<TcpSocket>,
}

/// Holds the lock of a connection.
pub(super) type InnerGuard<'a> = MutexGuard<'a, Inner, { rank::SOCKET }>;
/// Holds the lock of a receive queue.
pub(super) type QueueGuard<'a> = MutexGuard<'a, RxQueue, { rank::RECEIVE_QUEUE }>;

/// The receive queue with what a sender of the same stack needs.
pub(super) struct Receiver {
    pub(super) queue: Mutex<RxQueue, { rank::RECEIVE_QUEUE }>,
    /// The socket that fills the queue directly.
    pub(super) sender: Mutex<Weak<TcpSocket>>,
}

/// Where a sender's bytes go.
pub(super) struct Direct {
    pub(super) queue: Arc<Receiver>,
    pub(super) reader: Weak<TcpSocket>,
    /// What does not fill a segment waits for more (`TCP_CORK`, `MSG_MORE`).
    pub(super) holds: bool,
}

impl Direct {
    /// Room in the reader's queue.
    pub(super) fn room(&self) -> usize {
        let queue = self.queue.queue.lock();
        if queue.direct { queue.room() } else { 0 }
    }
}

/// All but the receive queue.
pub(super) struct Inner {
    pub(super) conn: Conn,
    pub(super) listener: Option<Box<Listener<TcpSocket>>>,
    pub(super) binding: Option<Binding>,
    /// The port was named by bind(2): it stays with the socket when a connection ends.
    pub(super) named: bool,
    /// The address that bind(2) named, which stays as well.
    pub(super) bound: Option<IpAddr>,
    /// The port that went with the last connection: getsockname(2) still shows it.
    pub(super) old_port: u16,
    pub(super) tuple: Option<Tuple>,
    pub(super) path: Option<Path>,
    pub(super) registered: bool,
    /// connect(2) has begun and its result was not asked for yet.
    pub(super) connecting: bool,
    pub(super) read_shut: bool,
    /// The connection is prepared; the first data goes with its SYN, which has this number.
    pub(super) deferred: Option<Seq>,
    timer: Option<TimerId>,
    pub(super) armed: Option<Ktime>,
    waits: bool,
    pub(super) direct: Option<Direct>,
    /// `SO_ATTACH_FILTER`
    pub(super) filter: Option<Arc<dyn Filter>>,
    /// The program of the group that the socket begins when it listens (`SO_ATTACH_REUSEPORT_CBPF`).
    pub(super) program: Option<Program>,
}

impl TcpSocket {
    /// A socket that is not bound.
    pub(crate) fn new(stack: &Arc<TcpContext>, v6: bool, notify: Notifier) -> Arc<TcpSocket> {
        let socket = TcpSocket::with_options(stack, v6, TcpOptions::new(&stack.net.sysctls));
        let _ = socket.notify.set(notify);
        socket
    }

    pub(super) fn with_options(stack: &Arc<TcpContext>, v6: bool, options: TcpOptions) -> Arc<TcpSocket> {
        let net = &stack.net;
        let mut conn = Conn::new(options, &net.sysctls);
        conn.tx = Chain::of(&net.memory, net.pool());
        let inner = Inner {
            conn,
            listener: None,
            binding: None,
            named: false,
            bound: None,
            old_port: 0,
            tuple: None,
            path: None,
            registered: false,
            connecting: false,
            read_shut: false,
            deferred: None,
            timer: None,
            armed: None,
            waits: false,
            direct: None,
            filter: None,
            program: None,
        };
        Arc::new_cyclic(|me| TcpSocket {
            stack: stack.clone(),
            v6: AtomicBool::new(v6),
            notify: OnceLock::new(),
            inner: Mutex::new(inner),
            rx: Arc::new(Receiver {
                queue: Mutex::new(RxQueue::of(&net.memory, net.pool())),
                sender: Mutex::default(),
            }),
            me: me.clone(),
        })
    }

    /// A number that tells sockets apart while they live.
    pub(crate) fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(super) fn tell(&self, events: Events) {
        if !events.is_empty()
            && let Some(notify) = self.notify.get()
        {
            notify.changed(events);
        }
    }

    /// Ends an operation that may have sent packets: processes what they lead to in this stack. No lock may be held.
    pub(super) fn finish(&self, now: Ktime) {
        self.stack.net.links.inbox.finish(&*self.stack.upper, now);
    }

    // Operations on the connection.

    /// Runs `f` on the connection, and does what follows from it. Events are told to the notifier. Bytes that wait for the reader
    /// to fetch them go by packets from now on: the connection may send them, and they must not be fetched as well.
    pub(super) fn run<R>(
        &self,
        inner: &mut Inner,
        now: Ktime,
        f: impl FnOnce(&mut Conn, &mut Cx<'_>) -> R,
    ) -> R {
        let waits = inner.direct.is_some() && !inner.conn.tx.is_empty();
        if waits {
            self.leave_direct(inner);
        }
        self.refresh_path(inner, now);
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let tuple = inner.tuple.unwrap_or((any, any));
        let options = inner.conn.options.for_packets_to(tuple.1.ip());
        let mut packets = super::emit::Packets {
            net: &self.stack.net,
            path: inner.path.as_ref(),
            local: tuple.0,
            remote: tuple.1,
            tos: options.0,
            ttl: options.1,
            dont_fragment: options.2,
            mark: inner.conn.options.ip.mark,
            owner: inner.conn.options.ip.owner(),
            now,
        };
        let mut rx = self.rx.queue.lock();
        let mut cx = Cx {
            now,
            emit: &mut packets,
            rx: &mut rx,
            counters: &self.stack.net.counters.tcp,
            sysctls: &self.stack.net.sysctls,
            events: Events::empty(),
        };
        let result = f(&mut inner.conn, &mut cx);
        if waits {
            inner.conn.output(&mut cx);
        }
        let events = cx.events;
        if let Some(learnt) = inner.conn.fast_open.learnt.take() {
            self.stack.tcp.table.learn(&tuple, &learnt);
        }
        drop(rx);
        self.settle(inner);
        self.tell(events);
        result
    }

    fn refresh_path(&self, inner: &mut Inner, now: Ktime) {
        let Some(tuple) = inner.tuple else { return };
        let generation = self.stack.net.generation();
        let current = inner.path.as_ref().is_some_and(|path| path.generation == generation);
        if current || inner.conn.state == State::Closed {
            return;
        }
        let device = inner.path.as_ref().map_or(0, |path| path.iface.index);
        if let Some(path) = self.path_for(&inner.conn.options, &tuple, device, now) {
            let (mss, gso) = sizes(&path);
            inner.conn.set_path(mss, gso);
            inner.path = Some(path);
        }
    }

    /// The way back to a peer.
    pub(super) fn path_for(
        &self,
        options: &TcpOptions,
        tuple: &Tuple,
        device: u32,
        now: Ktime,
    ) -> Option<Path> {
        let (local, remote) = tuple;
        let scoped = crate::addr::scope(remote.ip()) == crate::addr::Scope::Link;
        let oif = if options.ip.device != 0 || !scoped { options.ip.device } else { device };
        let tos = options.ip.tos_for(remote.ip());
        let key = Key { dst: remote.ip(), src: Some(local.ip()), iif: 0, oif, mark: options.ip.mark, tos };
        self.stack.net.route(&key, now).ok()
    }

    /// Goes back to packets.
    pub(super) fn leave_direct(&self, inner: &mut Inner) {
        let Some(direct) = inner.direct.take() else { return };
        let mut queue = direct.queue.queue.lock();
        queue.direct = false;
        queue.sender_waits = false;
        // The reader's window, as its next acknowledgement would tell it.
        let scaled = inner.conn.agreed.scaled;
        queue.announce(scaled);
        inner.conn.wnd = queue.window();
        inner.conn.max_wnd = inner.conn.max_wnd.max(inner.conn.wnd);
    }

    /// Timers, tables and counts after a change.
    pub(super) fn settle(&self, inner: &mut Inner) {
        let waits = inner.conn.state == State::TimeWait;
        if waits != inner.waits {
            inner.waits = waits;
            count(&self.stack.tcp.table.time_waits, waits);
            let count = self.stack.tcp.table.time_waits.load(Ordering::Relaxed);
            if waits && count > self.stack.net.sysctls.tcp_max_tw_buckets.size() {
                return self.forget(inner);
            }
        }
        if inner.conn.state == State::Closed && inner.registered {
            self.unregister(inner);
        }
        let next = match &inner.listener {
            Some(listener) => listener.deadline,
            None => inner.conn.deadlines.next(),
        };
        let Some(next) = next else { return };
        // A timer that fires early is set anew; one that would fire late must be moved.
        if inner.armed.is_none_or(|armed| next < armed) {
            inner.armed = Some(next);
            let weak = &self.me;
            let id =
                *inner.timer.get_or_insert_with(|| self.stack.net.timers.add(Target::Socket(weak.clone())));
            self.stack.net.timers.arm(id, Some(next));
        }
    }

    /// Ends TIME-WAIT early.
    fn forget(&self, inner: &mut Inner) {
        inner.conn.state = State::Closed;
        inner.conn.deadlines = Default::default();
        self.settle(inner);
    }

    /// Makes room for a new connection with the same addresses, if this one only waits and the peer tells old segments from new ones
    /// by their timestamps (`tcp_tw_reuse`, RFC 6191). Returns where the new one may start to count.
    pub(super) fn recycle(&self, now: Ktime) -> Option<Seq> {
        // The caller holds another connection's lock; two that wait for each other would wait for ever.
        let mut inner = self.inner.try_lock()?;
        let tuple = inner.tuple?;
        let allowed = match self.stack.net.sysctls.tcp_tw_reuse.get() {
            1 => true,
            2 => tuple.1.ip().is_loopback() || tuple.0.ip() == tuple.1.ip(),
            _ => false,
        };
        let conn = &inner.conn;
        let old = conn.agreed.timestamps && now.since(conn.ts_recent_at) >= Duration::from_secs(1);
        if !allowed || conn.state != State::TimeWait || !old {
            return None;
        }
        let start = conn.nxt + 65_537;
        self.forget(&mut inner);
        Some(start)
    }

    fn unregister(&self, inner: &mut Inner) {
        inner.registered = false;
        inner.direct = None;
        if let Some(tuple) = &inner.tuple {
            self.stack.tcp.table.remove(tuple, self);
        }
        let orphan = inner.conn.orphan;
        if orphan {
            count(&self.stack.tcp.table.orphans, false);
        }
        self.let_port_go(inner, orphan);
        if orphan {
            self.rx.queue.lock().clear();
        }
    }

    /// Others may have the port, unless bind(2) named it; `ends` says that the socket ends, and then they may in any case.
    pub(super) fn let_port_go(&self, inner: &mut Inner, ends: bool) {
        if (ends || !inner.named)
            && let Some(binding) = inner.binding.take()
        {
            inner.old_port = binding.port;
            self.stack.tcp.table.release(binding.port, self.id());
        }
    }

    /// True while close(2) with `SO_LINGER` is to wait: the last descriptor is closed, and the peer has not acknowledged the end.
    pub fn lingers(&self) -> bool {
        let inner = self.inner.lock();
        let ending = matches!(inner.conn.state, State::FinWait1 | State::Closing | State::LastAck);
        inner.conn.orphan && ending
    }

    // What the kernel asks.

    /// Readiness for poll(2).
    pub fn readiness(&self) -> Events {
        let mut inner = self.inner.lock();
        if let Some(listener) = &inner.listener {
            return if listener.is_ready() { Events::IN } else { Events::empty() };
        }
        let fresh = inner.conn.state == State::Closed && inner.tuple.is_none();
        let queue = self.rx.queue.lock();
        let low = inner.conn.options.receive_low.max(1);
        let urgent = queue.urgent.is_some_and(|urgent| urgent.byte.is_some() && !urgent.taken);
        let mut events = inner.conn.readiness(queue.available() >= low, queue.fin, inner.read_shut, urgent);
        drop(queue);
        events.set(Events::OUT, events.contains(Events::OUT) || inner.deferred.is_some());
        // A writer that sees no room is notified when there is room.
        inner.conn.write_waits |= !events.contains(Events::OUT);
        // A socket that was never connected polls as hung up (tcp_poll), but not as at its end.
        if fresh { Events::OUT | Events::HUP } else { events }
    }

    /// Takes the pending error (`SO_ERROR`).
    pub fn take_error(&self) -> Option<Errno> {
        self.inner.lock().conn.error.take()
    }

    /// The state.
    pub fn state(&self) -> State {
        self.inner.lock().conn.state
    }

    /// Takes the oldest entry of the error queue (`MSG_ERRQUEUE`).
    pub fn take_notice(&self) -> Option<Notice> {
        self.inner.lock().conn.notices.take()
    }

    /// True when the next byte to read is the urgent one (`SIOCATMARK`).
    pub fn at_mark(&self) -> bool {
        self.rx.queue.lock().at_mark()
    }

    /// True when the urgent byte is there, whether or not it was taken, and every byte before it was read.
    pub fn waits_at_mark(&self) -> bool {
        let queue = self.rx.queue.lock();
        queue.at_mark() && queue.len() > 0
    }

    /// Own address (getsockname(2)), as the socket's family shows it.
    pub fn local(&self) -> SocketAddr {
        let inner = self.inner.lock();
        let any: IpAddr =
            if self.is_v6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let bound = inner.binding.map(|binding| binding.address());
        let own = inner.tuple.map(|tuple| tuple.0).or(bound);
        self.shown(own.unwrap_or(SocketAddr::new(inner.bound.unwrap_or(any), inner.old_port)))
    }

    /// The peer's address (getpeername(2)).
    pub fn remote(&self) -> Result<SocketAddr, Errno> {
        let inner = self.inner.lock();
        let connected =
            !matches!(inner.conn.state, State::Closed | State::SynSent | State::Listen | State::TimeWait);
        inner.tuple.filter(|_| connected).map(|tuple| self.shown(tuple.1)).ok_or(Errno::ENOTCONN)
    }

    /// The peer's address even when the connection is over.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.inner.lock().tuple.map(|tuple| self.shown(tuple.1))
    }

    /// The interface of the way to the peer, 0 without one.
    pub fn device(&self) -> u32 {
        self.inner.lock().path.as_ref().map_or(0, |path| path.iface.index)
    }

    /// Bytes of the send and the receive buffer, overhead included (`SO_SNDBUF`, `SO_RCVBUF`).
    pub fn buffers(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        let options = &inner.conn.options;
        let receive = options.receive_buffer.unwrap_or_else(|| {
            let tuned = 2 * self.rx.queue.lock().capacity;
            tuned.max(self.stack.net.sysctls.tcp_rmem_default.size())
        });
        (options.send_buffer.unwrap_or(inner.conn.tx_limit), receive)
    }

    /// What the send queue counts for in the send buffer.
    pub fn send_charge(&self) -> usize {
        self.inner.lock().conn.tx_charge()
    }

    /// True when acknowledgements are sent at once (`TCP_QUICKACK`).
    pub fn quick_ack(&self) -> bool {
        !self.inner.lock().conn.ack.pingpong
    }

    /// The timer that is set with the time left, and owner and inode.
    pub(crate) fn timer_and_owner(&self, now: Ktime) -> ((Timer, Duration), (u32, u64)) {
        let inner = self.inner.lock();
        let deadlines = &inner.conn.deadlines;
        let left = |at: Ktime| at.since(now);
        let waits = if inner.conn.state == State::TimeWait { Timer::TimeWait } else { Timer::Keepalive };
        let timer = match (deadlines.rtx, deadlines.persist, deadlines.keepalive, deadlines.wait) {
            (Some((at, _)), ..) => (Timer::Retransmission, left(at)),
            (_, Some(at), ..) => (Timer::Probe, left(at)),
            (.., Some(at)) => (waits, left(at)),
            (_, _, Some(at), _) => (Timer::Keepalive, left(at)),
            _ => (Timer::Off, Duration::ZERO),
        };
        let ip = &inner.conn.options.ip;
        (timer, (ip.uid, ip.inode))
    }

    /// The network layer of its stack.
    pub fn network(&self) -> &Arc<Network> {
        &self.stack.net
    }

    fn shown(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(v4) if self.is_v6() => {
                let ip = if v4.is_unspecified() { Ipv6Addr::UNSPECIFIED } else { v4.to_ipv6_mapped() };
                SocketAddr::new(ip.into(), address.port())
            }
            _ => address,
        }
    }

    /// True for a socket of family AF_INET6.
    pub fn is_v6(&self) -> bool {
        self.v6.load(Ordering::Relaxed)
    }

    /// Makes a socket of family AF_INET of one that is connected over IPv4 (`IPV6_ADDRFORM`).
    pub fn become_v4(&self) -> Result<(), Errno> {
        let inner = self.inner.lock();
        if inner.conn.state != State::Established {
            return Err(Errno::ENOTCONN);
        }
        if inner.conn.options.ip.v6only || inner.tuple.is_none_or(|tuple| tuple.1.is_ipv6()) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        self.v6.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The tuple while a connection exists.
    pub(super) fn tuple(inner: &Inner) -> Option<Tuple> {
        inner.tuple
    }

    pub(super) fn read_is_shut(&self) -> bool {
        self.inner.lock().read_shut
    }

    pub(super) fn weak(&self) -> &Weak<TcpSocket> {
        &self.me
    }
}

impl TcpOptions {
    /// Type of service or traffic class, TTL or hop limit, and the don't-fragment flag.
    fn for_packets_to(&self, remote: IpAddr) -> (u8, Option<u8>, bool) {
        let dont_fragment = self.ip.mtu_discovery.forbids_fragments();
        (self.ip.tos_for(remote), self.ip.ttl_for(remote), dont_fragment)
    }
}

impl Drop for TcpSocket {
    fn drop(&mut self) {
        let inner = self.inner.get_mut();
        if let Some(id) = inner.timer.take() {
            self.stack.net.timers.remove(id);
        }
    }
}

impl fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.inner.lock();
        f.debug_struct("TcpSocket").field("state", &inner.conn.state).field("tuple", &inner.tuple).finish()
    }
}

/// The flags of a segment that never gets a reset as its answer.
pub(super) fn is_reset(seg: &Segment) -> bool {
    seg.flags.contains(Flags::RST)
}

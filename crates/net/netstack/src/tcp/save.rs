//! TCP sockets as plain data: what a checkpoint keeps of a socket, and the way back.
//!
//! The sockets of a stack are saved together, while neither a program, a timer nor a device touches the stack, and restored in two
//! steps: first all are put in their places, then they go on. So no socket sends to one that is not there yet.

use super::conn::{Conn, State};
use super::filter::instructions;
use super::listener::{Listener, Request};
use super::rx::RxQueue;
use super::socket::{TcpContext, TcpSocket};
use super::table::{Tuple, count};
use crate::chain::Chain;
use crate::device::capture::Filter;
use crate::notify::Notifier;
use crate::plain;
use crate::ports::Binding;
use crate::wire::seq::Seq;
use abi::Errno;
use ktime::Ktime;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Connections that may wait for accept(2), and half-open ones, of one listener.
const MOST_WAITING: usize = 1 << 16;

/// A socket without its stack, path, timers and notifier. Its times are those of the saved clock: the restored stack's clock goes on
/// from there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TcpState {
    v6: bool,
    conn: Conn,
    /// The send queue.
    #[serde(with = "plain::bytes")]
    sent: Vec<u8>,
    queue: RxQueue,
    /// The receive queue, with what came early.
    #[serde(with = "plain::bytes")]
    received: Vec<u8>,
    /// Bytes of it that are in order.
    in_order: usize,
    tuple: Option<Tuple>,
    binding: Option<Binding>,
    named: bool,
    bound: Option<IpAddr>,
    old_port: u16,
    /// It is in the table of connections.
    registered: bool,
    read_shut: bool,
    connecting: bool,
    deferred: Option<Seq>,
    listener: Option<ListenerState>,
    /// The peer is not of this kernel.
    outside: bool,
    /// The instructions of its filter; none without one.
    #[serde(default)]
    filter: Vec<u8>,
    /// Those of the program that chooses a listener.
    #[serde(default)]
    program: Vec<u8>,
}

/// What a listening socket has beside its options.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ListenerState {
    backlog: usize,
    /// Half-open connections, and whether the peer is not of this kernel.
    requests: Vec<(Tuple, Request, bool)>,
    accept: Vec<TcpState>,
    deadline: Option<Ktime>,
    cookies_at: Option<Ktime>,
}

/// The TCP sockets of a stack as plain data.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TcpSockets {
    /// Those of descriptors, in the order in which they were given.
    pub owned: Vec<TcpState>,
    /// Connections that have no descriptor any more.
    pub orphans: Vec<TcpState>,
}

/// What becomes of connections with hosts outside of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outside {
    /// They go on, where the stack has their address.
    Keep,
    /// They end as with a reset.
    #[default]
    Reset,
    /// The hosts outside have ended them, so there may be none.
    Missing,
}

/// Sockets in their places that do not go on yet.
#[derive(Default)]
pub struct Placed(Vec<Place>);

struct Place {
    socket: Arc<TcpSocket>,
    /// The peer is not of this kernel.
    outside: bool,
    /// Half-open connections with such peers.
    requests: Vec<Tuple>,
    /// The instructions of its filter and of the program of its group.
    programs: [Vec<u8>; 2],
}

impl Placed {
    /// Gives the sockets their filters and programs, which `make` makes of instructions. Comes before [`Placed::go_on`].
    pub fn attach(
        &mut self,
        now: Ktime,
        make: impl Fn(&[u8]) -> Result<Arc<dyn Filter>, Errno>,
    ) -> Result<(), Errno> {
        for place in &mut self.0 {
            let [filter, program] = std::mem::take(&mut place.programs);
            if !filter.is_empty() {
                place.socket.set_filter(now, Some(make(&filter)?));
            }
            if !program.is_empty() {
                // It has no effect where there is no group any more.
                let _ = place.socket.set_group_program(Some(make(&program)?));
            }
        }
        Ok(())
    }

    /// The addresses of a connection with a host outside, if there is one.
    pub fn outside(&self) -> Option<(SocketAddr, SocketAddr)> {
        let mut all = self.0.iter().filter(|place| place.outside);
        all.find_map(|place| Some((place.socket.local(), place.socket.peer()?)))
    }

    /// The sockets go on: timers are set, and what is due is sent. All stacks of the kernel must be there.
    pub fn go_on(self, now: Ktime, outside: Outside) {
        // Ends come first, so that what goes on finds its peer as it is.
        for place in &self.0 {
            let reset = outside == Outside::Reset;
            if reset {
                place.socket.forget_requests(&place.requests);
            }
            if place.outside && (reset || !place.socket.has_address()) {
                place.socket.end(now);
            }
        }
        self.0.iter().for_each(|place| place.socket.go_on(now));
    }
}

impl TcpSocket {
    /// Bytes that go directly to a socket of the same stack go by packets from now on.
    pub(crate) fn use_packets(&self, now: Ktime) {
        let mut inner = self.inner.lock();
        if inner.direct.is_none() {
            return;
        }
        self.leave_direct(&mut inner);
        self.run(&mut inner, now, |conn, cx| conn.output(cx));
        drop(inner);
        self.finish(now);
    }

    /// No descriptor is left.
    pub(crate) fn is_orphan(&self) -> bool {
        self.inner.lock().conn.orphan
    }

    /// The connections that wait for accept(2).
    pub(crate) fn queued_children(&self) -> Vec<Arc<TcpSocket>> {
        let inner = self.inner.lock();
        inner.listener.iter().flat_map(|listener| &listener.accept).cloned().collect()
    }

    /// The socket as it is; it must not be sending directly.
    pub(crate) fn save(&self, outside: &dyn Fn(IpAddr) -> bool) -> TcpState {
        let accept = self.queued_children().iter().map(|child| child.save(outside)).collect();
        let inner = self.inner.lock();
        let queue = self.rx.queue.lock().clone();
        let listener = inner.listener.as_ref().map(|listener| ListenerState {
            backlog: listener.backlog,
            requests: listener
                .requests
                .iter()
                .map(|(tuple, request)| (*tuple, request.clone(), outside(tuple.1.ip())))
                .collect(),
            accept,
            deadline: listener.deadline,
            cookies_at: listener.cookies_at,
        });
        TcpState {
            v6: self.is_v6(),
            sent: inner.conn.tx.image(),
            conn: inner.conn.clone(),
            received: queue.image(),
            in_order: queue.len(),
            queue,
            tuple: inner.tuple,
            binding: inner.binding,
            named: inner.named,
            bound: inner.bound,
            old_port: inner.old_port,
            registered: inner.registered,
            read_shut: inner.read_shut,
            connecting: inner.connecting,
            deferred: inner.deferred,
            listener,
            outside: inner.registered && inner.tuple.is_some_and(|tuple| outside(tuple.1.ip())),
            filter: instructions(inner.filter.as_ref()).unwrap_or_default(),
            program: self.group_program(&inner).unwrap_or_default(),
        }
    }

    /// Puts a saved socket and those that wait in its queue into the tables.
    pub(crate) fn place(
        stack: &Arc<TcpContext>,
        mut saved: TcpState,
        notify: Option<Notifier>,
        placed: &mut Placed,
    ) -> Result<Arc<TcpSocket>, Errno> {
        saved.check().ok_or(Errno::EINVAL)?;
        let socket = TcpSocket::with_options(stack, saved.v6, saved.conn.options.clone());
        if let Some(notify) = notify {
            let _ = socket.notify.set(notify);
        }
        let listener = saved.listener.take();
        let queued = listener.as_ref().map_or(0, |listener| listener.accept.len());
        let mut accept = Vec::with_capacity(queued);
        let mut requests = Vec::new();
        let (listens, mut listener) = match listener {
            Some(saved) => {
                let foreign = saved.requests.iter().filter(|(.., outside)| *outside);
                requests = foreign.map(|(tuple, ..)| *tuple).collect();
                let mut listener = Box::new(Listener::new(saved.backlog));
                (listener.deadline, listener.cookies_at) = (saved.deadline, saved.cookies_at);
                let entries = saved.requests.into_iter();
                listener.requests = entries.map(|(tuple, request, _)| (tuple, request)).collect();
                for child in saved.accept {
                    accept.push(TcpSocket::place(stack, child, None, placed)?);
                }
                (true, Some(listener))
            }
            None => (false, None),
        };
        if let Some(listener) = &mut listener {
            let early = |child: &&Arc<TcpSocket>| child.state() == State::SynReceived;
            listener.fast = accept.iter().filter(early).map(Arc::downgrade).collect();
            listener.accept = accept.into();
        }
        let mut queue = saved.queue;
        queue
            .fill(&saved.received, saved.in_order, (&stack.net.memory, stack.net.pool()))
            .ok_or(Errno::EINVAL)?;
        let mut inner = socket.inner.lock();
        inner.conn = saved.conn;
        inner.conn.tx = Chain::of(&stack.net.memory, stack.net.pool());
        inner.conn.tx.push(&saved.sent);
        inner.conn.count_notices();
        *socket.rx.queue.lock() = queue;
        (inner.tuple, inner.listener) = (saved.tuple, listener);
        (inner.binding, inner.named, inner.bound) = (saved.binding, saved.named, saved.bound);
        (inner.old_port, inner.deferred) = (saved.old_port, saved.deferred);
        (inner.read_shut, inner.connecting) = (saved.read_shut, saved.connecting);
        if let Some(tuple) = saved.tuple.filter(|_| saved.registered) {
            if !stack.tcp.table.insert(tuple, &socket) {
                return Err(Errno::EADDRINUSE);
            }
            inner.registered = true;
            if inner.conn.orphan {
                count(&stack.tcp.table.orphans, true);
            }
        }
        if let Some(binding) = saved.binding {
            stack.tcp.table.inherit(binding, socket.id());
            if listens {
                stack.tcp.table.listen(binding, &socket, None);
            }
        }
        if matches!(inner.conn.state, State::Established | State::CloseWait) {
            stack.net.counters.tcp.curr_estab.bump();
        }
        drop(inner);
        let programs = [saved.filter, saved.program];
        placed.0.push(Place { socket: socket.clone(), outside: saved.outside, requests, programs });
        Ok(socket)
    }

    /// The stack has the connection's own address, or the socket may use any.
    fn has_address(&self) -> bool {
        let inner = self.inner.lock();
        let ip = &inner.conn.options.ip;
        let any = ip.free_bind || ip.transparent;
        any || inner.tuple.is_none_or(|tuple| self.stack.net.is_local(tuple.0.ip()))
    }

    fn forget_requests(&self, tuples: &[Tuple]) {
        if let Some(listener) = &mut self.inner.lock().listener {
            listener.requests.retain(|tuple, _| !tuples.contains(tuple));
        }
    }

    /// Ends a connection whose peer is gone.
    fn end(&self, now: Ktime) {
        let mut inner = self.inner.lock();
        let error = (inner.conn.state != State::TimeWait).then_some(Errno::ECONNRESET);
        inner.deferred = None;
        self.run(&mut inner, now, |conn, cx| conn.finish(cx, error));
    }

    /// Finds the path, sets the timers, and sends what is due.
    fn go_on(&self, now: Ktime) {
        let mut inner = self.inner.lock();
        if inner.registered {
            self.run(&mut inner, now, |conn, cx| conn.on_timer(cx));
        } else {
            self.settle(&mut inner);
        }
        drop(inner);
        self.finish(now);
    }

    /// The socket as plain data, for tests of one.
    #[cfg(test)]
    pub(crate) fn saved(&self) -> TcpState {
        self.leave_direct(&mut self.inner.lock());
        self.save(&|_| false)
    }
}

impl TcpSockets {
    /// Interfaces have other indices in a restored stack.
    pub fn renumber(&mut self, indices: &HashMap<u32, u32>) {
        for socket in self.owned.iter_mut().chain(&mut self.orphans) {
            socket.renumber(indices);
            let waiting = socket.listener.iter_mut().flat_map(|listener| &mut listener.accept);
            waiting.for_each(|child| child.renumber(indices));
        }
    }
}

impl TcpState {
    fn renumber(&mut self, indices: &HashMap<u32, u32>) {
        self.conn.options.ip.renumber(indices);
        if let Some(binding) = &mut self.binding {
            binding.device = indices.get(&binding.device).copied().unwrap_or(binding.device);
        }
    }

    /// Whether a socket can be in this state; a listener's queue is checked as its connections are placed.
    fn check(&mut self) -> Option<()> {
        self.conn.check(self.sent.len())?;
        let listens = self.listener.is_some();
        let state = self.conn.state;
        let open = !matches!(state, State::Closed | State::Listen);
        let fine = listens == (state == State::Listen)
            && self.registered == open
            && !(open && self.tuple.is_none())
            && !(listens && self.binding.is_none())
            && (open || self.sent.is_empty())
            && self.binding.is_none_or(|binding| binding.port != 0)
            && self.conn.tuning.1 <= self.queue.copied;
        let queue = self.listener.as_ref().is_none_or(|listener| {
            listener.accept.len() <= MOST_WAITING
                && listener.requests.len() <= MOST_WAITING
                && listener.backlog <= MOST_WAITING
                && listener.accept.iter().all(|child| child.listener.is_none() && !child.conn.orphan)
                && listener.requests.iter().all(|(_, request, _)| request.retries <= 1 << 16)
        });
        (fine && queue).then_some(())
    }
}

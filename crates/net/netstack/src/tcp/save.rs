//! Connections as plain data: what a checkpoint keeps of a socket, and the way back.

use super::conn::{Conn, State};
use super::rx::RxQueue;
use super::socket::{TcpContext, TcpSocket};
use super::table::{Tuple, count};
use crate::notify::Notifier;
use crate::ports::Binding;
use abi::Errno;
use ktime::Ktime;
use std::net::IpAddr;
use std::sync::Arc;

/// A connection without its stack, path, timers and notifier. Its times are those of the saved clock: the restored stack's clock goes on
/// from there.
#[derive(Clone, Debug)]
pub struct Saved {
    v6: bool,
    conn: Conn,
    queue: RxQueue,
    tuple: Tuple,
    binding: Option<Binding>,
    named: bool,
    bound: Option<IpAddr>,
    read_shut: bool,
    connecting: bool,
}

impl TcpSocket {
    /// The connection as it is; `None` for sockets that never had one (their options and binding say all) and for listeners. It goes
    /// back to packets first, so that nothing is between the two ends of one stack.
    pub fn save(&self) -> Option<Saved> {
        let mut inner = self.inner.lock();
        self.leave_direct(&mut inner);
        let tuple = inner.tuple.filter(|_| inner.conn.state != State::Closed)?;
        let mut queue = self.rx.queue.lock().clone();
        (queue.direct, queue.sender_waits) = (false, false);
        Some(Saved {
            v6: self.is_v6(),
            conn: inner.conn.clone(),
            queue,
            tuple,
            binding: inner.binding,
            named: inner.named,
            bound: inner.bound,
            read_shut: inner.read_shut,
            connecting: inner.connecting,
        })
    }

    /// Puts a connection into a stack that has its address; `EADDRINUSE` when one with the same addresses is there.
    pub(crate) fn restore(
        stack: &Arc<TcpContext>,
        saved: Saved,
        now: Ktime,
        notify: Notifier,
    ) -> Result<Arc<TcpSocket>, Errno> {
        let socket = TcpSocket::new(stack, saved.v6, notify);
        let mut inner = socket.inner.lock();
        inner.conn = saved.conn;
        inner.conn.tx.move_to(&stack.net.memory);
        inner.conn.count_notices();
        inner.tuple = Some(saved.tuple);
        (inner.binding, inner.named, inner.bound) = (saved.binding, saved.named, saved.bound);
        (inner.read_shut, inner.connecting) = (saved.read_shut, saved.connecting);
        *socket.rx.queue.lock() = saved.queue;
        socket.rx.queue.lock().move_to(&stack.net.memory);
        if !stack.tcp.table.insert(saved.tuple, &socket) {
            return Err(Errno::EADDRINUSE);
        }
        inner.registered = true;
        if let Some(binding) = saved.binding {
            stack.tcp.table.inherit(binding, socket.id());
        }
        if matches!(inner.conn.state, State::Established | State::CloseWait) {
            stack.net.counters.tcp.curr_estab.bump();
        }
        if inner.conn.orphan {
            count(&stack.tcp.table.orphans, true);
        }
        // Finds the path, sets the timers, and sends what is due.
        socket.run(&mut inner, now, |conn, cx| conn.on_timer(cx));
        drop(inner);
        socket.finish(now);
        Ok(socket)
    }
}

//! How a connection or a listener ends: shutdown(2), close(2), connect(2) with AF_UNSPEC, sock_diag's SOCK_DESTROY.

use super::conn::{Conn, State};
use super::rx::RxQueue;
use super::socket::{Inner, InnerGuard, TcpSocket};
use super::table::count;
use crate::chain::Chain;
use crate::notify::Events;
use abi::Errno;
use ktime::Ktime;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl TcpSocket {
    /// Closes directions (shutdown(2)).
    pub fn shutdown(&self, now: Ktime, read: bool, write: bool) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        match inner.conn.state {
            State::Closed | State::TimeWait => return Err(Errno::ENOTCONN),
            State::Listen => {
                if read {
                    self.stop_listening(inner, now);
                }
                return Ok(());
            }
            State::SynSent => {
                self.run(&mut inner, now, |conn, cx| conn.finish(cx, Some(Errno::ECONNRESET)));
                return Ok(());
            }
            _ => {}
        }
        if read {
            // What arrives later can still be read (measured).
            inner.read_shut = true;
        }
        if write {
            self.leave_direct(&mut inner);
            self.run(&mut inner, now, |conn, cx| conn.close_write(cx));
        }
        drop(inner);
        self.tell(Events::ANY);
        self.finish(now);
        Ok(())
    }

    /// Dissolves the association (connect(2) with AF_UNSPEC): a connection ends with a reset, a listener stops. The socket can be
    /// used anew, and keeps a port that bind(2) named.
    pub fn disconnect(&self, now: Ktime) {
        let mut inner = self.inner.lock();
        if inner.listener.is_some() {
            return self.stop_listening(inner, now);
        }
        self.leave_direct(&mut inner);
        let open = !matches!(inner.conn.state, State::Closed | State::TimeWait);
        self.run(&mut inner, now, |conn, cx| conn.abort(cx));
        self.let_port_go(&mut inner, false);
        (inner.tuple, inner.path) = (None, None);
        (inner.connecting, inner.read_shut, inner.deferred) = (false, false, None);
        inner.conn = Conn::new(inner.conn.options.clone(), &self.stack.net.sysctls);
        inner.conn.tx = Chain::of(&self.stack.net.memory, self.stack.net.pool());
        inner.conn.error = open.then_some(Errno::ECONNRESET);
        *self.rx.queue.lock() = RxQueue::of(&self.stack.net.memory, self.stack.net.pool());
        drop(inner);
        self.tell(Events::ANY);
        self.finish(now);
    }

    fn stop_listening(&self, mut inner: InnerGuard<'_>, now: Ktime) {
        let Some(mut listener) = inner.listener.take() else { return };
        inner.conn.state = State::Closed;
        let binding = inner.binding;
        self.let_port_go(&mut inner, false);
        drop(inner);
        if let Some(binding) = binding {
            self.stack.tcp.table.unlisten(binding.port, self);
        }
        for child in listener.take_all() {
            child.abort(now);
        }
        self.tell(Events::ANY);
        self.finish(now);
    }

    /// Ends the connection with a reset.
    pub fn abort(&self, now: Ktime) {
        let mut inner = self.inner.lock();
        self.leave_direct(&mut inner);
        inner.conn.orphan = true;
        count(&self.stack.tcp.table.orphans, true);
        if inner.conn.state == State::Closed {
            self.close_dead(&mut inner);
        }
        self.run(&mut inner, now, |conn, cx| conn.abort(cx));
        drop(inner);
        self.finish(now);
    }

    /// Ends the connection with a reset, or stops listening, because an administrator asks for it (sock_diag's SOCK_DESTROY). The
    /// descriptor stays, and its next operation fails with `ECONNABORTED`.
    pub fn destroy(&self, now: Ktime) {
        let mut inner = self.inner.lock();
        if inner.listener.is_some() {
            inner.conn.error = Some(Errno::ECONNABORTED);
            return self.stop_listening(inner, now);
        }
        self.leave_direct(&mut inner);
        self.run(&mut inner, now, |conn, cx| conn.abort(cx));
        inner.conn.error = Some(Errno::ECONNABORTED);
        drop(inner);
        self.tell(Events::ANY);
        self.finish(now);
    }

    /// Ends the socket: the last descriptor is closed. Data that was not read resets the connection (RFC 2525 section 2.17), and so
    /// does `SO_LINGER` with zero; else what was written is still sent. With [`TcpSocket::lingers`] the kernel waits.
    pub fn close(&self, now: Ktime) {
        let mut inner = self.inner.lock();
        if inner.listener.is_some() {
            if let Some(binding) = inner.binding {
                self.stack.tcp.table.release(binding.port, self.id());
            }
            return self.stop_listening(inner, now);
        }
        if inner.conn.orphan {
            return;
        }
        self.leave_direct(&mut inner);
        let unread = {
            let mut queue = self.rx.queue.lock();
            queue.shut = true;
            // What the peer sends from now on comes in packets, and is answered with a reset.
            queue.direct = false;
            queue.len() > 0
        };
        inner.conn.orphan = true;
        inner.conn.options.ip.inode = 0;
        count(&self.stack.tcp.table.orphans, true);
        if inner.conn.state == State::Closed {
            self.close_dead(&mut inner);
            return;
        }
        let counters = &self.stack.net.counters.tcp;
        let crowd = self.stack.tcp.table.orphans.load(Ordering::Relaxed);
        let hard = inner.conn.options.linger == Some(Duration::ZERO);
        if unread && inner.conn.state != State::TimeWait {
            counters.abort_on_close.bump();
        } else if hard {
            counters.abort_on_linger.bump();
        }
        let reset = unread || hard || crowd > self.stack.net.sysctls.tcp_max_orphans.size();
        self.run(&mut inner, now, |conn, cx| match conn.state {
            State::TimeWait => {}
            State::SynSent => conn.finish(cx, None),
            _ if reset => conn.abort(cx),
            _ => {
                conn.close_write(cx);
                conn.wait_in_fin_wait2(cx);
            }
        });
        drop(inner);
        self.finish(now);
    }

    /// The connection is over already: nothing but the port is left.
    fn close_dead(&self, inner: &mut Inner) {
        count(&self.stack.tcp.table.orphans, false);
        if let Some(binding) = inner.binding.take() {
            self.stack.tcp.table.release(binding.port, self.id());
        }
        self.rx.queue.lock().clear();
    }
}

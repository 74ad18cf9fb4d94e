//! Options of a socket that take effect at once, and its timer.

use super::conn::State;
use super::options::TcpOptions;
use super::socket::TcpSocket;
use crate::network::schedule::Expire;
use crate::ports::Binding;
use crate::stamps;
use ktime::Ktime;

impl TcpSocket {
    /// Runs the timers of the socket.
    fn on_timer(&self, now: Ktime) {
        let mut inner = self.inner.lock();
        inner.armed = None;
        if inner.listener.is_some() {
            self.expire_requests(&mut inner, now);
            self.settle(&mut inner);
        } else {
            self.run(&mut inner, now, |conn, cx| conn.on_timer(cx));
        }
    }

    /// Reads or changes options under the socket's lock. Their effects take place at once.
    pub fn configure<R>(&self, now: Ktime, f: impl FnOnce(&mut TcpOptions) -> R) -> R {
        let mut inner = self.inner.lock();
        let result = f(&mut inner.conn.options);
        let options = &inner.conn.options;
        let (inline, window) = (options.oob_inline, options.window_limit(&self.stack.net.sysctls));
        let locked = options.receive_buffer.is_some();
        let packets_only = TcpSocket::needs_packets(&inner);
        if let Some(size) = inner.conn.options.send_buffer {
            inner.conn.tx_limit = size;
        }
        self.release_direct(&mut inner, now);
        let flush = std::mem::take(&mut inner.conn.options.flush);
        inner.conn.pieces.flush |= flush;
        let algorithm = inner.conn.options.congestion;
        inner.conn.cc.algorithm = algorithm;
        if let Some(binding) = inner.binding
            && inner.tuple.is_none()
            && inner.listener.is_none()
        {
            let ip = &inner.conn.options.ip;
            let binding = Binding { reuse_addr: ip.reuse_addr, reuse_port: ip.reuse_port, ..binding };
            inner.binding = Some(binding);
            self.stack.tcp.table.inherit(binding, self.id());
        }
        {
            let mut queue = self.rx.queue.lock();
            queue.inline = inline;
            queue.packets_only = packets_only;
            queue.direct &= !packets_only;
            queue.fixed = locked;
            if locked {
                queue.capacity = window;
            }
        }
        if inner.tuple.is_some() && inner.conn.state != State::Closed {
            self.run(&mut inner, now, |conn, cx| {
                conn.arm_keepalive(cx.now);
                conn.output(cx);
            });
        }
        drop(inner);
        self.finish(now);
        result
    }

    /// Acknowledges at once, or leaves it to the connection's judgement (`TCP_QUICKACK`).
    pub fn set_quick_ack(&self, now: Ktime, quick: bool) {
        let mut inner = self.inner.lock();
        self.run(&mut inner, now, |conn, cx| {
            conn.ack.pingpong = !quick;
            if quick {
                conn.go_quick(cx, 16);
                conn.check_ack(cx);
            }
        });
        drop(inner);
        self.finish(now);
    }

    /// Sets the flags of `SO_TIMESTAMPING`.
    pub fn set_timestamping(&self, now: Ktime, flags: u32) {
        let mut inner = self.inner.lock();
        let conn = &mut inner.conn;
        let fresh = flags & !conn.options.timestamping & stamps::OPT_ID != 0;
        if fresh {
            let written = flags & stamps::OPT_ID_TCP != 0;
            let base = if written { conn.tx_end() } else { conn.una };
            conn.notices.count_from(base);
        }
        conn.options.timestamping = flags;
        if flags & stamps::TX != 0 {
            self.leave_direct(&mut inner);
        }
        drop(inner);
        self.finish(now);
    }
}

impl Expire for TcpSocket {
    fn expire(&self, now: Ktime) {
        self.on_timer(now);
    }
}

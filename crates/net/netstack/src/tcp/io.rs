//! Sending and receiving.

use super::conn::State;
use super::pieces::SendFlags;
use super::socket::{Inner, QueueGuard, TcpSocket};
use crate::buf::Buf;
use crate::chain::{Blocks, Span};
use crate::notify::Events;
use abi::Errno;
use ktime::Ktime;

impl TcpSocket {
    /// Sends bytes (send(2)); returns how many were taken. `EAGAIN` says that there is no room. `more` (`MSG_MORE`) holds a small
    /// segment back.
    pub fn send(&self, now: Ktime, data: &[u8], more: bool) -> Result<usize, Errno> {
        self.send_as(now, data, SendFlags { more, ..SendFlags::default() })
    }

    /// Like [`TcpSocket::send`], with the other flags of send(2).
    pub fn send_as(&self, now: Ktime, data: &[u8], wanted: SendFlags) -> Result<usize, Errno> {
        self.send_span(now, data.into(), wanted)
    }

    /// The same with the bytes of a block from `from` on. The queues keep the block itself, if its bytes fill half of it.
    pub fn send_block(
        &self,
        now: Ktime,
        block: &Buf,
        from: usize,
        wanted: SendFlags,
    ) -> Result<usize, Errno> {
        self.send_span(now, Span::of(block, from), wanted)
    }

    fn send_span(&self, now: Ktime, data: Span<'_>, wanted: SendFlags) -> Result<usize, Errno> {
        let mut inner = self.inner.lock();
        if let Some(iss) = inner.deferred {
            let result = self.open_with_data(&mut inner, now, iss, data.bytes(), wanted.zerocopy);
            drop(inner);
            self.finish(now);
            return result;
        }
        self.may_send(&mut inner)?;
        if wanted.zerocopy && inner.conn.notices.is_full() {
            return Err(Errno::ENOBUFS);
        }
        if let Some(result) = self.send_direct(&mut inner, now, data, wanted) {
            // No packet has taken the acknowledgement along of what the peer sent by packets (TCP_CORK), and the peer
            // may hold back its next small segment until it has it.
            let owed = inner.conn.ack.pending;
            if owed {
                self.run(&mut inner, now, |conn, cx| conn.send_ack(cx));
            }
            drop(inner);
            if owed {
                self.finish(now);
            }
            return result;
        }
        let taken = self.run(&mut inner, now, |conn, cx| conn.write(cx, data, wanted));
        drop(inner);
        self.finish(now);
        if taken == 0 && !data.is_empty() { Err(Errno::EAGAIN) } else { Ok(taken) }
    }

    /// Bytes that a send would take now, at the least.
    pub fn send_room(&self) -> usize {
        let inner = self.inner.lock();
        if inner.conn.is_ahead() {
            return 0;
        }
        let direct = inner.direct.as_ref().map_or(0, |direct| direct.room());
        inner.conn.tx_room() + direct
    }

    /// Sends bytes of which the last is urgent (`MSG_OOB`).
    pub fn send_urgent(&self, now: Ktime, data: &[u8]) -> Result<usize, Errno> {
        let mut inner = self.inner.lock();
        self.may_send(&mut inner)?;
        self.leave_direct(&mut inner);
        let taken = self.run(&mut inner, now, |conn, cx| {
            let n = conn.keep(data.into());
            if n > 0 {
                conn.urge();
            }
            conn.output(cx);
            n
        });
        drop(inner);
        self.finish(now);
        if taken == 0 && !data.is_empty() { Err(Errno::EAGAIN) } else { Ok(taken) }
    }

    /// Errors of sending, in Linux's order.
    fn may_send(&self, inner: &mut Inner) -> Result<(), Errno> {
        let conn = &mut inner.conn;
        match conn.state {
            State::SynReceived if conn.can_send() => {}
            State::SynSent | State::SynReceived => return Err(conn.error.take().unwrap_or(Errno::EAGAIN)),
            _ if conn.can_send() => {}
            _ => return Err(conn.error.take().unwrap_or(Errno::EPIPE)),
        }
        match conn.error.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Receives bytes (recv(2)). Zero is the end of the stream; `EAGAIN` says that nothing is there.
    pub fn receive(&self, now: Ktime, out: &mut [u8], peek: bool) -> Result<usize, Errno> {
        self.receive_from(now, 0, out, peek)
    }

    /// Like [`TcpSocket::receive`]; a peek begins `offset` bytes into the queue (`SO_PEEK_OFF`).
    pub fn receive_from(
        &self,
        now: Ktime,
        offset: usize,
        out: &mut [u8],
        peek: bool,
    ) -> Result<usize, Errno> {
        let mut queue = self.rx.queue.lock();
        let n = queue.read_from(if peek { offset } else { 0 }, out, peek);
        if n == 0 {
            let (fin, empty) = (queue.fin && queue.len() == 0, queue.len() == 0);
            drop(queue);
            // A caller that asks for no bytes is told of what there is instead of some.
            return if empty || !out.is_empty() { self.nothing_to_read(fin) } else { Ok(0) };
        }
        if peek {
            return Ok(n);
        }
        self.after_read(now, queue);
        Ok(n)
    }

    /// Receives up to `most` bytes as the blocks that hold them, without a copy.
    pub fn receive_blocks(&self, now: Ktime, most: usize) -> Result<Blocks, Errno> {
        let mut queue = self.rx.queue.lock();
        let blocks = queue.read_blocks(most);
        if blocks.is_empty() {
            let fin = queue.fin && queue.len() == 0;
            drop(queue);
            return self.nothing_to_read(fin).map(|_| blocks);
        }
        self.after_read(now, queue);
        Ok(blocks)
    }

    /// Puts the end of what [`TcpSocket::receive_blocks`] gave back in front of the queue: its reader had no place for it.
    pub fn put_back(&self, blocks: Blocks) {
        self.rx.queue.lock().put_back(blocks);
        self.tell(Events::IN);
    }

    /// Drops bytes that were not read (`MSG_TRUNC`); returns how many.
    pub fn discard(&self, now: Ktime, n: usize) -> Result<usize, Errno> {
        let mut queue = self.rx.queue.lock();
        let n = queue.discard(n);
        if n == 0 {
            let fin = queue.fin;
            drop(queue);
            return self.nothing_to_read(fin);
        }
        self.after_read(now, queue);
        Ok(n)
    }

    /// Tells the sender of the room that a read has made.
    fn after_read(&self, now: Ktime, queue: QueueGuard<'_>) {
        if queue.direct {
            let waits = queue.sender_waits;
            drop(queue);
            self.stack.net.watch_spares(now);
            if waits {
                self.pull(now);
            }
            return;
        }
        let wants = queue.wants_update() || queue.wants_ack();
        drop(queue);
        if wants {
            let mut inner = self.inner.lock();
            self.run(&mut inner, now, |conn, cx| {
                conn.tune_receive_buffer(cx);
                conn.send_ack(cx);
            });
            drop(inner);
            self.finish(now);
        }
    }

    /// What a read returns that found nothing, in Linux's order: the end, an error, not connected, later.
    fn nothing_to_read(&self, fin: bool) -> Result<usize, Errno> {
        let mut inner = self.inner.lock();
        // The end comes before an error that came after it.
        if fin {
            return Ok(0);
        }
        if let Some(error) = inner.conn.error.take() {
            return Err(error);
        }
        match inner.conn.state {
            State::Listen => Err(Errno::ENOTCONN),
            State::Closed if Self::tuple(&inner).is_none() => Err(Errno::ENOTCONN),
            State::Closed | State::TimeWait => Ok(0),
            _ => {
                drop(inner);
                if self.read_is_shut() { Ok(0) } else { Err(Errno::EAGAIN) }
            }
        }
    }

    /// Receives the urgent byte (`MSG_OOB`): `EINVAL` when there is none, `EAGAIN` when it has not arrived.
    pub fn receive_urgent(&self, peek: bool) -> Result<u8, Errno> {
        let state = self.state();
        let mut queue = self.rx.queue.lock();
        if queue.inline || state == State::Listen {
            return Err(Errno::EINVAL);
        }
        let urgent = queue.urgent.as_mut().filter(|urgent| !urgent.taken).ok_or(Errno::EINVAL)?;
        let byte = urgent.byte.ok_or(Errno::EAGAIN)?;
        urgent.taken = !peek;
        Ok(byte)
    }

    /// Room for writers was made.
    pub(super) fn tell_writable(&self, inner: &mut Inner) {
        if inner.conn.write_waits && inner.conn.is_writable() {
            inner.conn.write_waits = false;
            self.tell(Events::OUT);
        }
    }
}

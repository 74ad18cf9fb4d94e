//! The short way between two sockets of one stack.
//!
//! When everything that was sent is acknowledged, a sender puts further bytes straight into its peer's receive queue: one copy in,
//! one out, no packets. Each direction does so by itself. Sequence numbers move on both sides as if the bytes had been sent and
//! acknowledged, so a connection can go back to packets at any moment: for a FIN, a reset, urgent data, or when something wants
//! to see packets. What does not fit the queue waits in the sender's own buffer, and the reader fetches it.
//!
//! Locks: the sender's connection, then the reader's queue, as on the way by packets. A reader fetches with its queue unlocked first.

use super::conn::{Conn, State};
use super::pieces::SendFlags;
use super::rtt::GIVE_UP_BASE;
use super::rx::RxQueue;
use super::socket::{Direct, Inner, TcpSocket};
use crate::chain::Span;
use crate::network::path::Cast;
use crate::notify::Events;
use crate::stamps;
use abi::Errno;
use ktime::Ktime;
use std::sync::Arc;

/// How far a receive queue grows when its sender and its reader are both of this stack: enough for both to be busy at once.
const WINDOW: usize = 256 << 10;

impl TcpSocket {
    /// Sends without packets, if that is possible.
    pub(super) fn send_direct(
        &self,
        inner: &mut Inner,
        now: Ktime,
        data: Span<'_>,
        wanted: SendFlags,
    ) -> Option<Result<usize, Errno>> {
        if self.stack.net.taps.watchers.any() || inner.conn.options.timestamping & stamps::TX != 0 {
            self.leave_direct(inner);
            return None;
        }
        if inner.direct.is_none() && !self.enter_direct(inner) {
            return None;
        }
        let holds = inner.conn.options.cork || wanted.more;
        let (mut moved, mut drained) = (0, false);
        let reader = {
            let direct = inner.direct.as_mut()?;
            direct.holds = holds;
            let mut queue = direct.queue.queue.lock();
            if queue.direct {
                let held = held_back(&inner.conn, data.len(), holds);
                // Bytes that are not held back now were held back before.
                drained = drain(&mut inner.conn, &mut queue, held.saturating_sub(data.len()), now);
                let ready = data.len().saturating_sub(held);
                if inner.conn.tx.is_empty() {
                    if queue.room() < ready {
                        queue.grow(WINDOW.min(self.stack.net.sysctls.tcp_rmem_max.size() / 2));
                    }
                    moved = ready.min(queue.room());
                    data.part(0, moved).into_iter().for_each(|part| queue.push(part));
                    note_moved(&mut inner.conn, moved, now);
                }
                queue.sender_waits = moved < ready || inner.conn.tx.len() > held.saturating_sub(data.len());
                direct.reader.upgrade()
            } else {
                None
            }
        };
        let Some(reader) = reader else {
            // The reader has closed its end: packets tell the rest.
            self.leave_direct(inner);
            return None;
        };
        let kept = data.part(moved, data.len()).map_or(0, |rest| inner.conn.keep(rest));
        let taken = moved + kept;
        if wanted.zerocopy && taken > 0 {
            inner.conn.note_zerocopy(now);
        }
        if inner.conn.notices.is_ready() {
            self.tell(Events::ERR);
        }
        self.time_held(inner, now);
        if moved > 0 || drained {
            reader.tell(Events::IN);
        }
        Some(if taken == 0 && !data.is_empty() { Err(Errno::EAGAIN) } else { Ok(taken) })
    }

    /// Options have changed: what was held back moves, unless the socket is corked still and was not told to send.
    pub(super) fn release_direct(&self, inner: &mut Inner, now: Ktime) {
        let corked = inner.conn.options.cork && !inner.conn.options.flush;
        if corked || inner.conn.tx.is_empty() {
            return;
        }
        let Some(direct) = &mut inner.direct else { return };
        direct.holds = false;
        let mut queue = direct.queue.queue.lock();
        if !queue.direct {
            return;
        }
        let moved = drain(&mut inner.conn, &mut queue, 0, now);
        queue.sender_waits = !inner.conn.tx.is_empty();
        drop(queue);
        let reader = direct.reader.upgrade();
        self.time_held(inner, now);
        if moved && let Some(reader) = reader {
            reader.tell(Events::IN);
        }
    }

    /// Sets the timer that ends the wait of bytes that are held back: 200 ms (tcp(7)), then they go by packets.
    fn time_held(&self, inner: &mut Inner, now: Ktime) {
        let holds = inner.direct.as_ref().is_some_and(|direct| direct.holds);
        if !holds || inner.conn.tx.is_empty() {
            inner.conn.deadlines.persist = None;
        } else if inner.conn.deadlines.persist.is_none() {
            inner.conn.deadlines.probing_since = now;
            inner.conn.deadlines.persist = Some(now.plus(GIVE_UP_BASE));
            self.settle(inner);
        }
    }

    /// Begins to send directly when both ends are of this stack and nothing is under way.
    fn enter_direct(&self, inner: &mut Inner) -> bool {
        let conn = &inner.conn;
        let local = inner.path.as_ref().is_some_and(|path| path.cast == Cast::Local);
        let quiet =
            conn.board.is_empty() && conn.tx.is_empty() && conn.una == conn.nxt && conn.urgent.is_none();
        if !local || !quiet || !conn.can_send() || conn.options.max_pacing_rate != u64::MAX {
            return false;
        }
        let Some((own, other)) = Self::tuple(inner) else { return false };
        let Some(reader) = self.stack.tcp.table.find(&(other, own)) else { return false };
        if std::ptr::eq(&*reader, self) {
            return false;
        }
        let mut queue = reader.rx.queue.lock();
        if !queue.established
            || queue.packets_only
            || queue.nxt != conn.nxt
            || queue.has_early()
            || queue.fin
            || queue.shut
            || queue.urgent.is_some()
        {
            return false;
        }
        queue.direct = true;
        queue.sender_waits = false;
        *reader.rx.sender.lock() = self.weak().clone();
        drop(queue);
        inner.direct =
            Some(Direct { queue: reader.rx.clone(), reader: Arc::downgrade(&reader), holds: false });
        true
    }

    /// The reader has made room: fetches what waits at the sender.
    pub(super) fn pull(&self, now: Ktime) {
        let Some(sender) = self.rx.sender.lock().upgrade() else { return };
        let mut inner = sender.inner.lock();
        let direct = inner.direct.as_ref().map(|direct| (direct.queue.clone(), direct.holds));
        let Some((direct, holds)) = direct else { return };
        let moved = {
            let mut queue = direct.queue.lock();
            if !queue.direct {
                return;
            }
            let held = held_back(&inner.conn, 0, holds);
            let moved = drain(&mut inner.conn, &mut queue, held, now);
            let blocked = inner.conn.write_waits && !inner.conn.is_writable();
            queue.sender_waits = inner.conn.tx.len() > held || blocked;
            moved
        };
        sender.tell_writable(&mut inner);
        if inner.conn.notices.is_ready() {
            sender.tell(Events::ERR);
        }
        drop(inner);
        if moved {
            self.tell(Events::IN);
        }
    }
}

/// How many of the last bytes of the stream, `more` bytes after those of the send buffer included, wait for more: what does
/// not fill a segment. Nothing waits that the send buffer has no room for.
fn held_back(conn: &Conn, more: usize, holds: bool) -> usize {
    let part = (conn.tx.len() + more) % conn.mss() as usize;
    if holds && part <= conn.tx.len() + conn.tx_room() { part } else { 0 }
}

/// Moves what waits in the send buffer, but for the last `held` bytes; true when something moved.
fn drain(conn: &mut Conn, queue: &mut RxQueue, held: usize, now: Ktime) -> bool {
    let n = conn.tx.len().saturating_sub(held).min(queue.room());
    let blocks = conn.tx.peek(0, n);
    conn.tx.consume(n);
    blocks.iter().for_each(|block| queue.push(Span::of(block, 0)));
    note_moved(conn, n, now);
    n > 0
}

/// Sequence numbers and counts after `n` bytes: sent and acknowledged.
fn note_moved(conn: &mut Conn, n: usize, now: Ktime) {
    if n == 0 {
        return;
    }
    let segments = (n as u32).div_ceil(conn.mss());
    conn.nxt += n as u32;
    (conn.una, conn.tx_seq) = (conn.nxt, conn.nxt);
    conn.small_end = conn.nxt;
    conn.forget_pieces();
    conn.notices.acknowledged(conn.una, now);
    conn.max_out_end = conn.nxt;
    let stats = &mut conn.stats;
    stats.bytes_sent += n as u64;
    stats.bytes_acked += n as u64;
    stats.delivered += u64::from(segments);
    stats.segs_out = stats.segs_out.wrapping_add(segments);
    stats.data_segs_out = stats.data_segs_out.wrapping_add(segments);
    (stats.last_sent, stats.last_ack) = (now, now);
    debug_assert!(conn.state != State::Closed);
}

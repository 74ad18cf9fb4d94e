//! What is written and not sent: pieces that become one large segment at most, and when each may go (RFC 9293 section 3.7.4,
//! RFC 1122 section 4.2.3.4).
//!
//! The boundaries of pieces are seen on the wire: PSH ends one, and pieces are not joined. A piece is as large as a large segment
//! may be, so that the queue has few of them.

use super::board::{Mark, Sent};
use super::chrono::Limit;
use super::conn::{Conn, Cx, State};
use super::phase::{Ca, Frto};
use super::pieces::{Piece, Pieces, Push, SendFlags};
use crate::chain::Span;
use crate::notify::Events;
use crate::stamps;
use crate::sysctl::Sysctls;
use crate::wire::seq::Seq;
use ktime::Ktime;
use std::time::Duration;

/// What pacing lets go ahead of its time.
const PACING_BURST: Duration = Duration::from_millis(1);
/// Sending that paused for longer than this is not held back to make larger segments.
const DEFER: Duration = Duration::from_millis(1);
/// Bytes that the device takes at once, before headers.
const LARGEST: u64 = 65_536;
/// The part of a second in which the pacing rate gives one large segment, as a shift.
const RATE_SHIFT: u32 = 10;
/// Short paths get larger segments: one half for each doubling of this many microseconds, as a shift.
const RTT_SHIFT: u32 = 9;
/// Pieces that end where the program said so. Further ones are joined.
const MOST_PIECES: usize = 4096;

impl Conn {
    /// Takes bytes to send and sends what may go; returns how many were taken.
    pub(crate) fn write(&mut self, cx: &mut Cx<'_>, data: Span<'_>, wanted: SendFlags) -> usize {
        self.cut_queue();
        let goal = self.size_goal();
        let mut taken = 0;
        let mut blocked = false;
        while taken < data.len() {
            let old = self.room_in_last(goal);
            let space = self.scarce_room();
            if old == 0 && (self.is_ahead() || !self.may_begin()) || space == 0 {
                blocked = true;
                break;
            }
            let most = if old > 0 { old } else { goal as usize };
            let n = (data.len() - taken).min(most).min(space);
            let Some(part) = data.part(taken, taken + n) else { break };
            self.append(part, old > 0, taken == 0);
            taken += n;
            if taken < data.len() && self.room_in_last(goal) == 0 {
                self.send_full(cx);
            }
        }
        self.write_waits |= blocked;
        if taken == 0 {
            return 0;
        }
        if wanted.zerocopy {
            self.note_zerocopy(cx.now);
        }
        if self.options.timestamping & stamps::TX != 0 {
            let before = self.pieces.list.iter().rev().nth(1).map_or(self.nxt, |piece| piece.end);
            self.notices.add_mark(before, self.tx_end(), self.options.timestamping);
        }
        if blocked {
            self.mark_push();
            self.send_new(cx, Push::All);
        }
        if let Some(last) = self.pieces.list.back_mut() {
            last.whole |= wanted.whole && !blocked;
        }
        if !wanted.more || self.is_push_due() {
            self.mark_push();
        }
        self.output_as(cx, Push::Usual { more: wanted.more });
        taken
    }

    /// Sends what may be sent: lost segments first, then new data.
    pub(crate) fn output(&mut self, cx: &mut Cx<'_>) {
        self.output_as(cx, Push::Usual { more: false });
    }

    /// Like [`Conn::output`]; `how` says what becomes of a small segment.
    pub(crate) fn output_as(&mut self, cx: &mut Cx<'_>, how: Push) {
        if matches!(self.state, State::Closed | State::Listen | State::SynSent | State::TimeWait) {
            return;
        }
        let waits = self.recovery.state == Ca::Loss && self.recovery.frto == Frto::Second;
        if matches!(self.recovery.state, Ca::Recovery | Ca::Loss) && !waits {
            self.retransmit_lost(cx);
        }
        self.send_new(cx, how);
        if self.write_waits && self.is_writable() {
            self.write_waits = false;
            cx.events |= Events::OUT;
        }
        self.check_persist(cx.now);
    }

    /// Keeps bytes for later, without sending.
    pub(crate) fn keep(&mut self, data: Span<'_>) -> usize {
        let n = data.len().min(self.tx_room());
        if let Some(part) = data.part(0, n) {
            self.tx.push_span(part);
        }
        self.write_waits |= n < data.len();
        n
    }

    /// Follows the memory of a call with `MSG_ZEROCOPY`. What went without segments is free at once.
    pub(crate) fn note_zerocopy(&mut self, now: Ktime) {
        self.notices.add_zerocopy(self.tx_end());
        self.notices.acknowledged(self.una, now);
    }

    /// The error queue counts in the memory of the stack that the send queue belongs to.
    pub(crate) fn count_notices(&mut self) {
        self.notices.join(self.tx.charge());
    }

    /// So much waits to be sent that nothing more is queued (`TCP_NOTSENT_LOWAT`).
    pub(crate) fn is_ahead(&self) -> bool {
        let low = self.options.notsent_low;
        self.unsent() >= if low == 0 { self.notsent_default } else { low }
    }

    /// Room in the last piece.
    fn room_in_last(&self, goal: u32) -> usize {
        let Some(last) = self.pieces.list.back() else { return 0 };
        let before = self.pieces.list.len().checked_sub(2).and_then(|n| self.pieces.list.get(n));
        let start = before.map_or(self.nxt, |piece| piece.end);
        let crowded = self.pieces.list.len() >= MOST_PIECES;
        if last.whole && !crowded {
            return 0;
        }
        goal.saturating_sub(last.end - start) as usize
    }

    fn append(&mut self, data: Span<'_>, join: bool, first: bool) {
        self.tx.push_span(data);
        let end = self.tx_end();
        match self.pieces.list.back_mut().filter(|_| join) {
            Some(last) => {
                last.end = end;
                last.push &= !first;
            }
            None => {
                self.pieces.flush = false;
                self.pieces.list.push_back(Piece { end, push: false, whole: false });
            }
        }
    }

    /// A piece is complete and more follows.
    fn send_full(&mut self, cx: &mut Cx<'_>) {
        if self.is_push_due() {
            self.mark_push();
            self.send_new(cx, Push::All);
        } else if self.pieces.list.len() == 1 {
            self.send_new(cx, Push::One);
        }
    }

    /// Half a window went without PSH.
    fn is_push_due(&self) -> bool {
        self.tx_end().after(self.pieces.pushed + self.max_wnd / 2)
    }

    fn mark_push(&mut self) {
        self.pieces.pushed = self.tx_end();
        if let Some(last) = self.pieces.list.back_mut() {
            last.push = true;
        }
    }

    /// Starts to count from here.
    pub(crate) fn start_queue(&mut self, at: Seq) {
        self.pieces = Pieces { pushed: at, ..Pieces::default() };
    }

    /// What is queued moved without segments; its pieces are made anew when they are needed.
    pub(crate) fn forget_pieces(&mut self) {
        self.pieces.list.clear();
        self.pieces.pushed = self.nxt;
    }

    /// Makes pieces of bytes that have none: they were kept without sending.
    fn cut_queue(&mut self) {
        let mut at = self.pieces.list.back().map_or(self.nxt, |last| last.end);
        if !at.before(self.tx_end()) {
            return;
        }
        let goal = self.size_goal();
        while at.before(self.tx_end()) {
            at = (at + goal).min(self.tx_end());
            self.pieces.list.push_back(Piece { end: at, push: false, whole: false });
        }
        self.mark_push();
    }

    /// Bytes of a piece: what the device cuts at once, but no more than half the peer's largest window.
    fn size_goal(&self) -> u32 {
        let mss = self.mss();
        let half = if self.max_wnd > 536 { self.max_wnd / 2 } else { self.max_wnd };
        let most = if half > 0 { self.gso.min(half.max(28)) } else { self.gso };
        (most / mss * mss).max(mss)
    }

    /// Segments in a large one: what the pacing rate sends in a millisecond, more on short paths.
    pub(crate) fn tso_segs(&self, sysctls: &Sysctls, mss: u32) -> u32 {
        let mut bytes = self.pacing_rate(sysctls) >> RATE_SHIFT;
        if let Some(least) = self.rtt.min_rtt() {
            let halvings = least.as_micros() >> RTT_SHIFT;
            bytes += if halvings < 32 { LARGEST >> halvings } else { 0 };
        }
        let segs = bytes.min(self.gso.into()) / u64::from(mss);
        (segs as u32).max(sysctls.tcp_min_tso_segs.size() as u32)
    }

    /// Bytes per second that the window and the round-trip time give, with some room.
    pub(crate) fn pacing_rate(&self, sysctls: &Sysctls) -> u64 {
        if self.cc.bbr.pacing_rate > 0 {
            return self.cc.bbr.pacing_rate.min(self.options.max_pacing_rate);
        }
        let micros = self.rtt.srtt.as_micros().max(1) as u64;
        if self.rtt.srtt.is_zero() {
            return self.options.max_pacing_rate;
        }
        let growing = self.cc.cwnd < self.cc.ssthresh / 2;
        let percent = if growing { &sysctls.tcp_pacing_ss_ratio } else { &sysctls.tcp_pacing_ca_ratio };
        let window = u64::from(self.mss()) * u64::from(self.cc.cwnd.max(self.board.out));
        let rate = window.saturating_mul(10_000 * percent.size() as u64) / micros;
        rate.min(self.options.max_pacing_rate)
    }

    /// Sends new data as far as the windows allow.
    pub(crate) fn send_new(&mut self, cx: &mut Cx<'_>, how: Push) {
        self.restart_after_idle(cx);
        self.cut_queue();
        let mss = self.mss();
        let segs = self.tso_segs(cx.sysctls, mss);
        let (before, mut limited, mut rwnd_limited) = (self.nxt, false, false);
        if self.unsent() > 0 {
            self.chrono.start(Limit::Busy, cx.now);
        }
        while self.unsent() > 0 || self.fin_unsent() {
            let quota = self.cc.cwnd.saturating_sub(self.board.in_flight()).min((self.cc.cwnd / 2).max(1));
            if quota == 0 {
                break;
            }
            let Some(len) = self.next_len(cx, how, (segs, quota), &mut limited) else {
                rwnd_limited = self.room_for_sending() < self.unsent().min(mss);
                break;
            };
            if !self.pace(cx.now, len) {
                break;
            }
            self.send_piece(cx, len);
            if how == Push::One {
                break;
            }
        }
        if self.nxt != before {
            if self.deadlines.rtx.is_none() {
                self.arm_rto(cx.now);
            }
            self.schedule_probe(cx);
        }
        match rwnd_limited {
            true => self.chrono.start(Limit::Window, cx.now),
            false => self.chrono.stop(Limit::Window, cx.now, false),
        }
        limited |= self.board.in_flight() >= self.cc.cwnd;
        if self.nxt != before || limited {
            self.note_use_of_window(limited);
            if self.write_waits && self.unsent() == 0 && !self.is_window_used() {
                self.chrono.start(Limit::Buffer, cx.now);
            }
        }
    }

    /// What the peer's window has room for.
    fn room_for_sending(&self) -> u32 {
        (self.una + self.wnd).since(self.nxt)
    }

    /// Bytes of the next segment; zero is a FIN alone, `None` means that nothing may be sent now.
    fn next_len(&self, cx: &Cx<'_>, how: Push, (segs, quota): (u32, u32), limited: &mut bool) -> Option<u32> {
        let Some(piece) = self.pieces.list.front() else { return Some(0) };
        let (mss, len) = (self.mss(), piece.end - self.nxt);
        let last = self.pieces.list.len() == 1;
        let window = self.room_for_sending();
        if window < len.min(mss) {
            return None;
        }
        let pushes = how == Push::All || !last || self.pieces.flush;
        if len <= mss {
            return (pushes || self.may_send_small(how, len < mss)).then_some(len);
        }
        if how != Push::One && self.should_wait(cx, (len, window), last, segs, limited) {
            return None;
        }
        if self.urgent.is_some() || self.gso == 0 {
            return Some(mss);
        }
        let most = mss.saturating_mul(segs.min(quota));
        if most <= window && !last {
            return Some(most.min(len));
        }
        let needed = len.min(window);
        if most <= needed {
            return Some(most);
        }
        let part = needed % mss;
        let small = pushes || part == 0 || self.obeys_nagle(how);
        Some(if small { needed } else { needed - part })
    }

    /// Whether a segment that is not full may go; urgent data and the end of the stream may.
    fn may_send_small(&self, how: Push, part: bool) -> bool {
        let urgent = self.urgent.is_some_and(|at| at.after(self.nxt));
        !part || self.fin_queued || urgent || self.obeys_nagle(how)
    }

    /// Nagle's rule with Minshall's change: one small segment at a time, none while the socket is corked.
    fn obeys_nagle(&self, how: Push) -> bool {
        if self.options.cork || how == (Push::Usual { more: true }) {
            return false;
        }
        let outstanding = self.small_end.after(self.una) && self.small_end.upto(self.nxt);
        self.options.nodelay || self.board.out == 0 || !outstanding
    }

    /// Whether a larger segment is worth waiting for: the next acknowledgement comes soon and lets more of it go.
    fn should_wait(
        &self,
        cx: &Cx<'_>,
        (len, window): (u32, u32),
        last: bool,
        segs: u32,
        limited: &mut bool,
    ) -> bool {
        let recovering = matches!(self.recovery.state, Ca::Recovery | Ca::Loss);
        if recovering || cx.now.since(self.stats.last_sent) > DEFER {
            return false;
        }
        let mss = self.mss();
        let cwnd = self.cc.cwnd.saturating_sub(self.board.in_flight()).saturating_mul(mss);
        let limit = window.min(cwnd);
        if limit >= segs.saturating_mul(mss) || (!last && limit >= len) {
            return false;
        }
        let enough = match cx.sysctls.tcp_tso_win_divisor.size() as u32 {
            0 => limit > 3 * mss,
            divisor => limit >= self.wnd.min(self.cc.cwnd.saturating_mul(mss)) / divisor,
        };
        let Some(first) = self.board.front().filter(|_| !enough) else { return false };
        if cx.now.since(first.at) < self.rtt.srtt / 2 {
            return false;
        }
        if cwnd < window && cwnd <= len {
            *limited = true;
            return true;
        }
        if cwnd >= window && window <= len {
            return true;
        }
        let piece = self.pieces.list.front();
        !(self.fin_queued && last || piece.is_some_and(|piece| piece.whole))
    }

    /// Remembers how much of the congestion window is used: only a window that was the limit grows.
    fn note_use_of_window(&mut self, limited: bool) {
        let packets = self.board.out;
        if !self.una.before(self.max_out_end) || limited || (!self.cwnd_limited && packets > self.max_out) {
            (self.cwnd_limited, self.max_out, self.max_out_end) = (limited, packets, self.nxt);
        }
    }

    /// True when the congestion window was the limit.
    pub(crate) fn is_window_used(&self) -> bool {
        self.cwnd_limited || (self.cc.in_slow_start() && self.cc.cwnd < 2 * self.max_out)
    }

    /// True when the pacing rate allows a segment; else the pacing timer is set.
    fn pace(&mut self, now: Ktime, len: u32) -> bool {
        let model = match self.cc.bbr.pacing_rate {
            0 => u64::MAX,
            rate => rate,
        };
        let rate = self.options.max_pacing_rate.min(model);
        if rate == u64::MAX || rate == 0 {
            return true;
        }
        // A millisecond's worth may go at once: timers are no finer.
        let next = self.deadlines.pace_at.max(now);
        if next > now.plus(PACING_BURST) {
            self.deadlines.pace = Some(next);
            return false;
        }
        let nanos = u128::from(len) * 1_000_000_000 / u128::from(rate);
        let gap = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.deadlines.pace_at = next.plus(gap);
        true
    }

    /// Sends the first bytes of the queue, as far as they go; the last take the FIN along.
    pub(crate) fn send_piece(&mut self, cx: &mut Cx<'_>, len: u32) {
        let end = self.nxt + len;
        let mss = self.mss();
        let piece = self.pieces.list.front().copied();
        let push = piece.is_some_and(|piece| piece.push && piece.end == end);
        if piece.is_some_and(|piece| piece.end == end) {
            self.pieces.list.pop_front();
        }
        let fin = self.fin_queued && end == self.tx_end();
        let total = len + u32::from(fin);
        if !len.is_multiple_of(mss) {
            self.small_end = end;
        }
        if self.board.is_empty() {
            (self.stats.flight_start, self.stats.delivered_at) = (cx.now, cx.now);
        }
        let limited = end == self.tx_end() && self.board.in_flight() < self.cc.cwnd;
        let mut mark = if limited { Mark::APP_LIMITED } else { Mark::empty() };
        mark.set(Mark::PUSH, push);
        self.board.push(Sent {
            seq: self.nxt,
            end: self.nxt + total,
            packets: len.div_ceil(mss).max(1),
            at: cx.now,
            mark,
            delivered: self.stats.delivered,
            delivered_at: self.stats.delivered_at,
            flight_start: self.stats.flight_start,
        });
        let seq = self.nxt;
        self.nxt += total;
        if self.notices.is_marked(end) {
            let from = (seq - self.tx_seq) as usize;
            let tuned = (2 * cx.rx.capacity).max(cx.sysctls.tcp_rmem_default.size());
            self.notices.set_limit(self.options.receive_buffer.unwrap_or(tuned));
            self.count_notices();
            self.notices.sent(end, &self.tx.peek(from, len as usize), cx.now);
            cx.events |= crate::notify::Events::ERR;
        }
        self.send_range(cx, (seq, len), (fin, push), false);
    }

    /// The largest segment that the window allows, for a probe of the window.
    pub(crate) fn send_what_fits(&mut self, cx: &mut Cx<'_>, room: u32) {
        self.cut_queue();
        let len = self.pieces.list.front().map_or(0, |piece| piece.end - self.nxt);
        let n = len.min(room).min(self.mss());
        if let Some(piece) = self.pieces.list.front_mut().filter(|_| n == len) {
            piece.push = true;
        }
        self.send_piece(cx, n);
    }
}

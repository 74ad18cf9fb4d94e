//! What a segment does to a connection (RFC 9293 section 3.10.7, RFC 5961, RFC 7323 section 5).

use super::conn::{Conn, Cx, Learnt, State};
use super::rx::Accepted;
use crate::chain::Span;
use crate::notify::Events;
use crate::wire::seq::Seq;
use crate::wire::tcp::{Flags, Range, Segment};
use abi::Errno;
use ktime::Ktime;
use std::time::Duration;

/// After this time a timestamp of the peer says nothing (RFC 7323 section 5.5).
const TS_EXPIRY: Duration = Duration::from_secs(24 * 86_400);

/// How long the acknowledgement of a SYN-ACK waits for data.
const SYN_ACK_DELAY: Duration = Duration::from_millis(200);

/// How long TIME-WAIT lasts.
pub(crate) const TIME_WAIT: Duration = Duration::from_secs(60);

/// What the stack is to do after a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Done,
    /// Answer with a reset: no reader is left for the data, or the acknowledgement is not for a segment of this side.
    Reset,
    /// A SYN opens the connection anew; the listener gets it.
    Reopen,
}

impl Conn {
    /// Takes a segment. `congested` says that a router marked it.
    pub(crate) fn on_segment(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        data: Span<'_>,
        congested: bool,
    ) -> Verdict {
        self.stats.segs_in = self.stats.segs_in.wrapping_add(1);
        match self.state {
            State::Closed | State::Listen => Verdict::Reset,
            State::SynSent => self.in_syn_sent(cx, seg, data),
            State::TimeWait => self.in_time_wait(cx, seg, data.len()),
            _ => self.synchronised(cx, seg, data, congested),
        }
    }

    fn in_syn_sent(&mut self, cx: &mut Cx<'_>, seg: &Segment, data: Span<'_>) -> Verdict {
        let flags = seg.flags;
        if flags.contains(Flags::ACK) {
            let wrong_ts = seg.options.timestamps.is_some_and(|(_, echo)| {
                let since = self.ts_now(cx.now).wrapping_sub(self.syn_ts);
                echo != 0 && echo.wrapping_sub(self.syn_ts) > since
            });
            let ours = seg.ack.after(self.iss) && seg.ack.upto(self.nxt);
            if !ours || wrong_ts {
                return if flags.contains(Flags::RST) { Verdict::Done } else { Verdict::Reset };
            }
            if flags.contains(Flags::RST) {
                cx.counters.attempt_fails.bump();
                self.finish(cx, Some(Errno::ECONNREFUSED));
                return Verdict::Done;
            }
        }
        if flags.contains(Flags::RST) || !flags.contains(Flags::SYN) {
            return Verdict::Done;
        }
        let asked = self.agreed.ecn;
        self.agree(cx, seg);
        if !flags.contains(Flags::ACK) {
            // Simultaneous open (section 3.5).
            self.agreed.ecn = asked && flags.contains(Flags::ECE | Flags::CWR);
            self.state = State::SynReceived;
            cx.rx.announce(false);
            self.fast_open.cookie = None;
            self.send_syn(cx);
            return Verdict::Done;
        }
        self.agreed.ecn = asked && flags.contains(Flags::ECE) && !flags.contains(Flags::CWR);
        let sent_at = self.board.front().map(|sent| (sent.at, sent.mark.contains(super::board::Mark::EVER)));
        self.board.acknowledge(seg.ack, |_| ());
        self.una = seg.ack;
        self.stats.bytes_acked += u64::from(seg.ack - self.iss);
        self.stats.delivered = 1;
        let again = self.take_fast_open(cx, seg);
        self.notices.acknowledged(self.una, cx.now);
        if let Some((at, false)) = sent_at {
            self.rtt.sample(cx.now.since(at), cx.now);
        } else {
            // RFC 6298 section 5.7; one repetition may have been needless.
            self.cc.cwnd = if self.stats.total_retrans > 1 { 1 } else { self.cc.cwnd };
        }
        self.rtt.backoff = 0;
        self.deadlines.rtx = None;
        self.recovery.forget();
        self.establish(cx);
        if self.fast_open.used && !again {
            cx.rx.announce(false);
            self.take_data(cx, &Segment { seq: seg.seq + 1, ..*seg }, data);
        }
        if again {
            self.output(cx);
        } else if self.write_pending && !self.ack.now {
            // A writer waits for the connection: its data acknowledges the SYN.
            self.ack.pending = true;
            self.ack.ato = super::output::ATO_MIN;
            self.go_quick(cx, 16);
            self.deadlines.delack = Some(cx.now.plus(SYN_ACK_DELAY));
        } else {
            self.send_ack(cx);
            self.output(cx);
        }
        Verdict::Done
    }

    /// What the SYN-ACK says about Fast Open: a cookie for the next time, and whether the data was taken. If not, it is sent again like
    /// new data; true then.
    fn take_fast_open(&mut self, cx: &Cx<'_>, seg: &Segment) -> bool {
        if !self.fast_open.used {
            return false;
        }
        let asked = self.fast_open.cookie.map(|cookie| cookie.experimental);
        let cookie = seg.options.fast_open.filter(|cookie| !cookie.as_slice().is_empty() && asked.is_some());
        let sent = std::mem::take(&mut self.fast_open.sent);
        let mute = cookie.is_none() && self.stats.total_retrans == 0 && sent == 0;
        // As the server offered it: TCP_MAXSEG of this socket does not hold for the next one.
        let mss = seg.options.mss.unwrap_or(536);
        self.fast_open.learnt = Some(Learnt { mss, cookie, silent: asked.filter(|_| mute) });
        if sent == 0 {
            return false;
        }
        let taken = (seg.ack - self.iss - 1).min(sent);
        self.fast_open.taken = taken == sent;
        self.tx.consume(taken as usize);
        self.tx_seq += taken;
        self.board.set_mss(self.mss());
        if self.fast_open.taken {
            cx.counters.fast_open_active.bump();
        } else {
            self.repeat_all();
        }
        !self.fast_open.taken
    }

    fn in_time_wait(&mut self, cx: &mut Cx<'_>, seg: &Segment, len: usize) -> Verdict {
        if seg.flags.contains(Flags::RST) {
            if !cx.sysctls.tcp_rfc1337.on() && seg.seq == cx.rx.nxt {
                self.finish(cx, None);
            }
            return Verdict::Done;
        }
        let newer = self.agreed.timestamps
            && seg
                .options
                .timestamps
                .is_some_and(|(value, _)| (value.wrapping_sub(self.ts_recent) as i32) > 0);
        let syn = seg.flags & (Flags::SYN | Flags::ACK) == Flags::SYN;
        if syn && (seg.seq.after(cx.rx.nxt) || newer) {
            cx.counters.tw_recycled.bump();
            self.finish(cx, None);
            return Verdict::Reopen;
        }
        if seg.flags.contains(Flags::FIN) || len > 0 || syn {
            if seg.flags.contains(Flags::FIN) {
                self.deadlines.wait = Some(cx.now.plus(TIME_WAIT));
            }
            self.send_ack(cx);
        }
        Verdict::Done
    }

    fn synchronised(&mut self, cx: &mut Cx<'_>, seg: &Segment, data: Span<'_>, congested: bool) -> Verdict {
        if !self.is_acceptable(cx, seg, data.len() as u32) {
            return Verdict::Done;
        }
        if self.state == State::SynReceived
            && seg.flags.contains(Flags::SYN | Flags::ACK)
            && seg.seq + 1 == cx.rx.nxt
        {
            // The answer to our half of a simultaneous open. Its SYN is here already.
            cx.rx.dsack = Some(Range { start: seg.seq, end: seg.seq + 1 });
            (self.ack.pending, self.ack.now) = (true, true);
            return self.take_ack(cx, seg, data);
        }
        // Any other SYN, also an old SYN-ACK: our acknowledgement of it was lost (RFC 5961 section 4).
        if seg.flags.contains(Flags::SYN) {
            self.challenge(cx);
            return Verdict::Done;
        }
        if !seg.flags.contains(Flags::ACK) {
            return Verdict::Done;
        }
        if congested && self.agreed.ecn {
            self.ack.echo_congestion = true;
            self.go_quick(cx, 2);
        }
        if seg.flags.contains(Flags::CWR) && !data.is_empty() {
            self.ack.echo_congestion = congested && self.agreed.ecn;
        }
        self.take_ack(cx, seg, data)
    }

    /// The checks before anything else: timestamps, sequence number, RST (RFC 7323 section 5.3, RFC 5961 section 3).
    fn is_acceptable(&mut self, cx: &mut Cx<'_>, seg: &Segment, len: u32) -> bool {
        let rst = seg.flags.contains(Flags::RST);
        if !rst && self.is_old_timestamp(cx.now, seg) {
            cx.counters.paws_estab.bump();
            self.answer_invalid(cx, seg, len);
            return false;
        }
        let end = seg.seq + seg.occupies(len as usize);
        let edge = cx.rx.edge.max(cx.rx.nxt);
        let fits = !end.before(cx.rx.acked) && seg.seq.upto(edge);
        if !fits {
            let simultaneous = self.state == State::SynReceived && seg.flags.contains(Flags::SYN);
            if simultaneous && seg.seq + 1 == cx.rx.nxt {
                return true;
            }
            if !rst {
                self.answer_invalid(cx, seg, len);
            }
            return false;
        }
        if rst {
            if seg.seq == cx.rx.nxt {
                self.reset(cx);
            } else {
                self.challenge(cx);
            }
            return false;
        }
        true
    }

    fn is_old_timestamp(&self, now: Ktime, seg: &Segment) -> bool {
        let Some((value, _)) = seg.options.timestamps.filter(|_| self.agreed.timestamps) else {
            return false;
        };
        (value.wrapping_sub(self.ts_recent) as i32) < 0 && now.since(self.ts_recent_at) < TS_EXPIRY
    }

    /// Answers a segment outside the window, so that the peer learns where we are. A duplicate is reported.
    fn answer_invalid(&mut self, cx: &mut Cx<'_>, seg: &Segment, len: u32) {
        let end = seg.seq + len;
        if len > 0 && end.upto(cx.rx.nxt) {
            if seg.seq.before(cx.rx.nxt) {
                cx.counters.dsack_sent.bump();
                cx.rx.dsack = Some(Range { start: seg.seq, end });
            }
            self.go_quick(cx, 16);
            return self.send_ack(cx);
        }
        if len > 0 || seg.flags.contains(Flags::FIN) {
            return self.send_ack(cx);
        }
        self.challenge(cx);
    }

    /// Sends an acknowledgement that makes an honest peer resend; limited (RFC 5961 section 7).
    pub(crate) fn challenge(&mut self, cx: &mut Cx<'_>) {
        let gap = Duration::from_millis(cx.sysctls.tcp_invalid_ratelimit.size() as u64);
        if self.ack.last_challenge.is_some_and(|at| cx.now.since(at) < gap) {
            return;
        }
        self.ack.last_challenge = Some(cx.now);
        cx.counters.challenge_ack.bump();
        self.send_ack(cx);
    }

    /// The peer reset the connection.
    fn reset(&mut self, cx: &mut Cx<'_>) {
        let error = match self.state {
            State::CloseWait => Errno::EPIPE,
            _ => Errno::ECONNRESET,
        };
        self.finish(cx, Some(error));
    }

    fn take_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment, data: Span<'_>) -> Verdict {
        if self.state == State::SynReceived {
            if !seg.ack.after(self.una) || seg.ack.after(self.nxt) {
                return Verdict::Reset;
            }
            self.establish(cx);
            if self.fin_queued {
                self.enter(cx, State::FinWait1);
            }
        }
        if !self.on_ack(cx, seg, data.len() as u32) {
            return Verdict::Done;
        }
        if self.note_own_fin(cx) {
            return Verdict::Done;
        }
        if seg.flags.contains(Flags::URG) {
            self.take_urgent(cx, seg);
        }
        let verdict = self.take_data(cx, seg, data);
        if verdict == Verdict::Done && self.state != State::Closed {
            self.output(cx);
            self.check_ack(cx);
        }
        verdict
    }

    /// Moves on when our FIN is acknowledged; true when the connection is over.
    fn note_own_fin(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.fin_queued || self.una != self.tx_end() + 1 {
            return false;
        }
        match self.state {
            State::FinWait1 => {
                self.enter(cx, State::FinWait2);
                cx.events |= Events::OUT;
                self.soft_error = None;
                self.wait_in_fin_wait2(cx);
            }
            State::Closing => self.time_wait(cx),
            State::LastAck => self.finish(cx, None),
            _ => {}
        }
        self.state == State::Closed
    }

    /// An orphan does not wait for ever for the peer's FIN.
    pub(crate) fn wait_in_fin_wait2(&mut self, cx: &mut Cx<'_>) {
        if self.state != State::FinWait2 || !self.orphan {
            return;
        }
        match self.options.linger2 {
            Some(wait) => self.deadlines.wait = Some(cx.now.plus(wait)),
            None => self.abort(cx),
        }
    }

    pub(crate) fn time_wait(&mut self, cx: &mut Cx<'_>) {
        self.enter(cx, State::TimeWait);
        self.deadlines =
            super::deadlines::Deadlines { wait: Some(cx.now.plus(TIME_WAIT)), ..Default::default() };
        cx.events |= Events::ANY;
    }

    fn take_urgent(&mut self, cx: &mut Cx<'_>, seg: &Segment) {
        if seg.urgent == 0 {
            return;
        }
        let at = seg.seq + u32::from(seg.urgent) - 1;
        cx.rx.inline = self.options.oob_inline;
        if cx.rx.urge(at) {
            cx.events |= Events::PRI | Events::URG;
        }
    }

    fn take_data(&mut self, cx: &mut Cx<'_>, seg: &Segment, data: Span<'_>) -> Verdict {
        let fin = seg.flags.contains(Flags::FIN);
        if data.is_empty() && !fin {
            return Verdict::Done;
        }
        let receiving = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        let end = seg.seq + data.len() as u32;
        if receiving && !data.is_empty() && self.orphan && end.after(cx.rx.nxt) {
            // No reader is left (RFC 2525 section 2.17).
            cx.counters.abort_on_data.bump();
            self.finish(cx, Some(Errno::ECONNRESET));
            return Verdict::Reset;
        }
        if receiving && !data.is_empty() {
            self.queue_data(cx, seg.seq, data);
        } else if !data.is_empty() {
            self.ack.pending = true;
            self.ack.now = true;
        }
        if fin && receiving {
            self.ack.pending = true;
            self.ack.now = true;
            if cx.rx.accept_fin(end) {
                self.peer_closed(cx);
            }
        } else if fin {
            self.ack.pending = true;
            self.ack.now = true;
        }
        Verdict::Done
    }

    fn queue_data(&mut self, cx: &mut Cx<'_>, seq: Seq, data: Span<'_>) {
        self.stats.data_segs_in = self.stats.data_segs_in.wrapping_add(1);
        match cx.rx.accept(seq, data) {
            Accepted::InOrder(_) => {
                self.note_data_received(cx, data.len() as u32);
                if cx.rx.dsack.is_some() {
                    self.ack.now = true;
                }
                cx.events |= Events::IN;
                if cx.rx.finish() {
                    self.ack.now = true;
                    self.peer_closed(cx);
                }
            }
            Accepted::Early => {
                cx.counters.ofo_queue.bump();
                self.note_data_received(cx, data.len() as u32);
                self.ack.now = true;
            }
            Accepted::Duplicate => {
                cx.counters.dsack_sent.bump();
                self.go_quick(cx, 16);
                (self.ack.pending, self.ack.now) = (true, true);
            }
            Accepted::Dropped => (self.ack.pending, self.ack.now) = (true, true),
        }
    }

    /// The peer's FIN is in order.
    fn peer_closed(&mut self, cx: &mut Cx<'_>) {
        cx.events |= Events::IN | Events::RDHUP;
        self.ack.pingpong = true;
        match self.state {
            State::Established => self.enter(cx, State::CloseWait),
            State::FinWait1 => self.enter(cx, State::Closing),
            State::FinWait2 => {
                self.time_wait(cx);
                self.send_ack(cx);
            }
            _ => {}
        }
    }

    /// An ICMP error about a segment of this connection (RFC 1122 section 4.2.3.9, RFC 5461).
    pub(crate) fn on_icmp(&mut self, cx: &mut Cx<'_>, seq: Seq, errno: Errno, fatal: bool) {
        let inside = !seq.before(self.una) && seq.upto(self.nxt);
        if !inside || matches!(self.state, State::Closed | State::TimeWait) {
            return;
        }
        if matches!(self.state, State::SynSent | State::SynReceived) {
            cx.counters.attempt_fails.bump();
            return self.finish(cx, Some(errno));
        }
        if self.options.ip.wants_errors(std::net::Ipv4Addr::UNSPECIFIED.into()) && fatal {
            self.error = Some(errno);
            cx.events |= Events::ERR;
        } else {
            self.soft_error = Some(errno);
        }
    }
}

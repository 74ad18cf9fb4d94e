//! The timers of a connection: retransmission, probes, delayed acknowledgements, keepalive, TIME-WAIT.

use super::conn::{Conn, Cx, State};
use super::deadlines::Rtx;
use super::rtt::{GIVE_UP_BASE, RTO_INITIAL, RTO_MAX, give_up_after};
use crate::notify::Events;
use crate::wire::seq::Seq;
use crate::wire::tcp::Flags;
use abi::Errno;
use ktime::Ktime;
use std::time::Duration;

impl Conn {
    /// Runs the timers that are due.
    pub(crate) fn on_timer(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        let due = |at: &mut Option<Ktime>| at.take_if(|at| *at <= now).is_some();
        if due(&mut self.deadlines.delack) {
            self.delayed_ack(cx);
        }
        if self.deadlines.rtx.is_some_and(|(at, _)| at <= cx.now) {
            self.on_retransmit(cx);
        }
        if due(&mut self.deadlines.pace) {
            self.output(cx);
        }
        if due(&mut self.deadlines.persist) {
            self.probe_window(cx);
        }
        if due(&mut self.deadlines.keepalive) {
            self.probe_peer(cx);
        }
        if due(&mut self.deadlines.wait) {
            self.finish(cx, None);
        }
    }

    fn delayed_ack(&mut self, cx: &mut Cx<'_>) {
        if !self.ack.pending {
            return;
        }
        // The guess that the program answers soon was wrong.
        if self.ack.pingpong {
            self.ack.pingpong = false;
            self.ack.ato = 40;
        } else {
            self.ack.ato = (self.ack.ato * 2).min(self.rtt.rto().as_millis() as u64);
        }
        cx.counters.delayed_acks.bump();
        self.send_ack(cx);
    }

    fn on_retransmit(&mut self, cx: &mut Cx<'_>) {
        let kind = self.deadlines.rtx.take().map(|(_, kind)| kind);
        if self.board.is_empty() {
            return;
        }
        match kind {
            Some(Rtx::Reorder) => self.reorder_timeout(cx),
            Some(Rtx::Probe) => self.send_probe(cx),
            _ => self.timeout(cx),
        }
    }

    /// Segments that could only have been reordered did not come: they are lost.
    fn reorder_timeout(&mut self, cx: &mut Cx<'_>) {
        let lost = self.rack_detect(cx);
        if lost > 0 {
            let news = super::news::AckNews::of_loss(lost);
            self.recover(cx, &news);
            self.output(cx);
        }
        if self.deadlines.rtx.is_none() {
            self.arm_rto(cx.now);
        }
    }

    /// A tail loss probe: new data if there is some, else the last segment again (RFC 8985 section 7.3).
    fn send_probe(&mut self, cx: &mut Cx<'_>) {
        cx.counters.loss_probes.bump();
        let before = self.nxt;
        let room = (self.una + self.wnd).since(self.nxt);
        if self.unsent() > 0 && room >= self.unsent().min(self.mss()) {
            let cwnd = std::mem::replace(&mut self.cc.cwnd, self.board.in_flight() + 1);
            let gso = std::mem::replace(&mut self.gso, 0);
            self.output(cx);
            (self.cc.cwnd, self.gso) = (cwnd, gso);
        }
        if self.nxt != before {
            self.recovery.probe = Some((self.nxt, false));
        } else if let Some(last) = self.board.len().checked_sub(1) {
            let (mss, nxt) = (self.mss(), self.nxt);
            let long = self.board.get(last).is_some_and(|sent| sent.end - sent.seq > mss + 1);
            if long {
                self.board.split(last, nxt - mss);
            }
            let last = self.board.len() - 1;
            self.recovery.probe = Some((nxt, true));
            self.retransmit(cx, last);
        }
        self.arm_rto(cx.now);
    }

    fn timeout(&mut self, cx: &mut Cx<'_>) {
        if self.deadlines.retries == 0 {
            self.deadlines.first_retry = self.board.front().map_or(cx.now, |first| first.at);
        }
        if self.is_hopeless(cx) {
            return self.give_up(cx);
        }
        cx.counters.timeouts.bump();
        self.stats.rtos = self.stats.rtos.saturating_add(1);
        let again = self.deadlines.retries > 0;
        self.enter_loss(cx, again);
        self.deadlines.retries += 1;
        self.retransmit(cx, 0);
        self.rtt.backoff = (self.rtt.backoff + 1).min(31);
        self.arm_rto(cx.now);
    }

    /// True when retransmissions went on for too long (tcp(7), `tcp_retries2`).
    fn is_hopeless(&self, cx: &Cx<'_>) -> bool {
        let retries = self.deadlines.retries;
        let elapsed = cx.now.since(self.deadlines.first_retry);
        let user = self.options.user_timeout;
        if !user.is_zero() && retries > 0 && elapsed >= user {
            return true;
        }
        match self.state {
            State::SynSent => retries >= self.options.syn_count,
            State::SynReceived => retries >= cx.sysctls.tcp_synack_retries.size() as u32,
            _ if !user.is_zero() => false,
            _ => {
                let orphan = cx.sysctls.tcp_orphan_retries.size() as u32;
                let orphan = if orphan == 0 { 8 } else { orphan };
                let limit = cx.sysctls.tcp_retries2.size() as u32;
                let limit = if self.orphan { orphan.min(limit.max(1)) } else { limit };
                retries > 0 && elapsed >= give_up_after(limit, GIVE_UP_BASE)
            }
        }
    }

    fn give_up(&mut self, cx: &mut Cx<'_>) {
        cx.counters.abort_on_timeout.bump();
        let error = self.soft_error.unwrap_or(Errno::ETIMEDOUT);
        self.finish(cx, Some(error));
    }

    /// Asks for the peer's window (RFC 9293 section 3.8.6.1), or sends what fits.
    fn probe_window(&mut self, cx: &mut Cx<'_>) {
        let elapsed = cx.now.since(self.deadlines.probing_since);
        let user = self.options.user_timeout;
        let limit = give_up_after(cx.sysctls.tcp_retries2.size() as u32, GIVE_UP_BASE);
        let patience = if user.is_zero() { limit } else { user };
        if self.deadlines.probes > 0
            && elapsed >= patience
            && (self.orphan || !user.is_zero() || self.deadlines.probes > 15)
        {
            return self.give_up(cx);
        }
        let room = (self.una + self.wnd).since(self.nxt);
        if room > 0 && (self.unsent() > 0 || self.fin_unsent()) {
            self.send_what_fits(cx, room);
            return;
        }
        self.deadlines.probes += 1;
        self.stats.probes_sent = self.stats.probes_sent.saturating_add(1);
        self.send_control(cx, Flags::ACK, self.una - 1);
        let wait = self.rtt.base_rto().saturating_mul(1 << self.deadlines.probes.min(16)).min(RTO_MAX);
        self.deadlines.persist = Some(cx.now.plus(wait));
    }

    /// Asks whether the peer is still there (RFC 9293 section 3.8.4).
    fn probe_peer(&mut self, cx: &mut Cx<'_>) {
        if !self.board.is_empty() || self.unsent() > 0 {
            self.deadlines.keepalive = Some(cx.now.plus(self.options.keep_idle));
            return;
        }
        let idle = cx.now.since(self.stats.last_ack.max(self.ack.last_data));
        if idle < self.options.keep_idle {
            let left = self.options.keep_idle - idle;
            self.deadlines.keepalive = Some(cx.now.plus(left));
            return;
        }
        let user = self.options.user_timeout;
        let tired = if user.is_zero() {
            self.deadlines.probes >= self.options.keep_count
        } else {
            idle >= user && self.deadlines.probes > 0
        };
        if tired {
            cx.counters.abort_on_timeout.bump();
            self.send_control(cx, Flags::RST | Flags::ACK, self.nxt);
            let error = self.soft_error.unwrap_or(Errno::ETIMEDOUT);
            return self.finish(cx, Some(error));
        }
        self.deadlines.probes += 1;
        cx.counters.keepalives.bump();
        self.stats.probes_sent = self.stats.probes_sent.saturating_add(1);
        self.send_control(cx, Flags::ACK, self.una - 1);
        self.deadlines.keepalive = Some(cx.now.plus(self.options.keep_interval));
    }

    /// The time-out of the SYN-ACK of a half-open connection after `retries`.
    pub(crate) fn syn_ack_wait(retries: u32) -> Duration {
        RTO_INITIAL.saturating_mul(1 << retries.min(16)).min(RTO_MAX)
    }

    /// Sizes the receive buffer by what the application reads in a round trip (`tcp_moderate_rcvbuf`).
    pub(crate) fn tune_receive_buffer(&mut self, cx: &mut Cx<'_>) {
        if self.options.receive_buffer.is_some()
            || !cx.sysctls.tcp_moderate_rcvbuf.on()
            || self.options.window_clamp > 0
        {
            return;
        }
        let (since, copied) = self.tuning;
        let round = if self.rtt.srtt.is_zero() { Duration::from_millis(20) } else { self.rtt.srtt };
        if cx.now.since(since) < round {
            return;
        }
        let read = (cx.rx.copied - copied) as usize;
        self.tuning = (cx.now, cx.rx.copied);
        let wanted = 2 * read + 16 * cx.rx.mss as usize;
        let limit = cx.sysctls.tcp_rmem_max.size() / 2;
        if wanted > cx.rx.capacity {
            cx.rx.capacity = wanted.min(limit).max(cx.rx.capacity);
        }
    }

    /// True when a sequence number lies in what is under way.
    pub(crate) fn is_outstanding(&self, seq: Seq) -> bool {
        !seq.before(self.una) && seq.before(self.nxt)
    }

    /// Events that hold now, beside those of the receive queue.
    pub(crate) fn readiness(&self, readable: bool, fin: bool, read_shut: bool, urgent: bool) -> Events {
        let mut events = Events::empty();
        let closed = self.state == State::Closed;
        let eof = fin || read_shut || closed;
        events.set(Events::IN, readable || eof);
        events.set(Events::PRI, urgent);
        events.set(Events::RDHUP, eof);
        let write_shut = self.fin_queued || closed || matches!(self.state, State::FinWait2 | State::TimeWait);
        let connecting = matches!(self.state, State::SynSent | State::SynReceived);
        let connecting = connecting && !self.fast_open.accepted;
        events.set(Events::OUT, !connecting && (write_shut || self.is_writable()));
        events.set(Events::HUP, closed || (eof && write_shut));
        events.set(Events::ERR, self.error.is_some() || self.notices.is_ready());
        events
    }
}

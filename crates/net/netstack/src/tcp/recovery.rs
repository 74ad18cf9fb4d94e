//! Loss recovery: RACK (RFC 8985), PRR (RFC 6937), NewReno for peers without SACK (RFC 6582), tail loss probes, F-RTO (RFC 5682)
//! and the undoing of what was needless (RFC 3522, RFC 3708).

use super::board::Mark;
use super::cc::Algorithm;
use super::conn::{Conn, Cx};
use super::deadlines::Rtx;
use super::news::AckNews;
use super::phase::{Ca, Frto};
use super::rack::DUP_THRESH;
use crate::wire::seq::Seq;
use std::time::Duration;

impl Conn {
    /// Begins a phase with a reduced window.
    fn begin(&mut self, state: Ca) {
        let recovery = &mut self.recovery;
        recovery.state = state;
        recovery.high_seq = self.nxt;
        recovery.undo_marker = Some(self.una);
        recovery.undo_retrans = if self.board.retrans > 0 { self.board.retrans as i32 } else { -1 };
        recovery.prior_cwnd = self.cc.cwnd;
        recovery.prior_ssthresh = self.cc.ssthresh;
        (recovery.prr_delivered, recovery.prr_out) = (0, 0);
        recovery.probe = None;
        self.cc.ssthresh = self.cc.reduced();
        self.tell_reduced = self.agreed.ecn;
    }

    /// A router marked congestion (RFC 3168 section 6.1.2): once per window.
    pub(crate) fn slow_down(&mut self, ack: Seq) {
        let quiet = matches!(self.recovery.state, Ca::Open | Ca::Disorder);
        let fresh = !ack.before(self.recovery.high_seq) || self.recovery.state == Ca::Open;
        if quiet && fresh {
            self.begin(Ca::Cwr);
            self.recovery.undo_marker = None;
        }
    }

    /// Looks for losses after an acknowledgement.
    pub(crate) fn detect_losses(&mut self, cx: &mut Cx<'_>, news: &mut AckNews) {
        if !self.agreed.sack {
            return self.count_duplicates(news);
        }
        let recovering = matches!(self.recovery.state, Ca::Recovery | Ca::Loss);
        if self.board.sacked == 0 && !recovering && !news.retransmitted {
            if self.deadlines.rtx_kind() == Some(Rtx::Reorder) {
                self.arm_rto(cx.now);
            }
            return;
        }
        if cx.sysctls.tcp_recovery.get() & 1 == 1 {
            news.lost = self.rack_detect(cx);
        } else {
            news.lost = self.mark_by_count();
        }
    }

    /// Without RACK: a segment is lost when three that were sent after it have arrived (RFC 6675 section 4).
    fn mark_by_count(&mut self) -> u32 {
        let (mut above, mut lost) = (0, 0);
        for n in (0..self.board.len()).rev() {
            let Some(sent) = self.board.get(n) else { break };
            if sent.mark.contains(Mark::SACKED) {
                above += sent.packets;
            } else if above >= DUP_THRESH && !sent.mark.intersects(Mark::LOST | Mark::RETRANS) {
                lost += sent.packets;
                self.board.mark_lost(n);
            }
        }
        lost
    }

    /// Runs RACK and sets its timer; returns packets newly lost.
    pub(crate) fn rack_detect(&mut self, cx: &mut Cx<'_>) -> u32 {
        let recovering = matches!(self.recovery.state, Ca::Recovery | Ca::Loss);
        let window = self.rack.window(&self.rtt, recovering, self.board.sacked);
        let (lost, wait) = self.rack.detect(&mut self.board, window, cx.now);
        match wait {
            // Room for the clock's granularity.
            Some(wait) => {
                let at = cx.now.plus(wait + Duration::from_micros(1));
                self.deadlines.rtx = Some((at, Rtx::Reorder));
            }
            None if self.deadlines.rtx_kind() == Some(Rtx::Reorder) => self.arm_rto(cx.now),
            None => {}
        }
        lost
    }

    /// Without SACK: three duplicates mean a loss, each stands for a packet that arrived.
    fn count_duplicates(&mut self, news: &mut AckNews) {
        if news.advanced {
            let acked = news.acked.saturating_sub(1);
            self.board.dupacks = self.board.dupacks.saturating_sub(acked.max(1));
            if self.una.before(self.recovery.high_seq) && self.recovery.state == Ca::Recovery {
                // RFC 6582: a partial acknowledgement shows the next loss.
                news.lost += self.mark_first_lost();
            }
            if !self.una.before(self.recovery.high_seq) || self.board.is_empty() {
                self.board.dupacks = 0;
            }
            return;
        }
        if news.other || self.board.is_empty() {
            return;
        }
        if self.board.dupacks + self.board.lost < self.board.out {
            self.board.dupacks += 1;
        }
        news.delivered += 1;
        if self.board.dupacks >= DUP_THRESH
            && matches!(self.recovery.state, Ca::Open | Ca::Disorder | Ca::Cwr)
        {
            news.lost += self.mark_first_lost();
        }
    }

    fn mark_first_lost(&mut self) -> u32 {
        let Some(first) = self.board.front() else { return 0 };
        if first.mark.contains(Mark::LOST) && !first.mark.contains(Mark::RETRANS) {
            return 0;
        }
        let (packets, seq, mss) = (first.packets, first.seq, self.mss());
        if packets > 1 {
            self.board.split(0, seq + mss);
        }
        self.board.mark_lost(0);
        1
    }

    /// Moves the state of recovery on, and sets the window (PRR).
    pub(crate) fn recover(&mut self, cx: &mut Cx<'_>, news: &AckNews) {
        if !self.una.before(self.recovery.high_seq) {
            self.end_phase(cx, news);
        }
        match self.recovery.state {
            Ca::Loss => {
                self.in_loss(cx, news);
                if self.recovery.state == Ca::Loss {
                    return;
                }
            }
            Ca::Recovery => {
                if news.advanced && news.echo_before || self.recovery.undo_retrans == 0 {
                    self.try_undo(cx, news);
                }
            }
            _ => {
                if self.recovery.undo_retrans == 0 && self.recovery.undo_marker.is_some() {
                    self.try_undo(cx, news);
                }
            }
        }
        if matches!(self.recovery.state, Ca::Open | Ca::Disorder | Ca::Cwr) {
            if self.board.lost > 0 {
                let counter =
                    if self.agreed.sack { &cx.counters.sack_recovery } else { &cx.counters.reno_recovery };
                counter.bump();
                if self.recovery.state == Ca::Cwr {
                    self.enter_recovery_from_cwr();
                } else {
                    self.begin(Ca::Recovery);
                }
            } else if self.recovery.state != Ca::Cwr {
                let disorder = self.board.sacked + self.board.dupacks > 0;
                self.recovery.state = if disorder { Ca::Disorder } else { Ca::Open };
            }
        }
        if matches!(self.recovery.state, Ca::Recovery | Ca::Cwr) {
            self.reduce_proportionally(news);
        }
    }

    /// The window is reduced already; only the losses are new.
    fn enter_recovery_from_cwr(&mut self) {
        self.recovery.state = Ca::Recovery;
        self.recovery.high_seq = self.nxt;
        self.recovery.undo_marker = None;
    }

    /// What was sent before the phase is acknowledged.
    fn end_phase(&mut self, cx: &mut Cx<'_>, news: &AckNews) {
        match self.recovery.state {
            Ca::Open | Ca::Disorder => return,
            _ if self.cc.algorithm == Algorithm::Bbr => self.rack.recovered(),
            Ca::Cwr => self.cc.cwnd = self.cc.ssthresh.min(self.cc.cwnd),
            Ca::Recovery => {
                if !((news.echo_before || self.recovery.undo_retrans == 0) && self.try_undo(cx, news)) {
                    self.cc.cwnd = self.cc.ssthresh;
                }
                self.rack.recovered();
            }
            Ca::Loss => {
                if news.echo_before || self.recovery.undo_retrans == 0 {
                    self.try_undo(cx, news);
                }
                self.rack.recovered();
            }
        }
        self.board.dupacks = 0;
        self.recovery.state = Ca::Open;
        // A duplicate report may still come and show that it was needless.
        if self.recovery.undo_retrans <= 0 {
            self.recovery.forget();
        }
        self.recovery.retrans_ts = 0;
    }

    /// Takes the reduction back: nothing was lost. True when there was one to take back.
    fn try_undo(&mut self, cx: &Cx<'_>, news: &AckNews) -> bool {
        if self.recovery.undo_marker.is_none() {
            return false;
        }
        let counter = if news.dsack { &cx.counters.undo_dsack } else { &cx.counters.undo_full };
        counter.bump();
        self.board.forget_losses();
        self.cc.undo(self.recovery.prior_cwnd, self.recovery.prior_ssthresh);
        self.recovery.forget();
        self.recovery.state = if self.board.sacked > 0 { Ca::Disorder } else { Ca::Open };
        true
    }

    /// After a time-out: repair in slow start, or find out that it was spurious.
    fn in_loss(&mut self, cx: &mut Cx<'_>, news: &AckNews) {
        let echoed = news.advanced && news.echo_before;
        let frto = self.recovery.frto;
        let spurious = frto != Frto::Off && news.original && (news.advanced || self.agreed.sack);
        if (echoed || spurious) && self.try_undo(cx, news) {
            cx.counters.spurious_rtos.bump();
            self.recovery.frto = Frto::Off;
            self.rtt.backoff = 0;
            return;
        }
        let fresh =
            self.unsent() > 0 && (self.una + self.wnd).since(self.nxt) >= self.mss().min(self.unsent());
        self.recovery.frto = match frto {
            Frto::First if news.advanced && fresh => {
                self.cc.cwnd = self.board.in_flight() + 2;
                Frto::Second
            }
            Frto::First if !news.advanced => Frto::First,
            _ => Frto::Off,
        };
        if !self.agreed.sack && news.advanced {
            self.mark_first_lost();
        }
    }

    /// Proportional rate reduction: what leaves the network decides what may enter it.
    fn reduce_proportionally(&mut self, news: &AckNews) {
        if self.cc.algorithm == Algorithm::Bbr {
            return;
        }
        if news.delivered == 0 && news.lost == 0 && self.recovery.prr_out > 0 {
            return;
        }
        let (flight, ssthresh) = (self.board.in_flight(), self.cc.ssthresh);
        let recovery = &mut self.recovery;
        recovery.prr_delivered = recovery.prr_delivered.saturating_add(news.delivered);
        let quota = if flight > ssthresh {
            let share = u64::from(recovery.prr_delivered) * u64::from(ssthresh);
            let share = share.div_ceil(u64::from(recovery.prior_cwnd.max(1))) as u32;
            share.saturating_sub(recovery.prr_out)
        } else {
            let mut limit = recovery.prr_delivered.saturating_sub(recovery.prr_out).max(news.delivered);
            if news.advanced && news.lost == 0 {
                limit += 1;
            }
            limit.min(ssthresh - flight)
        };
        // The first retransmission goes out at once.
        let forced = u32::from(recovery.prr_out == 0 && recovery.state == Ca::Recovery);
        self.cc.cwnd = (flight + quota.max(forced)).max(1);
    }

    /// A time-out: everything that is late is lost, and slow start begins (RFC 5681 section 3.1, RFC 8985 section 6.3).
    pub(crate) fn enter_loss(&mut self, cx: &mut Cx<'_>, again: bool) {
        let fresh = self.recovery.state != Ca::Loss;
        if matches!(self.recovery.state, Ca::Open | Ca::Disorder | Ca::Cwr)
            || !self.una.before(self.recovery.high_seq)
            || (self.recovery.state == Ca::Loss && !again)
        {
            self.begin(Ca::Loss);
        }
        if self.board.front().is_some_and(|first| first.mark.contains(Mark::SACKED)) {
            cx.counters.sack_reneging.bump();
            self.board.forget_sacks();
        }
        self.board.dupacks = 0;
        let window = self.rack.window(&self.rtt, true, self.board.sacked);
        self.rack.mark_on_timeout(&mut self.board, window, cx.now);
        self.cc.timed_out();
        self.cc.cwnd = self.board.in_flight() + 1;
        self.recovery.state = Ca::Loss;
        self.recovery.high_seq = self.nxt;
        self.recovery.probe = None;
        let watch = cx.sysctls.tcp_frto.on() && (fresh || again);
        self.recovery.frto = if watch { Frto::First } else { Frto::Off };
    }

    /// Takes everything for lost, but not for a sign of congestion.
    pub(crate) fn repeat_all(&mut self) {
        (0..self.board.len()).for_each(|n| self.board.mark_lost(n));
        self.recovery.state = Ca::Loss;
        self.recovery.high_seq = self.nxt;
        self.recovery.frto = Frto::Off;
        self.recovery.forget();
    }

    /// The path takes less than was sent: cuts what is under way and sends it again, without a reduction.
    pub(crate) fn resize(&mut self, cx: &mut Cx<'_>) {
        let mss = self.mss();
        self.board.set_mss(mss);
        if self.state == super::conn::State::SynSent && self.fast_open.sent > 0 {
            // The SYN was too large for its data.
            self.retransmit(cx, 0);
            return self.arm_rto(cx.now);
        }
        for n in (0..self.board.len()).rev() {
            let Some(sent) = self.board.get(n) else { break };
            if sent.end - sent.seq > mss && !sent.mark.contains(Mark::SACKED) {
                self.board.mark_lost(n);
            }
        }
        if self.board.lost > 0 && matches!(self.recovery.state, Ca::Open | Ca::Disorder) {
            let (cwnd, ssthresh) = (self.cc.cwnd, self.cc.ssthresh);
            self.begin(Ca::Recovery);
            (self.cc.cwnd, self.cc.ssthresh) = (cwnd, ssthresh.max(cwnd));
            self.recovery.forget();
        }
        self.output(cx);
    }

    /// Ends a tail loss probe (RFC 8985 section 7.4).
    pub(crate) fn end_probe(&mut self, cx: &Cx<'_>, ack: Seq, news: &AckNews) {
        let Some((end, again)) = self.recovery.probe else { return };
        if ack.before(end) {
            return;
        }
        if !again || news.dsack {
            // New data, or a needless retransmission: nothing was lost.
            self.recovery.probe = None;
        } else if ack.after(end) || news.advanced {
            // The probe repaired the tail: that was a loss.
            cx.counters.loss_probe_recovery.bump();
            self.recovery.probe = None;
            if matches!(self.recovery.state, Ca::Open | Ca::Disorder) {
                self.cc.ssthresh = self.cc.reduced();
                self.cc.cwnd = self.cc.ssthresh.min(self.cc.cwnd);
            }
        }
    }
}

//! Setting the timers of a connection.

use super::conn::{Conn, Cx, State};
use super::deadlines::Rtx;
use super::phase::Ca;
use super::rtt::GIVE_UP_BASE;
use ktime::Ktime;
use std::time::Duration;

impl Conn {
    /// Starts the retransmission time-out anew, or stops it when nothing is under way.
    pub(crate) fn arm_rto(&mut self, now: Ktime) {
        self.deadlines.rtx =
            (!self.board.is_empty()).then(|| (now.plus(self.clamped_rto(now)), Rtx::Timeout));
    }

    /// TCP_USER_TIMEOUT ends the wait early.
    fn clamped_rto(&self, now: Ktime) -> Duration {
        let rto = self.rtt.rto();
        if self.options.user_timeout.is_zero() || self.deadlines.retries == 0 {
            return rto;
        }
        let left = self.options.user_timeout.saturating_sub(now.since(self.deadlines.first_retry));
        rto.min(left.max(Duration::from_millis(1)))
    }

    /// After an acknowledgement that moved on.
    pub(crate) fn rearm_after_progress(&mut self, cx: &mut Cx<'_>) {
        if self.deadlines.rtx_kind() != Some(Rtx::Reorder) || self.board.is_empty() {
            self.arm_rto(cx.now);
            self.schedule_probe(cx);
        }
    }

    /// Sets the timer for a tail loss probe instead of the time-out (RFC 8985 section 7.2).
    pub(crate) fn schedule_probe(&mut self, cx: &Cx<'_>) {
        let open = matches!(self.recovery.state, Ca::Open | Ca::Cwr);
        let wanted = self.agreed.sack && cx.sysctls.tcp_early_retrans.get() >= 3;
        let quiet = self.board.sacked == 0 && self.recovery.probe.is_none() && !self.board.is_empty();
        if !wanted || !open || !quiet || self.state == State::SynReceived || self.rtt.srtt.is_zero() {
            return;
        }
        let mut pto = self.rtt.srtt * 2;
        if self.board.out == 1 {
            // The peer may hold its acknowledgement back.
            pto += Duration::from_millis(200);
        }
        pto = pto.max(Duration::from_millis(2));
        self.deadlines.rtx = Some((cx.now.plus(pto.min(self.clamped_rto(cx.now))), Rtx::Probe));
    }

    /// Sets the timer for window probes when data waits for a window and nothing else brings an acknowledgement.
    pub(crate) fn check_persist(&mut self, now: Ktime) {
        let waits = (self.unsent() > 0 || self.fin_unsent())
            && self.board.is_empty()
            && self.deadlines.pace.is_none();
        let corked = self.unsent() > 0 && self.unsent() < self.mss() && self.wnd >= self.unsent();
        if !waits || self.cc.cwnd == 0 {
            self.deadlines.persist = None;
        } else if self.deadlines.persist.is_none() {
            self.deadlines.probing_since = now;
            // Corked data goes out after 200 ms (tcp(7)).
            let wait = if corked { GIVE_UP_BASE } else { self.rtt.base_rto() };
            self.deadlines.persist = Some(now.plus(wait));
        }
    }

    /// Sets the keepalive timer.
    pub(crate) fn arm_keepalive(&mut self, now: Ktime) {
        let open = !matches!(
            self.state,
            State::Closed | State::Listen | State::SynSent | State::SynReceived | State::TimeWait
        );
        self.deadlines.keepalive = (self.options.keepalive && open).then(|| now.plus(self.options.keep_idle));
    }
}

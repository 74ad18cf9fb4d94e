//! RACK: loss detection by time (RFC 8985).

use super::board::{Mark, Scoreboard, Sent};
use super::rtt::Rtt;
use crate::wire::seq::Seq;
use ktime::Ktime;
use std::time::Duration;

/// Duplicates that mean a loss before reordering was seen.
pub(crate) const DUP_THRESH: u32 = 3;

/// Most packets by which others come early (`tcp_max_reordering`).
const MOST_DEGREE: u32 = 300;

/// Recoveries after which the window for reordering is small again.
const PERSIST: u32 = 16;

/// RACK's state. Plain data.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Rack {
    /// Send time and end of the delivered segment that was sent last.
    latest: Option<(Ktime, Seq)>,
    /// Its round-trip time.
    rtt: Duration,
    /// The highest sequence number delivered, and what it was before the latest acknowledgement.
    fack: Option<Seq>,
    prior_fack: Option<Seq>,
    degree: u32,
    /// Reordering was seen.
    pub(crate) reordering: bool,
    /// Quarters of the least round-trip time.
    mult: u32,
    persist: u32,
    /// The round in which a duplicate widened the window.
    dsack_round: Option<Seq>,
}

impl Rack {
    /// Whether a saved one can be calculated with.
    pub(super) fn check(&self, longest: Duration) -> bool {
        self.rtt <= longest && self.degree <= MOST_DEGREE && self.mult <= 255 && self.persist <= PERSIST
    }

    /// A segment was delivered. Timestamps do not help here: what comes early is acknowledged with an old one.
    pub(crate) fn delivered(&mut self, sent: &Sent, now: Ktime, min_rtt: Option<Duration>) {
        let rtt = now.since(sent.at);
        let ever = sent.mark.contains(Mark::EVER);
        // RFC 8985 section 6.2.2: that fast, it was the original that arrived.
        if ever && min_rtt.is_some_and(|min| rtt < min) {
            return;
        }
        if self.latest.is_none_or(|latest| sent_after((sent.at, sent.end), latest)) {
            (self.latest, self.rtt) = (Some((sent.at, sent.end)), rtt);
        }
    }

    /// Packets by which others came early, at least as many as mean a loss (`tcpi_reordering`).
    pub(crate) fn degree(&self) -> u32 {
        self.degree.max(DUP_THRESH)
    }

    /// An acknowledgement begins.
    pub(crate) fn begin(&mut self) {
        self.prior_fack = self.fack;
    }

    /// Notes the order of deliveries; true when this one shows reordering. `in_order` is for what is acknowledged without SACK: the
    /// ranges of the same acknowledgement do not come before it.
    pub(crate) fn note_order(&mut self, sent: &Sent, in_order: bool, mss: u32) -> bool {
        let fack = if in_order { self.prior_fack } else { self.fack }.unwrap_or(sent.end);
        let reordered = sent.end.before(fack) && !sent.mark.contains(Mark::EVER);
        self.reordering |= reordered;
        if reordered {
            let distance = (fack - sent.seq).div_ceil(mss.max(1));
            self.degree = self.degree().max(distance.min(MOST_DEGREE));
        }
        self.fack = Some(self.fack.unwrap_or(sent.end).max(sent.end));
        reordered
    }

    /// A duplicate was reported: a retransmission was needless (section 6.2.4).
    pub(crate) fn widen(&mut self, una: Seq, nxt: Seq) {
        if self.dsack_round.is_none_or(|round| !una.before(round)) {
            self.dsack_round = Some(nxt);
            self.mult = (self.mult.max(1) + 1).min(255);
            self.persist = PERSIST;
        }
    }

    /// A recovery has ended.
    pub(crate) fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.mult = 1;
        }
    }

    /// How long a segment may come late.
    pub(crate) fn window(&self, rtt: &Rtt, recovering: bool, sacked: u32) -> Duration {
        if !self.reordering && (recovering || sacked >= self.degree()) {
            return Duration::ZERO;
        }
        let quarter = rtt.min_rtt().unwrap_or_default() / 4;
        (quarter * self.mult.max(1)).min(rtt.srtt)
    }

    /// Marks segments lost that were sent sufficiently long before one that was delivered. Returns packets newly lost, and how
    /// long to wait for the others that are late.
    pub(crate) fn detect(
        &self,
        board: &mut Scoreboard,
        window: Duration,
        now: Ktime,
    ) -> (u32, Option<Duration>) {
        let Some(latest) = self.latest else { return (0, None) };
        let (mut lost, mut wait) = (0, None);
        for n in 0..board.len() {
            let Some(sent) = board.get(n) else { break };
            let gone = sent.mark.contains(Mark::LOST) && !sent.mark.contains(Mark::RETRANS);
            if sent.mark.contains(Mark::SACKED) || gone || !sent_after(latest, (sent.at, sent.end)) {
                continue;
            }
            let deadline = sent.at.plus(self.rtt + window);
            if deadline <= now {
                lost += sent.packets;
                board.mark_lost(n);
            } else {
                wait = wait.max(Some(deadline.since(now)));
            }
        }
        (lost, wait)
    }

    /// Marks what a time-out means (section 6.3): the first segment, and those that are late by now.
    pub(crate) fn mark_on_timeout(&self, board: &mut Scoreboard, window: Duration, now: Ktime) {
        for n in 0..board.len() {
            let Some(sent) = board.get(n) else { break };
            let late = sent.at.plus(self.rtt + window) <= now;
            if !sent.mark.contains(Mark::SACKED) && (n == 0 || late) {
                board.mark_lost(n);
            }
        }
    }
}

/// Order of transmissions: by time, then by sequence number (section 6.2.1).
fn sent_after(a: (Ktime, Seq), b: (Ktime, Seq)) -> bool {
    a.0 > b.0 || (a.0 == b.0 && a.1.after(b.1))
}

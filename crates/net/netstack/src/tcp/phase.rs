//! Where loss recovery stands. Plain data.

use crate::wire::seq::Seq;

/// Where recovery stands; Linux's names and numbers (`tcpi_ca_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Ca {
    /// Nothing suspicious.
    #[default]
    Open = 0,
    /// Duplicates came, no loss yet.
    Disorder = 1,
    /// Routers asked to slow down.
    Cwr = 2,
    /// Losses are repaired.
    Recovery = 3,
    /// A time-out happened.
    Loss = 4,
}

/// F-RTO's steps (RFC 5682 section 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Frto {
    /// The time-out is taken for real.
    #[default]
    Off,
    /// The first segment was sent again; its acknowledgement is waited for.
    First,
    /// New data was sent instead of what seems lost; the answer tells.
    Second,
}

/// State of recovery. Plain data.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Recovery {
    pub(crate) state: Ca,
    /// What was sent when it began; it ends when that is acknowledged.
    pub(crate) high_seq: Seq,
    /// `una` when it began, while it can be undone.
    pub(super) undo_marker: Option<Seq>,
    /// Retransmissions that no duplicate report has shown needless yet; negative before the first.
    pub(super) undo_retrans: i32,
    /// Timestamp of the first retransmission, 0 for none.
    pub(crate) retrans_ts: u32,
    pub(super) prior_cwnd: u32,
    pub(super) prior_ssthresh: u32,
    pub(super) prr_delivered: u32,
    pub(crate) prr_out: u32,
    /// Whether the time-out may have been spurious.
    pub(crate) frto: Frto,
    /// End of the tail loss probe that is under way, and whether it was a retransmission.
    pub(crate) probe: Option<(Seq, bool)>,
}

impl Recovery {
    /// Whether a saved one can be calculated with.
    pub(super) fn check(&self) -> bool {
        /// Packets.
        const MOST: u32 = 1 << 30;
        let counts = [self.prior_cwnd, self.prr_delivered, self.prr_out, self.undo_retrans.unsigned_abs()];
        counts.iter().all(|count| *count <= MOST)
    }

    pub(crate) fn note_retransmission(&mut self, ts: u32, packets: u32) {
        if self.retrans_ts == 0 {
            self.retrans_ts = ts.max(1);
        }
        self.undo_retrans = self.undo_retrans.max(0) + packets as i32;
    }

    pub(crate) fn note_dsack(&mut self, start: Seq, _end: Seq, packets: i32) {
        if self.undo_marker.is_some_and(|marker| !start.before(marker)) && self.undo_retrans > 0 {
            self.undo_retrans = (self.undo_retrans - packets).max(0);
        }
    }

    /// Forgets retransmissions; what they were about is over.
    pub(crate) fn forget(&mut self) {
        (self.undo_marker, self.undo_retrans, self.retrans_ts) = (None, -1, 0);
    }
}

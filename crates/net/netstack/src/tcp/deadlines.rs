//! When something is due for a connection. Plain data: a checkpoint keeps it, and the restored socket sets its timer by it.

use ktime::Ktime;

/// What the retransmission timer waits for; one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Rtx {
    /// The time-out.
    Timeout,
    /// The tail loss probe.
    Probe,
    /// RACK's window for reordering.
    Reorder,
}

/// When something is due. Plain data.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Deadlines {
    pub(crate) rtx: Option<(Ktime, Rtx)>,
    pub(crate) delack: Option<Ktime>,
    /// The next window probe.
    pub(crate) persist: Option<Ktime>,
    pub(crate) keepalive: Option<Ktime>,
    /// End of TIME-WAIT or FIN-WAIT-2.
    pub(crate) wait: Option<Ktime>,
    pub(crate) pace: Option<Ktime>,
    /// When the pacing rate allows the next segment.
    pub(crate) pace_at: Ktime,
    /// Time-outs since the last progress, and the first of them.
    pub(crate) retries: u32,
    pub(crate) first_retry: Ktime,
    /// Window or keepalive probes without an answer.
    pub(crate) probes: u32,
    pub(crate) probing_since: Ktime,
}

impl Deadlines {
    pub(crate) fn rtx_kind(&self) -> Option<Rtx> {
        self.rtx.map(|(_, kind)| kind)
    }

    /// The earliest.
    pub(crate) fn next(&self) -> Option<Ktime> {
        let others = [self.delack, self.persist, self.keepalive, self.wait, self.pace];
        others.into_iter().flatten().chain(self.rtx.map(|(at, _)| at)).min()
    }
}

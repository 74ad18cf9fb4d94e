//! What an acknowledgement says. Plain data.

use ktime::Ktime;
use std::time::Duration;

/// What an acknowledgement told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckNews {
    /// `una` moved.
    pub(crate) advanced: bool,
    /// Packets that left the network by it.
    pub(crate) delivered: u32,
    /// Packets acknowledged in order.
    pub(crate) acked: u32,
    /// A duplicate was reported.
    pub(crate) dsack: bool,
    /// A segment was delivered that was sent before the time-out and never again.
    pub(crate) original: bool,
    /// A retransmitted segment was delivered.
    pub(crate) retransmitted: bool,
    /// It brought data, or another window: not a duplicate.
    pub(crate) other: bool,
    /// The timestamp echoes a segment older than the first retransmission.
    pub(crate) echo_before: bool,
    /// Packets newly taken for lost.
    pub(crate) lost: u32,
    /// Round-trip time of the latest segment that was sent once.
    pub(crate) rtt: Option<Duration>,
    /// The delivered segment that was sent last: packets delivered when it was sent, when that was, the start of its flight, its
    /// transmission, and whether the program had nothing more to send.
    pub(super) rate: Option<(u64, Ktime, Ktime, Ktime, bool)>,
    /// Bytes per second by that sample; 0 when it says nothing.
    pub(super) sampled: u64,
}

impl AckNews {
    /// A timer found losses.
    pub(crate) fn of_loss(lost: u32) -> AckNews {
        AckNews { lost, ..AckNews::default() }
    }
}

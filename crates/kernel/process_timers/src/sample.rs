//! Timers of processor time are sampled: the service looks at the clock again when the remaining time could have passed at full
//! use of every processor.

use caller::timer::TimerService;
use std::time::Duration;

/// How long the service may sleep before a clock of processor time can have advanced by `left` nanoseconds.
pub(crate) fn sampled(timers: &TimerService, left: u64) -> Duration {
    let sample = (left / 4).clamp(1_000_000, 1_000_000_000).min(left.max(1_000_000));
    Duration::from_nanos(sample).max(timers.shortest_period())
}

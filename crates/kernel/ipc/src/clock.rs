//! Clocks that guests see: numbers of clock_gettime(2), read from the host's vDSO.

use abi::time::Timespec;
use abi::{Errno, Result};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// A clock a timer can run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// CLOCK_REALTIME (and CLOCK_REALTIME_ALARM, CLOCK_TAI): can be set.
    Realtime,
    /// CLOCK_MONOTONIC.
    Monotonic,
    /// CLOCK_BOOTTIME (and CLOCK_BOOTTIME_ALARM).
    Boottime,
}

impl Clock {
    /// The clock behind a clockid_t; EINVAL for those no timer of ours runs on.
    pub fn from_id(id: i32) -> Result<Clock> {
        match id {
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_ALARM => Ok(Clock::Realtime),
            libc::CLOCK_MONOTONIC => Ok(Clock::Monotonic),
            libc::CLOCK_BOOTTIME | libc::CLOCK_BOOTTIME_ALARM => Ok(Clock::Boottime),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Nanoseconds since the clock's zero.
    pub fn now_ns(self) -> i64 {
        let t = clock_gettime(match self {
            Clock::Realtime => ClockId::Realtime,
            Clock::Monotonic => ClockId::Monotonic,
            Clock::Boottime => ClockId::Boottime,
        });
        Timespec { sec: t.tv_sec, nsec: t.tv_nsec }.as_ns()
    }

    /// The time until this clock shows `at_ns`, as far as can be known now.
    pub fn left(self, at_ns: i64) -> Duration {
        Duration::from_nanos(at_ns.saturating_sub(self.now_ns()).max(0) as u64)
    }
}

/// `from + d`, or a moment centuries away when that cannot be represented.
pub fn after(from: Instant, d: Duration) -> Instant {
    from.checked_add(d).unwrap_or_else(|| from + Duration::from_secs(1 << 33))
}

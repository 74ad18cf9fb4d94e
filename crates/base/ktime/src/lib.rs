//! Moments of a kernel's monotonic clock, as plain numbers that a checkpoint can carry.
//!
//! [`Ktime`] is a moment (Linux's `ktime_t`), [`Clock`] the clock of one kernel. The clock begins at [`Ktime::ZERO`] when the
//! kernel starts; one that goes on from a checkpoint begins at the moment of that checkpoint, so that moments in restored objects
//! mean what they meant.
//!
//! Objects of the kernel keep [`Ktime`]s. [`std::time::Instant`] is a moment of the host's clock and means nothing in another
//! process. It is allowed as a parameter or local variable of one call: a wait on the host takes one, and
//! [`Clock::instant`] converts a [`Ktime`] where the wait begins. `cargo xtask layers` fails when a type or static of the
//! kernel has an [`Instant`], except those that `xtask/src/clocks.rs` lists. Conversions read no clock.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

/// A moment: nanoseconds of a kernel's monotonic clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Ktime(u64);

impl Ktime {
    /// The start of the clock.
    pub const ZERO: Ktime = Ktime(0);

    /// The moment that many nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Ktime {
        Ktime(nanos)
    }

    /// The moment that many milliseconds after the start.
    pub const fn from_millis(millis: u64) -> Ktime {
        Ktime(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the start.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the start.
    pub const fn micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds since the start.
    pub const fn millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// This moment plus a duration; stays at the end of time instead of wrapping.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Ktime {
        Ktime(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// This moment minus a duration; stays at the start instead of wrapping.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Ktime {
        Ktime(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Time since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: Ktime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The monotonic clock of one kernel. It is copied freely: all copies show the same.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// A moment of the host's clock, and what this one showed then.
    origin: Instant,
    start: Ktime,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::starting_at(Ktime::ZERO)
    }
}

impl Clock {
    /// A clock that shows `start` now.
    pub fn starting_at(start: Ktime) -> Clock {
        Clock { origin: Instant::now(), start }
    }

    /// The moment now.
    pub fn now(&self) -> Ktime {
        self.ktime(Instant::now())
    }

    /// What this clock shows at a moment of the host's clock.
    pub fn ktime(&self, instant: Instant) -> Ktime {
        self.start.plus(instant.saturating_duration_since(self.origin))
    }

    /// The moment of the host's clock at which this one shows `at`; the clock's start for an earlier one.
    pub fn instant(&self, at: Ktime) -> Instant {
        self.origin + at.since(self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_go_through_the_clock_of_the_host_and_back() {
        let clock = Clock::default();
        let now = clock.now();
        assert_eq!(clock.ktime(clock.instant(now)), now);
        let later = now.plus(Duration::from_secs(3));
        assert_eq!(clock.instant(later) - clock.instant(now), Duration::from_secs(3));
        assert_eq!((later.since(now), now.since(later)), (Duration::from_secs(3), Duration::ZERO));
    }

    #[test]
    fn a_restored_clock_goes_on() {
        let saved = Ktime::from_nanos(5_000_000_000);
        let clock = Clock::starting_at(saved);
        let deadline = saved.plus(Duration::from_secs(1));
        assert!(clock.now() >= saved && clock.now() < deadline);
        assert!(clock.instant(deadline) <= Instant::now() + Duration::from_secs(1));
        assert_eq!(clock.instant(Ktime::ZERO), clock.instant(saved));
    }

    #[test]
    fn nothing_wraps() {
        let end = Ktime::from_nanos(u64::MAX);
        assert_eq!((end.plus(Duration::MAX), Ktime::ZERO.minus(Duration::MAX)), (end, Ktime::ZERO));
    }
}

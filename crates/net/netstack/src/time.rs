//! Points in time, as the caller's monotonic clock counts them.

use std::time::Duration;

/// Nanoseconds since an origin that the caller chooses (its boot, usually). The crate never reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);

    /// A point that many nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// A point that many milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Instant {
        Instant(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the origin.
    pub const fn millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Whole microseconds since the origin.
    pub const fn micros(self) -> u64 {
        self.0 / 1_000
    }

    /// This point plus a duration; stays at the end of time instead of wrapping.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }

    /// This point minus a duration; stays at the origin instead of wrapping.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_sub(nanos))
    }

    /// Time since `earlier`, zero when `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

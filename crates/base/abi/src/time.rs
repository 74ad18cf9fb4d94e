//! Time values as system calls carry them.

use crate::{Errno, Result};
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct timespec`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(C)]
pub struct Timespec {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, 0..1_000_000_000 when valid.
    pub nsec: i64,
}

impl Timespec {
    /// From nanoseconds since the clock's zero.
    pub const fn from_ns(ns: i64) -> Timespec {
        Timespec { sec: ns.div_euclid(1_000_000_000), nsec: ns.rem_euclid(1_000_000_000) }
    }
    /// Nanoseconds since zero, saturating.
    pub const fn as_ns(self) -> i64 {
        self.sec.saturating_mul(1_000_000_000).saturating_add(self.nsec)
    }
    /// As a duration; `EINVAL` when negative or not normalised.
    pub fn to_duration(self) -> Result<Duration> {
        if self.sec < 0 || !(0..1_000_000_000).contains(&self.nsec) {
            return Err(Errno::EINVAL);
        }
        Ok(Duration::new(self.sec as u64, self.nsec as u32))
    }
}

impl From<Duration> for Timespec {
    fn from(d: Duration) -> Timespec {
        Timespec { sec: d.as_secs() as i64, nsec: d.subsec_nanos() as i64 }
    }
}

/// `struct timeval`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Timeval {
    /// Seconds.
    pub sec: i64,
    /// Microseconds, 0..1_000_000 when valid.
    pub usec: i64,
}

impl Timeval {
    /// As a duration; `EINVAL` when negative or not normalised.
    pub fn to_duration(self) -> Result<Duration> {
        if self.sec < 0 || !(0..1_000_000).contains(&self.usec) {
            return Err(Errno::EINVAL);
        }
        Ok(Duration::new(self.sec as u64, self.usec as u32 * 1000))
    }
}

impl From<Duration> for Timeval {
    fn from(d: Duration) -> Timeval {
        Timeval { sec: d.as_secs() as i64, usec: d.subsec_micros() as i64 }
    }
}

/// `struct itimerspec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Itimerspec {
    /// Reload value.
    pub interval: Timespec,
    /// Time to the next expiry.
    pub value: Timespec,
}

/// `struct itimerval`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Itimerval {
    /// Reload value.
    pub interval: Timeval,
    /// Time to the next expiry.
    pub value: Timeval,
}

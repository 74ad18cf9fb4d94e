//! Time-out arguments as deadlines, and what is left of them.

use crate::arg::Ptr;
use abi::time::{Timespec, Timeval};
use abi::{Errno, Result};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use task::Current;

/// `now + d`; `None` (for ever) when that is beyond any clock.
pub fn after(d: Duration) -> Option<Instant> {
    Instant::now().checked_add(d)
}

/// The end of a call's time-out that begins now, or that began when the call was made if it starts again after a standstill;
/// `None` (for ever) when that is beyond any clock.
pub fn of_call(c: &Current, d: Duration) -> Option<Instant> {
    c.deadline_before().or_else(|| after(d))
}

/// A time-out of a call in milliseconds; negative is for ever.
pub fn from_millis(c: &Current, ms: i32) -> Option<Instant> {
    u64::try_from(ms).ok().and_then(|ms| of_call(c, Duration::from_millis(ms)))
}

/// A time-out in memory, which select(2) and ppoll(2) update.
#[derive(Clone, Copy)]
pub struct Timeout {
    at: Ptr,
    micro: bool,
    /// When it ends; `None` is for ever.
    pub deadline: Option<Instant>,
}

impl Timeout {
    /// A `struct timespec`; NULL is for ever.
    pub fn timespec(c: &Current, at: Ptr) -> Result<Timeout> {
        let deadline = match at.is_null() {
            true => None,
            false => of_call(c, c.read_value::<Timespec>(at.0)?.to_duration()?),
        };
        Ok(Timeout { at, micro: false, deadline })
    }

    /// A `struct timeval` with microseconds that need not be normalised.
    pub fn timeval(c: &Current, at: Ptr) -> Result<Timeout> {
        if at.is_null() {
            return Ok(Timeout { at, micro: true, deadline: None });
        }
        let t: Timeval = c.read_value(at.0)?;
        let sec = t.sec.checked_add(t.usec.div_euclid(1_000_000)).ok_or(Errno::EINVAL)?;
        let sec = u64::try_from(sec).map_err(|_| Errno::EINVAL)?;
        if t.usec < 0 {
            return Err(Errno::EINVAL);
        }
        let deadline = of_call(c, Duration::new(sec, t.usec.rem_euclid(1_000_000) as u32 * 1000));
        Ok(Timeout { at, micro: true, deadline })
    }

    /// Writes what is left back; memory that cannot be written is left alone.
    pub fn finish(&self, c: &mut Current) {
        if self.at.is_null() {
            return;
        }
        let Some(d) = self.deadline else { return };
        let personality = c.task.group.personality.load(Ordering::Relaxed);
        if personality & libc::STICKY_TIMEOUTS as u32 != 0 {
            return;
        }
        let left = d.saturating_duration_since(Instant::now());
        let _ = match self.micro {
            true => c.write_value(self.at.0, &Timeval::from(left)),
            false => c.write_value(self.at.0, &Timespec::from(left)),
        };
    }
}

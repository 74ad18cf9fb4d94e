//! Waiting for what others do outside this kernel, where the host does not say when: how often to ask again.
//!
//! Lock rank: none is taken. A checkpoint keeps nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The number of threads of a kernel that wait for processes outside.
#[derive(Default)]
pub struct OutsideWaits(AtomicUsize);

/// When one waiter asks the host again: after an eighth of the time that it has waited, but at least 1 ms and at most 50 ms,
/// and so that all waiters of the sandbox together ask no more than 4,000 times in a second.
pub struct Pace<'a> {
    waits: &'a OutsideWaits,
    /// Since when it waits for a process outside.
    since: Cell<Option<Instant>>,
}

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);
const SHARE: Duration = Duration::from_micros(250);

impl Pace<'_> {
    /// For one wait among `waits`.
    pub fn new(waits: &OutsideWaits) -> Pace<'_> {
        Pace { waits, since: Cell::new(None) }
    }

    /// The next moment to ask at.
    pub fn next(&self) -> Instant {
        let now = Instant::now();
        let since = self.since.get().unwrap_or_else(|| {
            self.waits.0.fetch_add(1, Ordering::Relaxed);
            self.since.set(Some(now));
            now
        });
        now + pause(now - since, self.waits.0.load(Ordering::Relaxed))
    }
}

fn pause(waited: Duration, waiters: usize) -> Duration {
    let share = SHARE.saturating_mul(u32::try_from(waiters).unwrap_or(u32::MAX));
    (waited / 8).clamp(SHORTEST, LONGEST).max(share)
}

impl Drop for Pace<'_> {
    fn drop(&mut self) {
        if self.since.get().is_some() {
            self.waits.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_waiters_ask_rarely() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(0), 1), ms(1));
        assert_eq!(pause(ms(80), 1), ms(10));
        assert_eq!(pause(ms(10_000), 1), ms(50));
        assert_eq!(pause(ms(0), 10_000), ms(2500));
    }

    #[test]
    fn waiters_count_while_they_wait() {
        let waits = OutsideWaits::default();
        {
            let (one, two) = (Pace::new(&waits), Pace::new(&waits));
            assert!(one.next() > Instant::now());
            one.next();
            assert_eq!(waits.0.load(Ordering::Relaxed), 1);
            two.next();
            assert_eq!(waits.0.load(Ordering::Relaxed), 2);
        }
        assert_eq!(waits.0.load(Ordering::Relaxed), 0);
    }
}

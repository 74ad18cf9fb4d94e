//! Waiting for what others do outside this kernel: how many threads may wait on the host, and how often to ask again
//! where none does.
//!
//! Lock rank: none is taken. A checkpoint keeps nothing.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The number of threads of a kernel that wait for processes outside.
#[derive(Default)]
pub struct OutsideWaits {
    /// Those that ask again and again.
    asking: AtomicUsize,
    /// Threads that wait on the host for others.
    helpers: Arc<AtomicUsize>,
}

/// Helping threads of a kernel at most.
const HELPERS: usize = 32;

impl OutsideWaits {
    /// Counts a thread that is to wait on the host for another one, until the answer is dropped. `None` when there are
    /// enough.
    pub fn helper(&self) -> Option<HelperSlot> {
        let relaxed = Ordering::Relaxed;
        let more = |helpers| (helpers < HELPERS).then_some(helpers + 1);
        self.helpers.fetch_update(relaxed, relaxed, more).ok()?;
        Some(HelperSlot(self.helpers.clone()))
    }
}

/// One helping thread.
pub struct HelperSlot(Arc<AtomicUsize>);

impl Drop for HelperSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

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
            self.waits.asking.fetch_add(1, Ordering::Relaxed);
            self.since.set(Some(now));
            now
        });
        now + pause(now - since, self.waits.asking.load(Ordering::Relaxed))
    }
}

fn pause(waited: Duration, waiters: usize) -> Duration {
    let share = SHARE.saturating_mul(u32::try_from(waiters).unwrap_or(u32::MAX));
    (waited / 8).clamp(SHORTEST, LONGEST).max(share)
}

impl Drop for Pace<'_> {
    fn drop(&mut self) {
        if self.since.get().is_some() {
            self.waits.asking.fetch_sub(1, Ordering::Relaxed);
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
    fn helpers_are_bounded() {
        let waits = OutsideWaits::default();
        let mut slots: Vec<_> = (0..HELPERS).map(|_| waits.helper().unwrap()).collect();
        assert!(waits.helper().is_none());
        slots.pop();
        assert!(waits.helper().is_some());
    }

    #[test]
    fn waiters_count_while_they_wait() {
        let waits = OutsideWaits::default();
        {
            let (one, two) = (Pace::new(&waits), Pace::new(&waits));
            assert!(one.next() > Instant::now());
            one.next();
            assert_eq!(waits.asking.load(Ordering::Relaxed), 1);
            two.next();
            assert_eq!(waits.asking.load(Ordering::Relaxed), 2);
        }
        assert_eq!(waits.asking.load(Ordering::Relaxed), 0);
    }
}

//! What threads do, counted for those that watch the sandbox. See docs/metrics.md.
//!
//! Each thread counts for itself, without an atomic exchange. `activity` adds up the threads of a container.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of one thread. Only the thread itself changes them.
#[derive(Default)]
pub struct Counts {
    calls: AtomicU64,
    opens: AtomicU64,
    signals: AtomicU64,
    faults: AtomicU64,
}

/// Gives what it was before.
fn bump(count: &AtomicU64) -> u64 {
    let before = count.load(Ordering::Relaxed);
    count.store(before.wrapping_add(1), Ordering::Relaxed);
    before
}

impl Counts {
    /// The thread has made a system call; how many it had made before.
    #[inline]
    pub fn call(&self) -> u64 {
        bump(&self.calls)
    }

    /// System calls.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// It has opened a file.
    #[inline]
    pub fn open(&self) {
        bump(&self.opens);
    }

    /// It has taken a signal.
    pub(crate) fn signal(&self) {
        bump(&self.signals);
    }

    /// Its program has faulted.
    pub(crate) fn fault(&self) {
        bump(&self.faults);
    }

    /// System calls, files opened, signals, faults.
    pub(crate) fn now(&self) -> [u64; 4] {
        [&self.calls, &self.opens, &self.signals, &self.faults].map(|count| count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_for_itself() {
        let counts = Counts::default();
        counts.call();
        counts.call();
        counts.open();
        counts.signal();
        counts.fault();
        assert_eq!(counts.now(), [2, 1, 1, 1]);
    }
}

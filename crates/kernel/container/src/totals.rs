//! Counts of a container that outlive its tasks.
//!
//! They change when a task is made and when one leaves, and are read when a watcher asks for them. What a thread does
//! meanwhile is counted by the thread alone (`task::Counts`).

use std::sync::atomic::{AtomicU64, Ordering};

/// Processes and threads that were made, and what the threads that have left did.
#[derive(Default)]
pub struct Totals {
    processes: AtomicU64,
    threads: AtomicU64,
    left: [AtomicU64; Totals::COUNTS],
}

impl Totals {
    /// Counts of a thread.
    pub const COUNTS: usize = 8;

    /// A process was made.
    pub fn process_made(&self) {
        self.processes.fetch_add(1, Ordering::Relaxed);
    }

    /// A further thread of a process was made.
    pub fn thread_made(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// How many processes and how many further threads were made.
    pub fn made(&self) -> (u64, u64) {
        (self.processes.load(Ordering::Relaxed), self.threads.load(Ordering::Relaxed))
    }

    /// A thread has left that did so much.
    pub fn add(&self, counts: [u64; Totals::COUNTS]) {
        for (all, more) in self.left.iter().zip(counts) {
            all.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// What the threads that have left did.
    pub fn left(&self) -> [u64; Totals::COUNTS] {
        self.left.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_leave_are_added_up() {
        let totals = Totals::default();
        totals.process_made();
        totals.thread_made();
        totals.thread_made();
        totals.add([1, 2, 3, 4, 5, 6, 7, 8]);
        totals.add([1; Totals::COUNTS]);
        assert_eq!((totals.made(), totals.left()), ((1, 2), [2, 3, 4, 5, 6, 7, 8, 9]));
    }
}

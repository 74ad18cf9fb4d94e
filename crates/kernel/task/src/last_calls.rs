//! The last system calls of each thread, for the report of a crash of the sentry.
//!
//! The thread itself writes, without a lock or an atomic exchange: 1 ns for each call. Another thread that reads meanwhile may
//! see an entry that is half written; in a report it reads when the thread stands still or has died. Calls that a platform
//! answers by itself are not seen. A checkpoint keeps nothing.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many are kept.
const KEPT: usize = 4;
/// Result of a call that is made again or goes on elsewhere.
const NO_RESULT: u64 = i64::MIN as u64;

/// Number plus one, arguments, result: one cache line.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Entry([AtomicU64; 8]);

/// Those of one thread.
#[derive(Debug, Default)]
pub struct LastCalls([Entry; KEPT]);

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastCall {
    /// Its number.
    pub nr: u64,
    /// Its arguments.
    pub args: [u64; 6],
    /// What it returned, as a register holds it; `None` when it was interrupted to be made again, or has not finished.
    pub result: Option<i64>,
}

impl LastCalls {
    /// A call begins, the `n`th of the thread.
    #[inline]
    pub fn begin(&self, n: u64, nr: u64, args: &[u64; 6]) {
        let entry = &self.0[n as usize % KEPT].0;
        entry[0].store(nr.wrapping_add(1), Ordering::Relaxed);
        for (place, arg) in entry[1..7].iter().zip(args) {
            place.store(*arg, Ordering::Relaxed);
        }
        entry[7].store(NO_RESULT, Ordering::Relaxed);
    }

    /// It ends.
    #[inline]
    pub fn end(&self, n: u64, result: u64) {
        self.0[n as usize % KEPT].0[7].store(result, Ordering::Relaxed);
    }

    /// Those of a thread that has made `count` calls, the last one first.
    pub fn list(&self, count: u64) -> impl Iterator<Item = LastCall> {
        let first = count.saturating_sub(KEPT as u64);
        (first..count).rev().filter_map(|n| {
            let [nr, args @ .., result] = self.0[n as usize % KEPT].0.each_ref();
            let word = |place: &AtomicU64| place.load(Ordering::Relaxed);
            let result = Some(word(result)).filter(|result| *result != NO_RESULT);
            Some(LastCall {
                nr: word(nr).checked_sub(1)?,
                args: args.map(word),
                result: result.map(|result| result as i64),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept() {
        let calls = LastCalls::default();
        assert_eq!(calls.list(0).count(), 0);
        for n in 0..10 {
            calls.begin(n, 100 + n, &[n; 6]);
            if n < 9 {
                calls.end(n, n.wrapping_sub(8));
            }
        }
        let all: Vec<_> = calls.list(10).collect();
        assert_eq!(all.len(), KEPT);
        assert_eq!(all[0], LastCall { nr: 109, args: [9; 6], result: None });
        assert_eq!(all[1], LastCall { nr: 108, args: [8; 6], result: Some(0) });
        assert_eq!(all[2].result, Some(-1));
    }
}

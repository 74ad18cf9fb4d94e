//! Large storage that queues have given back, kept for a while for the next that needs it.
//!
//! A program that answers requests fills its queue and drains it each time. Without this each answer would map, fill and unmap
//! megabytes. What is kept counts in the memory that the queues count in. Buffers that nothing has needed for a period go, all
//! go when memory is scarce, and the bytes have a bound. The lock is a leaf.

use ktime::Ktime;
use lock_order::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The smallest buffers, as a power of two; the C library's heap is good at smaller ones.
const SMALLEST: u32 = 17;
/// Sizes: the largest is 8 MiB, what `tcp_rmem` and `tcp_wmem` come to.
const SIZES: usize = 7;
/// Bytes in all.
const MOST: usize = 64 << 20;
/// How long a buffer stays that nothing needs, twice this at most.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// Buffers of one size.
#[derive(Debug, Default)]
struct Shelf {
    buffers: Vec<Vec<u8>>,
    /// The fewest that there were in this period: so many were not needed.
    fewest: usize,
}

/// The buffers.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    shelves: Mutex<[Shelf; SIZES]>,
    bytes: AtomicUsize,
    /// When the period began, in nanoseconds.
    since: AtomicU64,
}

/// The shelf for buffers of `size` bytes.
fn shelf(size: usize) -> Option<usize> {
    let place = size.is_power_of_two().then(|| size.trailing_zeros())?.checked_sub(SMALLEST)? as usize;
    (place < SIZES).then_some(place)
}

impl Spares {
    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes a buffer of `size` bytes, whatever they are.
    pub fn take(&self, size: usize) -> Option<Vec<u8>> {
        let place = shelf(size).filter(|_| self.bytes() > 0)?;
        let mut shelves = self.shelves.lock();
        let shelf = shelves.get_mut(place)?;
        let buffer = shelf.buffers.pop()?;
        shelf.fewest = shelf.fewest.min(shelf.buffers.len());
        self.bytes.fetch_sub(size, Ordering::Relaxed);
        Some(buffer)
    }

    /// Keeps a buffer, unless it has no shelf or more than `most` bytes would be kept.
    pub fn keep(&self, buffer: Vec<u8>, most: usize) {
        let size = buffer.len();
        let Some(place) = shelf(size) else { return };
        let mut shelves = self.shelves.lock();
        if self.bytes() + size > most.min(MOST) {
            return;
        }
        if let Some(shelf) = shelves.get_mut(place) {
            shelf.buffers.push(buffer);
            self.bytes.fetch_add(size, Ordering::Relaxed);
        }
    }

    /// Drops what a period did not need when it is over. Stacks that share the buffers each look when a period of theirs is over.
    /// True when that was now.
    pub fn age(&self, now: Ktime) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        let over = now.since(Ktime::from_nanos(since)) >= PERIOD;
        let begin = || self.since.compare_exchange(since, now.nanos(), Ordering::Relaxed, Ordering::Relaxed);
        let ages = over && begin().is_ok();
        if ages {
            self.drop_some(|shelf| shelf.fewest.min(shelf.buffers.len()));
        }
        ages
    }

    /// Drops all.
    pub fn clear(&self) {
        self.drop_some(|shelf| shelf.buffers.len());
    }

    fn drop_some(&self, count: impl Fn(&Shelf) -> usize) {
        let mut dropped = Vec::new();
        let mut shelves = self.shelves.lock();
        for shelf in shelves.iter_mut() {
            let n = count(shelf);
            dropped.extend(shelf.buffers.drain(..n));
            shelf.fewest = shelf.buffers.len();
        }
        self.bytes.fetch_sub(dropped.iter().map(Vec::len).sum(), Ordering::Relaxed);
        // The host takes its time with the pages.
        drop(shelves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_goes_and_there_is_a_bound() {
        let (spares, buffer) = (Spares::default(), || vec![0; 1 << 20]);
        spares.keep(vec![0; 65_536], usize::MAX);
        spares.keep(vec![0; (1 << 20) + 1], usize::MAX);
        spares.keep(vec![0; 16 << 20], usize::MAX);
        assert_eq!(spares.bytes(), 0);
        (0..3).for_each(|_| spares.keep(buffer(), 2 << 20));
        assert_eq!(spares.bytes(), 2 << 20);
        // One of two is used all the time.
        let after = |periods| Ktime::from_millis(100_000).plus(PERIOD * periods);
        spares.age(after(0));
        for _ in 0..3 {
            let used = spares.take(1 << 20).unwrap();
            assert!(spares.take(2 << 20).is_none());
            spares.keep(used, usize::MAX);
        }
        spares.age(after(0));
        assert_eq!(spares.bytes(), 2 << 20);
        spares.age(after(1));
        assert_eq!(spares.bytes(), 1 << 20);
        spares.age(after(2));
        assert_eq!(spares.bytes(), 0);
        (0..100).for_each(|_| spares.keep(buffer(), usize::MAX));
        assert_eq!(spares.bytes(), MOST);
        spares.clear();
        assert_eq!(spares.bytes(), 0);
    }
}

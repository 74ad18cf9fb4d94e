//! A readers-writer lock for data that many threads read and that seldom change: the names of `/usr/lib`, the
//! descriptor table of a program with many threads. All readers of an ordinary lock write to its one word, so
//! independent threads wait for each other's cache lines. Here a reader notes the lock in a cache line of its own.
//!
//! A lock is *biased* towards readers, or plain. While it is biased, a reader only stores the lock's address in its
//! thread's row and checks that the lock is still biased. A writer takes the plain lock below, ends the bias and waits
//! until no row names the lock any more. That is expensive, so a lock that was written stays plain until it has been
//! read many times without a write. The idea is BRAVO's: Dice and Kogan, "BRAVO - Biased Locking for Reader-Writer
//! Locks", USENIX ATC 2019.

#![expect(unsafe_code, reason = "a raw lock promises exclusion to the safe lock around it")]

use parking_lot::RawRwLock;
use parking_lot::lock_api::{self, GuardNoSend};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The lock with what it protects. Guards stay on their thread.
pub type RwLock<T> = lock_api::RwLock<Raw, T>;
/// Shared access.
pub type ReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, Raw, T>;
/// Exclusive access.
pub type WriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, Raw, T>;

/// Biased locks that one thread can hold for reading at the same time; more are taken plainly.
const SLOTS: usize = 16;

/// Plain reads without a write between after which a lock is biased; per thread a few more, since a writer looks at all.
const READS: u32 = 64;
const READS_PER_THREAD: u32 = 4;

/// The addresses of the biased locks that a thread holds for reading; 0 for none. Written by that thread only.
#[repr(align(128))]
struct Row([AtomicUsize; SLOTS]);

/// Every row that was ever used, and the rows of threads that have ended.
struct Rows {
    all: Vec<&'static Row>,
    free: Vec<&'static Row>,
}

static ROWS: parking_lot::Mutex<Rows> = parking_lot::Mutex::new(Rows { all: Vec::new(), free: Vec::new() });

/// Gives the row back when its thread ends.
struct Tenant;

impl Drop for Tenant {
    fn drop(&mut self) {
        let Some(row) = MINE.get() else { return };
        // A guard that was forgotten keeps its lock for ever, and so its row.
        if row.0.iter().all(|s| s.load(Ordering::Relaxed) == 0) {
            MINE.set(None);
            ROWS.lock().free.push(row);
        }
    }
}

thread_local! {
    // Without a destructor, so that guards can be dropped as long as the thread runs.
    static MINE: Cell<Option<&'static Row>> = const { Cell::new(None) };
    static TENANT: Tenant = const { Tenant };
}

/// This thread's row; `None` when the thread is about to end.
fn mine() -> Option<&'static Row> {
    MINE.get().or_else(move_in)
}

#[cold]
fn move_in() -> Option<&'static Row> {
    TENANT.try_with(|_| ()).ok()?;
    let mut rows = ROWS.lock();
    let row = rows.free.pop().unwrap_or_else(|| {
        let row: &'static Row = Box::leak(Box::new(Row([const { AtomicUsize::new(0) }; SLOTS])));
        rows.all.push(row);
        row
    });
    MINE.set(Some(row));
    Some(row)
}

/// The lock without what it protects; used through [`RwLock`].
pub struct Raw {
    plain: RawRwLock,
    /// Reads until the lock is biased; 0 while it is. Changes under the plain lock only: held exclusively from 0; held
    /// shared, or exclusively by a writer that did not get the lock, to 0.
    reads: AtomicU32,
}

impl Raw {
    fn name(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Shares the lock without touching it. False when it is not biased (any more).
    fn quick(&self) -> bool {
        if self.reads.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let Some(slot) = mine().and_then(|row| row.0.iter().find(|s| s.load(Ordering::Relaxed) == 0)) else {
            return false;
        };
        // Either the writer's look at the rows sees this, or the look at `reads` sees the writer's store: both are
        // in the one order of sequentially consistent operations.
        slot.swap(self.name(), Ordering::SeqCst);
        if self.reads.load(Ordering::SeqCst) == 0 {
            return true;
        }
        slot.store(0, Ordering::Release);
        false
    }

    /// One plain read more; the caller holds the plain lock shared, so no writer is about.
    fn count(&self) {
        let left = self.reads.load(Ordering::Relaxed);
        if left != 0 {
            // Counting less than there were does no harm.
            let _ = self.reads.compare_exchange(left, left - 1, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Ends the bias; the caller holds the plain lock exclusively. False when there are readers still and `wait` is
    /// false.
    fn revoke(&self, wait: bool) -> bool {
        if self.reads.load(Ordering::Relaxed) != 0 {
            self.reads.store(READS, Ordering::Relaxed);
            return true;
        }
        self.reads.store(u32::MAX, Ordering::SeqCst);
        let rows = ROWS.lock();
        let again = READS.saturating_add(READS_PER_THREAD.saturating_mul(rows.all.len() as u32));
        let held = |row: &&Row| row.0.iter().any(|s| s.load(Ordering::SeqCst) == self.name());
        let busy: Vec<&'static Row> = rows.all.iter().copied().filter(held).collect();
        drop(rows);
        if !wait && !busy.is_empty() {
            self.reads.store(0, Ordering::Release);
            return false;
        }
        self.reads.store(again, Ordering::Relaxed);
        for row in busy {
            // If a reader had to wake a writer, it would have to read a cache line of the lock. So the writer polls
            // instead.
            let mut tries = 0u32;
            while held(&row) {
                tries += 1;
                match tries {
                    0..64 => std::hint::spin_loop(),
                    64..128 => std::thread::yield_now(),
                    _ => std::thread::sleep(std::time::Duration::from_micros(50)),
                }
            }
        }
        true
    }
}

// SAFETY: a writer holds the plain lock exclusively, so there is no other writer and no plain reader. A biased reader
// stored its address in its row and then saw `reads` be 0. `revoke` stores something else before it looks at the rows;
// all four are sequentially consistent: either the look finds the address and the writer waits for it to go, or the
// reader's load comes after the store and the reader withdraws. A row that is registered after the writer's look takes
// the lock of the list after the writer did, and so sees the store. `reads` becomes 0 again only under the plain
// lock held shared, when no writer is inside, or by a writer that gives up before it is. `unlock_shared` takes back one
// biased or one plain share of this thread; guards do not leave their thread, so the shares a thread has of one lock
// are interchangeable.
unsafe impl lock_api::RawRwLock for Raw {
    const INIT: Raw = Raw { plain: RawRwLock::INIT, reads: AtomicU32::new(READS) };
    type GuardMarker = GuardNoSend;

    fn lock_shared(&self) {
        if !self.quick() {
            self.plain.lock_shared();
            self.count();
        }
    }

    fn try_lock_shared(&self) -> bool {
        if self.quick() {
            return true;
        }
        let got = self.plain.try_lock_shared();
        if got {
            self.count();
        }
        got
    }

    unsafe fn unlock_shared(&self) {
        let slot = MINE.get().and_then(|row| row.0.iter().find(|s| s.load(Ordering::Relaxed) == self.name()));
        match slot {
            Some(slot) => slot.store(0, Ordering::Release),
            // SAFETY: this thread has a share, and no biased one.
            None => unsafe { self.plain.unlock_shared() },
        }
    }

    fn lock_exclusive(&self) {
        self.plain.lock_exclusive();
        self.revoke(true);
    }

    fn try_lock_exclusive(&self) -> bool {
        if !self.plain.try_lock_exclusive() {
            return false;
        }
        let got = self.revoke(false);
        if !got {
            // SAFETY: taken above.
            unsafe { self.plain.unlock_exclusive() };
        }
        got
    }

    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller has it.
        unsafe { self.plain.unlock_exclusive() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::lock_api::RawRwLock as _;
    use std::sync::atomic::AtomicBool;

    fn biased<T>(lock: &RwLock<T>) -> bool {
        // SAFETY: only looked at.
        unsafe { lock.raw() }.reads.load(Ordering::Relaxed) == 0
    }

    fn read_often<T>(lock: &RwLock<T>) {
        for _ in 0..100_000 {
            drop(lock.read());
            if biased(lock) {
                return;
            }
        }
        panic!("never biased");
    }

    #[test]
    fn reads_bias_and_a_write_ends_it() {
        let lock = RwLock::new(1);
        read_often(&lock);
        *lock.write() += 1;
        assert!(!biased(&lock));
        assert_eq!(*lock.read(), 2);
        read_often(&lock);
        assert_eq!(*lock.read(), 2);
    }

    #[test]
    fn a_biased_reader_keeps_writers_out() {
        let lock = RwLock::new(0);
        read_often(&lock);
        let guard = lock.read();
        std::thread::scope(|s| {
            assert!(s.spawn(|| lock.try_write().is_none()).join().unwrap());
            // The attempt left the reader what it was.
            assert!(s.spawn(|| lock.try_write().is_none()).join().unwrap());
            let writer = s.spawn(|| *lock.write() = 1);
            // SAFETY: only looked at.
            while !unsafe { lock.raw() }.plain.is_locked_exclusive() {
                std::thread::yield_now();
            }
            assert!(!writer.is_finished());
            assert_eq!(*guard, 0);
            drop(guard);
            writer.join().unwrap();
        });
        assert_eq!(*lock.read(), 1);
    }

    #[test]
    fn more_locks_than_slots() {
        let locks: Vec<RwLock<usize>> = (0..3 * SLOTS).map(RwLock::new).collect();
        locks.iter().for_each(read_often);
        let twice: Vec<_> = locks.iter().chain(&locks).map(|l| l.read()).collect();
        assert!(locks.iter().all(|l| l.try_write().is_none()));
        drop(twice);
        assert!(locks.iter().all(|l| l.try_write().is_some()));
    }

    #[test]
    fn shares_of_one_lock_taken_both_ways() {
        let lock = RwLock::new(());
        let plain = lock.read();
        read_often(&lock);
        let quick = lock.read();
        drop(plain);
        assert!(lock.try_write().is_none());
        drop(quick);
        assert!(lock.try_write().is_some());
    }

    #[test]
    fn rows_are_used_again() {
        let lock = RwLock::new(());
        read_often(&lock);
        for _ in 0..200 {
            std::thread::scope(|s| {
                s.spawn(|| drop(lock.read()));
            });
        }
        assert!(ROWS.lock().all.len() < 100);
    }

    #[test]
    fn readers_never_see_half_a_write() {
        let locks: Vec<RwLock<[u64; 8]>> = (0..4).map(|_| RwLock::new([0; 8])).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            for t in 0..4 {
                let (locks, stop) = (&locks, &stop);
                s.spawn(move || {
                    let mut i = t;
                    while !stop.load(Ordering::Relaxed) {
                        i += 1;
                        let (a, b) = (locks[i % 4].read(), locks[(i + 1) % 4].try_read());
                        for v in [Some(*a), b.as_deref().copied()].into_iter().flatten() {
                            assert!(v.iter().all(|x| *x == v[0]), "{v:?}");
                        }
                        drop((a, b));
                        // Reads come in runs, so that locks are biased now and then.
                        if i % 10_000 == 0 {
                            let l = &locks[i / 10_000 % 4];
                            let mut w = if t < 2 { Some(l.write()) } else { l.try_write() };
                            for x in w.iter_mut().flat_map(|w| w.iter_mut()) {
                                *x += 1;
                            }
                        }
                    }
                });
            }
            while locks.iter().map(|l| l.read()[0]).sum::<u64>() < 1_000 {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

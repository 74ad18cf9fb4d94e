//! Locks with a rank: in debug builds a thread that takes a lock whose rank
//! is not above every rank it holds panics, so that a lock order that could
//! deadlock fails in the first test that meets it.
//!
//! Ranks grow inwards: outermost locks have the lowest rank. Two locks of one
//! rank may not be held together. A lock without a rank of its own is a leaf: while it is held, no other is taken.

#![forbid(unsafe_code)]

use parking_lot::{
    Mutex as RawMutex, MutexGuard as RawMutexGuard, RwLock as RawRwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::ops::{Deref, DerefMut};

/// Ranks of the kernel's locks, outermost first.
pub mod rank {
    /// The position of an open file: held across reads and writes.
    pub const FILE_POSITION: u8 = 2;
    /// One epoll begins to watch another.
    pub const EPOLL_NESTING: u8 = 3;
    /// An epoll looks for what is ready. One that watches another holds two.
    pub const EPOLL_SCAN: u8 = 4;
    /// Root and working directory change.
    pub const FS_CONTEXT: u8 = 6;
    /// F_SETOWN and F_SETSIG of an open file.
    pub const FILE_OWNER: u8 = 8;
    /// A terminal.
    pub const TERMINAL: u8 = 9;
    /// Task tree: parents, children, groups, sessions.
    pub const TASKS: u8 = 10;
    /// Signal state shared by a thread group.
    pub const SIGNALS: u8 = 20;
    /// Address space operations (held while the guest executes them).
    pub const MM_OPS: u8 = 30;
    /// The record of mappings.
    pub const MM_MAP: u8 = 35;
    /// Mount table.
    pub const MOUNTS: u8 = 50;
    /// Renames across directories of one file system.
    pub const RENAME: u8 = 55;
    /// Names of a directory change. A rename holds several: parents before children.
    pub const DIRECTORY: u8 = 60;
    /// POSIX and OFD locks of an inode.
    pub const RECORD_LOCKS: u8 = 62;
    /// A table of System V objects, of message queues or of FIFOs.
    pub const IPC_TABLE: u8 = 64;
    /// A System V object, a pipe. tee(2) and splice(2) hold two pipes.
    pub const IPC_OBJECT: u8 = 66;
    /// An inotify instance.
    pub const INOTIFY: u8 = 74;
    /// Entries of a directory of tmpfs; rmdir(2) and rename(2) hold two.
    pub const TMPFS_DIR: u8 = 76;
    /// Content of a file of tmpfs, limits of an instance.
    pub const TMPFS_CONTENT: u8 = 78;
    /// The files of an instance of tmpfs whose use of memory is to be counted.
    pub const TMPFS_INEXACT: u8 = 79;
    /// Pages of a file in memory.
    pub const MEMORY_FILE: u8 = 80;
    /// The texts that open files of /proc hold, oldest first.
    pub const SNAPSHOTS: u8 = 82;
    /// Locks under which no other is taken.
    pub const LEAF: u8 = 255;
}

#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;
    thread_local! { static HELD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) }; }
    #[track_caller]
    pub fn enter(rank: u8, nested: bool) {
        HELD.with_borrow_mut(|h| {
            if let Some(&top) = h.iter().max() {
                let inner = rank > top || nested && rank == top;
                assert!(inner, "lock order: rank {rank} taken while rank {top} is held ({h:?})");
            }
            h.push(rank);
        });
    }
    pub fn leave(rank: u8) {
        HELD.with_borrow_mut(|h| {
            if let Some(i) = h.iter().rposition(|&r| r == rank) {
                h.remove(i);
            }
        });
    }
}

/// Notes that this thread holds a lock of rank `R`, for debug builds.
struct Held<const R: u8>;

impl<const R: u8> Held<R> {
    #[track_caller]
    fn new(nested: bool) -> Held<R> {
        #[cfg(debug_assertions)]
        held::enter(R, nested);
        let _ = nested;
        Held
    }
}

#[cfg(debug_assertions)]
impl<const R: u8> Drop for Held<R> {
    fn drop(&mut self) {
        held::leave(R);
    }
}

/// A mutex of rank `R`; a leaf where none is named.
#[derive(Default, Debug)]
pub struct Mutex<T, const R: u8 = { rank::LEAF }>(RawMutex<T>);

impl<T, const R: u8> Mutex<T, R> {
    /// Wraps a value.
    pub const fn new(v: T) -> Self {
        Mutex(RawMutex::new(v))
    }

    /// Takes the lock.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T, R> {
        let held = Held::new(false);
        MutexGuard { inner: self.0.lock(), _held: held }
    }

    /// Takes the lock while another one of its rank may be held: the caller keeps an order among those.
    #[track_caller]
    pub fn lock_nested(&self) -> MutexGuard<'_, T, R> {
        let held = Held::new(true);
        MutexGuard { inner: self.0.lock(), _held: held }
    }

    /// Takes the lock if nobody has it. Not held to the order, as it never waits.
    pub fn try_lock(&self) -> Option<RawMutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Whether somebody has the lock.
    pub fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    /// The value, when the mutex is owned.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// A lock for one writer or many readers, of rank `R`; a leaf where none is named.
#[derive(Default, Debug)]
pub struct RwLock<T, const R: u8 = { rank::LEAF }>(RawRwLock<T>);

impl<T, const R: u8> RwLock<T, R> {
    /// Wraps a value.
    pub const fn new(v: T) -> Self {
        RwLock(RawRwLock::new(v))
    }

    /// Takes the lock for reading.
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T, R> {
        let held = Held::new(false);
        ReadGuard { inner: self.0.read(), _held: held }
    }

    /// Takes the lock for writing.
    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_, T, R> {
        let held = Held::new(false);
        WriteGuard { inner: self.0.write(), _held: held }
    }

    /// The value, when the lock is owned.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

macro_rules! guards { ($($(#[$doc:meta])* $name:ident($raw:ident);)*) => { $(
    $(#[$doc])*
    pub struct $name<'a, T, const R: u8 = { rank::LEAF }> {
        // Dropped first: the lock is free before it no longer counts as held.
        inner: $raw<'a, T>,
        _held: Held<R>,
    }

    impl<T, const R: u8> Deref for $name<'_, T, R> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.inner
        }
    }
)* } }

guards! {
    /// Holds a [`Mutex`].
    MutexGuard(RawMutexGuard);
    /// Holds a [`RwLock`] for reading.
    ReadGuard(RwLockReadGuard);
    /// Holds a [`RwLock`] for writing.
    WriteGuard(RwLockWriteGuard);
}

impl<T, const R: u8> DerefMut for MutexGuard<'_, T, R> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T, const R: u8> DerefMut for WriteGuard<'_, T, R> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_checked() {
        let (a, b) = (Mutex::<_, 10>::new(1), Mutex::<_, 20>::new(2));
        let g = a.lock();
        assert_eq!(*b.lock() + *g, 3);
        drop(g);
        if cfg!(debug_assertions) {
            let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _b = b.lock();
                let _a = a.lock();
            }));
            assert!(r.is_err());
        }
    }
}

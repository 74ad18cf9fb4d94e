//! Mutexes with a rank: in debug builds a thread that takes a lock whose rank
//! is not above every rank it holds panics, so that a lock order that could
//! deadlock fails in the first test that meets it.
//!
//! Ranks grow inwards: outermost locks have the lowest rank. Two locks of one
//! rank may not be held together.

#![forbid(unsafe_code)]

use parking_lot::{Mutex as Raw, MutexGuard as RawGuard};
use std::ops::{Deref, DerefMut};

/// Ranks of the kernel's locks, outermost first.
pub mod rank {
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
}

#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;
    thread_local! { static HELD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) }; }
    pub fn enter(rank: u8) {
        HELD.with_borrow_mut(|h| {
            if let Some(&top) = h.iter().max() {
                assert!(rank > top, "lock order: rank {rank} taken while rank {top} is held ({h:?})");
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

/// A mutex of rank `R`.
#[derive(Default, Debug)]
pub struct Mutex<T, const R: u8>(Raw<T>);

impl<T, const R: u8> Mutex<T, R> {
    /// Wraps a value.
    pub const fn new(v: T) -> Self {
        Mutex(Raw::new(v))
    }

    /// Takes the lock.
    pub fn lock(&self) -> Guard<'_, T, R> {
        #[cfg(debug_assertions)]
        held::enter(R);
        Guard(self.0.lock())
    }

    /// The value, when the mutex is owned.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// Holds a [`Mutex`].
pub struct Guard<'a, T, const R: u8>(RawGuard<'a, T>);

impl<T, const R: u8> Deref for Guard<'_, T, R> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T, const R: u8> DerefMut for Guard<'_, T, R> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(debug_assertions)]
impl<T, const R: u8> Drop for Guard<'_, T, R> {
    fn drop(&mut self) {
        held::leave(R);
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

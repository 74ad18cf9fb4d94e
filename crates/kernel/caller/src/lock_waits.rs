//! Waits for POSIX record locks of one kernel. A cycle among them is a deadlock. Lock: a leaf. A checkpoint keeps nothing.

use abi::{Errno, Result};
use lock_order::Mutex;

/// The holder of a record lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Owner {
    /// A descriptor table.
    Posix(u64),
    /// An open file.
    File(u64),
    /// A process outside this kernel.
    Outside,
}

/// (waiter, holder) pairs of POSIX locks.
#[derive(Default)]
pub struct LockWaits(Mutex<Vec<(Owner, Owner)>>);

/// A wait that is entered, until it is dropped.
pub struct Waiting<'a>(&'a LockWaits, Owner);

impl Waiting<'_> {
    /// Enters the wait, or EDEADLK.
    pub fn enter(waits: &LockWaits, who: Owner, on: Owner) -> Result<Waiting<'_>> {
        let mut w = waits.0.lock();
        let mut seen = vec![on];
        let mut i = 0;
        while i < seen.len() {
            if seen[i] == who {
                return Err(Errno::EDEADLK);
            }
            for (a, b) in w.iter() {
                if *a == seen[i] && !seen.contains(b) {
                    seen.push(*b);
                }
            }
            i += 1;
        }
        w.push((who, on));
        drop(w);
        Ok(Waiting(waits, who))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut w = self.0.0.lock();
        if let Some(i) = w.iter().position(|(a, _)| *a == self.1) {
            w.swap_remove(i);
        }
    }
}

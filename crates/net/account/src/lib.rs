//! Counts the memory of the packet filters of all namespaces of a kernel: rules, sets, lists and tracked connections.
//!
//! The owner of the namespaces owns the [`Account`] and gives it to each. An object that takes memory holds a
//! [`Charge`], which gives it back. No lock.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that are taken, and their bound.
#[derive(Debug)]
pub struct Account {
    used: AtomicUsize,
    limit: AtomicUsize,
}

impl Default for Account {
    /// Without a bound.
    fn default() -> Account {
        Account { used: AtomicUsize::new(0), limit: AtomicUsize::new(usize::MAX) }
    }
}

/// Too little is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Account {
    /// Bytes that are taken.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Sets the bound. What is taken already stays.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Takes bytes, if there is room for them.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<Charge, Full> {
        let limit = self.limit.load(Ordering::Relaxed);
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Charge { account: self.clone(), bytes }),
            Err(_) => Err(Full),
        }
    }
}

/// A part of an account, given back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_can_be_taken_again() {
        let account = Arc::<Account>::default();
        let all = account.take(usize::MAX).unwrap();
        assert_eq!(account.take(1).err(), Some(Full));
        drop(all);
        account.set_limit(10);
        let some = account.take(7).unwrap();
        assert_eq!(account.take(4).err(), Some(Full));
        let rest = account.take(3).unwrap();
        drop(some);
        assert_eq!(account.used(), 3);
        drop(rest);
        assert_eq!(account.used(), 0);
    }
}

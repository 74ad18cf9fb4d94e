//! A count with a limit, which can change while the file system is mounted.
//!
//! Key type: [`Limit`]. It has no lock: a charge is one atomic step. A checkpoint keeps the limit; the count follows from
//! the objects that are charged.

use abi::{Errno, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages, or bytes, in use, and how many there may be.
pub(crate) struct Limit {
    used: AtomicU64,
    max: AtomicU64,
}

impl Limit {
    /// Nothing in use, and at most `max`; `None` is unlimited.
    pub fn new(max: Option<u64>) -> Limit {
        Limit { used: AtomicU64::new(0), max: AtomicU64::new(max.unwrap_or(u64::MAX)) }
    }

    /// What is in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit, if there is one.
    pub fn max(&self) -> Option<u64> {
        Some(self.max.load(Ordering::Relaxed)).filter(|&max| max != u64::MAX)
    }

    /// Sets the limit, which may be below what is in use.
    pub fn set_max(&self, max: Option<u64>) {
        self.max.store(max.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Charges `n`; ENOSPC.
    pub fn charge(&self, n: u64) -> Result<()> {
        let max = self.max.load(Ordering::Relaxed);
        let add = |used: u64| used.checked_add(n).filter(|&used| used <= max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map(drop).map_err(|_| Errno::ENOSPC)
    }

    /// Gives `n` back.
    pub fn uncharge(&self, n: u64) {
        self.recharge(n, 0);
    }

    /// Replaces a charge of `old` by one of `new`, whatever the limit.
    pub fn recharge(&self, old: u64, new: u64) {
        let f = |used: u64| Some(used.saturating_add(new).saturating_sub(old));
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, f);
    }

    /// Whether there is a limit.
    pub fn limited(&self) -> bool {
        self.max().is_some()
    }

    /// What may still be charged.
    pub fn room(&self) -> u64 {
        self.max.load(Ordering::Relaxed).saturating_sub(self.used())
    }

    /// More is charged than the limit allows.
    pub fn exceeded(&self) -> bool {
        self.used() > self.max.load(Ordering::Relaxed)
    }

    /// ENOSPC when `n` is more than the limit.
    pub fn could_hold(&self, n: u64) -> Result<()> {
        if n > self.max.load(Ordering::Relaxed) { Err(Errno::ENOSPC) } else { Ok(()) }
    }
}

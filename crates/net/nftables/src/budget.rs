//! The memory that the rules of a namespace may take.

use abi::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes of rules, sets and names in a namespace.
pub const LIMIT: usize = 64 << 20;

/// What is taken of [`LIMIT`].
#[derive(Debug, Default)]
pub(crate) struct Budget(AtomicUsize);

impl Budget {
    /// Bytes that are taken.
    pub fn used(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A part of the budget, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Charge {
    /// Takes bytes; ENOMEM when too few are left.
    pub fn take(budget: &Arc<Budget>, bytes: usize) -> Result<Charge, Errno> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= LIMIT);
        match budget.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Charge { budget: budget.clone(), bytes }),
            Err(_) => Err(Errno::ENOMEM),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_can_be_taken_again() {
        let budget = Arc::new(Budget::default());
        let first = Charge::take(&budget, LIMIT).unwrap();
        assert_eq!(Charge::take(&budget, 1).err(), Some(Errno::ENOMEM));
        assert_eq!(Charge::take(&budget, usize::MAX).err(), Some(Errno::ENOMEM));
        drop(first);
        Charge::take(&budget, 1).unwrap();
    }
}

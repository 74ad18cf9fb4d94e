//! The memory that the rules of a namespace may take: a bound of its own, and what all namespaces may take together.

use abi::Errno;
use account::Account;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes of rules, sets and names in a namespace.
pub const LIMIT: usize = 64 << 20;

/// What is taken of [`LIMIT`].
#[derive(Debug, Default)]
pub(crate) struct Budget {
    used: AtomicUsize,
    account: Arc<Account>,
}

impl Budget {
    /// Nothing is taken. What will be counts for an account as well.
    pub fn new(account: Arc<Account>) -> Budget {
        Budget { used: AtomicUsize::new(0), account }
    }

    /// Bytes that are taken.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// A part of the budget, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
    _shared: account::Charge,
}

impl Charge {
    /// Takes bytes; ENOMEM when too few are left.
    pub fn take(budget: &Arc<Budget>, bytes: usize) -> Result<Charge, Errno> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= LIMIT);
        let shared = budget.account.take(bytes).map_err(|_| Errno::ENOMEM)?;
        match budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Charge { budget: budget.clone(), bytes, _shared: shared }),
            Err(_) => Err(Errno::ENOMEM),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
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
        // Two namespaces, each below its own bound.
        let account = Arc::<Account>::default();
        account.set_limit(100);
        let [one, two] = [(); 2].map(|()| Arc::new(Budget::new(account.clone())));
        let held = Charge::take(&one, 60).unwrap();
        assert_eq!((Charge::take(&two, 60).err(), two.used()), (Some(Errno::ENOMEM), 0));
        drop(held);
        assert!(Charge::take(&two, 60).is_ok() && account.used() == 0);
    }
}

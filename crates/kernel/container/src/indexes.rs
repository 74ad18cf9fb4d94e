//! Numbers of containers: each is free again when its container is dropped.

use lock_order::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most containers of a sandbox.
const MOST: u32 = 512;

/// The numbers that are taken.
pub(crate) struct Indexes(Mutex<BTreeSet<u32>>);

impl Indexes {
    /// Numbers of which 0 is taken.
    pub(crate) fn first() -> (Arc<Indexes>, Index) {
        let indexes = Arc::new(Indexes(Mutex::new(BTreeSet::from([0]))));
        (indexes.clone(), Index { number: 0, indexes })
    }

    /// How many are taken.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Takes the lowest free number; `None` when all are taken.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Index> {
        let mut taken = self.0.lock();
        let number = (0..MOST).find(|n| !taken.contains(n))?;
        taken.insert(number);
        Some(Index { number, indexes: self.clone() })
    }
}

/// A container's number, taken for as long as this lives.
pub(crate) struct Index {
    number: u32,
    indexes: Arc<Indexes>,
}

impl Index {
    /// The number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.indexes.0.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let (all, first) = Indexes::first();
        let mut taken = vec![first];
        taken.extend((1..MOST).map_while(|_| all.take()));
        assert!(taken.len() == MOST as usize && all.take().is_none());
        taken.remove(3);
        assert_eq!(all.take().map(|i| i.number()), Some(3));
    }
}

//! The slaves of an instance of devpts, by number.
//!
//! Lock: the table, a leaf.

use lock_order::Mutex;
use std::collections::BTreeMap;
use vfs::InodeRef;

/// The table.
#[derive(Default)]
pub(crate) struct Slaves(Mutex<BTreeMap<u32, InodeRef>>);

impl Slaves {
    /// Adds the slave that `make` makes under the lowest free number below `max`; `None` when there is no such number.
    pub fn add<T>(&self, max: u32, make: impl FnOnce(u32) -> (InodeRef, T)) -> Option<T> {
        let mut table = self.0.lock();
        let index = (0..max).find(|i| !table.contains_key(i))?;
        let (inode, made) = make(index);
        table.insert(index, inode);
        Some(made)
    }

    /// Adds the slave of a number; `None` when the number is taken, or not below `max`.
    pub fn add_at<T>(&self, index: u32, max: u32, make: impl FnOnce() -> (InodeRef, T)) -> Option<T> {
        let mut table = self.0.lock();
        if index >= max || table.contains_key(&index) {
            return None;
        }
        let (inode, made) = make();
        table.insert(index, inode);
        Some(made)
    }

    /// The pair is gone.
    pub fn remove(&self, index: u32) {
        let inode = self.0.lock().remove(&index);
        drop(inode);
    }

    /// The slave of this number.
    pub fn get(&self, index: u32) -> Option<InodeRef> {
        self.0.lock().get(&index).cloned()
    }

    /// The numbers from `first` on, in order.
    pub fn numbers(&self, first: u32) -> Vec<u32> {
        self.0.lock().range(first..).map(|(index, _)| *index).collect()
    }
}

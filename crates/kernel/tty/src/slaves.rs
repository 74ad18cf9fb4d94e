//! The slaves of an instance of devpts, by number.
//!
//! Lock: the table, a leaf.

use lock_order::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use vfs::InodeRef;
use vfs::attach::Attachments;
use vfs::notify::{self, event};

/// The table.
#[derive(Default)]
pub(crate) struct Slaves {
    table: Mutex<BTreeMap<u32, InodeRef>>,
    /// What hangs on the directory.
    directory: Arc<Attachments>,
}

impl Slaves {
    /// Adds the slave that `make` makes under the lowest free number below `max`; `None` when there is no such number.
    pub fn add<T>(&self, max: u32, make: impl FnOnce(u32) -> (InodeRef, T)) -> Option<T> {
        let mut table = self.table.lock();
        let index = (0..max).find(|i| !table.contains_key(i))?;
        let (inode, made) = make(index);
        table.insert(index, inode);
        drop(table);
        self.tell(event::CREATE, index);
        Some(made)
    }

    /// Adds the slave of a number; `None` when the number is taken, or not below `max`.
    pub fn add_at<T>(&self, index: u32, max: u32, make: impl FnOnce() -> (InodeRef, T)) -> Option<T> {
        let mut table = self.table.lock();
        if index >= max || table.contains_key(&index) {
            return None;
        }
        let (inode, made) = make();
        table.insert(index, inode);
        drop(table);
        self.tell(event::CREATE, index);
        Some(made)
    }

    /// The pair is gone.
    pub fn remove(&self, index: u32) {
        let inode = self.table.lock().remove(&index);
        self.tell(event::DELETE, index);
        if let Some(inode) = inode {
            notify::gone_outside(&inode);
        }
    }

    /// What hangs on the directory's inodes.
    pub fn attachments(&self) -> Arc<Attachments> {
        self.directory.clone()
    }

    /// Reports to watches of the directory.
    fn tell(&self, what: u32, index: u32) {
        notify::on_attachments(&self.directory, what, index.to_string().as_bytes());
    }

    /// The slave of this number.
    pub fn get(&self, index: u32) -> Option<InodeRef> {
        self.table.lock().get(&index).cloned()
    }

    /// The numbers from `first` on, in order.
    pub fn numbers(&self, first: u32) -> Vec<u32> {
        self.table.lock().range(first..).map(|(index, _)| *index).collect()
    }
}

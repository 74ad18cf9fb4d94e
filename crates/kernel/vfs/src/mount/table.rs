//! What all mounts of one kernel share: the lock under which they change, and their numbers.
//!
//! There is one lock, as events pass between namespaces.

use super::peers::Numbers;
use super::{Ids, Mount};
use crate::dentry::Dcache;
use lock_order::{Mutex, MutexGuard, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Inode number of the first mount namespace.
const MOUNT_NS: u64 = 0xf000_0000;
/// The first number that a mount gets.
const FIRST_ID: u64 = 20;
/// Where unique numbers begin: a number of 32 bits is none.
const UNIQUE: u64 = 1 << 31;

/// The mounts of a kernel.
pub struct MountTable {
    change: Mutex<(), { rank::MOUNTS }>,
    next_id: AtomicU64,
    next_ns: AtomicU64,
    /// Numbers of peer groups.
    pub peer_groups: Arc<Numbers>,
    /// What the dentries of all trees share.
    pub dcache: Arc<Dcache>,
}

impl Default for MountTable {
    fn default() -> MountTable {
        MountTable {
            change: Mutex::new(()),
            next_id: AtomicU64::new(FIRST_ID),
            next_ns: AtomicU64::new(MOUNT_NS),
            peer_groups: Arc::default(),
            dcache: Arc::default(),
        }
    }
}

impl MountTable {
    /// Makes a mount, and the tree that it shows, the kernel's: gives it its numbers, unless it has some.
    pub fn number(&self, m: &Mount) {
        m.sb.root.belong(&self.dcache, &m.sb);
        m.number(|| {
            let n = self.next_id.fetch_add(1, Ordering::Relaxed);
            Ids { id: (n & 0x7fff_ffff) as u32, unique: UNIQUE + n }
        });
    }

    /// A fresh inode number of a mount namespace.
    pub fn next_ns(&self) -> u64 {
        self.next_ns.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits for the change that is in progress.
    pub fn settle(&self) {
        drop(self.change.lock());
    }

    /// Takes the lock under which mounts change.
    pub fn lock(&self) -> MutexGuard<'_, (), { rank::MOUNTS }> {
        self.change.lock()
    }
}

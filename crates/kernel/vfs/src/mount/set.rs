//! The mounts of one namespace: their root, their number, and the queue on which changes are announced.
//!
//! The crate `mounts` changes them under its table's lock (rank MOUNTS).

use super::{Mount, Path};
use abi::{Errno, Result};
use caller::quota::Charge;
use lock_order::{Mutex, RwLock, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use user_ns::UserNamespace;
use wait::{Events, WaitQueue};

/// /proc/sys/fs/mount-max: mounts of one namespace.
pub const MOUNT_MAX: usize = 100_000;

/// Where the tree of an anonymous namespace comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// It is new, or of no namespace: every namespace may use it.
    Nowhere,
    /// A copy of a tree in the namespace with this id, which alone may use it.
    Namespace(u64),
}

/// The number of mounts, and the charges of a copied namespace.
struct Count {
    mounts: usize,
    charge: Option<Charge>,
    _namespace: Option<Charge>,
}

/// The mounts of one namespace.
pub struct MountSet {
    /// Inode number of /proc/PID/ns/mnt.
    pub id: u64,
    /// Where the capability to mount in it is held.
    user_ns: Arc<UserNamespace>,
    /// It holds a tree that no task has as its namespace (open_tree(2), fsmount(2)).
    pub anonymous: Option<Origin>,
    /// The topmost mount.
    pub root: RwLock<Arc<Mount>>,
    /// Changed under the table's lock.
    count: Mutex<Count, { rank::MOUNTS }>,
    /// Notified on every change (poll on /proc/PID/mounts).
    pub changed: WaitQueue,
    changes: AtomicU64,
}

impl MountSet {
    /// Namespace `id` with `mounts` mounts from `root` down, and charges for the namespace and for its mounts.
    pub fn new(
        id: u64,
        user_ns: Arc<UserNamespace>,
        (root, mounts): (Arc<Mount>, usize),
        (namespace, charge): (Option<Charge>, Option<Charge>),
        anonymous: Option<Origin>,
    ) -> MountSet {
        MountSet {
            id,
            user_ns,
            anonymous,
            root: RwLock::new(root),
            count: Mutex::new(Count { mounts, charge, _namespace: namespace }),
            changed: WaitQueue::new(),
            changes: AtomicU64::new(0),
        }
    }

    /// Where the capability to mount in it is held.
    pub fn user_ns(&self) -> &Arc<UserNamespace> {
        &self.user_ns
    }

    /// The topmost place.
    pub fn root(&self) -> Path {
        self.root.read().root_path().cross_mounts()
    }

    /// No task has it as its namespace.
    pub fn is_anonymous(&self) -> bool {
        self.anonymous.is_some()
    }

    /// Every mount, parents before children.
    pub fn mounts(&self) -> Vec<Arc<Mount>> {
        let root = self.root.read().clone();
        let mut v = root.tree();
        v.sort_by_key(|m| m.unique_id());
        v
    }

    /// The mount with this unique number that lies in it.
    pub fn find(&self, unique: u64) -> Option<Arc<Mount>> {
        self.root.read().clone().tree().into_iter().find(|m| m.unique_id() == unique)
    }

    /// Whether `m` is one of its mounts.
    pub fn contains(&self, m: &Mount) -> bool {
        m.ns_id() == self.id
    }

    /// Whether mounts of `other` can be used here: it is this one, or anonymous with a tree that comes from here.
    pub fn may_use(&self, other: &MountSet) -> bool {
        match other.anonymous {
            None => other.id == self.id,
            Some(Origin::Nowhere) => true,
            Some(Origin::Namespace(id)) => id == self.id,
        }
    }

    /// Announces a change.
    pub fn announce(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.changed.notify(Events::PRI | Events::ERR);
    }

    /// A number that is another one after each change.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// How many mounts it has. With the table's lock.
    pub fn count(&self) -> usize {
        self.count.lock_nested().mounts
    }

    /// Counts `more` mounts; ENOSPC. With the table's lock.
    pub fn grow(&self, more: usize) -> Result<()> {
        let mut count = self.count.lock_nested();
        let now = count.mounts + more;
        if now > MOUNT_MAX || count.charge.as_mut().is_some_and(|c| !c.resize(now as u64)) {
            return Err(Errno::ENOSPC);
        }
        count.mounts = now;
        Ok(())
    }

    /// Mounts have gone. With the table's lock.
    pub fn shrink(&self, less: usize) {
        let mut count = self.count.lock_nested();
        count.mounts = count.mounts.saturating_sub(less);
        let now = count.mounts as u64;
        if let Some(c) = &mut count.charge {
            c.resize(now);
        }
    }
}

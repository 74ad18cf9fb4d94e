//! What all mounts of one kernel share: the lock under which they change, and their numbers.
//!
//! There is one lock, as events pass between namespaces.

use super::peers::Numbers;
use super::{Ids, Mount};
use crate::dentry::Dcache;
use lock_order::{Mutex, MutexGuard, rank};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Inode number of the first mount namespace.
const MOUNT_NS: u64 = 0xf000_0000;
/// Checkpoints keep numbers below that of the first other namespace.
const LAST_MOUNT_NS: u64 = 0xf800_0000;
/// The first number that a mount gets.
const FIRST_ID: u64 = 20;
/// Where unique numbers begin: a number of 32 bits is none.
const UNIQUE: u64 = 1 << 31;

/// Checkpoints keep unique numbers below this.
const LAST_UNIQUE: u64 = 1 << 48;

/// The numbers of the mount that comes at this place.
fn numbered(n: u64) -> Ids {
    Ids { id: (n & 0x7fff_ffff) as u32, unique: UNIQUE + n }
}

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
            numbered(n)
        });
    }

    /// Keeps unique numbers of mounts of a checkpoint, each of which is there once: the same ones if none has been given since,
    /// others in their order otherwise.
    pub fn keep_mounts(&self, wanted: &BTreeSet<u64>) -> BTreeMap<u64, Ids> {
        let from = self.next_id.load(Ordering::Relaxed);
        let same = wanted.first().is_none_or(|first| *first >= UNIQUE + from)
            && wanted.last().is_none_or(|last| *last < LAST_UNIQUE);
        let number = |(at, wanted): (u64, &u64)| if same { *wanted - UNIQUE } else { from + at };
        let kept: Vec<u64> = (0..).zip(wanted).map(number).collect();
        self.next_id.store(kept.iter().max().map_or(from, |last| last + 1), Ordering::Relaxed);
        wanted.iter().copied().zip(kept.into_iter().map(numbered)).collect()
    }

    /// As [`MountTable::number`], with these numbers.
    pub fn number_as(&self, m: &Mount, ids: Ids) {
        m.sb.root.belong(&self.dcache, &m.sb);
        m.number(|| ids);
    }

    /// A fresh inode number of a mount namespace.
    pub fn next_ns(&self) -> u64 {
        self.next_ns.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps numbers of mount namespaces of a checkpoint, each of which is there once: the same ones if none has been given since,
    /// others in their order otherwise.
    pub fn keep_ns(&self, wanted: &BTreeSet<u64>) -> BTreeMap<u64, u64> {
        let from = self.next_ns.load(Ordering::Relaxed);
        let same = wanted.first().is_none_or(|first| *first >= from)
            && wanted.last().is_none_or(|last| *last < LAST_MOUNT_NS);
        let kept: BTreeMap<u64, u64> = match same {
            true => wanted.iter().map(|id| (*id, *id)).collect(),
            false => wanted.iter().copied().zip(from..).collect(),
        };
        self.next_ns.store(kept.values().max().map_or(from, |last| last + 1), Ordering::Relaxed);
        kept
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

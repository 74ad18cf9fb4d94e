//! What all mounts of one kernel share: the lock under which they change, and their numbers.
//!
//! There is one lock, as events pass between namespaces.

use crate::dcache::Dcache;
use crate::mount::{Ids, Mount, SbFlags, SuperBlock};
use crate::mount_ns::MountNs;
use crate::peers::Numbers;
use abi::{Errno, Result};
use ranked::{Mutex, MutexGuard, rank};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Inode number of the first mount namespace.
const MOUNT_NS: u64 = 0xf000_0000;
/// The first number that a mount gets.
const FIRST_ID: u64 = 20;
/// /proc/sys/fs/mount-max: mounts of one namespace.
pub(crate) const MOUNT_MAX: usize = 100_000;
/// Where unique numbers begin: a number of 32 bits is none.
const UNIQUE: u64 = 1 << 31;

/// The mounts of a kernel.
pub struct MountTable {
    change: Mutex<(), { rank::MOUNTS }>,
    next_id: AtomicU64,
    next_ns: AtomicU64,
    pub(crate) peer_groups: Arc<Numbers>,
    /// What the dentries of all trees share.
    pub(crate) dcache: Arc<Dcache>,
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
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits for the change that is in progress.
    pub(crate) fn settle(&self) {
        drop(self.change.lock());
    }

    /// Takes the lock under which mounts change.
    pub(crate) fn change(&self) -> Change<'_> {
        Change { _lock: self.change.lock(), table: self, namespaces: HashMap::new(), gone: Vec::new() }
    }
}

/// A change of mounts in progress. What it lets go of is dropped after the lock.
pub(crate) struct Change<'a> {
    _lock: MutexGuard<'a, (), { rank::MOUNTS }>,
    pub table: &'a MountTable,
    /// The namespaces that it concerns.
    namespaces: HashMap<u64, Arc<MountNs>>,
    /// Mounts that nobody may need any more.
    pub gone: Vec<Arc<Mount>>,
}

impl Change<'_> {
    /// Changes flags and options of an instance, for somebody who may ([`SuperBlock::may_reconfigure`]). EBUSY when it would
    /// become read-only while a file is open for writing; an error for options changes nothing.
    pub fn reconfigure(
        &self,
        sb: &SuperBlock,
        flags: SbFlags,
        mask: SbFlags,
        options: Option<&[u8]>,
    ) -> Result<()> {
        let (old, mask) = (sb.flags(), mask - SbFlags::DIRSYNC);
        let flags = if sb.fs.stays_read_only() { flags | SbFlags::RDONLY } else { flags };
        if (mask - flags).contains(SbFlags::RDONLY) && sb.fs.is_fixed() {
            return Err(Errno::EROFS);
        }
        if (flags & mask).contains(SbFlags::RDONLY) && !sb.readonly() {
            sb.make_readonly()?;
        }
        sb.set_flags(flags, mask);
        let done = options.map_or(Ok(()), |text| sb.fs.remount(text));
        done.inspect_err(|_| sb.set_flags(old, mask))
    }

    /// The namespace of a mount, if there is one still.
    pub fn ns_of(&mut self, m: &Mount) -> Option<Arc<MountNs>> {
        let id = m.ns_id();
        if let Some(ns) = self.namespaces.get(&id) {
            return Some(ns.clone());
        }
        let ns = m.ns()?;
        self.namespaces.insert(id, ns.clone());
        Some(ns)
    }

    /// Tells those who watch the namespaces that were changed.
    pub fn announce(&self) {
        self.namespaces.values().for_each(|ns| ns.announce());
    }
}

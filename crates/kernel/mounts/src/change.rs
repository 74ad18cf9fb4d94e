//! One change of mounts, from the lock to the announcement.

use abi::{Errno, Result};
use lock_order::{MutexGuard, rank};
use std::collections::HashMap;
use std::sync::Arc;
use vfs::mount::{Mount, MountSet, MountTable, SbFlags, SuperBlock};

/// A change of mounts in progress. What it lets go of is dropped after the lock.
pub struct Change<'a> {
    _lock: MutexGuard<'a, (), { rank::MOUNTS }>,
    /// All mounts of the kernel.
    pub table: &'a MountTable,
    /// The namespaces that it concerns.
    namespaces: HashMap<u64, Arc<MountSet>>,
    /// Mounts that may have no user any more.
    pub gone: Vec<Arc<Mount>>,
}

impl Change<'_> {
    /// Begins one: takes the lock under which mounts change.
    pub fn begin(table: &MountTable) -> Change<'_> {
        Change { _lock: table.lock(), table, namespaces: HashMap::new(), gone: Vec::new() }
    }

    /// Changes flags and options of an instance, for a caller that may ([`SuperBlock::may_reconfigure`]). EBUSY when it would
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
    pub fn ns_of(&mut self, m: &Mount) -> Option<Arc<MountSet>> {
        let id = m.ns_id();
        if let Some(ns) = self.namespaces.get(&id) {
            return Some(ns.clone());
        }
        let ns = m.ns()?;
        self.namespaces.insert(id, ns.clone());
        Some(ns)
    }

    /// Announces the change in the namespaces that it concerns.
    pub fn announce(&self) {
        self.namespaces.values().for_each(|ns| ns.announce());
    }
}

//! Programs that decide about devices: BPF_CGROUP_DEVICE of bpf(2).
//!
//! A container has [`Programs`]: those that were loaded in it, by number. One lives as long as a descriptor or a group
//! holds it. A use of a device is allowed when all programs of the group and of those around it that count
//! ([`Cgroup::effective_programs`]) allow it. Lists change under the tree's lock, and are read each under its group's
//! own; programs run under no lock. They are dropped under no leaf: the last one out leaves its table.

use crate::tree::{Slot, Tree};
use abi::{Errno, Result};
use ebpf::Program;
use lock_order::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Weak};

/// Most programs of a sandbox: they take 32 MiB.
const MOST_LOADED: usize = 1024;
/// Most of them that one container has loaded.
const MOST_OF_CONTAINER: usize = 256;
bitflags::bitflags! {
    /// How programs are attached to a group (BPF_F_*).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Attach: u32 {
        /// A group below may have another program instead.
        const ALLOW_OVERRIDE = 1;
        /// There may be several, and those of groups below run as well.
        const ALLOW_MULTI = 2;
        /// In the place of another one.
        const REPLACE = 4;
    }
}

/// What a program is besides its instructions.
#[derive(Clone, Debug, Default)]
pub struct ProgramInfo {
    /// Its name, up to the first zero.
    pub name: [u8; 16],
    /// When it was loaded, in nanoseconds of CLOCK_BOOTTIME.
    pub loaded: u64,
    /// The user that loaded it.
    pub uid: u32,
    /// Its license is compatible with the GPL.
    pub gpl: bool,
}

/// A program that was loaded.
pub struct BpfProgram {
    id: u32,
    home: Weak<Programs>,
    /// Its instructions.
    pub program: Program,
    /// What else is known of it.
    pub about: ProgramInfo,
    _slot: Slot,
}

impl BpfProgram {
    /// Its number in the container in which it was loaded.
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for BpfProgram {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.table.lock().live.remove(&self.id);
        }
    }
}

/// The programs of a container.
pub struct Programs {
    pub(crate) tree: Arc<Tree>,
    pub(crate) table: Mutex<Table>,
}

#[derive(Default)]
pub(crate) struct Table {
    last: u32,
    live: BTreeMap<u32, Weak<BpfProgram>>,
}

impl Programs {
    /// Takes a program. ENOMEM when there are too many.
    pub fn load(self: &Arc<Self>, program: Program, about: ProgramInfo) -> Result<Arc<BpfProgram>> {
        let slot = Slot::program(&self.tree, MOST_LOADED).ok_or(Errno::ENOMEM)?;
        let mut table = self.table.lock();
        if table.live.len() >= MOST_OF_CONTAINER {
            return Err(Errno::ENOMEM);
        }
        // Numbers are used again only after all others. There are fewer programs than numbers.
        loop {
            table.last = if table.last >= i32::MAX as u32 { 1 } else { table.last + 1 };
            if !table.live.contains_key(&table.last) {
                break;
            }
        }
        let (id, home) = (table.last, Arc::downgrade(self));
        let new = Arc::new(BpfProgram { id, home, program, about, _slot: slot });
        table.live.insert(id, Arc::downgrade(&new));
        Ok(new)
    }

    /// Takes a program of a checkpoint, with this number. EINVAL for one that is taken, ENOMEM when there are too many.
    pub(crate) fn load_as(
        self: &Arc<Self>,
        id: u32,
        program: Program,
        about: ProgramInfo,
    ) -> Result<Arc<BpfProgram>> {
        let slot = Slot::program(&self.tree, MOST_LOADED).ok_or(Errno::ENOMEM)?;
        let mut table = self.table.lock();
        if table.live.len() >= MOST_OF_CONTAINER {
            return Err(Errno::ENOMEM);
        }
        if id == 0 || id > i32::MAX as u32 || table.live.contains_key(&id) {
            return Err(Errno::EINVAL);
        }
        let new = Arc::new(BpfProgram { id, home: Arc::downgrade(self), program, about, _slot: slot });
        table.live.insert(id, Arc::downgrade(&new));
        table.last = table.last.max(id);
        Ok(new)
    }

    /// The program with this number. ENOENT.
    pub fn find(&self, id: u32) -> Result<Arc<BpfProgram>> {
        let found = self.table.lock().live.get(&id).and_then(Weak::upgrade);
        found.ok_or(Errno::ENOENT)
    }

    /// The next number after `id`. ENOENT.
    pub fn next(&self, id: u32) -> Result<u32> {
        let table = self.table.lock();
        let mut after = table.live.range((Bound::Excluded(id), Bound::Unbounded));
        after.find(|(_, program)| program.strong_count() > 0).map(|(id, _)| *id).ok_or(Errno::ENOENT)
    }
}

/// Programs of a group itself.
#[derive(Default)]
pub(crate) struct Attached {
    pub(crate) flags: Attach,
    pub(crate) list: Vec<Arc<BpfProgram>>,
}

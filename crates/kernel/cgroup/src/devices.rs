//! Programs that decide about devices: BPF_CGROUP_DEVICE of bpf(2).
//!
//! A container has [`Programs`]: those that were loaded in it, by number. One lives as long as a descriptor or a group
//! holds it. A use of a device is allowed when all programs of the group and of those around it that count
//! ([`Cgroup::effective_programs`]) allow it. Lists change under the tree's lock, and are read each under its group's
//! own; programs run under no lock. They are dropped under no leaf: the last one out leaves its table.

use crate::group::Cgroup;
use crate::{Counted, Tree};
use abi::stat::{major, minor};
use abi::{Errno, Result};
use caller::DeviceUse;
use ebpf::{Program, Use};
use ranked::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Most programs of a group (BPF_CGROUP_MAX_PROGS).
pub const MOST_PROGRAMS: usize = 64;
/// Most programs of a sandbox: they take 32 MiB.
const MOST_LOADED: usize = 1024;
/// Most of them that one container has loaded.
const MOST_OF_CONTAINER: usize = 256;
/// Most places of a sandbox where programs are attached: one question about a device runs a million instructions at most.
const MOST_ATTACHED: usize = 256;

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
pub struct About {
    /// Its name, up to the first zero.
    pub name: [u8; 16],
    /// When it was loaded, in nanoseconds of CLOCK_BOOTTIME.
    pub loaded: u64,
    /// The user who loaded it.
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
    pub about: About,
    _counted: Counted,
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
    tree: Arc<Tree>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last: u32,
    live: BTreeMap<u32, Weak<BpfProgram>>,
}

impl Programs {
    /// None yet. `group` is one of the tree that they are for.
    pub fn new(group: &Cgroup) -> Arc<Programs> {
        Arc::new(Programs { tree: group.shared_tree().clone(), table: Mutex::default() })
    }

    /// Takes a program. ENOMEM when there are too many.
    pub fn load(self: &Arc<Self>, program: Program, about: About) -> Result<Arc<BpfProgram>> {
        let counted = Counted::program(&self.tree, MOST_LOADED).ok_or(Errno::ENOMEM)?;
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
        let new = Arc::new(BpfProgram { id, home, program, about, _counted: counted });
        table.live.insert(id, Arc::downgrade(&new));
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
    flags: Attach,
    list: Vec<Arc<BpfProgram>>,
}

fn position(list: &[Arc<BpfProgram>], program: &Arc<BpfProgram>) -> Option<usize> {
    list.iter().position(|there| Arc::ptr_eq(there, program))
}

impl Cgroup {
    /// Attaches a program, in the place of `replaced` with [`Attach::REPLACE`]. EINVAL, EPERM when a group around or what
    /// is here does not allow it, E2BIG, ENOENT when `replaced` is not here, ENOMEM beyond what a sandbox may have.
    pub fn attach_program(
        &self,
        program: &Arc<BpfProgram>,
        how: Attach,
        replaced: Option<&Arc<BpfProgram>>,
    ) -> Result<()> {
        let multi = how.contains(Attach::ALLOW_MULTI);
        let both = multi && how.contains(Attach::ALLOW_OVERRIDE);
        if both || how.contains(Attach::REPLACE) != (multi && replaced.is_some()) {
            return Err(Errno::EINVAL);
        }
        let flags = how.difference(Attach::REPLACE);
        let _tree = self.tree().lock();
        self.check_alive().map_err(|_| Errno::ENOENT)?;
        self.check_attach()?;
        let mut s = self.state();
        let here = &mut s.devices;
        if !here.list.is_empty() && here.flags != flags {
            return Err(Errno::EPERM);
        }
        if here.list.len() >= MOST_PROGRAMS {
            return Err(Errno::E2BIG);
        }
        let place = if !multi {
            (!here.list.is_empty()).then_some(0)
        } else {
            if position(&here.list, program).is_some() && !replaced.is_some_and(|r| Arc::ptr_eq(r, program)) {
                return Err(Errno::EINVAL);
            }
            replaced.map(|r| position(&here.list, r).ok_or(Errno::ENOENT)).transpose()?
        };
        let old = match place.and_then(|place| here.list.get_mut(place)) {
            Some(place) => Some(std::mem::replace(place, program.clone())),
            None => {
                let room = |n: usize| (n < MOST_ATTACHED).then_some(n + 1);
                let attached = &self.tree().attached;
                attached.fetch_update(Ordering::SeqCst, Ordering::SeqCst, room).map_err(|_| Errno::ENOMEM)?;
                here.list.push(program.clone());
                None
            }
        };
        here.flags = flags;
        drop(s);
        drop(old);
        Ok(())
    }

    /// Detaches a program; of a group that may have one only, whichever there is. EINVAL, ENOENT.
    pub fn detach_program(&self, program: Option<&Arc<BpfProgram>>) -> Result<()> {
        let _tree = self.tree().lock();
        self.check_alive().map_err(|_| Errno::ENOENT)?;
        let mut s = self.state();
        let here = &mut s.devices;
        let place = if here.flags.contains(Attach::ALLOW_MULTI) {
            position(&here.list, program.ok_or(Errno::EINVAL)?).ok_or(Errno::ENOENT)?
        } else if here.list.is_empty() {
            return Err(Errno::ENOENT);
        } else {
            0
        };
        let old = here.list.remove(place);
        if here.list.is_empty() {
            here.flags = Attach::empty();
        }
        drop(s);
        self.tree().attached.fetch_sub(1, Ordering::SeqCst);
        drop(old);
        Ok(())
    }

    /// The group is removed: detaches all. The caller drops them outside of leaves.
    pub(crate) fn take_programs(&self) -> Vec<Arc<BpfProgram>> {
        let taken = std::mem::take(&mut self.state().devices).list;
        self.tree().attached.fetch_sub(taken.len(), Ordering::SeqCst);
        taken
    }

    /// EPERM below a group whose program is not to be joined or replaced.
    fn check_attach(&self) -> Result<()> {
        let mut at = self.parent();
        while let Some(group) = at {
            let s = group.state();
            if s.devices.flags.contains(Attach::ALLOW_MULTI) {
                return Ok(());
            }
            if !s.devices.list.is_empty() {
                let replaceable = s.devices.flags.contains(Attach::ALLOW_OVERRIDE);
                return if replaceable { Ok(()) } else { Err(Errno::EPERM) };
            }
            drop(s);
            at = group.parent();
        }
        Ok(())
    }

    /// The programs of the group itself, and how they are attached. ENOENT once it is gone.
    pub fn programs(&self) -> Result<(Attach, Vec<Arc<BpfProgram>>)> {
        self.check_alive().map_err(|_| Errno::ENOENT)?;
        let s = self.state();
        Ok((s.devices.flags, s.devices.list.clone()))
    }

    /// The programs that decide for tasks in the group: its own, or those of the next group around that has some, and of
    /// groups around that those which are for all below.
    pub fn effective_programs(&self) -> Vec<Arc<BpfProgram>> {
        let mut all = Vec::new();
        self.each_up(|group| {
            let s = group.state();
            if all.is_empty() || s.devices.flags.contains(Attach::ALLOW_MULTI) {
                all.extend_from_slice(&s.devices.list);
            }
        });
        all
    }

    /// Programs are attached somewhere in the tree.
    pub fn has_device_rules(&self) -> bool {
        self.tree().attached.load(Ordering::SeqCst) != 0
    }

    /// EPERM for a use of a device that a program refuses.
    pub fn check_device(&self, device: &DeviceUse) -> Result<()> {
        if !self.has_device_rules() {
            return Ok(());
        }
        // BPF_DEVCG_DEV_BLOCK, BPF_DEVCG_DEV_CHAR.
        let kind = if device.block { 1 } else { 2 };
        let (major, minor) = (major(device.number), minor(device.number));
        let of = Use { access_type: device.access << 16 | kind, major, minor };
        let refused = self.effective_programs().iter().any(|loaded| !loaded.program.allows(&of));
        if refused { Err(Errno::EPERM) } else { Ok(()) }
    }
}

//! Programs that decide about devices, attached to groups (BPF_CGROUP_DEVICE). See `programs`.

use crate::group::Cgroup;
use crate::programs::{Attach, BpfProgram, Programs};
use abi::stat::{major, minor};
use abi::{Errno, Result};
use caller::DeviceUse;
use ebpf::Use;
use lock_order::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most programs of a group (BPF_CGROUP_MAX_PROGS).
pub const MOST_PROGRAMS: usize = 64;
/// Most places of a sandbox where programs are attached: one question about a device runs a million instructions at most.
const MOST_ATTACHED: usize = 256;

impl Programs {
    /// None yet. `group` is one of the tree that they are for.
    pub fn new(group: &Cgroup) -> Arc<Programs> {
        Arc::new(Programs { tree: group.shared_tree().clone(), table: Mutex::default() })
    }
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

    /// EPERM below a group with a program that is not to be joined or replaced.
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

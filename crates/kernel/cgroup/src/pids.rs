//! The `pids` controller: how many tasks there may be in a group and below it.
//!
//! Tasks are counted in every group, so that a controller that is enabled later counts those that are there already;
//! the limit holds where the group has the controller.

use crate::changes::Changes;
use crate::controllers::Controllers;
use crate::group::Cgroup;
use crate::notice::{Notice, What};
use crate::pids_count::Pids;
use crate::tree::Locked;
use abi::{Errno, Result};
use std::sync::Arc;

impl Cgroup {
    /// What pids.* say.
    pub fn pids(&self) -> Pids {
        self.state().pids
    }

    /// Sets the limit; `u64::MAX` for none. Tasks that are there already stay.
    pub fn set_pids_max(&self, max: u64) {
        let _tree = self.tree().lock();
        self.state().pids.max = max;
    }

    /// Told when pids.events changes.
    pub fn pids_events(&self) -> &Notice {
        &self.notices().pids
    }

    /// Told when pids.events.local changes.
    pub fn pids_events_local(&self) -> &Notice {
        &self.notices().pids_local
    }

    pub(crate) fn charge(&self) {
        self.each_up(|group| group.state().pids.add());
    }

    pub(crate) fn uncharge(&self) {
        self.each_up(|group| {
            let mut s = group.state();
            s.pids.current = s.pids.current.saturating_sub(1);
        });
    }

    /// Counts a task that fork(2) is to make; EAGAIN beyond a limit.
    pub(crate) fn try_charge(self: &Arc<Self>, _tree: &Locked, changes: &mut Changes) -> Result<()> {
        let mut full = None;
        let mut at = Some(self);
        while let Some(group) = at {
            let pids = group.pids();
            if pids.current >= pids.max && group.controllers().contains(Controllers::PIDS) {
                full = Some(group.clone());
                break;
            }
            at = group.parent();
        }
        let Some(full) = full else {
            self.charge();
            return Ok(());
        };
        full.state().pids.events_local += 1;
        changes.push(&full, What::PidsLocal);
        let mut at = Some(&full);
        while let Some(group) = at.filter(|group| group.parent().is_some()) {
            group.state().pids.events += 1;
            changes.push(group, What::Pids);
            at = group.parent();
        }
        Err(Errno::EAGAIN)
    }
}

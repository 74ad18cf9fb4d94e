//! The `pids` controller: how many tasks there may be in a group and below it.
//!
//! Tasks are counted in every group, so that a controller that is enabled later counts those that are there already;
//! the limit holds where the group has the controller.

use crate::control::Controllers;
use crate::group::Cgroup;
use crate::notice::{Changes, What};
use crate::{Locked, Notice};
use abi::{Errno, Result};
use std::sync::Arc;

/// The largest limit that is a number (PID_MAX_LIMIT).
pub const MOST_PIDS: u64 = 4 << 20;

/// What pids.* say.
#[derive(Clone, Copy, Debug)]
pub struct Pids {
    /// Tasks now, those included that nobody has waited for.
    pub current: u64,
    /// The limit; `u64::MAX` for none.
    pub max: u64,
    /// Most tasks since the controller was enabled.
    pub peak: u64,
    /// How often the limit, here or below, refused a task.
    pub events: u64,
    /// How often the limit of this group did.
    pub events_local: u64,
}

impl Default for Pids {
    fn default() -> Pids {
        Pids { current: 0, max: u64::MAX, peak: 0, events: 0, events_local: 0 }
    }
}

impl Pids {
    fn add(&mut self) {
        self.current += 1;
        self.peak = self.peak.max(self.current);
    }

    /// The controller has been disabled: a next one starts anew.
    pub(crate) fn reset(&mut self) {
        *self = Pids { current: self.current, peak: self.current, ..Pids::default() };
    }
}

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

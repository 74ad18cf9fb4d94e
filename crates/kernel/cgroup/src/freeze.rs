//! The freezer: cgroup.freeze, and which groups are frozen.
//!
//! A group is to be frozen when it or one around it says so. It is frozen when all of its tasks have noticed, and all
//! groups below it are frozen.

use crate::changes::Changes;
use crate::group::Cgroup;
use crate::notice::What;
use crate::tree::Locked;
use abi::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Cgroup {
    /// What cgroup.freeze says of this group alone.
    pub fn freezes(&self) -> bool {
        self.state().freeze
    }

    /// All of its tasks have stopped.
    pub fn is_frozen(&self) -> bool {
        self.state().frozen
    }

    /// Sets cgroup.freeze. The tasks of the group and of those below it are to look afterwards. ENODEV.
    pub fn set_freeze(self: &Arc<Self>, on: bool) -> Result<Changes> {
        let tree = self.tree().lock();
        self.check_alive()?;
        let mut changes = Changes::default();
        if std::mem::replace(&mut self.state().freeze, on) == on {
            return Ok(changes);
        }
        let all = self.subtree();
        for group in &all {
            let around = group.parent().is_some_and(|parent| parent.is_freezing());
            let freezing = around || group.state().freeze;
            group.freezing.store(freezing, Ordering::SeqCst);
        }
        for group in all.iter().rev() {
            group.update_frozen(&tree, &mut changes);
        }
        Ok(changes)
    }

    /// Brings the state up to date after tasks or groups came, went, stopped or went on.
    pub(crate) fn update_frozen(self: &Arc<Self>, _tree: &Locked, changes: &mut Changes) {
        let mut at = Some(self);
        while let Some(group) = at {
            let now = {
                let mut s = group.state();
                let all = s.tasks == s.frozen_tasks && s.frozen_children == s.children.len();
                let now = group.is_freezing() && all;
                if s.frozen == now {
                    return;
                }
                s.frozen = now;
                now
            };
            changes.push(group, What::Events);
            at = group.parent();
            if let Some(parent) = at {
                let mut s = parent.state();
                s.frozen_children =
                    if now { s.frozen_children + 1 } else { s.frozen_children.saturating_sub(1) };
            }
        }
    }
}

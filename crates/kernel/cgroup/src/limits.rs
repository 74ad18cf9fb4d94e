//! How many groups there may be below a group: cgroup.max.depth, cgroup.max.descendants.

use crate::group::Cgroup;
use crate::limit::Limit;
use abi::{Errno, Result};

impl Cgroup {
    /// Levels of groups that may be below it, and how many groups.
    pub fn max(&self) -> (Limit, Limit) {
        let s = self.state();
        (s.max_depth, s.max_descendants)
    }

    /// Sets the levels. ENODEV.
    pub fn set_max_depth(&self, limit: Limit) -> Result<()> {
        let _tree = self.tree().lock();
        self.check_alive()?;
        self.state().max_depth = limit;
        Ok(())
    }

    /// Sets how many groups. ENODEV.
    pub fn set_max_descendants(&self, limit: Limit) -> Result<()> {
        let _tree = self.tree().lock();
        self.check_alive()?;
        self.state().max_descendants = limit;
        Ok(())
    }

    /// Whether one more group may be made right below it. EAGAIN.
    pub(crate) fn check_room(&self) -> Result<()> {
        let (mut at, mut depth) = (Some(self), 1);
        while let Some(group) = at {
            let s = group.state();
            if s.max_descendants.is_below(s.descendants + 1) || s.max_depth.is_below(depth) {
                return Err(Errno::EAGAIN);
            }
            drop(s);
            depth += 1;
            at = group.parent().map(|parent| &**parent);
        }
        Ok(())
    }
}

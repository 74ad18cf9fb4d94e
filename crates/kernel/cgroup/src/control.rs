//! Which controllers a group has, and which its children get (cgroup.subtree_control).

use crate::controllers::Controllers;
use crate::group::Cgroup;
use abi::{Errno, Result};

impl Cgroup {
    /// The controllers that it gives to its children.
    pub fn subtree_control(&self) -> Controllers {
        self.state().control
    }

    /// Changes the controllers that the children get. ENODEV, ENOENT for one that the group itself has not, EBUSY for
    /// one that a child passes on, or by the rule that a group with such controllers has no processes.
    pub fn set_subtree_control(&self, enable: Controllers, disable: Controllers) -> Result<()> {
        let _tree = self.tree().lock();
        self.check_alive()?;
        let has = self.controllers();
        let mut s = self.state();
        let enable = enable.difference(s.control);
        let disable = disable.intersection(s.control);
        if !has.contains(enable) {
            return Err(Errno::ENOENT);
        }
        let children: Vec<_> = s.children.values().cloned().collect();
        drop(s);
        if children.iter().any(|child| child.state().control.intersects(disable)) {
            return Err(Errno::EBUSY);
        }
        s = self.state();
        // All controllers that there are serve threaded groups as well. They may be where processes are, unless a
        // child has some.
        if !enable.is_empty() && s.populated_children > 0 && s.tasks > 0 {
            return Err(Errno::EBUSY);
        }
        s.control = s.control.union(enable).difference(disable);
        drop(s);
        for child in children {
            if disable.contains(Controllers::PIDS) {
                child.state().pids.reset();
            }
            if disable.contains(Controllers::CPU) {
                child.reset_cpu();
            }
        }
        Ok(())
    }

    /// Whether processes may be put into it. EBUSY by the rule that a group with controllers for its children has none.
    pub fn check_takes_processes(&self) -> Result<()> {
        let s = self.state();
        let inner = s.populated_children > 0 && !s.control.is_empty();
        if inner && self.parent().is_some() { Err(Errno::EBUSY) } else { Ok(()) }
    }
}

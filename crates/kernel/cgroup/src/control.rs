//! Controllers: which a group has, and which its children get (cgroup.subtree_control).

use crate::group::Cgroup;
use abi::{Errno, Result};

bitflags::bitflags! {
    /// Controllers. Only those that hold are there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Controllers: u8 {
        /// How many tasks there may be.
        const PIDS = 1;
        /// How much processor time there is.
        const CPU = 2;
    }
}

impl Controllers {
    /// Their names, in Linux's order.
    const NAMES: [(&'static str, Controllers); 2] = [("cpu", Controllers::CPU), ("pids", Controllers::PIDS)];

    /// The names of these, as cgroup.controllers shows them.
    pub fn names(self) -> String {
        let names: Vec<_> = Self::NAMES.iter().filter(|(_, c)| self.contains(*c)).map(|(n, _)| *n).collect();
        names.join(" ")
    }

    fn named(name: &str) -> Option<Controllers> {
        Self::NAMES.iter().find(|(n, _)| *n == name).map(|(_, c)| *c)
    }

    /// Reads what is written to cgroup.subtree_control: what to enable, and what to disable. EINVAL.
    pub fn parse(text: &str) -> Result<(Controllers, Controllers)> {
        let (mut enable, mut disable) = (Controllers::empty(), Controllers::empty());
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            let (sign, name) = word.split_at_checked(1).ok_or(Errno::EINVAL)?;
            let one = Controllers::named(name).ok_or(Errno::EINVAL)?;
            let on = match sign {
                "+" => true,
                "-" => false,
                _ => return Err(Errno::EINVAL),
            };
            enable.set(one, on);
            disable.set(one, !on);
        }
        Ok((enable, disable))
    }
}

impl Cgroup {
    /// The controllers that it has: those that its parent gives.
    pub fn controllers(&self) -> Controllers {
        self.parent().map_or(Controllers::all(), |parent| parent.state().control)
    }

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

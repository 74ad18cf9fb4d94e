//! The controllers that there are, and their names.

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

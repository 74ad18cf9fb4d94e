//! Memory policies on a machine of one node, node 0. See numa(7).
//!
//! Every page is on the one node under any policy. So policies are checked, kept and shown, and have no other effect.

use crate::map::MemoryMap;
use crate::ops::Mm;
use abi::{Errno, PAGE_SIZE, Result, page_up};

/// MPOL_F_STATIC_NODES.
const STATIC: i32 = 1 << 15;
/// MPOL_F_RELATIVE_NODES.
const RELATIVE: i32 = 1 << 14;
/// MPOL_F_NUMA_BALANCING.
const BALANCING: i32 = 1 << 13;

/// How a policy chooses nodes (MPOL_*).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Mode {
    /// No policy.
    #[default]
    Default = 0,
    /// One node first.
    Preferred = 1,
    /// These nodes only.
    Bind = 2,
    /// In turn.
    Interleave = 3,
    /// The node of the processor.
    Local = 4,
    /// These nodes first.
    PreferredMany = 5,
    /// In turn, some more often.
    WeightedInterleave = 6,
}

/// A memory policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// How it chooses.
    pub mode: Mode,
    /// MPOL_F_* of the mode.
    pub flags: i32,
    /// The first 64 nodes that the program named, where the policy keeps them.
    named: u64,
}

impl Policy {
    /// From the mode with its flags and the nodes that were named.
    pub fn new(mode: i32, nodes: u64) -> Result<Policy> {
        let flags = mode & (STATIC | RELATIVE | BALANCING);
        let mode = match mode & !flags {
            0 => Mode::Default,
            1 => Mode::Preferred,
            2 => Mode::Bind,
            3 => Mode::Interleave,
            4 => Mode::Local,
            5 => Mode::PreferredMany,
            6 => Mode::WeightedInterleave,
            _ => return Err(Errno::EINVAL),
        };
        let user = flags & (STATIC | RELATIVE);
        let balances = matches!(mode, Mode::Bind | Mode::PreferredMany);
        if user == STATIC | RELATIVE || flags & BALANCING != 0 && !balances {
            return Err(Errno::EINVAL);
        }
        match mode {
            Mode::Default if nodes != 0 => Err(Errno::EINVAL),
            Mode::Default => Ok(Policy::default()),
            Mode::Local if nodes != 0 || user != 0 => Err(Errno::EINVAL),
            Mode::Preferred if nodes == 0 && user != 0 => Err(Errno::EINVAL),
            Mode::Preferred if nodes == 0 => Ok(Policy { mode: Mode::Local, flags, named: 0 }),
            Mode::Local => Ok(Policy { mode, flags, named: 0 }),
            // Relative nodes are counted round the machine's.
            _ if nodes & 1 == 0 && (user != RELATIVE || nodes == 0) => Err(Errno::EINVAL),
            _ => Ok(Policy { mode, flags, named: nodes }),
        }
    }

    /// No policy.
    pub fn is_default(&self) -> bool {
        self.mode == Mode::Default
    }

    /// What get_mempolicy(2) says of it: the mode with its flags, and the nodes.
    pub fn shown(&self) -> (i32, u64) {
        let nodes = match self.mode {
            Mode::Default | Mode::Local => 0,
            _ if self.flags & (STATIC | RELATIVE) != 0 => self.named,
            _ => 1,
        };
        (self.mode as i32 | self.flags, nodes)
    }

    /// As /proc/PID/numa_maps has it.
    pub fn text(&self) -> String {
        let name = match self.mode {
            Mode::Default => return "default".into(),
            Mode::Local => return "local".into(),
            Mode::Preferred => "prefer",
            Mode::Bind => "bind",
            Mode::Interleave => "interleave",
            Mode::PreferredMany => "prefer (many)",
            Mode::WeightedInterleave => "weighted interleave",
        };
        let flags = match self.flags & (STATIC | RELATIVE) {
            STATIC => "=static",
            RELATIVE => "=relative",
            _ => "",
        };
        format!("{name}{flags}:0")
    }
}

/// A range of mbind(2): its end, EINVAL when it is none.
fn range_end(start: u64, len: u64) -> Result<u64> {
    let len = page_up(len).ok_or(Errno::EINVAL)?;
    start.checked_add(len).filter(|_| start.is_multiple_of(PAGE_SIZE)).ok_or(Errno::EINVAL)
}

impl MemoryMap {
    /// The policy at an address; `None` where nothing is mapped.
    pub fn policy_at(&self, addr: u64) -> Option<Policy> {
        self.find(addr).map(|v| v.policy)
    }
}

impl Mm {
    /// mbind(2).
    pub fn set_policy(&self, start: u64, len: u64, policy: Result<Policy>) -> Result<()> {
        let end = range_end(start, len)?;
        if start == end {
            return Ok(());
        }
        let policy = policy?;
        let mut m = self.map.lock();
        if !policy.is_default() && (end > m.max || !m.covered(start, end)) {
            return Err(Errno::EFAULT);
        }
        m.update(start, end, |v| v.policy = policy);
        Ok(())
    }

    /// set_mempolicy_home_node(2) for node 0.
    pub fn set_home_node(&self, start: u64, len: u64) -> Result<()> {
        let end = range_end(start, len)?;
        if start == end {
            return Ok(());
        }
        let m = self.map.lock();
        let mut found = Err(Errno::ENOENT);
        for v in m.overlapping(start, end).filter(|v| !v.policy.is_default()) {
            if !matches!(v.policy.mode, Mode::Bind | Mode::PreferredMany) {
                return Err(Errno::EOPNOTSUPP);
            }
            found = Ok(());
        }
        found
    }
}

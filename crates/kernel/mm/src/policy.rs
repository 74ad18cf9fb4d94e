//! Memory policies on a machine of one node, node 0. See numa(7).
//!
//! Every page is on the one node under any policy. So policies are checked, kept and shown, and have no other effect.

use abi::{Errno, Result};

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

    /// What [`Policy::new`] makes the same policy of.
    pub fn made_of(&self) -> (i32, u64) {
        (self.mode as i32 | self.flags, self.named)
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

//! Processes: how to start one, and the messages about it afterwards.

use seccomp::SockFilter;
use serde::{Deserialize, Serialize};

/// The first process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// Program and arguments, never empty. A program without a slash is
    /// looked for along PATH of `env`, inside the container.
    pub args: Vec<String>,
    /// Environment, `NAME=value`.
    pub env: Vec<String>,
    /// Where the program is looked for if the environment has no PATH; nowhere without this.
    #[serde(default)]
    pub default_path: Option<String>,
    /// Absolute path of the working directory.
    pub cwd: String,
    /// Create a missing working directory, as runc does.
    pub create_cwd: bool,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub additional_gids: Vec<u32>,
    /// File mode creation mask.
    pub umask: u32,
    /// Capabilities.
    pub capabilities: CapabilitySets,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privileges: bool,
    /// Filter of its system calls, in force from its execve(2) on.
    pub seccomp: Option<SeccompFilter>,
    /// Resource limits; those not named keep the kernel's defaults.
    pub rlimits: Vec<RlimitSpec>,
    /// The process runs on a pseudo-terminal.
    pub terminal: bool,
    /// /proc/self/oom_score_adj.
    pub oom_score_adj: i32,
    /// HOME is set from the container's /etc/passwd when the environment lacks it.
    pub set_home: bool,
    /// I/O priority as ioprio_set(2) takes it; recorded and shown.
    pub io_priority: Option<i32>,
    /// Scheduling policy; recorded and shown.
    pub scheduler: Option<SchedulerSpec>,
}

/// A scheduling policy as sched_setscheduler(2) takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerSpec {
    /// SCHED_*, with SCHED_RESET_ON_FORK or without.
    pub policy: i32,
    /// Real-time priority.
    pub priority: i32,
    /// Nice value, if it is to change.
    pub nice: Option<i32>,
}

/// A seccomp filter as seccomp(2) takes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeccompFilter {
    /// The program. It is refused at the start if Linux would refuse it.
    pub instructions: Vec<SockFilter>,
    /// SECCOMP_FILTER_FLAG_* bits; TSYNC, LOG and SPEC_ALLOW are understood.
    pub flags: u32,
}

/// Capability sets as bit masks, bit n for capability number n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilitySets {
    /// Bounding set.
    pub bounding: u64,
    /// Effective set.
    pub effective: u64,
    /// Inheritable set.
    pub inheritable: u64,
    /// Permitted set.
    pub permitted: u64,
    /// Ambient set.
    pub ambient: u64,
}

impl CapabilitySets {
    /// All capabilities that are in one of the sets.
    pub fn all(&self) -> u64 {
        self.bounding | self.effective | self.inheritable | self.permitted | self.ambient
    }
}

/// One resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RlimitSpec {
    /// RLIMIT_* number.
    pub resource: u32,
    /// Soft limit, `u64::MAX` for no limit.
    pub soft: u64,
    /// Hard limit, `u64::MAX` for no limit.
    pub hard: u64,
}

/// Size of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// The processes that a signal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// The first process, or the foreground process group of its terminal when it has one.
    Foreground,
    /// The first process.
    Init,
    /// One process, by its id in the container.
    Process(i32),
    /// A process group, by its id in the container.
    Group(i32),
    /// Every process.
    All,
}

/// A request of programs that was refused because it is not supported, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What was asked for.
    pub kind: String,
    /// Which one.
    pub what: String,
    /// How often.
    pub count: u64,
}

/// One process of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Id in the container.
    pub pid: i32,
    /// Parent's id in the container.
    pub ppid: i32,
    /// Id of the host process that holds its memory, in the sandbox's pid namespace; 0 for a zombie.
    pub host_pid: i32,
    /// Effective user.
    pub uid: u32,
    /// Name of the terminal, or `?`.
    pub tty: String,
    /// When it started, seconds since the epoch.
    pub started: i64,
    /// Processor time used, in seconds.
    pub cpu: u64,
    /// Command line, or the name in brackets.
    pub command: String,
}

//! What clone(2) and fork(2) inherit. Each struct is taken from the parent and used up by the child as a whole, field by field
//! without a rest, so that a new field is either inherited or does not compile.
//!
//! Not here, as clone(2)'s flags decide between sharing and copying: memory, descriptors, the file system context, handlers.
//! Plain state, which a checkpoint keeps with the task.

use abi::SigSet;
use cgroup::Member;
use container::Container;
use keys::Holder;
use nsproxy::NsProxy;
use rights::Credentials;
use sched::{Rlimits, Scheduling};
use signal::AltStack;
use std::sync::Arc;
use syscall_filter::SeccompState;
use sysv::sem::UndoList;

/// What a thread inherits from the one that made it.
pub struct TaskInherited {
    /// Credentials.
    pub creds: Arc<Credentials>,
    /// Namespaces.
    pub nsproxy: Arc<NsProxy>,
    /// The place among the control groups that it takes.
    pub cgroup: Member,
    /// Keyrings.
    pub keyrings: Holder,
    /// Memory policy.
    pub mempolicy: mm::Policy,
    /// Blocked signals.
    pub blocked: SigSet,
    /// Name.
    pub comm: [u8; 16],
    /// Scheduling parameters.
    pub scheduling: Arc<Scheduling>,
    /// Adjustments of SEM_UNDO, shared by CLONE_SYSVSEM.
    pub sem_undo: Option<Arc<UndoList>>,
    /// Timer slack in nanoseconds, which is the default of the new thread as well.
    pub timer_slack: u64,
    /// PR_MCE_KILL.
    pub memory_failure_policy: u8,
}

/// What a thread inherits in the step that enters it in the tables, under the lock of its group's signals: before that, another
/// thread may set it for all threads.
#[derive(Clone)]
pub struct EntryInherited {
    /// seccomp(2).
    pub seccomp: SeccompState,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
}

/// What the thread itself, as it runs, inherits from the one that made it.
#[derive(Clone, Copy, Default)]
pub struct CurrentInherited {
    /// Alternate signal stack.
    pub altstack: AltStack,
}

/// What a process inherits from its parent.
#[derive(Clone)]
pub struct ProcessInherited {
    /// The container.
    pub container: Arc<Container>,
    /// Resource limits.
    pub rlimits: Rlimits,
    /// personality(2).
    pub personality: u32,
    /// /proc/PID/oom_score_adj.
    pub oom_score_adj: i32,
    /// It was started by `exec`, or descends from such a process.
    pub exec_session: bool,
}

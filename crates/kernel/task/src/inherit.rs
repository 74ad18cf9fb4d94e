//! What clone(2) and fork(2) inherit. Each struct is taken from the parent and used up by the child as a whole, field by field
//! without a rest, so that a new field is either inherited or does not compile.
//!
//! Not here, as clone(2)'s flags decide between sharing and copying: memory, descriptors, the file system context, handlers. Seccomp
//! filters are taken in the moment in which the child enters the tables (`Current::register`), as another thread may be setting
//! them for all.

use crate::kernel::Kernel;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use abi::SigSet;
use cgroup::Member;
use container::Container;
use keys::Holder;
use nsproxy::NsProxy;
use rights::{Credentials, Creds};
use sched::{Rlimits, Scheduling};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What a thread has from the one that made it.
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
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// Timer slack in nanoseconds, which is the default of the new thread as well.
    pub timer_slack: u64,
    /// PR_MCE_KILL.
    pub memory_failure_policy: u8,
}

impl TaskInherited {
    /// What a thread starts with that nobody made: a container's first, or one that is put beside it.
    pub(crate) fn first(creds: Credentials, container: &Container, kernel: &Kernel) -> TaskInherited {
        TaskInherited {
            creds: Arc::new(Credentials { serial: kernel.next_cred_serial(), ..creds }),
            nsproxy: container.namespaces.clone(),
            cgroup: Member::placed(&kernel.group_for(container)),
            keyrings: Holder::new(&kernel.keys),
            mempolicy: mm::Policy::default(),
            blocked: SigSet::EMPTY,
            comm: [0; 16],
            scheduling: Arc::default(),
            no_new_privs: false,
            timer_slack: 50_000,
            memory_failure_policy: libc::PR_MCE_KILL_DEFAULT as u8,
        }
    }
}

impl Task {
    /// What a new thread has from this one, of the same process or of another, with the place that was found for it.
    pub(crate) fn inherited(&self, same_process: bool, cgroup: Member) -> TaskInherited {
        let mempolicy = *self.mempolicy.lock();
        TaskInherited {
            creds: Creds::into_inner(self.creds()),
            nsproxy: self.nsproxy(),
            cgroup,
            keyrings: self.keyrings.inherited(&self.creds(), same_process),
            mempolicy,
            blocked: self.blocked(),
            comm: self.comm(),
            scheduling: self.scheduling.inherited(),
            no_new_privs: self.no_new_privs.load(Relaxed),
            timer_slack: self.timer_slack.load(Relaxed),
            memory_failure_policy: self.memory_failure_policy.load(Relaxed),
        }
    }
}

/// What a process has from its parent.
#[derive(Clone)]
pub struct ProcessInherited {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// The container.
    pub container: Arc<Container>,
    /// Resource limits.
    pub rlimits: Rlimits,
    /// personality(2).
    pub personality: u32,
    /// /proc/PID/oom_score_adj.
    pub oom_score_adj: i32,
}

impl ThreadGroup {
    /// What a new process has from this one.
    pub(crate) fn inherited(&self) -> ProcessInherited {
        ProcessInherited {
            kernel: self.kernel.clone(),
            container: self.container.clone(),
            rlimits: *self.rlimits.lock(),
            personality: self.personality.load(Relaxed),
            oom_score_adj: self.oom_score_adj.load(Relaxed),
        }
    }
}

//! Thread groups: processes.

use crate::cred_guard::CredGuard;
use crate::inherit::ProcessInherited;
use crate::kernel::Kernel;
use crate::life::{Life, Signals};
use crate::task::Task;
use crate::timers::Timers;
use abi::{Result, SigInfo, SigSet, Signal};
use container::Container;
use pid::{Pid, PidNamespace};
use ranked::{Mutex, RwLock, rank};
use sched::{Rlimits, Usage};
use signal::Handlers;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
use std::time::Instant;
use wait::WaitQueue;

/// Signal actions, which CLONE_SIGHAND shares between processes.
pub type SharedHandlers = Mutex<Handlers, { rank::SIGACTIONS }>;

/// A process.
pub struct ThreadGroup {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// Process ID in the sandbox's own PID namespace.
    pub tgid: i32,
    /// The process ID itself.
    pub pid: Arc<Pid>,
    pub(crate) pids: Arc<PidNamespace>,
    /// The container it belongs to.
    pub container: Arc<Container>,
    /// Signal, stop and exit state.
    pub signals: Mutex<Signals, { rank::SIGNALS }>,
    /// Copy of the shared pending set for lock-free checks.
    pub shared_set: AtomicU64,
    handlers: RwLock<Arc<SharedHandlers>, { rank::SIGHAND }>,
    /// Notified when a child changes state.
    pub child_wait: WaitQueue,
    /// Notified when a thread leaves.
    pub thread_exit: WaitQueue,
    /// Notified when a signal becomes pending (signalfd).
    pub signal_wait: WaitQueue,
    /// Notified at exit (pidfd).
    pub exit_wait: WaitQueue,
    /// Resource limits.
    pub rlimits: Mutex<Rlimits>,
    /// Interval and POSIX timers.
    pub timers: Timers,
    /// PR_SET_CHILD_SUBREAPER.
    pub subreaper: AtomicBool,
    /// When the process started.
    pub started: Instant,
    /// Resource usage of threads that left and children that were waited for.
    pub usage: Mutex<Usage>,
    /// Processor time of the address space that was used before the process shared it, in nanoseconds.
    pub(crate) not_ours: AtomicU64,
    /// Processor time that was counted in control groups, user and system, in nanoseconds.
    pub(crate) grouped_time: Mutex<[u64; 2]>,
    /// personality(2).
    pub personality: AtomicU32,
    /// /proc/PID/oom_score_adj.
    pub oom_score_adj: AtomicI32,
    /// It called execve(2) since fork (setpgid's EACCES).
    pub has_execed: AtomicBool,
    /// Held while a new program's credentials are computed and put into force.
    pub(crate) cred_guard: CredGuard,
}

impl ThreadGroup {
    /// A process without threads.
    pub fn new(
        pid: &Arc<Pid>,
        handlers: Arc<SharedHandlers>,
        inherited: ProcessInherited,
    ) -> Arc<ThreadGroup> {
        let ProcessInherited { kernel, container, rlimits, personality, oom_score_adj } = inherited;
        let pids = pid.ns().unwrap_or(&kernel.pids).clone();
        Arc::new(ThreadGroup {
            kernel,
            tgid: pid.nr(),
            pid: pid.clone(),
            pids,
            container,
            signals: Mutex::new(Signals::default()),
            shared_set: AtomicU64::new(0),
            handlers: RwLock::new(handlers),
            child_wait: WaitQueue::new(),
            thread_exit: WaitQueue::new(),
            signal_wait: WaitQueue::new(),
            exit_wait: WaitQueue::new(),
            rlimits: Mutex::new(rlimits),
            timers: Timers::default(),
            subreaper: AtomicBool::new(false),
            started: Instant::now(),
            usage: Mutex::new(Usage::default()),
            not_ours: AtomicU64::new(0),
            grouped_time: Mutex::default(),
            personality: AtomicU32::new(personality),
            oom_score_adj: AtomicI32::new(oom_score_adj),
            has_execed: AtomicBool::new(false),
            cred_guard: CredGuard::default(),
        })
    }

    /// Whether this is the init of its PID namespace.
    pub fn is_init(&self) -> bool {
        self.pid.is_child_reaper()
    }

    /// Init of a PID namespace ends, or never starts: nobody is born there any more.
    pub(crate) fn close_namespace(&self) {
        if self.is_init() {
            self.pids.close();
        }
    }

    /// What the process calls the one with this number in the sandbox's own namespace; 0 when it cannot see it.
    pub fn pid_seen(&self, nr: i32) -> i32 {
        self.kernel.pids.find(nr).map_or(0, |pid| pid.nr_in(&self.pids))
    }

    /// The PID namespace that its threads see.
    pub fn pids_seen(&self) -> &PidNamespace {
        &self.pids
    }

    /// What another process calls this one; 0 when it cannot see it.
    pub fn pid_for(&self, other: &ThreadGroup) -> i32 {
        self.pid.nr_in(&other.pids)
    }

    /// The disposition table.
    pub fn handlers(&self) -> Arc<SharedHandlers> {
        self.handlers.read().clone()
    }

    /// Stops sharing dispositions with other groups (execve).
    pub fn unshare_handlers(&self) {
        let mut h = self.handlers.write();
        let copy = h.lock().clone();
        *h = Arc::new(Mutex::new(copy));
    }

    /// Any live thread, the leader when it lives.
    pub fn any_thread(&self) -> Option<Arc<Task>> {
        let s = self.signals.lock();
        s.threads.iter().find(|t| t.tid() == self.tgid).or(s.threads.first()).cloned()
    }

    /// Live threads.
    pub fn threads(&self) -> Vec<Arc<Task>> {
        self.signals.lock().threads.clone()
    }

    /// Soft limit of a resource.
    pub fn rlimit(&self, resource: i32) -> u64 {
        self.rlimits.lock().soft(resource)
    }

    /// Forgets pending signals of the group and its threads (a disposition became "ignore").
    pub fn discard_signals(&self, which: SigSet) {
        let mut s = self.signals.lock();
        crate::send::discard(self, &mut s, which);
    }

    /// Wait status once the process has ended, whether it was waited for or not.
    pub fn exit_status(&self) -> Option<i32> {
        match self.signals.lock().life {
            Life::Dead(zombie) => Some(zombie.status),
            Life::Reaped(status) => Some(status),
            Life::Running | Life::Dethreading(_) | Life::Leaving(_) => None,
        }
    }

    /// Whether the default action is what a signal would cause.
    pub fn by_default(&self, sig: Signal) -> bool {
        self.handlers().lock().get(sig).handler == signal::SIG_DFL
    }

    /// Whether a signal would end the process.
    pub fn dies_by(&self, sig: Signal) -> bool {
        use signal::{DefaultAction, default_action};
        let fatal = matches!(default_action(sig), DefaultAction::Terminate | DefaultAction::Core);
        fatal && (sig == Signal::SIGKILL || self.by_default(sig))
    }

    /// Sends a signal to the process. Permission was checked.
    pub fn send(&self, info: SigInfo) -> Result<()> {
        crate::send::send(self, None, info)
    }
}

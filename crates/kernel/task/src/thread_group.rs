//! Thread groups: processes.

use crate::core_thread::Gathering;
use crate::cred_guard::CredGuard;
use crate::inherit::ProcessInherited;
use crate::kernel::Kernel;
use crate::life::{Life, Stop};
use crate::task::Task;
use abi::Signal;
use container::Container;
use ktime::Ktime;
use lock_order::{Mutex, RwLock, rank};
use pid::{Pid, PidNamespace};
use process_timers::{CpuLimitTimer, IntervalTimers, PosixTimers};
use sched::{Rlimits, Usage};
use signal::{Handlers, Pending};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use user_ns::UserNamespace;
use vfs::InodeRef;
use wait::WaitQueue;

/// Signal actions, which CLONE_SIGHAND shares between processes.
pub type SharedHandlers = Mutex<Handlers, { rank::SIGACTIONS }>;

/// Timers of a process. Signals are sent without their locks.
#[derive(Default)]
pub struct Timers {
    /// setitimer(2).
    pub interval: IntervalTimers,
    /// RLIMIT_CPU.
    pub(crate) cpu_limit: CpuLimitTimer,
    /// timer_create(2).
    pub posix: PosixTimers<ThreadGroup>,
}

/// What the removal of a thread meant for its group.
pub(crate) struct Departure {
    /// Of the last thread: the process's wait status, and whether the end had begun before.
    pub(crate) last: Option<(i32, bool)>,
    /// All that are left are parked by this signal, and the parent does not know yet.
    pub(crate) stopped: Option<Signal>,
}

/// Signals, threads, stop and life of a process, under one lock.
#[derive(Default)]
pub struct Signals {
    /// Signals sent to the process.
    pub shared: Pending,
    /// Where the process is in its life.
    pub life: Life,
    /// Whether a signal stops it.
    pub stop: Stop,
    /// Threads that take part in the stop: they are parked, or were when their tracer had them go on.
    pub parked: usize,
    /// Counts the stops.
    stops: u32,
    /// Counts SIGCONTs: one that comes between a stop signal's dequeue and its effect makes it void.
    pub(crate) continues: u32,
    /// A core file in the making.
    pub(crate) core: Option<Arc<Gathering>>,
    /// Live threads.
    pub threads: Vec<Arc<Task>>,
}

impl Signals {
    /// Adds a thread.
    pub(crate) fn add(&mut self, task: Arc<Task>) {
        self.threads.push(task);
    }

    /// Removes a thread. The last thread is the one that leaves no other behind. The decision is made here.
    pub(crate) fn remove(&mut self, task: &Task, own_status: i32) -> Departure {
        self.threads.retain(|t| !std::ptr::eq(&**t, task));
        if self.stop.is_on() && self.is_parked(task) {
            self.parked -= 1;
        }
        if self.threads.is_empty() {
            let begun = self.life.status();
            let status = begun.unwrap_or(own_status);
            self.life = Life::Leaving(status);
            self.stop = Stop::Not;
            return Departure { last: Some((status, begun.is_some())), stopped: None };
        }
        Departure { last: None, stopped: self.all_parked() }
    }

    /// The process is to end with this wait status; false when its end had begun before.
    pub(crate) fn end(&mut self, status: i32) -> bool {
        if self.life.is_over() {
            return false;
        }
        self.life = Life::Leaving(status);
        self.stop = Stop::Not;
        true
    }

    /// Begins a stop, unless there is one or the process ends.
    pub(crate) fn begin_stop(&mut self, sig: Signal) -> bool {
        let begins = !self.life.is_over() && !self.stop.is_on();
        if begins {
            self.stop = Stop::Stopping(sig);
            self.stops = self.stops.wrapping_add(1);
            self.parked = 0;
        }
        begins
    }

    /// Ends a stop; true when there was one.
    pub(crate) fn end_stop(&mut self) -> bool {
        std::mem::take(&mut self.stop).is_on()
    }

    /// Whether a thread takes part in the stop that is on.
    pub(crate) fn is_parked(&self, task: &Task) -> bool {
        task.parked_in.load(Ordering::Relaxed) == self.stops
    }

    /// Parks a thread while there is a stop. The last one gets the signal, to tell the parent.
    pub(crate) fn park(&mut self, task: &Task) -> Option<Signal> {
        if self.is_parked(task) {
            return None;
        }
        task.parked_in.store(self.stops, Ordering::Relaxed);
        self.count_parked()
    }

    fn count_parked(&mut self) -> Option<Signal> {
        self.parked += 1;
        self.all_parked()
    }

    /// Completes a stop that all threads have noticed; gives its signal, once.
    fn all_parked(&mut self) -> Option<Signal> {
        match self.stop {
            Stop::Stopping(sig) if self.parked >= self.threads.len() => {
                self.stop = Stop::Stopped(sig);
                Some(sig)
            }
            _ => None,
        }
    }
}

/// What a process leaves for those that hold a pidfd or an open file of /proc of it.
pub struct Left {
    /// The user namespace of its leader.
    pub user_ns: Arc<UserNamespace>,
    /// The number of its control group.
    pub cgroup: u64,
}

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
    pub started: Ktime,
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
    /// It was started by `exec`, or descends from such a process.
    pub exec_session: bool,
    /// Held while a new program's credentials are computed and put into force.
    pub(crate) cred_guard: CredGuard,
    /// What is told of the process after it has been waited for, once its leader has ended.
    pub left: OnceLock<Left>,
    /// What all pidfds of the process have for an inode, once there is one (`pidfs`).
    pub(crate) pidfs: OnceLock<InodeRef>,
}

impl ThreadGroup {
    /// A process without threads.
    pub fn new(
        kernel: Arc<Kernel>,
        pid: &Arc<Pid>,
        handlers: Arc<SharedHandlers>,
        inherited: ProcessInherited,
    ) -> Arc<ThreadGroup> {
        let started = kernel.clock().now();
        ThreadGroup::started_at(kernel, pid, handlers, inherited, started)
    }

    /// A process without threads that started at this moment.
    pub(crate) fn started_at(
        kernel: Arc<Kernel>,
        pid: &Arc<Pid>,
        handlers: Arc<SharedHandlers>,
        inherited: ProcessInherited,
        started: Ktime,
    ) -> Arc<ThreadGroup> {
        let ProcessInherited { container, rlimits, personality, oom_score_adj, exec_session } = inherited;
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
            started,
            usage: Mutex::new(Usage::default()),
            not_ours: AtomicU64::new(0),
            grouped_time: Mutex::default(),
            personality: AtomicU32::new(personality),
            oom_score_adj: AtomicI32::new(oom_score_adj),
            has_execed: AtomicBool::new(false),
            exec_session,
            cred_guard: CredGuard::default(),
            left: OnceLock::new(),
            pidfs: OnceLock::new(),
        })
    }

    /// Whether this is the init of its PID namespace.
    pub fn is_init(&self) -> bool {
        self.pid.is_child_reaper()
    }

    /// Init of a PID namespace ends, or never starts: no process is made there any more.
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
}

impl ThreadGroup {
    /// What a new process inherits from this one.
    pub(crate) fn inherited(&self) -> ProcessInherited {
        ProcessInherited {
            container: self.container.clone(),
            rlimits: *self.rlimits.lock(),
            personality: self.personality.load(Ordering::Relaxed),
            oom_score_adj: self.oom_score_adj.load(Ordering::Relaxed),
            exec_session: self.exec_session,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_begins_once_and_ends_a_stop() {
        let mut s = Signals::default();
        assert!(s.begin_stop(Signal::SIGSTOP) && !s.begin_stop(Signal::SIGTSTP));
        assert!(s.end(9) && !s.end(15));
        assert_eq!((s.life.status(), s.stop), (Some(9), Stop::Not));
        assert!(!s.begin_stop(Signal::SIGSTOP));
    }

    #[test]
    fn the_parent_is_told_of_a_stop_once() {
        let mut s = Signals::default();
        s.begin_stop(Signal::SIGTSTP);
        assert_eq!((s.count_parked(), s.count_parked()), (Some(Signal::SIGTSTP), None));
        assert!(s.end_stop() && !s.end_stop());
    }
}

//! Threads and thread groups.

use crate::container::Container;
use crate::inherit::{ProcessInherited, TaskInherited};
use crate::io_counts::{IoCounts, IoTotals};
use crate::kernel::Kernel;
use crate::nsproxy::NsProxy;
use crate::pending::Pending;
use crate::scheduling::Scheduling;
use crate::seccomp::Seccomp;
use crate::signal::Handlers;
use crate::timers::Timers;
use abi::{Result, SigInfo, SigSet, Signal};
use arc_swap::ArcSwap;
use mm::Mm;
use parking_lot::{Mutex as Leaf, RwLock};
use pid::{Attached, Pid, PidNamespace};
use platform::{Interrupt, Word};
use ranked::{Mutex, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;
use vfs::{Credentials, Creds, FdTable, FsContext};
use wait::{Events, WaitQueue, Waiter};

/// Rank of a handler table, inside the signal state.
pub const HANDLERS: u8 = rank::SIGNALS + 1;
/// Rank of a thread's pending queue.
pub const PENDING: u8 = rank::SIGNALS + 2;

/// A guest thread.
pub struct Task {
    /// Numbers in the sandbox's own PID namespace and in the thread's.
    tid: AtomicI32,
    own_tid: AtomicI32,
    /// Taken as long as the thread is in the tables.
    pid: Leaf<Option<Attached>>,
    /// Its namespaces.
    nsproxy: ArcSwap<NsProxy>,
    /// The process it belongs to.
    pub group: Arc<ThreadGroup>,
    creds: ArcSwap<Credentials>,
    mm: RwLock<Arc<Mm>>,
    fds: RwLock<Option<Arc<FdTable>>>,
    fs: RwLock<Option<Arc<FsContext>>>,
    /// How it sleeps and is woken.
    pub waiter: Arc<Waiter>,
    interrupter: RwLock<Option<Arc<dyn Interrupt>>>,
    /// By `Word`, while the platform has no place for them.
    words: [AtomicU64; Word::ALL.len()],
    /// Signals that a sigtimedwait(2) in progress waits for, blocked or not.
    pub(crate) awaited: AtomicU64,
    /// Signals sent to this thread alone.
    pub pending: Mutex<Pending, PENDING>,
    comm: Leaf<[u8; 16]>,
    /// When it was made.
    pub started: Instant,
    /// Set once the thread is on its way out.
    pub exiting: AtomicBool,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: AtomicBool,
    /// seccomp(2).
    pub seccomp: Seccomp,
    /// PR_SET_PDEATHSIG.
    pub pdeathsig: AtomicI32,
    /// Notified when a vfork child of this task execs or exits; see `vfork_released`.
    pub vfork: Leaf<Option<Arc<VforkGate>>>,
    /// State letter of /proc/PID/stat: 0 running or in a call, 1 sleeping.
    pub sleeping: AtomicBool,
    /// Number of the system call in progress plus one, 0 in user mode (/proc/PID/syscall, wchan).
    pub in_syscall: AtomicU32,
    /// What sched(7) and ioprio_set(2) set.
    pub scheduling: Arc<Scheduling>,
    /// What it has read and written.
    pub io: IoCounts,
    /// Timer slack in nanoseconds.
    pub timer_slack: AtomicU64,
    /// What timer slack 0 resets to: the creator's.
    pub default_slack: AtomicU64,
    /// Host thread id of the sentry thread that serves it, 0 until it runs.
    pub host_tid: AtomicI32,
    /// Processor time of that thread when it took this task on.
    pub(crate) cpu_base: AtomicU64,
    /// The thread is to look at the timers that count its processor time.
    pub(crate) own_timers: AtomicBool,
    /// Processor time in guest code of earlier memory images, and the most that was reported, in nanoseconds.
    pub(crate) user_before: AtomicU64,
    pub(crate) user_seen: AtomicU64,
    /// Adjustments of SEM_UNDO, shared by CLONE_SYSVSEM.
    pub sem_undo: Leaf<Option<Arc<sysv::sem::UndoList>>>,
    /// Priority-inheritance futexes.
    pub(crate) pi: Leaf<crate::pi::PiTask>,
}

/// Where a vfork(2) parent waits.
#[derive(Default)]
pub struct VforkGate {
    done: AtomicBool,
    queue: WaitQueue,
}

impl VforkGate {
    /// The child has its own memory or is gone.
    pub fn open(&self) {
        self.done.store(true, Ordering::SeqCst);
        self.queue.notify(Events::IN);
    }
    /// True once opened.
    pub fn is_open(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }
    /// The queue notified by `open`.
    pub fn queue(&self) -> &WaitQueue {
        &self.queue
    }
}

/// What a thread starts with.
pub struct TaskInit {
    /// Thread ID.
    pub pid: Attached,
    /// From the thread that made it.
    pub inherited: TaskInherited,
    /// Its process.
    pub group: Arc<ThreadGroup>,
    /// Memory.
    pub mm: Arc<Mm>,
    /// Descriptors.
    pub fds: Arc<FdTable>,
    /// Root, working directory, umask.
    pub fs: Arc<FsContext>,
    /// Address to clear when it ends, or 0.
    pub clear_child_tid: u64,
}

/// A name in the form of [`Task::comm`].
pub(crate) fn comm(name: &[u8]) -> [u8; 16] {
    let mut c = [0; 16];
    let n = name.len().min(15);
    c[..n].copy_from_slice(&name[..n]);
    c
}

impl Task {
    /// A thread that is not in any table yet.
    pub fn new(i: TaskInit) -> Arc<Task> {
        let TaskInherited { creds, nsproxy, blocked, comm, scheduling, no_new_privs, timer_slack } =
            i.inherited;
        Arc::new(Task {
            tid: AtomicI32::new(i.pid.nr()),
            own_tid: AtomicI32::new(i.pid.own_nr()),
            pid: Leaf::new(Some(i.pid)),
            nsproxy: ArcSwap::new(nsproxy),
            group: i.group,
            creds: ArcSwap::new(creds),
            mm: RwLock::new(i.mm),
            fds: RwLock::new(Some(i.fds)),
            fs: RwLock::new(Some(i.fs)),
            waiter: Waiter::new(),
            interrupter: RwLock::new(None),
            words: [blocked.0, 0, 0, i.clear_child_tid].map(AtomicU64::new),
            awaited: AtomicU64::new(0),
            pending: Mutex::new(Pending::default()),
            comm: Leaf::new(comm),
            started: Instant::now(),
            exiting: AtomicBool::new(false),
            no_new_privs: AtomicBool::new(no_new_privs),
            seccomp: Seccomp::default(),
            pdeathsig: AtomicI32::new(0),
            vfork: Leaf::new(None),
            sleeping: AtomicBool::new(false),
            in_syscall: AtomicU32::new(0),
            scheduling,
            io: IoCounts::default(),
            timer_slack: AtomicU64::new(timer_slack),
            default_slack: AtomicU64::new(timer_slack),
            host_tid: AtomicI32::new(0),
            cpu_base: AtomicU64::new(0),
            own_timers: AtomicBool::new(false),
            user_before: AtomicU64::new(0),
            user_seen: AtomicU64::new(0),
            sem_undo: Leaf::new(None),
            pi: Leaf::default(),
        })
    }

    /// The kernel.
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.group.kernel
    }
    /// Thread id.
    pub fn tid(&self) -> i32 {
        self.tid.load(Ordering::Relaxed)
    }
    /// Thread ID as the thread itself knows it.
    pub fn own_tid(&self) -> i32 {
        self.own_tid.load(Ordering::Relaxed)
    }
    /// A de-threading execve(2) takes the leader's ID.
    pub(crate) fn set_pid(&self, pid: Attached) {
        self.tid.store(pid.nr(), Ordering::Relaxed);
        self.own_tid.store(pid.own_nr(), Ordering::Relaxed);
        let old = self.pid.lock().replace(pid);
        drop(old);
    }
    /// The thread has left the tables: its ID is free.
    pub(crate) fn release_pid(&self) {
        let old = self.pid.lock().take();
        drop(old);
    }
    /// Process ID.
    pub fn tgid(&self) -> i32 {
        self.group.tgid
    }
    /// Its PID namespace.
    pub fn pids(&self) -> &Arc<PidNamespace> {
        &self.group.pids
    }
    /// Its namespaces.
    pub fn nsproxy(&self) -> Arc<NsProxy> {
        self.nsproxy.load_full()
    }
    /// Replaces its namespaces (unshare(2), setns(2)).
    pub fn set_nsproxy(&self, n: NsProxy) {
        self.nsproxy.store(Arc::new(n));
    }
    /// Credentials.
    pub fn creds(&self) -> Creds {
        self.creds.load()
    }
    /// Processor time of its sentry thread in nanoseconds.
    pub fn sentry_time(&self) -> u64 {
        let ns = hostsys::clock::thread_cpu_ns(self.host_tid.load(Ordering::Relaxed)).unwrap_or(0) as u64;
        ns.saturating_sub(self.cpu_base.load(Ordering::Relaxed))
    }
    /// Replaces the credentials.
    pub fn set_creds(&self, c: Credentials) {
        self.creds.store(Arc::new(c));
        self.tell_creds();
    }
    fn tell_creds(&self) {
        let c = self.creds();
        self.tell(&[
            (libc::SYS_getuid, c.uid),
            (libc::SYS_geteuid, c.euid),
            (libc::SYS_getgid, c.gid),
            (libc::SYS_getegid, c.egid),
        ]);
    }
    /// Tells the platform what calls without arguments answer.
    fn tell(&self, answers: &[(i64, u32)]) {
        if let Some(i) = &*self.interrupter.read() {
            let a: Vec<(u32, u32)> = answers.iter().map(|(nr, v)| (*nr as u32, *v)).collect();
            i.set_answers(&a);
        }
    }
    /// The parent has changed. The caller holds the process tree, so that the last change is the last word.
    pub(crate) fn tell_parent(&self, parent: i32) {
        let parent = self.kernel().pids.find(parent).map_or(0, |p| p.nr_in(self.pids()));
        self.tell(&[(libc::SYS_getppid, parent as u32)]);
    }
    /// Tells the platform all it may answer by itself; the caller holds the process tree.
    pub(crate) fn tell_all(&self, parent: i32) {
        let (pid, tid) = (self.group.pid.own_nr(), self.own_tid());
        self.tell(&[(libc::SYS_getpid, pid as u32), (libc::SYS_gettid, tid as u32)]);
        self.tell_creds();
        self.tell_parent(parent);
    }
    /// Memory.
    pub fn mm(&self) -> Arc<Mm> {
        self.mm.read().clone()
    }
    pub(crate) fn set_mm(&self, mm: Arc<Mm>) {
        *self.mm.write() = mm;
    }
    /// Descriptor table; `None` once the thread has exited.
    pub fn fds(&self) -> Option<Arc<FdTable>> {
        self.fds.read().clone()
    }
    /// Replaces the descriptor table (unshare, execve) and gives the old one.
    pub fn set_fds(&self, t: Option<Arc<FdTable>>) -> Option<Arc<FdTable>> {
        std::mem::replace(&mut *self.fds.write(), t)
    }
    /// Root, working directory, umask; `None` once the thread has exited.
    pub fn fs(&self) -> Option<Arc<FsContext>> {
        self.fs.read().clone()
    }
    /// Replaces the file system context.
    pub fn set_fs(&self, f: Option<Arc<FsContext>>) -> Option<Arc<FsContext>> {
        std::mem::replace(&mut *self.fs.write(), f)
    }
    /// Blocked signals.
    pub fn blocked(&self) -> SigSet {
        SigSet(self.word(Word::Blocked)).minus(SigSet::UNBLOCKABLE)
    }
    /// True when the thread would notice this signal: not blocked, or waited for.
    pub(crate) fn wants(&self, s: Signal) -> bool {
        !self.blocked().has(s) || SigSet(self.awaited.load(Ordering::SeqCst)).has(s)
    }
    /// Sets the blocked signals (SIGKILL and SIGSTOP stay unblocked) and looks whether any pending
    /// one can now be delivered.
    pub fn set_blocked(&self, s: SigSet) {
        if self.word(Word::Pending) != 0 {
            let _signals = self.group.signals.lock();
            self.note_pending();
        }
        self.set_word(Word::Blocked, s.minus(SigSet::UNBLOCKABLE).0);
        self.recheck();
    }
    /// Name (PR_SET_NAME), NUL padded.
    pub fn comm(&self) -> [u8; 16] {
        *self.comm.lock()
    }
    /// Sets the name, cut at 15 bytes.
    pub fn set_comm(&self, name: &[u8]) {
        *self.comm.lock() = comm(name);
    }
    pub(crate) fn set_interrupter(&self, i: Option<Arc<dyn Interrupt>>) {
        let mut current = self.interrupter.write();
        for w in Word::ALL {
            let value = self.place(&current, w).load(Ordering::SeqCst);
            self.place(&i, w).store(value, Ordering::SeqCst);
        }
        *current = i;
    }

    fn place<'a>(&'a self, i: &'a Option<Arc<dyn Interrupt>>, w: Word) -> &'a AtomicU64 {
        i.as_ref().and_then(|i| i.word(w)).unwrap_or(&self.words[w as usize])
    }

    /// A word of the thread; the guest may have changed it to anything.
    pub fn word(&self, w: Word) -> u64 {
        self.place(&self.interrupter.read(), w).load(Ordering::SeqCst)
    }

    /// Sets a word of the thread.
    pub fn set_word(&self, w: Word, value: u64) {
        self.place(&self.interrupter.read(), w).store(value, Ordering::SeqCst);
    }

    /// Tells the platform which signals are pending, so that they are not unblocked behind our back. Under the group's
    /// signal lock, after a change and before a look at what is blocked.
    pub(crate) fn note_pending(&self) {
        let shared = SigSet(self.group.shared_set.load(Ordering::SeqCst));
        let pending = self.pending.lock().set().union(shared);
        self.set_word(Word::Pending, pending.0);
    }

    /// Calls `f` with the handle that interrupts the thread in guest code, while there is one.
    pub(crate) fn with_interrupter(&self, f: impl FnOnce(&dyn Interrupt)) {
        if let Some(i) = &*self.interrupter.read() {
            f(&**i);
        }
    }

    /// The list of SEM_UNDO adjustments, made when there is none.
    pub fn sem_undo(&self) -> Arc<sysv::sem::UndoList> {
        let new = || sysv::sem::UndoList::new(self.nsproxy().ipc.sysv.clone(), self.group.pid.clone());
        self.sem_undo.lock().get_or_insert_with(new).clone()
    }

    /// Makes the thread look at its signals soon, wherever it is.
    pub fn kick(&self) {
        self.waiter.set_interrupted(true);
        if let Some(i) = &*self.interrupter.read() {
            i.interrupt();
        }
    }

    /// As `kick`, and ends sleeps that only death ends.
    pub fn kick_fatal(&self) {
        self.kick();
        wait::Wake::wake(&*self.waiter, Events::ERR);
    }

    /// True when a signal could be delivered now.
    pub fn has_deliverable(&self) -> bool {
        let allowed = SigSet::ALL.minus(self.blocked());
        let shared = SigSet(self.group.shared_set.load(Ordering::SeqCst));
        !self.pending.lock().set().union(shared).intersect(allowed).is_empty()
    }

    /// Raises the interrupt flag when something can be delivered.
    pub fn recheck(&self) {
        if self.has_deliverable() {
            self.waiter.set_interrupted(true);
        }
    }
}

/// Where a process is in its life. It only ever goes forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Life {
    /// Its threads run.
    #[default]
    Running,
    /// Its threads are to leave; the process will have this wait status.
    Ending(i32),
    /// Its last thread has left.
    Dead(i32),
    /// It has been waited for, or nobody will.
    Reaped(i32),
}

impl Life {
    /// The wait status, once it is certain that the process ends.
    pub fn status(self) -> Option<i32> {
        match self {
            Life::Running => None,
            Life::Ending(status) | Life::Dead(status) | Life::Reaped(status) => Some(status),
        }
    }

    /// Whether the process ends or has ended.
    pub fn is_over(self) -> bool {
        self != Life::Running
    }
}

/// What the removal of a thread meant for its group.
pub(crate) struct Departure {
    /// Of the last thread: the process's wait status, and whether the end had begun before.
    pub(crate) last: Option<(i32, bool)>,
    /// All that are left are stopped, and the parent does not know yet.
    pub(crate) stopped: Option<Signal>,
}

/// The stop and exit state of a group, under the signal lock.
#[derive(Default)]
pub struct Signals {
    /// Signals sent to the process.
    pub shared: Pending,
    /// Running, ending, dead, reaped.
    pub life: Life,
    /// Thread id that is executing execve(2); all others exit.
    pub exec_by: Option<i32>,
    /// The signal that is stopping the group.
    pub stop: Option<Signal>,
    /// Threads parked by the stop.
    pub parked: usize,
    /// The parent was told of the stop.
    pub stop_told: bool,
    /// Live threads.
    pub threads: Vec<Arc<Task>>,
    /// How many of them have not begun to leave.
    staying: usize,
}

impl Signals {
    /// Adds a thread.
    pub(crate) fn add(&mut self, task: Arc<Task>) {
        self.threads.push(task);
        self.staying += 1;
    }

    /// A thread begins to leave; true when all others have begun, too.
    pub(crate) fn begin_to_leave(&mut self) -> bool {
        self.staying = self.staying.saturating_sub(1);
        self.staying == 0
    }

    /// Removes a thread. The one that leaves nobody behind is the last, and this is where it is decided.
    pub(crate) fn remove(&mut self, task: &Task, own_status: i32) -> Departure {
        self.threads.retain(|t| !std::ptr::eq(&**t, task));
        if self.threads.is_empty() {
            let begun = self.life.status();
            let status = begun.unwrap_or(own_status);
            self.life = Life::Dead(status);
            return Departure { last: Some((status, begun.is_some())), stopped: None };
        }
        let all_parked = self.stop.is_some() && self.parked >= self.threads.len() && !self.stop_told;
        self.stop_told |= all_parked;
        Departure { last: None, stopped: self.stop.filter(|_| all_parked) }
    }
}

/// A process.
pub struct ThreadGroup {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// Process ID in the sandbox's own PID namespace.
    pub tgid: i32,
    /// The process ID itself.
    pub pid: Arc<Pid>,
    pids: Arc<PidNamespace>,
    /// The container it belongs to.
    pub container: Arc<Container>,
    /// Signal, stop and exit state.
    pub signals: Mutex<Signals, { rank::SIGNALS }>,
    /// Copy of the shared pending set for lock-free checks.
    pub shared_set: AtomicU64,
    handlers: RwLock<Arc<Mutex<Handlers, HANDLERS>>>,
    /// Notified when a child changes state.
    pub child_wait: WaitQueue,
    /// Notified when a thread leaves.
    pub thread_exit: WaitQueue,
    /// Notified when a signal becomes pending (signalfd).
    pub signal_wait: WaitQueue,
    /// Notified at exit (pidfd).
    pub exit_wait: WaitQueue,
    /// Resource limits (soft, hard), indexed by RLIMIT_*.
    pub rlimits: Leaf<[(u64, u64); 16]>,
    /// Interval and POSIX timers.
    pub timers: Timers,
    /// PR_SET_CHILD_SUBREAPER.
    pub subreaper: AtomicBool,
    /// When the process started.
    pub started: Instant,
    /// Resource usage of threads that left and children that were waited for.
    pub usage: Leaf<Usage>,
    /// Processor time of the address space that was used before the process shared it, in nanoseconds.
    pub(crate) not_ours: AtomicU64,
    /// personality(2).
    pub personality: AtomicU32,
    /// /proc/PID/oom_score_adj.
    pub oom_score_adj: AtomicI32,
    /// It called execve(2) since fork (setpgid's EACCES).
    pub has_execed: AtomicBool,
}

/// Accumulated processor time in nanoseconds and other rusage counts.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// User time of this process's earlier memory images.
    pub utime: u64,
    /// System time of threads that left.
    pub stime: u64,
    /// User time of waited-for children.
    pub child_utime: u64,
    /// System time of waited-for children.
    pub child_stime: u64,
    /// What threads that left, and waited-for children, have read and written.
    pub io: IoTotals,
    /// Largest resident set in KiB.
    pub maxrss: u64,
    /// Largest resident set of a waited-for child.
    pub child_maxrss: u64,
}

impl ThreadGroup {
    /// A process without threads.
    pub fn new(
        pid: &Arc<Pid>,
        handlers: Arc<Mutex<Handlers, HANDLERS>>,
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
            rlimits: Leaf::new(rlimits),
            timers: Timers::default(),
            subreaper: AtomicBool::new(false),
            started: Instant::now(),
            usage: Leaf::new(Usage::default()),
            not_ours: AtomicU64::new(0),
            personality: AtomicU32::new(personality),
            oom_score_adj: AtomicI32::new(oom_score_adj),
            has_execed: AtomicBool::new(false),
        })
    }

    /// Whether this is the init of its PID namespace.
    pub fn is_init(&self) -> bool {
        self.pid.is_child_reaper()
    }

    /// What the process calls the one with this number in the sandbox's own namespace; 0 when it cannot see it.
    pub fn pid_seen(&self, nr: i32) -> i32 {
        self.kernel.pids.find(nr).map_or(0, |pid| pid.nr_in(&self.pids))
    }

    /// What another process calls this one; 0 when it cannot see it.
    pub fn pid_for(&self, other: &ThreadGroup) -> i32 {
        self.pid.nr_in(&other.pids)
    }

    /// The disposition table.
    pub fn handlers(&self) -> Arc<Mutex<Handlers, HANDLERS>> {
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
        self.rlimits.lock().get(resource as usize).map_or(u64::MAX, |l| l.0)
    }

    /// Forgets pending signals of the group and its threads (a disposition became "ignore").
    pub fn discard_signals(&self, which: SigSet) {
        let mut s = self.signals.lock();
        crate::send::discard(self, &mut s, which);
    }

    /// Wait status once the process has ended, whether it was waited for or not.
    pub fn exit_status(&self) -> Option<i32> {
        match self.signals.lock().life {
            Life::Dead(status) | Life::Reaped(status) => Some(status),
            Life::Running | Life::Ending(_) => None,
        }
    }

    /// Whether the default action is what a signal would cause.
    pub fn by_default(&self, sig: Signal) -> bool {
        self.handlers().lock().get(sig).handler == crate::signal::SIG_DFL
    }

    /// Whether a signal would end the process.
    pub fn dies_by(&self, sig: Signal) -> bool {
        use crate::signal::{DefaultAction, default_action};
        let fatal = matches!(default_action(sig), DefaultAction::Terminate | DefaultAction::Core);
        fatal && (sig == Signal::SIGKILL || self.by_default(sig))
    }

    /// Sends a signal to the process. Permission was checked.
    pub fn send(&self, info: SigInfo) -> Result<()> {
        crate::send::send(self, None, info)
    }
}

impl Task {
    /// Sends a signal to this thread alone.
    pub fn send(&self, info: SigInfo) -> Result<()> {
        crate::send::send(&self.group, Some(self), info)
    }
}

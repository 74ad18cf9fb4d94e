//! Threads and thread groups.

use crate::counts::Counts;
use crate::current::Current;
use crate::inherit::{EntryInherited, TaskInherited};
use crate::kernel::Kernel;
use crate::last_calls::LastCalls;
use crate::resource::TaskSlot;
use crate::thread_group::ThreadGroup;
use abi::{SigSet, Signal};
use arc_swap::ArcSwap;
use cgroup::Member;
use files::FdTable;
use futex_pi::PiTask;
use ktime::Ktime;
use lock_order::{Mutex, RwLock, rank};
use mm::Mm;
use mounts::FsContext;
use nsproxy::NsProxy;
use pid::{Attached, PidNamespace};
use platform::{Interrupt, Word};
use rights::{Credentials, Creds};
use sched::{IoCounts, Scheduling};
use signal::Pending;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use syscall_filter::Seccomp;
use tracee::Trace;
use vfs::InodeRef;
use wait::{Events, WaitQueue, Waiter};

/// How long a thread that ends waits for programs that serve others.
const AT_END: Duration = Duration::from_secs(1);

/// A guest thread.
pub struct Task {
    /// Numbers in the sandbox's own PID namespace and in the thread's.
    tid: AtomicI32,
    own_tid: AtomicI32,
    /// Taken as long as the thread is in the tables.
    pid: Mutex<Option<Attached>>,
    /// Its namespaces.
    nsproxy: ArcSwap<NsProxy>,
    /// The process it belongs to.
    pub group: Arc<ThreadGroup>,
    creds: ArcSwap<Credentials>,
    pub(crate) mm_slot: TaskSlot<Arc<Mm>>,
    pub(crate) fds_slot: TaskSlot<Option<Arc<FdTable>>>,
    pub(crate) fs_slot: TaskSlot<Option<Arc<FsContext>>>,
    /// How it sleeps and is woken.
    pub waiter: Arc<Waiter>,
    interrupter: RwLock<Option<Arc<dyn Interrupt>>>,
    /// By `Word`, while the platform has no place for them.
    words: [AtomicU64; Word::ALL.len()],
    /// Signals that a sigtimedwait(2) in progress waits for, blocked or not.
    pub(crate) awaited: AtomicU64,
    /// Signals sent to this thread alone.
    pub pending: Mutex<Pending, { rank::PENDING }>,
    comm: Mutex<[u8; 16]>,
    /// When it was made.
    pub started: Ktime,
    /// It is the kernel's own and runs no program, as a kernel thread of Linux.
    pub(crate) kernel_thread: AtomicBool,
    /// The thread is on its way out. Set under the group's signal lock.
    leaving: AtomicBool,
    /// It is to end.
    killed: AtomicBool,
    /// A signal that ends the process is pending.
    doomed: AtomicBool,
    /// The end of the time that its making may take, while it is being made for a caller outside.
    deadline: Mutex<Option<Ktime>>,
    /// Once it waited for others on its way out: until when.
    end_deadline: OnceLock<Ktime>,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: AtomicBool,
    /// seccomp(2).
    pub seccomp: Seccomp,
    /// PR_SET_PDEATHSIG.
    pub pdeathsig: AtomicI32,
    /// Notified when a vfork child of this task execs or exits; see `vfork_released`.
    pub vfork: Mutex<Option<Arc<VforkGate>>>,
    /// State letter of /proc/PID/stat: 0 running or in a call, 1 sleeping.
    pub sleeping: AtomicBool,
    /// Number of the system call in progress plus one, 0 in user mode (/proc/PID/syscall, wchan).
    pub in_syscall: AtomicU32,
    /// The last ones.
    pub last_calls: LastCalls,
    /// Arguments of that call, while there is a policy.
    pub(crate) call_args: [AtomicU64; 6],
    /// What a policy wants done when the call has ended: see `policing`.
    pub(crate) sentence: AtomicU8,
    /// What sched(7) and ioprio_set(2) set.
    pub scheduling: Arc<Scheduling>,
    /// What it has read and written.
    pub io: IoCounts,
    /// What else it has done.
    pub counts: Counts,
    /// Nanoseconds that it was ready and waited for a processor, when that was last asked.
    pub(crate) waited: AtomicU64,
    /// Blocks that its thread of the kernel has had the host read and write, when that was last asked.
    pub(crate) blocks: [AtomicU64; 2],
    /// Timer slack in nanoseconds.
    pub timer_slack: AtomicU64,
    /// PR_MCE_KILL.
    pub memory_failure_policy: AtomicU8,
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
    /// Its place among the control groups.
    pub cgroup: Member,
    /// Its keyrings.
    pub keyrings: keys::Holder,
    /// set_mempolicy(2).
    pub mempolicy: Mutex<mm::Policy>,
    /// Adjustments of SEM_UNDO, shared by CLONE_SYSVSEM.
    pub sem_undo: Mutex<Option<Arc<sysv::sem::UndoList>>>,
    /// The last group stop that it took part in.
    pub(crate) parked_in: AtomicU32,
    /// It is to stand still: see `standstill`.
    pub(crate) asked_to_stand: AtomicBool,
    /// ptrace(2).
    pub trace: Trace<ThreadGroup, Current>,
    /// Priority-inheritance futexes.
    pub(crate) pi: Mutex<PiTask<Task>>,
    /// What all pidfds of the thread have for an inode, once there is one, unless it leads its process (`pidfs`).
    pub(crate) pidfs: OnceLock<InodeRef>,
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
pub fn comm(name: &[u8]) -> [u8; 16] {
    let mut c = [0; 16];
    let n = name.len().min(15);
    c[..n].copy_from_slice(&name[..n]);
    c
}

impl Task {
    /// A thread that is not in any table yet.
    pub fn new(i: TaskInit) -> Arc<Task> {
        let started = i.group.kernel.clock().now();
        Task::started_at(i, started)
    }

    /// As [`Task::new`], of a thread that was made at this moment.
    pub(crate) fn started_at(i: TaskInit, started: Ktime) -> Arc<Task> {
        let TaskInherited {
            creds,
            nsproxy,
            cgroup,
            keyrings,
            mempolicy,
            blocked,
            comm,
            scheduling,
            sem_undo,
            timer_slack,
            memory_failure_policy,
        } = i.inherited;
        Arc::new(Task {
            tid: AtomicI32::new(i.pid.nr()),
            own_tid: AtomicI32::new(i.pid.own_nr()),
            pid: Mutex::new(Some(i.pid)),
            nsproxy: ArcSwap::new(nsproxy),
            group: i.group,
            creds: ArcSwap::new(creds),
            mm_slot: TaskSlot::new(i.mm),
            fds_slot: TaskSlot::new(Some(i.fds)),
            fs_slot: TaskSlot::new(Some(i.fs)),
            waiter: Waiter::new(),
            interrupter: RwLock::new(None),
            words: [blocked.0, 0, 0, i.clear_child_tid].map(AtomicU64::new),
            awaited: AtomicU64::new(0),
            pending: Mutex::new(Pending::default()),
            comm: Mutex::new(comm),
            started,
            kernel_thread: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            doomed: AtomicBool::new(false),
            deadline: Mutex::new(None),
            end_deadline: OnceLock::new(),
            no_new_privs: AtomicBool::new(false),
            seccomp: Seccomp::default(),
            pdeathsig: AtomicI32::new(0),
            vfork: Mutex::new(None),
            sleeping: AtomicBool::new(false),
            in_syscall: AtomicU32::new(0),
            last_calls: LastCalls::default(),
            waited: AtomicU64::new(0),
            call_args: Default::default(),
            sentence: AtomicU8::new(0),
            scheduling,
            io: IoCounts::default(),
            counts: Counts::default(),
            blocks: Default::default(),
            timer_slack: AtomicU64::new(timer_slack),
            memory_failure_policy: AtomicU8::new(memory_failure_policy),
            default_slack: AtomicU64::new(timer_slack),
            host_tid: AtomicI32::new(0),
            cpu_base: AtomicU64::new(0),
            own_timers: AtomicBool::new(false),
            user_before: AtomicU64::new(0),
            user_seen: AtomicU64::new(0),
            cgroup,
            keyrings,
            mempolicy: Mutex::new(mempolicy),
            sem_undo: Mutex::new(sem_undo),
            parked_in: AtomicU32::new(0),
            asked_to_stand: AtomicBool::new(false),
            trace: Trace::default(),
            pi: Mutex::default(),
            pidfs: OnceLock::new(),
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
    /// What a thread of this PID namespace calls it; 0 when it cannot be seen there.
    pub(crate) fn nr_in(&self, ns: &PidNamespace) -> i32 {
        self.pid.lock().as_ref().map_or(0, |pid| pid.nr_in(ns))
    }
    /// A de-threading execve(2) takes the leader's ID.
    pub(crate) fn set_pid(&self, pid: Attached) {
        self.tid.store(pid.nr(), Ordering::Relaxed);
        self.own_tid.store(pid.own_nr(), Ordering::Relaxed);
        let old = self.pid.lock().replace(pid);
        drop(old);
    }
    /// The thread has left the tables, but its ID stays taken.
    pub(crate) fn take_pid(&self) -> Option<Attached> {
        self.pid.lock().take()
    }
    /// The thread has left the tables: its ID is free.
    pub(crate) fn release_pid(&self) {
        let old = self.pid.lock().take();
        drop(old);
    }
    /// Whether the thread is on its way out.
    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }
    /// See [`crate::life::Signals::begin_to_leave`].
    pub(crate) fn begin_to_leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
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
    /// Other namespaces. Only the thread itself changes them.
    pub(crate) fn set_nsproxy(&self, new: Arc<NsProxy>) {
        self.nsproxy.store(new);
    }
    /// The making of a process for a caller outside waits until then for programs that serve others; `None` when it
    /// runs.
    pub fn set_deadline(&self, at: Option<Ktime>) {
        *self.deadline.lock() = at;
    }
    /// See [`vfs::Caller::deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.lock().map(|at| self.kernel().clock().instant(at))
    }
    /// See [`vfs::Caller::end_deadline`]: one second from the first wait of its end, and no wait once its container is
    /// over and all programs of it end.
    pub fn end_deadline(&self) -> Instant {
        if self.group.container.is_over() {
            return Instant::now();
        }
        let clock = self.kernel().clock();
        clock.instant(*self.end_deadline.get_or_init(|| clock.now().plus(AT_END)))
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
    /// The user namespace got a map: what the thread calls its IDs is another number now.
    pub fn ids_mapped(&self) {
        self.tell_creds();
    }
    /// Replaces the credentials (commit_creds). When the thread acts as another user or gains capabilities, its memory
    /// is not dumpable any more, and the end of its parent sends it no signal.
    pub fn set_creds(&self, mut c: Credentials) {
        let old = self.creds();
        if c != **old {
            c.serial = self.kernel().next_cred_serial();
        }
        if c.fsuid != old.fsuid {
            self.keyrings.user_changed(c.fsuid);
        }
        if old.outgrown_by(&c) {
            // Before others see the new credentials.
            self.mm().dumpable.store(0, Ordering::SeqCst);
            self.pdeathsig.store(0, Ordering::SeqCst);
        }
        self.creds.store(Arc::new(c));
        self.tell_creds();
    }
    fn tell_creds(&self) {
        let c = self.creds();
        let ns = &c.user_ns;
        self.tell(&[
            (libc::SYS_getuid, ns.show_user(c.uid)),
            (libc::SYS_geteuid, ns.show_user(c.euid)),
            (libc::SYS_getgid, ns.show_group(c.gid)),
            (libc::SYS_getegid, ns.show_group(c.egid)),
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
        self.mm_slot.get()
    }
    /// Descriptor table; `None` once the thread has exited.
    pub fn fds(&self) -> Option<Arc<FdTable>> {
        self.fds_slot.get()
    }
    /// Root, working directory, umask; `None` once the thread has exited.
    pub fn fs(&self) -> Option<Arc<FsContext>> {
        self.fs_slot.get()
    }
    /// Blocked signals.
    pub fn blocked(&self) -> SigSet {
        SigSet(self.word(Word::Blocked)).minus(SigSet::UNBLOCKABLE)
    }
    /// True when the thread would notice this signal: not blocked, or waited for.
    pub(crate) fn wants(&self, s: Signal) -> bool {
        !self.blocked().has(s) || SigSet(self.awaited.load(Ordering::SeqCst)).has(s)
    }
    /// Blocked signals as others see them: without those that a sigtimedwait(2) in progress waits for.
    pub fn blocked_now(&self) -> SigSet {
        self.blocked().minus(SigSet(self.awaited.load(Ordering::SeqCst)))
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

    /// As `kick_fatal` of a thread that is to end, which [`Task::is_killed`] tells from now on.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        self.kick_fatal();
    }

    /// The thread ends by itself: nothing could end a wait of it any more.
    pub(crate) fn note_end(&self) {
        self.killed.store(true, Ordering::SeqCst);
    }

    /// As `kick_fatal`, for a signal that ends the process when it is delivered. Until the thread comes to that, it counts as
    /// killed.
    pub(crate) fn doom(&self) {
        self.doomed.store(true, Ordering::SeqCst);
        self.kick_fatal();
    }

    /// The thread looks at its signals now.
    pub(crate) fn undoom(&self) {
        self.doomed.store(false, Ordering::SeqCst);
    }

    /// The thread is to end, or ends.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::SeqCst) || self.doomed.load(Ordering::SeqCst)
    }

    /// True when a signal could be delivered now.
    pub fn has_deliverable(&self) -> bool {
        !self.deliverable().is_empty()
    }

    /// Pending signals that are not blocked.
    pub(crate) fn deliverable(&self) -> SigSet {
        let allowed = SigSet::ALL.minus(self.blocked());
        let shared = SigSet(self.group.shared_set.load(Ordering::SeqCst));
        self.pending.lock().set().union(shared).intersect(allowed)
    }

    /// Raises the interrupt flag when something can be delivered.
    pub fn recheck(&self) {
        if self.has_deliverable() {
            self.waiter.set_interrupted(true);
        }
    }

    /// Makes a thread in guest code look at its state again, without ending a sleep in the kernel.
    pub(crate) fn interrupt_guest(&self) {
        self.with_interrupter(|i| i.interrupt());
    }

    /// True while the thread sleeps in a call, for the state letter of /proc.
    pub fn is_sleeping(&self) -> bool {
        let mut native = false;
        self.with_interrupter(|i| native = i.asleep());
        native || self.sleeping.load(Ordering::Relaxed) || self.waiter.asleep()
    }
}

impl Task {
    /// What a new thread inherits from this one in the step that enters it in the tables.
    pub(crate) fn inherited_at_entry(&self) -> EntryInherited {
        EntryInherited {
            seccomp: self.seccomp.state(),
            no_new_privs: self.no_new_privs.load(Ordering::Relaxed),
        }
    }

    /// The thread enters the tables.
    pub(crate) fn enter(&self, inherited: EntryInherited) {
        let EntryInherited { seccomp, no_new_privs } = inherited;
        self.seccomp.set_state(seccomp);
        self.no_new_privs.store(no_new_privs, Ordering::Relaxed);
    }

    /// What a new thread inherits from this one, of the same process or of another, with the place
    /// that was found for it. `same_undo`: CLONE_SYSVSEM.
    pub(crate) fn inherited(&self, same_process: bool, same_undo: bool, cgroup: Member) -> TaskInherited {
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
            sem_undo: same_undo.then(|| self.sem_undo()),
            timer_slack: self.timer_slack.load(Ordering::Relaxed),
            memory_failure_policy: self.memory_failure_policy.load(Ordering::Relaxed),
        }
    }
}

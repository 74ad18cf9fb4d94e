//! Processes and threads as plain data, for a checkpoint.
//!
//! Memory, descriptor tables, file system contexts and terminals are kept elsewhere; what is kept here names them by their
//! identities. All IDs are those of the sandbox's own PID namespace, unless said otherwise.

use crate::current::{Current, RestartBlock};
use crate::kernel::Kernel;
use crate::life::Stop;
use crate::standstill::Standstill;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use crate::tree::NodeState;
use abi::{Errno, SigSet, Signal};
use cgroup::Cgroup;
use container::Container;
use files::FdTable;
use keys::HolderState;
use ktime::Ktime;
use landlock::Domain;
use mm::Mm;
use mounts::FsContext;
use nsproxy::{Namespace, NsProxy, SetState, Spaces};
use platform::{Context, Regs, Word};
use process_timers::{ItimersState, PosixTimersState};
use rights::{Credentials, CredentialsState};
use sched::{IoTotals, Rlimits, SchedulingState, Usage};
use seccomp::{Chain, SockFilter};
use serde::{Deserialize, Serialize};
use signal::{AltStack, PendingState, SigAction};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sysresult::Restart;
use sysv::sem::UndoListState;
use tracee::{After, TraceState, Tracee};

mod restore;
mod tracing;

pub use restore::TakenPids;

/// Numbers of a process ID, from the sandbox's own namespace inwards.
pub type Numbers = Vec<i32>;

/// What only the running thread itself knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurrentState {
    /// Registers as of the last exit from guest code.
    pub regs: Regs,
    /// Extended state, in the form of a signal frame.
    #[serde(with = "serde_bytes")]
    pub xstate: Vec<u8>,
    /// Alternate signal stack.
    pub altstack: AltStack,
    /// Signal mask to restore after the call unless a handler runs.
    pub saved_mask: Option<SigSet>,
    /// How to restart the interrupted call.
    pub restart: Option<Restart>,
    /// What restart_syscall(2) goes on with.
    pub restart_block: Option<RestartBlock>,
    /// When the time-out of that call ends.
    #[serde(default)]
    pub waits_until: Option<Ktime>,
    /// It waits in vfork(2); the result that the call will have.
    pub vforking: Option<u64>,
    /// It is the kernel's own init of a container, which waits for the first program.
    pub own_init: Option<i32>,
    /// It ends by itself, with this status.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// A tracer has yet to see the exit of the call.
    #[serde(default)]
    pub exit_due: bool,
}

/// A filter of seccomp(2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterState {
    /// Instructions: operation, two jump distances, operand.
    pub code: Vec<(u16, u8, u8, u32)>,
    /// Actions are logged.
    pub log: bool,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadState {
    /// Its ID.
    pub tid: i32,
    /// Its process.
    pub tgid: i32,
    /// What only the thread knows.
    pub current: CurrentState,
    /// Its memory, by [`crate::Task::mm`]'s identity: the ID of the first thread that is listed with it.
    pub mm: i32,
    /// Its descriptor table ([`FdTable::id`]).
    pub fds: u64,
    /// Its file system context: the ID of the first thread that is listed with it.
    pub fs: i32,
    /// Blocked signals, the robust list, the address to clear at the end.
    pub words: [u64; 3],
    /// Pending signals.
    pub pending: Vec<PendingState>,
    /// Name.
    pub comm: [u8; 16],
    /// When it was made.
    pub started: Ktime,
    /// Credentials.
    pub creds: CredentialsState,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// SECCOMP_MODE_*.
    pub seccomp_mode: u8,
    /// Its filters, as a place in [`ProcessesState::filters`].
    pub seccomp_filters: Option<usize>,
    /// PR_SET_PDEATHSIG.
    pub pdeathsig: i32,
    /// Scheduling attributes.
    pub scheduling: SchedulingState,
    /// What it has read and written.
    pub io: IoTotals,
    /// Timer slack, and its default, in nanoseconds.
    pub timer_slack: (u64, u64),
    /// PR_MCE_KILL.
    pub memory_failure_policy: u8,
    /// It takes part in the stop of its process.
    pub parked: bool,
    /// Processor time in user and system mode, in nanoseconds.
    pub time: (u64, u64),
    /// It shares adjustments of semaphores (CLONE_SYSVSEM) with threads listed before: the ID of the first of them, or its own.
    #[serde(default)]
    pub sem_undo: Option<i32>,
    /// Its keyrings.
    #[serde(default)]
    pub keyrings: Option<HolderState>,
    /// Its Landlock domain, as places of layers.
    #[serde(default)]
    pub landlock: Option<Vec<usize>>,
    /// Its namespaces; `None` for those that its container began with.
    #[serde(default)]
    pub namespaces: Option<SetState>,
    /// Its control group, by its number; 0 for that of the container.
    #[serde(default)]
    pub cgroup: u64,
    /// It is traced.
    #[serde(default)]
    pub tracing: Option<TracingState>,
}

/// A relation of ptrace(2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracingState {
    /// What the tracer has set, and the stop.
    pub trace: TraceState,
    /// The tracer's thread.
    pub tracer: i32,
    /// The credentials that it attached with.
    pub creds: CredentialsState,
    /// Their Landlock domain, as places of layers.
    pub landlock: Option<Vec<usize>>,
}

/// A traced thread that has ended, or the first one of a process, until its tracer has waited for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTracee {
    /// Its ID.
    pub tid: i32,
    /// Its process.
    pub tgid: i32,
    /// The tracer's thread.
    pub tracer: i32,
    /// Wait status and user ID, unless it was the first one.
    pub zombie: Option<(i32, u32)>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessState {
    /// Its place in the tree, and its life.
    pub node: NodeState,
    /// Index of its container.
    pub container: u32,
    /// Its signal actions, as a place in [`ProcessesState::handlers`].
    pub handlers: usize,
    /// Signals sent to the process.
    pub pending: Vec<PendingState>,
    /// Whether a signal stops it.
    pub stop: Stop,
    /// Resource limits.
    pub rlimits: Rlimits,
    /// Timers of setitimer(2).
    pub interval_timers: ItimersState,
    /// Timers of timer_create(2).
    pub posix_timers: PosixTimersState,
    /// PR_SET_CHILD_SUBREAPER.
    pub subreaper: bool,
    /// When it started.
    pub started: Ktime,
    /// Resource usage.
    pub usage: Usage,
    /// personality(2).
    pub personality: u32,
    /// /proc/PID/oom_score_adj.
    pub oom_score_adj: i32,
    /// It called execve(2) since fork.
    pub has_execed: bool,
    /// It was started by `exec`, or descends from such a process.
    pub exec_session: bool,
    /// Credentials of a leader that has left, or of a zombie.
    pub leader_creds: Option<CredentialsState>,
    /// Processor time that its control groups have counted already.
    #[serde(default)]
    pub grouped_time: [u64; 2],
}

/// All processes and threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessesState {
    /// Process IDs that are taken.
    pub pids: Vec<Numbers>,
    /// The PID namespace of each, by its number; 0 for that of the container.
    #[serde(default)]
    pub pid_spaces: Vec<u64>,
    /// The number given out last, by level.
    pub last: Vec<i32>,
    /// Processes by their IDs.
    pub processes: Vec<ProcessState>,
    /// Threads; of each process the leader first.
    pub threads: Vec<ThreadState>,
    /// Tables of signal actions: 64 each.
    pub handlers: Vec<Vec<SigAction>>,
    /// Filters of seccomp(2), the first installed first.
    pub filters: Vec<Vec<FilterState>>,
    /// The first process of each container, by its index.
    pub first: Vec<(u32, i32)>,
    /// Adjustments of semaphores, each with the first thread that has them ([`ThreadState::sem_undo`]).
    #[serde(default)]
    pub undo: Vec<(i32, UndoListState)>,
    /// Traced threads that have ended.
    #[serde(default)]
    pub ended_tracees: Vec<EndedTracee>,
}

/// The parts of threads that are kept elsewhere, as saving meets them.
pub trait SavedParts {
    /// The memory of a thread; `first` when no thread before had it.
    fn memory(&mut self, tid: i32, mm: &Arc<Mm>);
    /// A descriptor table.
    fn descriptors(&mut self, tid: i32, table: &Arc<FdTable>);
    /// A file system context.
    fn file_context(&mut self, tid: i32, fs: &Arc<FsContext>);
    /// A Landlock domain; gives the places of its layers.
    fn landlock(&mut self, domain: &Domain) -> Vec<usize>;
    /// A namespace.
    fn namespace(&mut self, ns: &Namespace);
    /// The namespaces of a thread.
    fn namespaces(&mut self, set: &NsProxy) -> SetState;
}

/// Tells objects from one another, and numbers them.
struct Seen<V>(HashMap<usize, V>);

impl<V: Copy> Seen<V> {
    fn number<T: ?Sized>(&mut self, object: &Arc<T>, new: impl FnOnce() -> V) -> V {
        *self.0.entry(Arc::as_ptr(object).cast::<()>() as usize).or_insert_with(new)
    }
}

impl Current {
    fn state(&mut self) -> Result<CurrentState, Errno> {
        // Field by field, so that a new field is either kept or does not compile.
        let xstate = self.ctx.xstate()?;
        let Current {
            task: _,
            ctx,
            mm: _,
            altstack,
            saved_mask,
            own_transfer: _,
            restart,
            restart_block,
            fd_table: _,
            fs_context: _,
            exit_code,
            report_all: _,
            passed_futex: _,
            waits_until,
            vforking,
            vfork_gate: _,
            forced_tf: _,
            kernel_thread: _,
            own_init,
            exit_due,
            filtered: _,
            stopped: _,
            // A thread of the sentry runs it.
            begun: _,
            // For part of a call only.
            acting: _,
        } = self;
        Ok(CurrentState {
            regs: *ctx.regs(),
            xstate,
            altstack: *altstack,
            saved_mask: *saved_mask,
            restart: *restart,
            restart_block: restart_block.clone(),
            waits_until: *waits_until,
            vforking: *vforking,
            own_init: *own_init,
            exit_code: *exit_code,
            exit_due: *exit_due,
        })
    }
}

impl Task {
    /// What keeps the thread from being saved.
    fn obstacle(&self) -> Option<&'static str> {
        // One lock after the other: guards would last as long as the literal.
        let policy = *self.mempolicy.lock() != mm::Policy::default();
        let inherits = !self.pi.lock().is_idle();
        let checks = [
            (self.seccomp.chain().is_some_and(|c| c.is_supervised()), "has a supervised seccomp filter"),
            (policy, "has a memory policy"),
            (inherits, "holds or waits for a futex with priority inheritance"),
        ];
        checks.into_iter().find(|(is, _)| *is).map(|(_, what)| what)
    }
}

impl Kernel {
    /// What keeps processes from being saved, in words for the user.
    pub fn obstacles(&self) -> Vec<String> {
        let mut found = Vec::new();
        let tasks = self.tasks();
        for task in &tasks {
            if let Some(what) = task.obstacle() {
                let comm = task.comm();
                let name = String::from_utf8_lossy(&comm).trim_end_matches('\0').to_string();
                found.push(format!("thread {} ({name}) {what}", task.own_tid()));
            }
        }
        found
    }
}

impl Standstill {
    /// All processes and threads of these containers, which are all there are, as plain data. `Err` names what cannot be saved.
    pub fn processes(
        &self,
        containers: &[&Arc<Container>],
        parts: &mut dyn SavedParts,
    ) -> Result<ProcessesState, Vec<String>> {
        let kernel = self.kernel();
        let obstacles = kernel.obstacles();
        if !obstacles.is_empty() {
            return Err(obstacles);
        }
        let mut all = ProcessesState::default();
        let (mut nodes, groups): (Vec<NodeState>, Vec<Arc<ThreadGroup>>) = {
            let tree = kernel.tree.lock();
            (tree.state(), tree.nodes().map(|node| node.group.clone()).collect())
        };
        // The numbers that processes, groups and sessions hold.
        let mut level = Some(kernel.first.pids());
        while let Some(ns) = level {
            all.last.push(ns.last());
            level = ns.parent();
        }
        all.last.reverse();
        let own = kernel.first.pids().inum();
        for pid in kernel.pids.taken() {
            let space = pid.ns().filter(|ns| ns.inum() != own);
            if let Some(ns) = space {
                parts.namespace(&Namespace::Pid(ns.clone()));
            }
            all.pids.push(pid.numbers());
            all.pid_spaces.push(space.map_or(0, |ns| ns.inum()));
        }
        all.first = containers.iter().map(|one| (one.index(), one.first())).collect();
        let (mut handlers, mut filters) = (Seen(HashMap::new()), Seen(HashMap::new()));
        let mut memory: Seen<i32> = Seen(HashMap::new());
        let mut contexts: Seen<i32> = Seen(HashMap::new());
        let mut undos: Seen<i32> = Seen(HashMap::new());
        nodes.sort_by_key(|node| node.tgid);
        for (node, group) in nodes.into_iter().zip(&groups) {
            let table = group.handlers();
            let place = handlers.number(&table, || {
                let table = table.lock();
                let actions = (1..=64).filter_map(Signal::new).map(|s| table.get(s));
                all.handlers.push(actions.collect());
                all.handlers.len() - 1
            });
            let leader_creds = kernel.tree.lock().node(node.tgid).and_then(|node| node.leader_creds());
            if let Some(creds) = &leader_creds {
                parts.namespace(&Namespace::User(creds.user_ns.clone()));
                if creds.landlock.is_some() {
                    return Err(vec![format!("process {} has ended under Landlock", group.pid.own_nr())]);
                }
            }
            all.processes.push(group.state(node, place, leader_creds.as_deref()));
            let mut threads = group.threads();
            threads.sort_by_key(|task| (task.tid() != group.tgid, task.tid()));
            for task in threads {
                let tid = task.tid();
                let gone = || vec![format!("thread {} ends", task.own_tid())];
                let current = self.ask(tid, Current::state).ok_or_else(gone)?;
                let current = current.map_err(|e| {
                    vec![format!("the registers of thread {} cannot be read: {e}", task.own_tid())]
                })?;
                let (mm, fds, fs) = (task.mm(), task.fds().ok_or_else(gone)?, task.fs().ok_or_else(gone)?);
                let chain = task.seccomp.chain();
                let seccomp_filters = chain.map(|chain| {
                    filters.number(&chain, || {
                        all.filters.push(filter_states(&chain));
                        all.filters.len() - 1
                    })
                });
                let named = (memory.number(&mm, || tid), fds.id, contexts.number(&fs, || tid));
                if named.0 == tid {
                    parts.memory(tid, &mm);
                }
                parts.descriptors(tid, &fds);
                if named.2 == tid {
                    parts.file_context(tid, &fs);
                }
                let undo = task.sem_undo.lock().clone();
                let sem_undo = undo.map(|list| {
                    undos.number(&list, || {
                        all.undo.push((tid, list.state()));
                        tid
                    })
                });
                parts.namespace(&Namespace::User(task.creds().user_ns.clone()));
                parts.namespace(&Namespace::User(mm.user_ns.clone()));
                let set = task.nsproxy();
                let namespaces =
                    (!Arc::ptr_eq(&set, &group.container.namespaces)).then(|| parts.namespaces(&set));
                all.threads.push(ThreadState {
                    namespaces,
                    tracing: task.tracing(parts),
                    landlock: task.creds().landlock.as_deref().map(|domain| parts.landlock(domain)),
                    ..task.state(current, named, seccomp_filters, sem_undo)
                });
            }
        }
        let tree = kernel.tree.lock();
        all.ended_tracees =
            tree.tracees.all().filter_map(|(tid, tracee)| ended_tracee(tid, tracee)).collect();
        Ok(all)
    }
}

fn ended_tracee(tid: i32, tracee: &Tracee<ThreadGroup, Task>) -> Option<EndedTracee> {
    let zombie = tracee.zombie.as_ref().map(|zombie| (zombie.status, zombie.uid));
    let ended = EndedTracee { tid, tgid: tracee.group.tgid, tracer: tracee.tracer.1, zombie };
    tracee.task.is_none().then_some(ended)
}

fn filter_states(chain: &Chain) -> Vec<FilterState> {
    let filters = (0..u64::from(chain.count())).filter_map(|n| chain.filter(n));
    let state = |(code, log): (&[SockFilter], bool)| FilterState {
        code: code.iter().map(|i| (i.code, i.jt, i.jf, i.k)).collect(),
        log,
    };
    filters.map(state).collect()
}

impl Task {
    fn tracing(&self, parts: &mut dyn SavedParts) -> Option<TracingState> {
        let (mut trace, tracer) = self.trace.state()?;
        if let Some(After::Delivers { continues }) = trace.stop.as_mut().map(|stop| &mut stop.after) {
            // Those that have come since.
            *continues = self.group.signals.lock().continues.wrapping_sub(*continues);
        }
        parts.namespace(&Namespace::User(tracer.creds.user_ns.clone()));
        let landlock = tracer.creds.landlock.as_deref().map(|domain| parts.landlock(domain));
        Some(TracingState { trace, tracer: tracer.tid, creds: tracer.creds.state(), landlock })
    }

    fn state(
        &self,
        current: CurrentState,
        (mm, fds, fs): (i32, u64, i32),
        seccomp_filters: Option<usize>,
        sem_undo: Option<i32>,
    ) -> ThreadState {
        let load = |slack: &std::sync::atomic::AtomicU64| slack.load(Ordering::Relaxed);
        // One lock after the other: guards would last as long as the literal.
        let pending = self.pending.lock().state();
        let parked = self.group.signals.lock().is_parked(self);
        ThreadState {
            tid: self.tid(),
            tgid: self.tgid(),
            current,
            mm,
            fds,
            fs,
            words: [Word::Blocked, Word::RobustList, Word::ClearChildTid].map(|w| self.word(w)),
            pending,
            comm: self.comm(),
            started: self.started,
            creds: self.creds().state(),
            no_new_privs: self.no_new_privs.load(Ordering::Relaxed),
            seccomp_mode: self.seccomp.mode(),
            seccomp_filters,
            pdeathsig: self.pdeathsig.load(Ordering::Relaxed),
            scheduling: self.scheduling.state(),
            io: self.io.now(),
            timer_slack: (load(&self.timer_slack), load(&self.default_slack)),
            memory_failure_policy: self.memory_failure_policy.load(Ordering::Relaxed),
            parked,
            time: (load(&self.user_seen), self.sentry_time()),
            sem_undo,
            keyrings: self.keyrings.state(),
            landlock: None,
            namespaces: None,
            cgroup: self.cgroup.group().id(),
            tracing: None,
        }
    }
}

impl ThreadGroup {
    fn state(&self, node: NodeState, handlers: usize, leader: Option<&Credentials>) -> ProcessState {
        let (pending, stop) = {
            let s = self.signals.lock();
            (s.shared.state(), s.stop)
        };
        // What the threads that live have used goes to what those have used that left.
        let (user, system) = self.cpu_times();
        let mut usage = *self.usage.lock();
        (usage.utime, usage.stime) = (user, system);
        usage.image_ends();
        let rlimits = *self.rlimits.lock();
        ProcessState {
            node,
            container: self.container.index(),
            handlers,
            pending,
            stop,
            rlimits,
            interval_timers: self.timers.interval.state(self),
            posix_timers: self.timers.posix.state(),
            subreaper: self.subreaper.load(Ordering::Relaxed),
            started: self.started,
            usage,
            personality: self.personality.load(Ordering::Relaxed),
            oom_score_adj: self.oom_score_adj.load(Ordering::Relaxed),
            has_execed: self.has_execed.load(Ordering::Relaxed),
            exec_session: self.exec_session,
            leader_creds: leader.map(Credentials::state),
            grouped_time: *self.grouped_time.lock(),
        }
    }
}

/// What the threads of a checkpoint are put together from.
pub trait Resources {
    /// A guest thread in the memory with this identity, which has not run, and that memory.
    fn thread(&mut self, mm: i32) -> Option<(Box<dyn Context>, Arc<Mm>)>;
    /// The descriptor table with this identity.
    fn descriptors(&self, id: u64) -> Option<Arc<FdTable>>;
    /// The file system context with this identity.
    fn file_context(&self, id: i32) -> Option<Arc<FsContext>>;
    /// Namespaces.
    fn spaces(&self) -> &Spaces;
    /// The control group that had this number.
    fn control_group(&self, id: u64) -> Option<Arc<Cgroup>>;
    /// The Landlock domain with layers of these places.
    fn landlock(&self, layers: &[usize]) -> Option<Arc<Domain>>;
}

#[cfg(test)]
mod tests;

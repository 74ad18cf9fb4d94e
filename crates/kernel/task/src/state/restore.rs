//! Processes and threads out of their plain data.

use super::{FilterState, ProcessState, ProcessesState, Resources, ThreadState};
use crate::current::Current;
use crate::inherit::{CurrentInherited, EntryInherited, ProcessInherited, TaskInherited};
use crate::kernel::Kernel;
use crate::life::Life;
use crate::task::{Task, TaskInit, VforkGate};
use crate::thread_group::{SharedHandlers, ThreadGroup};
use crate::tree::{NodeState, Tree};
use abi::{SigSet, Signal};
use cgroup::{Cgroup, Changes, Member};
use container::Container;
use keys::Holder;
use landlock::Domain;
use lock_order::Mutex;
use nsproxy::Spaces;
use pid::{Attached, Pid};
use platform::{Regs, Word};
use process_timers::watch_cpu_limit;
use rights::{Credentials, CredentialsState};
use sched::Scheduling;
use seccomp::{Chain, Program, SockFilter};
use signal::{Handlers, Pending, SigAction};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use syscall_filter::{DISABLED, FILTER, SeccompState};
use sysv::sem::UndoList;

/// The processes of a checkpoint, by their IDs.
pub struct RestoredGroups(BTreeMap<i32, Arc<ThreadGroup>>);

impl RestoredGroups {
    /// The process with this ID.
    pub fn find(&self, tgid: i32) -> Option<Arc<ThreadGroup>> {
        self.0.get(&tgid).cloned()
    }
}

/// Process IDs that a checkpoint names. They stay taken until this is dropped.
pub struct TakenPids(#[expect(dead_code, reason = "a guard")] Vec<Attached>);

impl Kernel {
    /// Takes the process IDs of a checkpoint, for a kernel without processes.
    pub fn restore_pids(&self, saved: &ProcessesState, spaces: &Spaces) -> Result<TakenPids, String> {
        let ns = self.first.pids();
        let of = saved.pid_spaces.iter().copied().chain(std::iter::repeat(0));
        let taken = saved.pids.iter().zip(of).map(|(numbers, inum)| {
            let inner = match inum {
                0 => ns.clone(),
                _ => spaces.pid(inum).ok_or_else(|| format!("PID namespace {inum} is missing"))?,
            };
            inner.restore(numbers).map_err(|e| format!("process IDs: {e}"))
        });
        let taken = taken.collect::<Result<Vec<_>, _>>()?;
        let mut levels = vec![ns.clone()];
        while let Some(parent) = levels.last().and_then(|ns| ns.parent()).cloned() {
            levels.push(parent);
        }
        for (ns, last) in levels.iter().rev().zip(&saved.last) {
            ns.set_last(*last);
        }
        Ok(TakenPids(taken))
    }

    pub(super) fn saved_pid(&self, nr: i32) -> Result<Arc<Pid>, String> {
        self.pids.find(nr).ok_or_else(|| format!("process ID {nr} is not there"))
    }

    /// The processes of a checkpoint, without threads. The process IDs were taken before. `container` gives the container that
    /// had an index.
    pub fn restore_groups(
        self: &Arc<Kernel>,
        saved: &ProcessesState,
        spaces: &Spaces,
        container: &dyn Fn(u32) -> Option<Arc<Container>>,
        control_group: &dyn Fn(u64) -> Option<Arc<Cgroup>>,
    ) -> Result<RestoredGroups, String> {
        let handlers: Vec<Arc<SharedHandlers>> =
            saved.handlers.iter().map(|actions| restored_handlers(actions)).collect();
        let mut groups = BTreeMap::new();
        for process in &saved.processes {
            let tgid = process.node.tgid;
            let table = handlers.get(process.handlers).ok_or("signal actions are missing")?;
            let container = container(process.container)
                .ok_or_else(|| format!("process {tgid} is of a container that is not there"))?;
            let group = self.restored_group(process, table, &container)?;
            groups.insert(tgid, group);
        }
        let nodes: Vec<NodeState> = saved.processes.iter().map(|p| p.node.clone()).collect();
        check_tree(&nodes)?;
        let no_creds = Arc::new(Credentials::root(&self.vfs.resources.user_ns, 0));
        let mut leaders = HashMap::new();
        for p in &saved.processes {
            if let Some(state) = &p.leader_creds {
                leaders.insert(p.node.tgid, self.restored_creds(state, spaces, None)?);
            }
        }
        let process = |node: &NodeState| {
            let group = groups[&node.tgid].clone();
            (group, leaders.get(&node.tgid).unwrap_or(&no_creds).clone())
        };
        let charge = |node: &NodeState| Some(control_group(node.leader_group?)?.restored_charge());
        let tree = Tree::restore(&nodes, process, charge);
        let tree = tree.ok_or("a process ID of the tree is missing")?;
        *self.tree.lock() = tree;
        for (index, tgid) in &saved.first {
            let first = container(*index).ok_or("a first process of a container that is not there")?;
            let own = groups.get(tgid).is_some_and(|group| Arc::ptr_eq(&group.container, &first));
            if !own || first.first() != 0 {
                return Err("the first process of a container is missing".into());
            }
            first.set_first(*tgid);
        }
        if groups.values().any(|group| group.container.first() == 0) {
            return Err("the first process is missing".into());
        }
        Ok(RestoredGroups(groups))
    }

    pub(super) fn restored_creds(
        &self,
        saved: &CredentialsState,
        spaces: &Spaces,
        landlock: Option<Arc<Domain>>,
    ) -> Result<Arc<Credentials>, String> {
        let inum = saved.user_ns;
        let user_ns = spaces.user(inum).ok_or_else(|| format!("user namespace {inum} is missing"))?;
        Credentials::restore(saved, user_ns, landlock)
            .map(|creds| Arc::new(Credentials { serial: self.next_cred_serial(), ..creds }))
            .ok_or_else(|| "credentials with another Landlock domain".into())
    }

    /// The threads of a checkpoint, which wait to be started. `allowed`: the capabilities that a container's specification
    /// gives. A thread with others is refused, also if `exec` gave it those before the checkpoint.
    pub fn restore_threads(
        self: &Arc<Kernel>,
        saved: &ProcessesState,
        RestoredGroups(groups): &RestoredGroups,
        resources: &mut dyn Resources,
        allowed: &dyn Fn(&Container) -> u64,
    ) -> Result<Vec<Current>, String> {
        let filters =
            saved.filters.iter().map(|f| self.restored_filters(f)).collect::<Result<Vec<_>, _>>()?;
        let mut threads: Vec<Current> = Vec::new();
        let mut vforking = Vec::new();
        for state in &saved.threads {
            let group = groups.get(&state.tgid).ok_or("a thread without a process")?;
            let known = self.tree.lock().task(state.tid).is_some();
            if known {
                return Err(format!("thread {} is there twice", state.tid));
            }
            let chain = match state.seccomp_filters {
                Some(place) => {
                    Some(filters.get(place).cloned().flatten().ok_or("seccomp filters are missing")?)
                }
                None => None,
            };
            let domain = match &state.landlock {
                Some(layers) => Some(resources.landlock(layers).ok_or("a Landlock domain is missing")?),
                None => None,
            };
            let creds = self.restored_creds(&state.creds, resources.spaces(), domain)?;
            // In another user namespace a thread has all of them.
            if creds.user_ns.is_initial()
                && state.creds.capabilities() & !(allowed(&group.container) & !group.container.withheld())
                    != 0
            {
                return Err(format!(
                    "thread {} has capabilities that the container does not have",
                    state.tid
                ));
            }
            if matches!(group.signals.lock().life, Life::Dead(_) | Life::Reaped(_)) {
                return Err(format!("thread {} is of a process that has ended", state.tid));
            }
            let current = self.restored_thread(state, group, creds, chain, resources)?;
            if state.current.vforking.is_some() {
                vforking.push((threads.len(), state.tid));
            }
            threads.push(current);
        }
        let by_tid: HashMap<i32, Arc<Task>> =
            threads.iter().map(|t| (t.task.tid(), t.task.clone())).collect();
        for (tid, list) in &saved.undo {
            let task = by_tid.get(tid).ok_or("adjustments of semaphores without a thread")?;
            let pid = self.pids.find(list.pid).unwrap_or_else(|| task.group.pid.clone());
            let list = UndoList::restore(task.nsproxy().ipc.sysv.clone(), list, pid);
            *task.sem_undo.lock() = Some(list);
        }
        for state in &saved.threads {
            if let Some((first, task)) =
                state.sem_undo.and_then(|id| by_tid.get(&id)).zip(by_tid.get(&state.tid))
            {
                let list = first.sem_undo();
                *task.sem_undo.lock() = Some(list);
            }
        }
        self.restore_tracing(saved, groups, &mut threads, resources, allowed)?;
        for (place, tid) in vforking {
            let gate = Arc::new(VforkGate::default());
            // The child that has not executed a program yet uses the memory of its parent.
            let mm = Arc::clone(&threads[place].mm);
            let child = threads.iter().find(|t| {
                let parent = self.tree.lock().node(t.task.tgid()).map(|n| n.parent_tid());
                Arc::ptr_eq(&t.mm, &mm) && parent == Some(tid)
            });
            match child {
                Some(child) => *child.task.vfork.lock() = Some(gate.clone()),
                None => gate.open(),
            }
            threads[place].vfork_gate = Some(gate);
        }
        for process in &saved.processes {
            let Some(group) = groups.get(&process.node.tgid) else { continue };
            group.timers.interval.restore(group, process.interval_timers);
            watch_cpu_limit(group);
        }
        Ok(threads)
    }

    fn restored_group(
        self: &Arc<Kernel>,
        saved: &ProcessState,
        handlers: &Arc<SharedHandlers>,
        container: &Arc<Container>,
    ) -> Result<Arc<ThreadGroup>, String> {
        let pid = self.saved_pid(saved.node.tgid)?;
        let inherited = ProcessInherited {
            container: container.clone(),
            rlimits: saved.rlimits,
            personality: saved.personality,
            oom_score_adj: saved.oom_score_adj,
            exec_session: saved.exec_session,
        };
        let group = ThreadGroup::started_at(self.clone(), &pid, handlers.clone(), inherited, saved.started);
        group.subreaper.store(saved.subreaper, Ordering::Relaxed);
        group.has_execed.store(saved.has_execed, Ordering::Relaxed);
        *group.usage.lock() = saved.usage;
        *group.grouped_time.lock() = saved.grouped_time;
        let weak = Arc::downgrade(&group);
        let queued = || self.queued.charge(0, u64::MAX);
        group.timers.posix.restore(&saved.posix_timers, &weak, |_| weak.clone(), queued);
        let pending = Pending::restore(&saved.pending, queued, |id| {
            group.timers.posix.find(id).ok().map(|timer| timer.expiry())
        });
        let mut s = group.signals.lock();
        group.shared_set.store(pending.set().0, Ordering::SeqCst);
        s.shared = pending;
        // The stop begins anew: the threads park themselves.
        if let Some(sig) = saved.stop.signal() {
            s.begin_stop(sig);
        }
        drop(s);
        Ok(group)
    }

    fn restored_filters(&self, saved: &[FilterState]) -> Result<Option<Arc<Chain>>, String> {
        let mut chain = None;
        for filter in saved {
            let code: Vec<SockFilter> =
                filter.code.iter().map(|&(code, jt, jf, k)| SockFilter { code, jt, jf, k }).collect();
            let bad = |e: &dyn std::fmt::Display| format!("a seccomp filter: {e}");
            let program = Program::new(&code).map_err(|e| bad(&e))?;
            chain = Some(Chain::new(&self.filters, program, chain, filter.log).map_err(|e| bad(&e))?);
        }
        Ok(chain)
    }

    fn restored_thread(
        self: &Arc<Kernel>,
        saved: &ThreadState,
        group: &Arc<ThreadGroup>,
        creds: Arc<Credentials>,
        chain: Option<Arc<Chain>>,
        resources: &mut dyn Resources,
    ) -> Result<Current, String> {
        let tid = saved.tid;
        let said = |what: &str| format!("thread {tid}: {what}");
        let pid = self.saved_pid(tid)?.attach();
        let (mut ctx, mm) = resources.thread(saved.mm).ok_or_else(|| said("its memory is missing"))?;
        let fds = resources.descriptors(saved.fds).ok_or_else(|| said("its descriptors are missing"))?;
        let fs = resources.file_context(saved.fs).ok_or_else(|| said("its root is missing"))?;
        let at = &saved.current;
        *ctx.regs_mut() = user_registers(at.regs);
        ctx.set_xstate(&at.xstate).map_err(|e| said(&format!("its extended state: {e}")))?;
        let container = &group.container;
        let nsproxy = match &saved.namespaces {
            None => container.namespaces.clone(),
            Some(set) => Arc::new(resources.spaces().set(set).map_err(|e| said(&e))?),
        };
        let control_group = match saved.cgroup {
            0 => container.cgroup().clone(),
            id => resources.control_group(id).ok_or_else(|| said("its control group is missing"))?,
        };
        if !control_group.is_within(container.cgroup()) {
            return Err(said("its control group is another container's"));
        }
        if nsproxy.time.is_shifted() {
            let vdso = self.platform.limits().vdso;
            crate::vdso::ask_for_clocks(&mut *ctx, vdso).map_err(|e| said(&format!("its vDSO: {e}")))?;
        }
        let mode = if chain.is_some() { FILTER } else { saved.seccomp_mode };
        if chain.is_none() && mode == FILTER {
            return Err(said("its seccomp filters are missing"));
        }
        let inherited = TaskInherited {
            creds,
            nsproxy,
            cgroup: Member::placed(&control_group),
            keyrings: match &saved.keyrings {
                Some(state) => {
                    Holder::restore(&self.keys, state).map_err(|e| said(&format!("keyrings: {e}")))?
                }
                None => Holder::new(&self.keys),
            },
            mempolicy: mm::Policy::default(),
            blocked: SigSet(saved.words[0]),
            comm: saved.comm,
            scheduling: Arc::new(Scheduling::from(saved.scheduling)),
            sem_undo: None,
            timer_slack: saved.timer_slack.0,
            memory_failure_policy: saved.memory_failure_policy,
        };
        let init = TaskInit {
            pid,
            inherited,
            group: group.clone(),
            mm: mm.clone(),
            fds: fds.clone(),
            fs: fs.clone(),
            clear_child_tid: saved.words[2],
        };
        let task = Task::started_at(init, saved.started);
        task.default_slack.store(saved.timer_slack.1, Ordering::Relaxed);
        task.pdeathsig.store(saved.pdeathsig, Ordering::Relaxed);
        task.io.set(saved.io);
        task.user_seen.store(0, Ordering::Relaxed);
        let seccomp = SeccompState { mode, filters: chain };
        task.enter(EntryInherited { seccomp, no_new_privs: saved.no_new_privs });
        task.set_interrupter(Some(ctx.interrupter()));
        task.set_word(Word::RobustList, saved.words[1]);
        let queued = || self.queued.charge(0, u64::MAX);
        let pending = Pending::restore(&saved.pending, queued, |id| {
            group.timers.posix.find(id).ok().map(|timer| timer.expiry())
        });
        *task.pending.lock() = pending;
        let mut changes = Changes::default();
        {
            let mut tree = self.tree.lock();
            task.cgroup
                .join(&task.cgroup.group(), &mut changes)
                .map_err(|e| said(&format!("its control group: {e}")))?;
            group.signals.lock().add(task.clone());
            task.note_pending();
            tree.add_task(task.clone());
        }
        changes.tell();
        let mut c = Current::new(task, ctx, mm, fds, fs, CurrentInherited { altstack: at.altstack });
        c.saved_mask = at.saved_mask;
        c.restart = at.restart;
        c.restart_block = at.restart_block.clone();
        c.waits_until = at.waits_until;
        c.vforking = at.vforking;
        c.exit_code = at.exit_code;
        c.exit_due = at.exit_due;
        if let Some(program) = at.own_init {
            c.go_on_as_init(program);
        }
        // It looks at its signals before it goes on.
        c.task.waiter.set_interrupted(true);
        if mode == DISABLED && c.task.seccomp.mode() != DISABLED {
            return Err(said("its seccomp mode"));
        }
        Ok(c)
    }
}

pub(super) fn restored_handlers(actions: &[SigAction]) -> Arc<SharedHandlers> {
    let mut handlers = Handlers::default();
    for (signal, action) in (1..=64).filter_map(Signal::new).zip(actions) {
        handlers.set(signal, *action);
    }
    Arc::new(Mutex::new(handlers))
}

/// Registers with the flags that user code may have.
pub(super) fn user_registers(regs: Regs) -> Regs {
    /// The flags that a signal frame can set (FIX_EFLAGS), the reserved bit that is always set, and interrupts.
    const USER: u64 = 0x0005_0dd5;
    Regs { eflags: regs.eflags & USER | 0x202, ..regs }
}

/// Whether each process is there once, and parents and children name each other.
pub(super) fn check_tree(nodes: &[NodeState]) -> Result<(), String> {
    let by_id: HashMap<i32, &NodeState> = nodes.iter().map(|n| (n.tgid, n)).collect();
    if by_id.len() != nodes.len() {
        return Err("a process is there twice".into());
    }
    // Those with ancestors that come to an end.
    let mut rooted = HashSet::from([0]);
    for node in nodes {
        let (mut at, mut path) = (node.tgid, Vec::new());
        while !rooted.contains(&at) {
            path.push(at);
            at = by_id.get(&at).map_or(0, |n| n.parent);
            if path.len() > nodes.len() {
                return Err(format!("process {} is its own ancestor", node.tgid));
            }
        }
        rooted.extend(path);
        let parent_known = node.parent == 0 || by_id.contains_key(&node.parent);
        let children_known =
            node.children.iter().all(|c| by_id.get(c).is_some_and(|child| child.parent == node.tgid));
        if !parent_known || !children_known {
            return Err(format!("process {} has relations that are not there", node.tgid));
        }
    }
    Ok(())
}

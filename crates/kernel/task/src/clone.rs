//! New threads and processes. See clone(2), fork(2), vfork(2).

use crate::current::Current;
use crate::exit::{Stage, end};
use crate::inherit::{CurrentInherited, TaskInherited};
use crate::namespaces::NewNamespaces;
use crate::policing::Subject;
use crate::task::{Task, TaskInit, VforkGate};
use crate::thread_group::ThreadGroup;
use crate::tree::{Node, Relations};
use abi::clone::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_CLEAR_SIGHAND, CLONE_DETACHED, CLONE_FILES, CLONE_FS,
    CLONE_NEWIPC, CLONE_NEWNS, CLONE_NEWUSER, CLONE_PARENT, CLONE_PARENT_SETTID, CLONE_PIDFD, CLONE_PTRACE,
    CLONE_SETTLS, CLONE_SIGHAND, CLONE_SYSVSEM, CLONE_THREAD, CLONE_UNTRACED, CLONE_VFORK, CLONE_VM,
    NAMESPACES,
};
use abi::{Errno, SigInfo, SigSet, Signal};
use caller::{HasCredentials, Limits};
use cgroup::{Cgroup, Changes, Member};
use files::FdTable;
use files::fd_table::FdSlot;
use lock_order::Mutex;
use pid::{Pid, PidNamespace};
use platform::{Action, Spawn};
use policy::Kind;
use process_timers::watch_cpu_limit;
use rights::{Cap, Credentials};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sysresult::SysErr;
use tracee::{After, event};

/// Arguments of clone3(2), which the older calls are translated to.
#[derive(Clone, Default)]
pub struct CloneArgs {
    /// CLONE_* bits, without the exit signal.
    pub flags: u64,
    /// Where CLONE_PIDFD stores the descriptor.
    pub pidfd: u64,
    /// CLONE_CHILD_SETTID / CLEARTID address in the child.
    pub child_tid: u64,
    /// CLONE_PARENT_SETTID address.
    pub parent_tid: u64,
    /// Signal sent to the parent at exit, 0 for none.
    pub exit_signal: u64,
    /// Initial stack pointer, 0 to keep the caller's.
    pub stack: u64,
    /// CLONE_SETTLS value.
    pub tls: u64,
    /// The control group of CLONE_INTO_CGROUP; `None` for that of the caller.
    pub cgroup: Option<Arc<Cgroup>>,
    /// The numbers that the caller wants, from the innermost PID namespace outwards.
    pub set_tid: Vec<i32>,
}

/// One past the last user address of x86-64.
const TASK_END: u64 = 0x7fff_ffff_f000;

fn validate(a: &CloneArgs) -> Result<(), Errno> {
    let f = a.flags;
    let has = |bits: u64| f & bits != 0;
    let contradictions = [
        has(CLONE_SIGHAND) && !has(CLONE_VM),
        has(CLONE_THREAD) && !has(CLONE_SIGHAND),
        has(CLONE_SIGHAND) && has(CLONE_CLEAR_SIGHAND),
        has(CLONE_NEWNS) && has(CLONE_FS),
        has(CLONE_NEWUSER) && has(CLONE_FS),
        has(CLONE_NEWIPC) && has(CLONE_SYSVSEM),
        has(CLONE_PIDFD) && has(CLONE_DETACHED),
        a.exit_signal > 64,
    ];
    if contradictions.contains(&true) { Err(Errno::EINVAL) } else { Ok(()) }
}

impl CloneArgs {
    fn has(&self, bits: u64) -> bool {
        self.flags & bits != 0
    }
}

impl Current {
    /// Makes a thread or process; gives its id.
    pub fn clone_task(&mut self, a: &CloneArgs) -> Result<u64, SysErr> {
        self.may_clone(a)?;
        let mut child = self.new_task(a)?;
        let (task, thread) = (child.task.clone(), a.has(CLONE_THREAD));
        if thread {
            let threads = u32::try_from(self.task.group.threads().len()).unwrap_or(u32::MAX);
            let processors = u32::try_from(self.kernel().first.limits().online().count()).unwrap_or(u32::MAX);
            self.mm.futex_hash.lock().grow(threads, processors);
        }
        let number = task.nr_in(self.task.pids());
        let gate = a.has(CLONE_VFORK).then(|| Arc::new(VforkGate::default()));
        *task.vfork.lock() = gate.clone();
        child.begin_as(a);
        if a.has(CLONE_PARENT_SETTID) {
            // As Linux does, a bad address is ignored.
            let _ = self.write_now(a.parent_tid, &number.to_le_bytes());
        }
        // The number is told first; the descriptor appears when nothing can fail any more but the thread itself.
        let table = self.fds();
        let entered = self.reserve_pidfd(a, &table).and_then(|pidfd| {
            self.register(&task, thread, a)?;
            Ok(pidfd)
        });
        let pidfd = match entered {
            Ok(pidfd) => pidfd,
            Err(e) => {
                end(child, Stage::Made);
                return Err(e.into());
            }
        };
        self.task.trace_clone(&task, a);
        let event = self.clone_event(a);
        let number_for_tracer = event.map(|_| self.number_for_tracer(&task));
        let pidfd =
            pidfd.map(|slot| slot.commit(crate::pidfd::open(&task.group, thread.then_some(&task), 0), true));
        if !thread {
            watch_cpu_limit(&task.group);
        }
        if let Err(e) = crate::run::start(child) {
            if let Some(fd) = pidfd {
                let _ = table.close(self, fd);
            }
            return Err(e.into());
        }
        let seen = number_for_tracer.unwrap_or(0) as u64;
        let after = After::Returns(number as u64);
        if let Some(event) = event {
            // A thread that is saved in this stop waits afterwards.
            self.vforking = gate.is_some().then_some(number as u64);
            self.ptrace_event(event, seen, after);
        }
        if let Some(g) = gate {
            self.wait_vfork(&g, number as u64);
            let seen = self.number_for_tracer(&task).max(seen as i32) as u64;
            self.ptrace_event(event::VFORK_DONE, seen, after);
        }
        Ok(number as u64)
    }

    /// Makes a child with all that this process has, as fork(2) does, and has it run. It leads a process group of its own, which
    /// is in the foreground of the terminal, before it does anything.
    pub(crate) fn spawn_first_child(&mut self) -> Result<Arc<Task>, Errno> {
        let a = CloneArgs { exit_signal: Signal::SIGCHLD.raw() as u64, ..CloneArgs::default() };
        self.may_clone(&a)?;
        let mut child = self.new_task(&a)?;
        let task = child.task.clone();
        // The registers are those of a program that begins.
        if let Err(error) = self.register(&task, false, &a) {
            end(child, Stage::Made);
            return Err(error);
        }
        self.setpgid(task.tgid(), 0)?;
        self.to_foreground(task.tgid());
        child.report_all = false;
        watch_cpu_limit(&task.group);
        crate::run::start(child)?;
        Ok(task)
    }

    /// The event that a tracer wants to hear of.
    fn clone_event(&self, a: &CloneArgs) -> Option<u32> {
        if a.has(CLONE_UNTRACED) || !self.task.trace.is_traced() {
            return None;
        }
        let event = if a.has(CLONE_VFORK) {
            event::VFORK
        } else if a.exit_signal != Signal::SIGCHLD.raw() as u64 {
            event::CLONE
        } else {
            event::FORK
        };
        Some(event).filter(|e| self.task.trace.wants(*e))
    }

    /// Whether the arguments make sense, and permissions and limits allow one task more.
    fn may_clone(&self, a: &CloneArgs) -> Result<(), Errno> {
        validate(a)?;
        self.police(Kind::ProcessClone, Subject::default)?;
        self.check_clone_namespaces(a.flags)?;
        // As Linux does, any user address will do, and no other.
        if a.has(CLONE_SETTLS) && a.tls >= TASK_END {
            return Err(Errno::EPERM);
        }
        if self.kernel().is_full() || self.task.scheduling.stays_alone() {
            return Err(Errno::EAGAIN);
        }
        if !a.has(CLONE_THREAD) {
            self.check_nproc()?;
            if self.task.group.signals.lock().life.is_over() {
                return Err(Errno::EAGAIN);
            }
            if a.has(CLONE_PARENT) && self.task.group.is_init() {
                return Err(Errno::EINVAL);
            }
        }
        Ok(())
    }

    /// The place of the new task among the control groups: where CLONE_INTO_CGROUP says, or its maker's group, in which case it
    /// follows its maker until it enters the tables ([`Member::join`]). EAGAIN beyond a limit, and as [`Cgroup::fork_into`].
    fn place_for(&self, a: &CloneArgs) -> Result<Member, Errno> {
        loop {
            let own = self.task.cgroup.group();
            if let Some(group) = &a.cgroup {
                let root = self.task.nsproxy().cgroup.root.id();
                return group.fork_into(&own, &self.creds(), root, a.has(CLONE_THREAD));
            }
            match Member::fork(&own) {
                // It was moved away from a group that is gone by now.
                Err(Errno::ENODEV) if !Arc::ptr_eq(&own, &self.task.cgroup.group()) => {}
                made => return made,
            }
        }
    }

    /// Makes the host's side of a new task, and the task itself, which is in no table yet.
    fn new_task(&mut self, a: &CloneArgs) -> Result<Current, Errno> {
        let thread = a.has(CLONE_THREAD);
        let cgroup = self.place_for(a)?;
        let NewNamespaces { mut creds, nsproxy } =
            self.new_namespaces(a.flags & NAMESPACES, cgroup.group())?;
        if !thread {
            let serial = self.kernel().next_cred_serial();
            creds = Arc::new(Credentials { serial, ..Credentials::clone(&creds) });
        }
        let nsproxy = if a.has(CLONE_VM) { nsproxy } else { nsproxy.in_time_for_children() };
        let fs = if a.has(CLONE_FS) { self.fs().clone() } else { self.fs_context.fork_copy() };
        if a.has(CLONE_NEWNS) {
            fs.unshare_mounts(self, &creds.user_ns)?;
        }
        // What may fail comes before there is anything to undo.
        let fds = if a.has(CLONE_FILES) { self.fds() } else { self.fd_table.fork_copy()? };
        // Threads are in the namespace of their process, children where unshare(2) or setns(2) said.
        let pids = if thread { self.task.pids() } else { &nsproxy.pid_for_children };
        let own = self.creds();
        let may = |ns: &PidNamespace| {
            [Cap::CHECKPOINT_RESTORE, Cap::SYS_ADMIN].into_iter().any(|cap| own.ns_capable(ns.user_ns(), cap))
        };
        let pid = pids.alloc_as(&a.set_tid, may)?;
        let how = if a.has(CLONE_VM) { Spawn::Thread } else { Spawn::Fork };
        let mm = self.mm.clone();
        let ctx = &mut self.ctx;
        let mut spawned = mm.exclusive(|| ctx.spawn(how));
        let other_time = !Arc::ptr_eq(&nsproxy.time, &self.task.nsproxy().time);
        if other_time && nsproxy.time.is_shifted() {
            let vdso = self.kernel().platform.limits().vdso;
            spawned = spawned.and_then(|mut ctx| match crate::vdso::ask_for_clocks(&mut *ctx, vdso) {
                Ok(()) => Ok(ctx),
                Err(e) => {
                    ctx.exit();
                    Err(e)
                }
            });
        }
        if spawned.is_err() && pid.is_child_reaper() {
            nsproxy.pid_for_children.close();
        }
        let child_ctx = spawned?;
        self.kernel().forks.fetch_add(1, Ordering::Relaxed);
        let totals = &self.task.group.container.totals;
        if thread {
            totals.thread_made()
        } else {
            totals.process_made()
        }
        let child_mm = if a.has(CLONE_VM) {
            mm.users.join(!thread);
            mm
        } else {
            mm.forked(child_ctx.space())
        };
        let group = if thread { self.task.group.clone() } else { self.new_group(&pid, a) };
        if !thread && how == Spawn::Thread {
            group.begins_in(&child_mm);
        }
        let task = Task::new(TaskInit {
            pid,
            inherited: TaskInherited {
                creds,
                nsproxy,
                ..self.task.inherited(thread, a.has(CLONE_SYSVSEM), cgroup)
            },
            group,
            mm: child_mm.clone(),
            fds: fds.clone(),
            fs: fs.clone(),
            clear_child_tid: if a.has(CLONE_CHILD_CLEARTID) { a.child_tid } else { 0 },
        });
        task.set_interrupter(Some(child_ctx.interrupter()));
        // A thread has a stack of its own, and no alternate one.
        let own_stack = a.flags & (CLONE_VM | CLONE_VFORK) == CLONE_VM;
        let inherited = if own_stack { CurrentInherited::default() } else { self.inherited() };
        Ok(Current::new(task, child_ctx, child_mm, fds, fs, inherited))
    }

    /// Sets what a new task begins with: registers, and its ID in its own memory.
    fn begin_as(&mut self, a: &CloneArgs) {
        let r = self.ctx.regs_mut();
        r.rax = 0;
        r.orig_rax = u64::MAX;
        if a.stack != 0 {
            r.rsp = a.stack;
        }
        if a.has(CLONE_SETTLS) {
            r.fs_base = a.tls;
        }
        if a.has(CLONE_CHILD_SETTID) {
            let data = self.task.own_tid().to_le_bytes().to_vec();
            self.ctx.queue(Action::Write { addr: a.child_tid, data });
        }
    }

    /// Reserves the descriptor of CLONE_PIDFD and tells the caller its number.
    fn reserve_pidfd(&self, a: &CloneArgs, table: &Arc<FdTable>) -> Result<Option<FdSlot>, Errno> {
        if !a.has(CLONE_PIDFD) {
            return Ok(None);
        }
        let slot = table.reserve(self.rlimit(libc::RLIMIT_NOFILE as i32))?;
        self.write_now(a.pidfd, &slot.fd().to_le_bytes())?;
        Ok(Some(slot))
    }

    fn check_nproc(&self) -> Result<(), Errno> {
        let limit = self.task.group.rlimit(libc::RLIMIT_NPROC as i32);
        if limit == u64::MAX {
            return Ok(());
        }
        let creds = self.creds();
        if creds.uid == 0 || creds.capable(Cap::SYS_RESOURCE) || creds.capable(Cap::SYS_ADMIN) {
            return Ok(());
        }
        let mine = self.kernel().tree.lock().count_tasks(|_, c| c.uid == creds.uid) as u64;
        if mine >= limit { Err(Errno::EAGAIN) } else { Ok(()) }
    }

    fn new_group(&self, pid: &Arc<Pid>, a: &CloneArgs) -> Arc<ThreadGroup> {
        let old = &self.task.group;
        let handlers = if a.flags & CLONE_SIGHAND != 0 {
            old.handlers()
        } else {
            let mut h = old.handlers().lock().clone();
            if a.flags & CLONE_CLEAR_SIGHAND != 0 {
                h.clear_handled();
            }
            Arc::new(Mutex::new(h))
        };
        ThreadGroup::new(self.kernel().clone(), pid, handlers, old.inherited())
    }

    /// Enters the new task in the tables. EAGAIN when its process is ending meanwhile.
    fn register(&self, task: &Arc<Task>, thread: bool, a: &CloneArgs) -> Result<(), Errno> {
        let mut changes = Changes::default();
        let done = self.register_in(&mut changes, task, thread, a);
        changes.tell();
        done
    }

    fn register_in(
        &self,
        changes: &mut Changes,
        task: &Arc<Task>,
        thread: bool,
        a: &CloneArgs,
    ) -> Result<(), Errno> {
        let kernel = self.kernel();
        let mut t = kernel.tree.lock();
        let me = self.task.tgid();
        if t.node(me).is_none() {
            return Err(Errno::EAGAIN);
        }
        // Whatever kills all processes of a group looks for new ones under this lock, after it has killed their makers.
        if !thread && self.task.group.signals.lock().life.is_over() {
            return Err(Errno::EAGAIN);
        }
        {
            let mut s = task.group.signals.lock();
            // As Linux does: the file system context is not shared any further while execve(2) relies on the set of its
            // users.
            if !s.life.is_running() || a.has(CLONE_FS) && task.group.cred_guard.in_exec() {
                return Err(Errno::EAGAIN);
            }
            // Nothing fails after this.
            task.cgroup.join(&self.task.cgroup.group(), changes)?;
            task.enter(self.task.inherited_at_entry());
            s.add(task.clone());
            task.note_pending();
            if s.stop.is_on() || task.cgroup.is_freezing() {
                task.kick();
            }
        }
        t.add_task(task.clone());
        if self.task.trace.is_traced() && (a.has(CLONE_PTRACE) || self.clone_event(a).is_some()) {
            t.trace_child(task, &self.task);
            if !task.trace.is_seized() {
                let stop = SigInfo::new(Signal::SIGSTOP, libc::SI_USER);
                let _ = task.pending.lock().push(Signal::SIGSTOP, stop, || None);
            }
            task.kick();
        }
        if thread {
            return Ok(());
        }
        let own = t.node(me).ok_or(Errno::EAGAIN)?;
        let mut relations = Relations {
            parent: me,
            parent_tid: self.task.tid(),
            exit_signal: a.exit_signal as i32,
            ..own.relations()
        };
        if a.flags & (CLONE_PARENT) != 0 {
            relations = Relations { parent_tid: 0, ..own.relations() };
        }
        t.add_process(Node::new(task.group.clone(), task.group.pid.attach(), relations));
        Ok(())
    }

    /// A vfork parent sleeps until its child has its own memory; only death ends it earlier.
    pub(crate) fn wait_vfork(&mut self, gate: &VforkGate, child: u64) {
        let _sub = gate.queue().subscribe(wait::Events::ALL, self.task.waiter.clone());
        self.vforking = Some(child);
        self.task.cgroup.set_frozen(true);
        while !gate.is_open() && !self.dying() {
            let _ = self.task.waiter.sleep_uninterruptible(None);
            self.join_standstill();
        }
        self.task.cgroup.set_frozen(false);
        self.vforking = None;
    }

    /// A process without a parent, in a session and group of its own: a container's first, or one that is put beside it.
    pub fn first(
        ctx: Box<dyn platform::Context>,
        mm: Arc<mm::Mm>,
        group: Arc<ThreadGroup>,
        pid: pid::Attached,
        creds: Credentials,
        fds: Arc<files::FdTable>,
        fs: Arc<mounts::FsContext>,
    ) -> Current {
        let task = Task::new(TaskInit {
            pid: pid.clone(),
            inherited: first_inherited(creds, &group),
            group: group.clone(),
            mm: mm.clone(),
            fds: fds.clone(),
            fs: fs.clone(),
            clear_child_tid: 0,
        });
        let mut changes = Changes::default();
        let mut t = group.kernel.tree.lock();
        if let Err(error) = task.cgroup.join(&task.cgroup.group(), &mut changes) {
            log::warn!("a process is put into a control group that is being killed: {error}");
        }
        if task.cgroup.is_freezing() {
            task.kick();
        }
        group.signals.lock().add(task.clone());
        t.add_task(task.clone());
        let relations = Relations {
            parent: 0,
            parent_tid: 0,
            pgrp: pid.clone(),
            session: pid.clone(),
            exit_signal: Signal::SIGCHLD.raw(),
        };
        t.add_process(Node::new(group.clone(), pid, relations));
        drop(t);
        changes.tell();
        Current::new(task, ctx, mm, fds, fs, CurrentInherited::default())
    }
}

/// What the first thread of a container starts with, or of a process that is put beside it from outside.
fn first_inherited(creds: Credentials, group: &ThreadGroup) -> TaskInherited {
    let kernel = &group.kernel;
    TaskInherited {
        creds: Arc::new(Credentials { serial: kernel.next_cred_serial(), ..creds }),
        nsproxy: group.container.namespaces.clone(),
        cgroup: Member::placed(&kernel.group_for(&group.container)),
        keyrings: keys::Holder::new(&kernel.keys),
        mempolicy: mm::Policy::default(),
        blocked: SigSet::EMPTY,
        comm: [0; 16],
        scheduling: Arc::default(),
        sem_undo: None,
        timer_slack: 50_000,
        memory_failure_policy: libc::PR_MCE_KILL_DEFAULT as u8,
    }
}

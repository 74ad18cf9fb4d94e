//! Who traces whom: a part of the process tree, under its lock.

use super::{O_EXITKILL, SEIZED, TRACED, TRAP, Tracer};
use crate::exit::Notices;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use crate::tree::Tree;
use abi::{SigInfo, Signal};
use pid::Attached;
use signal::SIG_IGN;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is left of a traced thread, not the first one of its process, until its tracer has waited for it.
pub(crate) struct ThreadZombie {
    pub(crate) pid: Attached,
    pub(crate) status: i32,
    pub(crate) uid: u32,
}

/// A traced thread.
pub(crate) struct Tracee {
    /// Process and thread of the tracer.
    pub(crate) tracer: (i32, i32),
    /// The thread's process.
    pub(crate) group: Arc<ThreadGroup>,
    /// The thread, while it lives.
    pub(crate) task: Option<Arc<Task>>,
    pub(crate) zombie: Option<ThreadZombie>,
}

/// All tracees, by thread ID, and by tracer.
#[derive(Default)]
pub(crate) struct Traces {
    tracees: BTreeMap<i32, Tracee>,
    by_tracer: BTreeSet<(i32, i32, i32)>,
}

impl Traces {
    /// A traced thread, or what is left of it.
    pub(crate) fn get(&self, tid: i32) -> Option<&Tracee> {
        self.tracees.get(&tid)
    }

    /// Thread IDs of all tracees of a process.
    pub(crate) fn of_group(&self, tgid: i32) -> Vec<i32> {
        self.by_tracer.range((tgid, 0, 0)..(tgid + 1, 0, 0)).map(|t| t.2).collect()
    }

    fn of_thread(&self, tgid: i32, tid: i32) -> Vec<i32> {
        self.by_tracer.range((tgid, tid, 0)..(tgid, tid + 1, 0)).map(|t| t.2).collect()
    }

    /// The process that traces the thread with this ID.
    pub(crate) fn tracing_group(&self, tid: i32) -> Option<i32> {
        self.tracees.get(&tid).map(|t| t.tracer.0)
    }

    fn insert(&mut self, tid: i32, tracee: Tracee) {
        let (tgid, tracer) = tracee.tracer;
        self.by_tracer.insert((tgid, tracer, tid));
        self.tracees.insert(tid, tracee);
    }

    fn take(&mut self, tid: i32) -> Option<Tracee> {
        let gone = self.tracees.remove(&tid)?;
        self.by_tracer.remove(&(gone.tracer.0, gone.tracer.1, tid));
        Some(gone)
    }

    /// Traced threads that have ended and were not waited for, of the processes that `of` says.
    pub(crate) fn count_zombies(&self, of: impl Fn(&ThreadGroup) -> bool) -> usize {
        self.tracees.values().filter(|t| t.zombie.is_some() && of(&t.group)).count()
    }
}

impl Tree {
    /// `by` traces `task` from now on. Under the tree's lock; the task is in the tables.
    pub(crate) fn trace(&mut self, task: &Arc<Task>, by: Tracer, flags: u32, options: u32) {
        let tracer = (by.group.tgid, by.tid);
        {
            let mut s = task.trace.state.lock();
            s.tracer = Some(by);
            s.options = options;
            task.trace.flags.store(TRACED | flags, std::sync::atomic::Ordering::SeqCst);
        }
        let tracee = Tracee { tracer, group: task.group.clone(), task: Some(task.clone()), zombie: None };
        self.traces.insert(task.tid(), tracee);
    }

    /// A new thread is traced like the one that made it.
    pub(crate) fn trace_child(&mut self, child: &Arc<Task>, of: &Task) {
        let (by, options, seized) = {
            let s = of.trace.state.lock();
            let Some(by) = s.tracer.clone() else { return };
            (by, s.options, of.trace.is_seized())
        };
        if self.task(by.tid).is_none() {
            return;
        }
        let flags = if seized { SEIZED | TRAP } else { 0 };
        self.trace(child, by, flags, options);
    }

    /// The thread with this ID is traced no more. Gives what is left of it, to be dropped after the lock.
    pub(crate) fn untrace(&mut self, tid: i32, signal: Option<i32>) -> Option<Tracee> {
        let gone = self.traces.take(tid)?;
        if let Some(task) = &gone.task {
            {
                let mut s = task.trace.state.lock();
                s.tracer = None;
                s.options = 0;
                s.debug = Default::default();
                task.trace.flags.store(0, std::sync::atomic::Ordering::SeqCst);
                if let Some(stop) = &mut s.stop {
                    // A signal that the tracer has not been told of is delivered after all.
                    let own = if stop.code < 128 && stop.info.is_some() { stop.code } else { 0 };
                    stop.resumed.get_or_insert(signal.unwrap_or(own));
                }
            }
            task.kick_fatal();
        }
        Some(gone)
    }

    /// A thread has left the tables. True when its ID stays taken until the tracer has waited for it.
    pub(crate) fn tracee_left(&mut self, task: &Task, status: i32, notices: &mut Notices) -> bool {
        let tid = task.tid();
        let dethreaded = matches!(task.group.signals.lock().life, crate::life::Life::Dethreading(_));
        let leader = tid == task.tgid();
        let Some(t) = self.traces.tracees.get_mut(&tid) else { return false };
        t.task = None;
        task.trace.state.lock().tracer = None;
        if leader {
            // The process's end is reported, not the thread's; one that execve(2) ends is not reported at all.
            let tracer = t.tracer.0;
            if dethreaded {
                self.traces.take(tid);
                notices.wake.extend(self.node(tracer).map(|n| n.group.clone()));
            }
            return false;
        }
        let Some(pid) = task.take_pid() else { return false };
        let zombie = ThreadZombie { pid, status, uid: task.creds().uid };
        let (uid, tracer) = (zombie.uid, t.tracer.0);
        let number = self.node(tracer).map_or(0, |n| zombie.pid.nr_in(n.group.pids_seen()));
        if let Some(t) = self.traces.tracees.get_mut(&tid) {
            t.zombie = Some(zombie);
        }
        self.tell_tracer_of_end(tracer, number, uid, status, notices);
        true
    }

    /// SIGCHLD for the end of a traced thread or process.
    pub(crate) fn tell_tracer_of_end(
        &self,
        tracer: i32,
        number: i32,
        uid: u32,
        status: i32,
        notices: &mut Notices,
    ) {
        let Some(n) = self.node(tracer) else { return };
        let g = n.group.clone();
        if g.handlers().lock().get(Signal::SIGCHLD).handler != SIG_IGN {
            let (code, st) = crate::exit::exit_code_of(status);
            notices.signals.push((g.clone(), SigInfo::child(code, number, uid, st, 0, 0)));
        }
        notices.wake.push(g);
    }

    /// The thread `tid` of the process `tgid`, which executes a program, takes the process's ID.
    pub(crate) fn trace_renamed(&mut self, task: &Arc<Task>, from: i32, tgid: i32) -> Option<Tracee> {
        for tid in self.traces.of_thread(tgid, from) {
            if let Some(mut t) = self.traces.take(tid) {
                t.tracer.1 = tgid;
                if let Some(x) = &t.task
                    && let Some(by) = &mut x.trace.state.lock().tracer
                {
                    by.tid = tgid;
                }
                self.traces.insert(tid, t);
            }
        }
        let old = self.traces.take(tgid);
        if let Some(mut t) = self.traces.take(from) {
            t.task = Some(task.clone());
            self.traces.insert(tgid, t);
        }
        old
    }

    /// A tracer's thread ends: all that it traces go on by themselves.
    pub(crate) fn tracer_left(&mut self, tracer: &Task, notices: &mut Notices) -> Vec<Tracee> {
        let mut gone = Vec::new();
        for tid in self.traces.of_thread(tracer.tgid(), tracer.tid()) {
            let kill = self
                .traces
                .get(tid)
                .and_then(|t| t.task.as_ref())
                .is_some_and(|t| t.trace.state.lock().options & O_EXITKILL != 0);
            let group = self.traces.get(tid).map(|t| t.group.clone());
            if let Some(g) = group.filter(|_| kill) {
                let info = SigInfo::new(Signal::SIGKILL, crate::kernel::SI_HOST);
                notices.signals.push((g, info));
            }
            gone.extend(self.untrace(tid, None));
            self.detached_zombie(tid, notices);
        }
        gone
    }

    /// After a detach: a process that has ended is now for its parent to wait for.
    pub(crate) fn detached_zombie(&mut self, tid: i32, notices: &mut Notices) {
        if self.node(tid).is_some_and(|n| n.is_zombie()) {
            crate::exit::report_exit(self, tid, notices);
        }
    }
}

//! Attaching and detaching in the process tree. See ptrace(2).

use super::Tree;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use std::sync::Arc;
use tracee::{SEIZED, TRAP, Tracee, Tracer};

impl Tree {
    /// `by` traces `task` from now on. Under the tree's lock; the task is in the tables.
    pub(crate) fn trace(&mut self, task: &Arc<Task>, by: Tracer<ThreadGroup>, flags: u32, options: u32) {
        let tracer = (by.group.tgid, by.tid);
        task.trace.begin(by, flags, options);
        let tracee = Tracee { tracer, group: task.group.clone(), task: Some(task.clone()), zombie: None };
        self.tracees.insert(task.tid(), tracee);
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

    /// The thread with this ID is traced no more. Gives its entry, to be dropped after the lock.
    pub(crate) fn untrace(&mut self, tid: i32, signal: Option<i32>) -> Option<Tracee<ThreadGroup, Task>> {
        let tracee = self.tracees.take(tid)?;
        if let Some(task) = &tracee.task {
            task.trace.end(signal);
            task.kick_fatal();
        }
        Some(tracee)
    }

    /// The thread `tid` of the process `tgid`, which executes a program, takes the process's ID.
    pub(crate) fn trace_renamed(
        &mut self,
        task: &Arc<Task>,
        from: i32,
        tgid: i32,
    ) -> Option<Tracee<ThreadGroup, Task>> {
        for tid in self.tracees.of_thread(tgid, from) {
            if let Some(mut t) = self.tracees.take(tid) {
                t.tracer.1 = tgid;
                if let Some(x) = &t.task
                    && let Some(by) = &mut x.trace.state.lock().tracer
                {
                    by.tid = tgid;
                }
                self.tracees.insert(tid, t);
            }
        }
        let old = self.tracees.take(tgid);
        if let Some(mut t) = self.tracees.take(from) {
            t.task = Some(task.clone());
            self.tracees.insert(tgid, t);
        }
        old
    }
}

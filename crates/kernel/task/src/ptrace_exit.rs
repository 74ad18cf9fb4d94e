//! The end of a traced thread, and of a tracer. Under the tree's lock. See ptrace(2).

use crate::exit_report::{Notices, report_exit, tell_tracer_of_end};
use crate::kernel::SI_HOST;
use crate::life::Life;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use crate::tree::Tree;
use abi::{SigInfo, Signal};
use tracee::{O_EXITKILL, ThreadZombie, Tracee};

impl Tree {
    /// A thread has left the tables. True when its ID stays taken until the tracer has waited for it.
    pub(crate) fn tracee_left(&mut self, task: &Task, status: i32, notices: &mut Notices) -> bool {
        let tid = task.tid();
        let dethreaded = matches!(task.group.signals.lock().life, Life::Dethreading(_));
        let leader = tid == task.tgid();
        let Some(t) = self.tracees.get_mut(tid) else { return false };
        t.task = None;
        task.trace.state.lock().tracer = None;
        if leader {
            // The process's end is reported, not the thread's; one that execve(2) ends is not reported at all.
            let tracer = t.tracer.0;
            if dethreaded {
                self.tracees.take(tid);
                notices.wake.extend(self.node(tracer).map(|n| n.group.clone()));
            }
            return false;
        }
        let Some(pid) = task.take_pid() else { return false };
        let zombie = ThreadZombie { pid, status, uid: task.creds().uid };
        let (uid, tracer) = (zombie.uid, t.tracer.0);
        let number = self.node(tracer).map_or(0, |n| zombie.pid.nr_in(n.group.pids_seen()));
        if let Some(t) = self.tracees.get_mut(tid) {
            t.zombie = Some(zombie);
        }
        tell_tracer_of_end(self, tracer, number, uid, status, notices);
        true
    }

    /// A tracer's thread ends: all that it traces go on by themselves.
    pub(crate) fn tracer_left(
        &mut self,
        tracer: &Task,
        notices: &mut Notices,
    ) -> Vec<Tracee<ThreadGroup, Task>> {
        let mut untraced = Vec::new();
        for tid in self.tracees.of_thread(tracer.tgid(), tracer.tid()) {
            let kill = self
                .tracees
                .get(tid)
                .and_then(|t| t.task.as_ref())
                .is_some_and(|t| t.trace.state.lock().options & O_EXITKILL != 0);
            let group = self.tracees.get(tid).map(|t| t.group.clone());
            if let Some(g) = group.filter(|_| kill) {
                let info = SigInfo::new(Signal::SIGKILL, SI_HOST);
                notices.signals.push((g, info));
            }
            untraced.extend(self.untrace(tid, None));
            self.detached_zombie(tid, notices);
        }
        untraced
    }

    /// After a detach: a process that has ended is now for its parent to wait for.
    pub(crate) fn detached_zombie(&mut self, tid: i32, notices: &mut Notices) {
        if self.node(tid).is_some_and(|n| n.is_zombie()) {
            report_exit(self, tid, notices);
        }
    }
}

//! Relations of ptrace(2) out of their plain data, once all threads are there.

use super::restore::user_registers;
use super::{EndedTracee, ProcessesState, Resources, TracingState};
use crate::current::Current;
use crate::kernel::Kernel;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use container::Container;
use rights::Cap;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tracee::{After, O_SUSPEND_SECCOMP, ThreadZombie, Tracee, Tracer};

impl Kernel {
    /// `allowed`: the capabilities that a container's specification gives.
    pub(super) fn restore_tracing(
        &self,
        saved: &ProcessesState,
        groups: &BTreeMap<i32, Arc<ThreadGroup>>,
        threads: &mut [Current],
        resources: &mut dyn Resources,
        allowed: &dyn Fn(&Container) -> u64,
    ) -> Result<(), String> {
        let by_tid: HashMap<i32, Arc<Task>> =
            threads.iter().map(|t| (t.task.tid(), t.task.clone())).collect();
        for (state, thread) in saved.threads.iter().zip(threads) {
            let Some(tracing) = &state.tracing else { continue };
            let said = |what: &str| format!("thread {} and its tracer: {what}", state.tid);
            let tracer = by_tid.get(&tracing.tracer).ok_or_else(|| said("there is none"))?;
            if tracer.tgid() == thread.task.tgid() {
                return Err(said("they are of one process"));
            }
            let allowed = allowed(&tracer.group.container);
            let by = self.restored_tracer(tracing, tracer, resources, allowed).map_err(|e| said(&e))?;
            let trace = restored(tracing, thread);
            let max = self.platform.limits().max;
            thread.task.trace.restore(&trace, by, max).map_err(said)?;
            thread.stopped = trace.stop.map(|stop| stop.after);
            let task = thread.task.clone();
            let tracee = Tracee {
                tracer: (tracer.tgid(), tracer.tid()),
                group: task.group.clone(),
                task: Some(task.clone()),
                zombie: None,
            };
            self.tree.lock().tracees.insert(state.tid, tracee);
        }
        for ended in &saved.ended_tracees {
            let tracee = self.ended(ended, groups, &by_tid)?;
            let mut tree = self.tree.lock();
            if tree.task(ended.tid).is_some() || tree.tracees.get(ended.tid).is_some() {
                return Err(format!("thread {} has not ended", ended.tid));
            }
            tree.tracees.insert(ended.tid, tracee);
        }
        for state in saved.threads.iter().filter(|state| state.tracing.is_some() && state.parked) {
            let Some(task) = by_tid.get(&state.tid) else { continue };
            // The parent knows, or learns it from those that are not traced.
            let mut s = task.group.signals.lock();
            if s.stop.is_on() {
                let _ = s.park(task);
            }
        }
        Ok(())
    }

    fn restored_tracer(
        &self,
        saved: &TracingState,
        tracer: &Task,
        resources: &mut dyn Resources,
        allowed: u64,
    ) -> Result<Tracer<ThreadGroup>, String> {
        let domain = match &saved.landlock {
            Some(layers) => Some(resources.landlock(layers).ok_or("a Landlock domain is missing")?),
            None => None,
        };
        let creds = self.restored_creds(&saved.creds, resources.spaces(), domain)?;
        let given = allowed & !tracer.group.container.withheld();
        if creds.user_ns.is_initial() && saved.creds.capabilities() & !given != 0 {
            return Err("it has capabilities that the container does not have".into());
        }
        if saved.trace.options & O_SUSPEND_SECCOMP != 0 && given & Cap::SYS_ADMIN.bit() == 0 {
            return Err("it suspends seccomp(2), which the container may not".into());
        }
        Ok(Tracer { tid: tracer.tid(), group: tracer.group.clone(), creds })
    }

    fn ended(
        &self,
        saved: &EndedTracee,
        groups: &BTreeMap<i32, Arc<ThreadGroup>>,
        by_tid: &HashMap<i32, Arc<Task>>,
    ) -> Result<Tracee<ThreadGroup, Task>, String> {
        let tid = saved.tid;
        let group = groups.get(&saved.tgid).ok_or("a traced thread that has ended without a process")?;
        let tracer = by_tid.get(&saved.tracer).ok_or_else(|| format!("thread {tid} has no tracer"))?;
        let zombie = match saved.zombie {
            Some((status, uid)) if tid != saved.tgid => {
                Some(ThreadZombie { pid: self.saved_pid(tid)?.attach(), status, uid })
            }
            None if tid == saved.tgid => None,
            _ => return Err(format!("thread {tid}, which has ended, is and is not the first one")),
        };
        Ok(Tracee { tracer: (tracer.tgid(), tracer.tid()), group: group.clone(), task: None, zombie })
    }
}

/// What the tracer sees, with registers that user code may have.
fn restored(saved: &TracingState, thread: &Current) -> tracee::TraceState {
    let mut trace = saved.trace.clone();
    if let Some(stop) = &mut trace.stop {
        stop.regs = user_registers(stop.regs);
        if let After::Delivers { continues } = &mut stop.after {
            *continues = thread.task.group.signals.lock().continues.wrapping_sub(*continues);
        }
    }
    trace
}

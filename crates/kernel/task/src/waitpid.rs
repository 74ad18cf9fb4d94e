//! Waiting for children. See wait4(2), waitid(2).

use crate::current::Current;
use crate::exit_report::{Notices, exit_code_of};
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use crate::tree::{Node, Report, Tree};
use abi::{Errno, Signal};
use sched::Usage;
use std::sync::Arc;
use sysresult::{Restart, SysErr};
use tracee::Tracee;
use wait::{Events, Stop};

/// Which children count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitTarget {
    /// Any child.
    Any,
    /// The child with this id.
    Pid(i32),
    /// Children in this process group.
    Group(i32),
}

/// A state change of a child.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The child, as the waiting process calls it.
    pub pid: i32,
    /// Its real user id.
    pub uid: u32,
    /// Wait status for wait4(2).
    pub status: i32,
    /// CLD_* code for waitid(2).
    pub code: i32,
    /// si_status for waitid(2).
    pub si_status: i32,
    /// What it used, its own children included.
    pub usage: Usage,
}

impl Current {
    /// Waits for a change; `None` with WNOHANG when there is none yet.
    pub fn wait_child(&mut self, target: WaitTarget, options: i32) -> Result<Option<Change>, SysErr> {
        let group = self.task.group.clone();
        let queue = group.child_wait.clone();
        let me = self.task.tid();
        let found = self.wait_on(&queue, None, || {
            let mut removal = Removal::default();
            let mut t = self.kernel().tree.lock();
            let found = look(&mut t, &group, me, target, options, &mut removal);
            drop(t);
            if let Some(n) = &removal.node {
                n.group.exit_wait.notify(Events::HUP);
            }
            removal.notices.send();
            match found {
                Ok(Some(c)) => Some(Ok(Some(c))),
                Ok(None) if options & libc::WNOHANG != 0 => Some(Ok(None)),
                Ok(None) => None,
                Err(e) => Some(Err(e)),
            }
        });
        match found {
            Ok(r) => Ok(r?),
            Err(Stop::Interrupted | Stop::TimedOut) => Err(SysErr::Restart(Restart::Sys)),
        }
    }
}

/// The entries that a check took out of the tables, and the processes to notify after the lock.
#[derive(Default)]
struct Removal {
    node: Option<Node>,
    tracee: Option<Tracee<ThreadGroup, Task>>,
    notices: Notices,
}

/// `removal` gets the child that was taken out of the tables, to be dropped after the lock.
fn look(
    t: &mut Tree,
    parent: &Arc<ThreadGroup>,
    tid: i32,
    target: WaitTarget,
    options: i32,
    removal: &mut Removal,
) -> Result<Option<Change>, Errno> {
    if let Some(change) = tracee(t, parent, tid, target, options, removal)? {
        return Ok(Some(change));
    }
    let mut any = t.tracees.of_group(parent.tgid).iter().any(|id| {
        let fits = is_target(t, target, *id);
        fits && eligible_tracer(t, *id, tid, options)
    });
    let children = t.node(parent.tgid).map_or(Vec::new(), |n| n.children().to_vec());
    for child in children {
        let tracer = t.tracees.tracing_group(child);
        let (ours, other) = (tracer == Some(parent.tgid), tracer.is_some_and(|g| g != parent.tgid));
        let Some(n) = t.node_mut(child) else { continue };
        let pid = n.group.pid_for(parent);
        let fits = match target {
            WaitTarget::Any => true,
            WaitTarget::Pid(p) => p == child,
            WaitTarget::Group(g) => n.pgid() == g,
        };
        let clone_child = n.exit_signal() != Signal::SIGCHLD.raw();
        let kind = ours || options & libc::__WALL != 0 || clone_child == (options & libc::__WCLONE != 0);
        let thread = options & libc::__WNOTHREAD == 0 || n.parent_tid() == tid;
        if !fits || !kind || !thread {
            continue;
        }
        let zombie = n.zombie();
        // A zombie has nothing more to report to callers that do not wait for ends.
        any |= zombie.is_none() || options & libc::WEXITED != 0;
        let keep = options & libc::WNOWAIT != 0;
        if let Some(z) = zombie {
            // The tracer waits for it first.
            if options & libc::WEXITED == 0 || other {
                continue;
            }
            let (code, si_status) = exit_code_of(z.status);
            let usage = z.usage;
            if !keep {
                removal.node = t.release(child);
                parent.usage.lock().add_child(&usage);
            }
            return Ok(Some(Change { pid, uid: z.uid, status: z.status, code, si_status, usage }));
        }
        let (status, code, si_status) = match n.report {
            Some(Report::Stopped(sig)) if options & libc::WUNTRACED != 0 && !ours => {
                (sig.raw() << 8 | 0x7f, libc::CLD_STOPPED, sig.raw())
            }
            Some(Report::Continued) if options & libc::WCONTINUED != 0 => {
                (0xffff, libc::CLD_CONTINUED, Signal::SIGCONT.raw())
            }
            _ => continue,
        };
        if !keep {
            n.report = None;
        }
        let (uid, usage) = (n.uid(), n.group.total_usage());
        return Ok(Some(Change { pid, uid, status, code, si_status, usage }));
    }
    if any { Ok(None) } else { Err(Errno::ECHILD) }
}

/// Whether a thread with this ID is among those that are waited for.
fn is_target(t: &Tree, target: WaitTarget, tid: i32) -> bool {
    match target {
        WaitTarget::Any => true,
        WaitTarget::Pid(p) => p == tid,
        WaitTarget::Group(g) => {
            let tgid = t.tracees.get(tid).map_or(tid, |x| x.group.tgid);
            t.node(tgid).is_some_and(|n| n.pgid() == g)
        }
    }
}

fn eligible_tracer(t: &Tree, tracee: i32, me: i32, options: i32) -> bool {
    options & libc::__WNOTHREAD == 0 || t.tracees.get(tracee).is_some_and(|x| x.tracer.1 == me)
}

/// Looks for a change of a tracee of the waiting process.
fn tracee(
    t: &mut Tree,
    waiter: &Arc<ThreadGroup>,
    me: i32,
    target: WaitTarget,
    options: i32,
    removal: &mut Removal,
) -> Result<Option<Change>, Errno> {
    let keep = options & libc::WNOWAIT != 0;
    for tid in t.tracees.of_group(waiter.tgid) {
        if !is_target(t, target, tid) || !eligible_tracer(t, tid, me, options) {
            continue;
        }
        let Some(x) = t.tracees.get(tid) else { continue };
        let group = x.group.clone();
        if let Some(task) = x.task.clone() {
            // A child's stop is waited for without WUNTRACED by its tracer.
            let Some(code) = task.trace.report(keep) else { continue };
            let (status, usage) = (code << 8 | 0x7f, group.total_usage());
            let (pid, uid) = (task.nr_in(waiter.pids_seen()), task.creds().uid);
            return Ok(Some(Change { pid, uid, status, code: libc::CLD_TRAPPED, si_status: code, usage }));
        }
        if options & libc::WEXITED == 0 {
            continue;
        }
        if let Some(z) = &x.zombie {
            let (code, si_status) = exit_code_of(z.status);
            let pid = z.pid.nr_in(waiter.pids_seen());
            let change =
                Change { pid, uid: z.uid, status: z.status, code, si_status, usage: Usage::default() };
            if !keep {
                removal.tracee = t.untrace(tid, None);
            }
            return Ok(Some(change));
        }
        // The process of a first thread: its parent, if that is another process, is notified when the tracer has waited
        // for it.
        let Some(n) = t.node(tid).filter(|n| n.parent() != waiter.tgid) else { continue };
        let Some(z) = n.zombie() else { continue };
        let (code, si_status) = exit_code_of(z.status);
        let change = Change {
            pid: n.group.pid_for(waiter),
            uid: z.uid,
            status: z.status,
            code,
            si_status,
            usage: z.usage,
        };
        if !keep {
            removal.tracee = t.untrace(tid, None);
            t.detached_zombie(tid, &mut removal.notices);
        }
        return Ok(Some(change));
    }
    Ok(None)
}

//! Waiting for children. See wait4(2), waitid(2).

use crate::current::Current;
use crate::exit::exit_code_of;
use crate::result::{Restart, SysErr};
use crate::thread_group::ThreadGroup;
use crate::tree::{Node, Report, Tree};
use abi::{Errno, Signal};
use sched::Usage;
use std::sync::Arc;
use wait::{Events, Stop};

/// Which children count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
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
    pub fn wait_child(&mut self, whom: Whom, options: i32) -> Result<Option<Change>, SysErr> {
        let group = self.task.group.clone();
        let queue = group.child_wait.clone();
        let me = self.task.tid();
        let found = self.wait_on(&queue, None, || {
            let mut gone = None;
            let mut t = self.kernel().tree.lock();
            let found = look(&mut t, &group, me, whom, options, &mut gone);
            drop(t);
            if let Some(n) = &gone {
                n.group.exit_wait.notify(Events::HUP);
            }
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

/// `gone` gets the child that was taken out of the tables, to be dropped after the lock.
fn look(
    t: &mut Tree,
    parent: &Arc<ThreadGroup>,
    tid: i32,
    whom: Whom,
    options: i32,
    gone: &mut Option<Node>,
) -> Result<Option<Change>, Errno> {
    let children = t.node(parent.tgid).map_or(Vec::new(), |n| n.children().to_vec());
    let mut any = false;
    for child in children {
        let Some(n) = t.node_mut(child) else { continue };
        let pid = n.group.pid_for(parent);
        let fits = match whom {
            Whom::Any => true,
            Whom::Pid(p) => p == child,
            Whom::Group(g) => n.pgid() == g,
        };
        let clone_child = n.exit_signal() != Signal::SIGCHLD.raw();
        let kind = options & libc::__WALL != 0 || clone_child == (options & libc::__WCLONE != 0);
        let thread = options & libc::__WNOTHREAD == 0 || n.parent_tid() == tid;
        if !fits || !kind || !thread {
            continue;
        }
        let zombie = n.zombie();
        // A zombie has nothing more to tell to those who do not wait for ends.
        any |= zombie.is_none() || options & libc::WEXITED != 0;
        let keep = options & libc::WNOWAIT != 0;
        if let Some(z) = zombie {
            if options & libc::WEXITED == 0 {
                continue;
            }
            let (code, si_status) = exit_code_of(z.status);
            let usage = z.usage;
            if !keep {
                *gone = t.release(child);
                parent.usage.lock().add_child(&usage);
            }
            return Ok(Some(Change { pid, uid: z.uid, status: z.status, code, si_status, usage }));
        }
        let (status, code, si_status) = match n.report {
            Some(Report::Stopped(sig)) if options & libc::WUNTRACED != 0 => {
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

//! Sessions, process groups and their controlling terminals. See setsid(2),
//! setpgid(2), tty_ioctl(4).

use crate::current::Current;
use crate::kernel::Kernel;
use abi::{Errno, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Current {
    /// setsid(2); gives the new session's id.
    pub fn setsid(&self) -> Result<i32> {
        let me = self.task.tgid();
        let mut t = self.kernel().tree.lock();
        if t.nodes.values().any(|n| n.pgid == me) {
            return Err(Errno::EPERM);
        }
        let n = t.nodes.get_mut(&me).ok_or(Errno::ESRCH)?;
        n.sid = me;
        n.pgid = me;
        Ok(me)
    }

    /// setpgid(2) with ids; 0 is the caller's process, and the process's own group.
    pub fn setpgid(&self, pid: i32, pgid: i32) -> Result<()> {
        let me = self.task.tgid();
        let pid = if pid == 0 { me } else { pid };
        let pgid = if pgid == 0 { pid } else { pgid };
        let mut t = self.kernel().tree.lock();
        let my_sid = t.nodes.get(&me).ok_or(Errno::ESRCH)?.sid;
        let n = t.nodes.get(&pid).ok_or(Errno::ESRCH)?;
        if pid != me {
            if n.parent != me {
                return Err(Errno::ESRCH);
            }
            if n.sid != my_sid {
                return Err(Errno::EPERM);
            }
            if n.group.has_execed.load(Ordering::Relaxed) {
                return Err(Errno::EACCES);
            }
        }
        if n.sid == pid {
            return Err(Errno::EPERM);
        }
        if pgid != pid && !t.pgrp_in_session(pgid, my_sid) {
            return Err(Errno::EPERM);
        }
        if let Some(n) = t.nodes.get_mut(&pid) {
            n.pgid = pgid;
        }
        Ok(())
    }
}

/// A process ended; if it led a session, the terminal is given up.
pub(crate) fn session_leader_left(kernel: &Arc<Kernel>, tgid: i32) {
    let tty = {
        let mut t = kernel.tree.lock();
        let leads = t.nodes.get(&tgid).is_some_and(|n| n.sid == tgid);
        if leads { t.terminals.remove(&tgid) } else { None }
    };
    if let Some(tty) = tty
        && let Some(hook) = kernel.hangup.get()
    {
        hook(&tty, tgid);
    }
}

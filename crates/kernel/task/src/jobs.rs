//! Sessions, process groups and their controlling terminals. See setsid(2),
//! setpgid(2), tty_ioctl(4).

use crate::current::Current;
use crate::kernel::{Kernel, SI_HOST};
use abi::{Errno, Result, SigInfo, Signal};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use tty::{JobControl, Pty};

impl Current {
    /// setsid(2); gives the new session's id.
    pub fn setsid(&self) -> Result<i32> {
        let me = self.task.tgid();
        let mut t = self.kernel().tree.lock();
        if t.nodes().any(|n| n.pgid() == me) {
            return Err(Errno::EPERM);
        }
        let n = t.node_mut(me).ok_or(Errno::ESRCH)?;
        n.begin_session();
        Ok(me)
    }

    /// setpgid(2) with ids; 0 is the caller's process, and the process's own group.
    pub fn setpgid(&self, pid: i32, pgid: i32) -> Result<()> {
        let me = self.task.tgid();
        let pid = if pid == 0 { me } else { pid };
        let pgid = if pgid == 0 { pid } else { pgid };
        let mut t = self.kernel().tree.lock();
        let my_sid = t.node(me).ok_or(Errno::ESRCH)?.sid();
        let n = t.node(pid).ok_or(Errno::ESRCH)?;
        if pid != me {
            if n.parent() != me {
                return Err(Errno::ESRCH);
            }
            if n.sid() != my_sid {
                return Err(Errno::EPERM);
            }
            if n.group.has_execed.load(Ordering::Relaxed) {
                return Err(Errno::EACCES);
            }
        }
        if n.sid() == pid {
            return Err(Errno::EPERM);
        }
        if pgid != pid && !t.pgrp_in_session(pgid, my_sid) {
            return Err(Errno::EPERM);
        }
        let group = self.kernel().pids.find(pgid).ok_or(Errno::EPERM)?.attach();
        if let Some(n) = t.node_mut(pid) {
            n.set_pgrp(group);
        }
        Ok(())
    }
}

impl Current {
    /// Brings a process group to the foreground of this session's terminal, if it has one.
    pub(crate) fn to_foreground(&self, pgid: i32) {
        let terminal = {
            let tree = self.kernel().tree.lock();
            tree.node(self.task.tgid()).and_then(|node| tree.terminal(node.sid())).cloned()
        };
        if let Some(terminal) = terminal {
            terminal.bring_to_foreground(&self.caller(), pgid);
        }
    }
}

/// A process ended; if it led a session, the terminal is given up.
pub(crate) fn session_leader_left(kernel: &Arc<Kernel>, tgid: i32) {
    let tty = {
        let mut t = kernel.tree.lock();
        let leads = t.node(tgid).is_some_and(|n| n.sid() == tgid);
        if leads { t.set_terminal(tgid, None) } else { None }
    };
    if let Some(tty) = tty {
        tty.session_leader_left(tgid);
    }
}

/// Sessions and process groups of a kernel, for its terminals.
pub struct Jobs(Weak<Kernel>);

impl Jobs {
    /// Those of `kernel`.
    pub fn of(kernel: &Arc<Kernel>) -> Arc<dyn JobControl> {
        Arc::new(Jobs(Arc::downgrade(kernel)))
    }

    fn kernel(&self) -> Option<Arc<Kernel>> {
        self.0.upgrade()
    }
}

impl JobControl for Jobs {
    fn signal_pgrp(&self, pgid: i32, sig: Signal) {
        if let Some(k) = self.kernel() {
            k.signal_pgrp(pgid, SigInfo::new(sig, SI_HOST));
        }
    }
    fn signal_process(&self, pid: i32, sig: Signal) {
        if let Some(g) = self.kernel().and_then(|k| k.group(pid)) {
            // A process that is just ending needs no signal.
            let _ = g.send(SigInfo::new(sig, SI_HOST));
        }
    }
    fn pgrp_in_session(&self, pgid: i32, sid: i32) -> bool {
        self.kernel().is_some_and(|k| k.tree.lock().pgrp_in_session(pgid, sid))
    }
    fn session_of(&self, pgid: i32) -> Option<i32> {
        let k = self.kernel()?;
        let t = k.tree.lock();
        let leads = || t.node(pgid).or_else(|| t.task(pgid).and_then(|task| t.node(task.tgid())));
        t.nodes().find(|n| n.pgid() == pgid).or_else(leads).map(|n| n.sid())
    }
    fn is_orphaned(&self, pgid: i32) -> bool {
        self.kernel().is_some_and(|k| k.tree.lock().is_orphaned(pgid, None))
    }
    fn terminal(&self, sid: i32) -> Option<Arc<Pty>> {
        self.kernel()?.tree.lock().terminal(sid).cloned()
    }
    fn set_terminal(&self, sid: i32, tty: Option<Arc<Pty>>) {
        let Some(k) = self.kernel() else { return };
        let mut t = k.tree.lock();
        let old = t.set_terminal(sid, tty);
        drop(t);
        drop(old);
    }
}

//! Ties subsystems that do not know of tasks to the kernel: terminals to sessions, FIFOs and
//! terminal devices to the file layer, restarted calls to their families.

use abi::{SigInfo, Signal};
use std::any::Any;
use std::sync::{Arc, Weak};
use task::{Kernel, SI_HOST};
use tty::JobControl;

/// Sessions and process groups for terminals.
struct Jobs(Weak<Kernel>);

impl Jobs {
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
        t.nodes.values().find(|n| n.pgid == pgid).map(|n| n.sid)
    }
    fn is_orphaned(&self, pgid: i32) -> bool {
        self.kernel().is_some_and(|k| k.tree.lock().is_orphaned(pgid, None))
    }
    fn terminal(&self, sid: i32) -> Option<Arc<dyn Any + Send + Sync>> {
        self.kernel()?.tree.lock().terminals.get(&sid).cloned()
    }
    fn set_terminal(&self, sid: i32, tty: Option<Arc<dyn Any + Send + Sync>>) {
        let Some(k) = self.kernel() else { return };
        let mut t = k.tree.lock();
        let old = match tty {
            Some(tty) => t.terminals.insert(sid, tty),
            None => t.terminals.remove(&sid),
        };
        drop(t);
        drop(old);
    }
}

/// Sets the hooks of a new kernel, before its first task runs.
pub fn install_hooks(kernel: &Arc<Kernel>) {
    tty::set_job_control(Arc::new(Jobs(Arc::downgrade(kernel))));
    tty::register();
    ipc::pipe::fifo::register();
    let _ = kernel.hangup.set(tty::session_leader_left);
    let _ = kernel.terminal_info.set(tty::terminal_info);
    let _ = kernel.poll_restart.set(crate::poll::poll_until);
}

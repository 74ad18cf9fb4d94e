//! What parents and tracers are told of the end of a process or thread. See wait(2), SIGCHLD in signal(7).
//!
//! The tree's lock is held while it is found out; [`Notices`] are sent after it.

use crate::thread_group::ThreadGroup;
use crate::tree::Tree;
use abi::{SigInfo, Signal};
use cgroup::Changes;
use signal::SIG_IGN;
use std::sync::Arc;
use wait::Events;

/// Signals and wake-ups that the end of a process causes, to be sent after the tree's lock.
#[derive(Default)]
pub(crate) struct Notices {
    pub(crate) signals: Vec<(Arc<ThreadGroup>, SigInfo)>,
    /// Processes that are to repeat the check of their wait(2).
    pub(crate) wake: Vec<Arc<ThreadGroup>>,
    /// Control groups that it has left.
    pub(crate) cgroups: Changes,
}

impl Notices {
    pub(crate) fn send(self) {
        self.cgroups.tell();
        for (g, info) in self.signals {
            let _ = g.send(info);
        }
        for g in self.wake {
            g.child_wait.notify(Events::IN);
        }
    }
}

/// Queues SIGCHLD (or the clone's own signal) for the parent of a zombie. A zombie is reaped at once when its parent
/// ignores SIGCHLD or has SA_NOCLDWAIT.
pub(crate) fn report_exit(t: &mut Tree, tgid: i32, notices: &mut Notices) {
    let Some(n) = t.node(tgid) else { return };
    let Some(z) = n.zombie() else { return };
    if let Some(tracer) = t.tracees.tracing_group(tgid).filter(|tracer| *tracer != n.parent()) {
        let seen = t.node(tracer).map_or(0, |by| n.group.pid_for(&by.group));
        return tell_tracer_of_end(t, tracer, seen, z.uid, z.status, notices);
    }
    let Some(p) = t.node(n.parent()) else { return };
    let pg = p.group.clone();
    let traced = t.tracees.get(tgid).is_some();
    if let Some(sig) = Signal::new(n.exit_signal()) {
        let act = pg.handlers().lock().get(Signal::SIGCHLD);
        let is_chld = sig == Signal::SIGCHLD;
        let unwanted = is_chld && (act.handler == SIG_IGN || act.flags & libc::SA_NOCLDWAIT as u64 != 0);
        if !(is_chld && act.handler == SIG_IGN) {
            let (code, st) = exit_code_of(z.status);
            let tick = 10_000_000;
            let mut info = SigInfo::child(
                code,
                n.group.pid_for(&pg),
                z.uid,
                st,
                z.usage.utime / tick,
                z.usage.stime / tick,
            );
            info.signo = sig.raw();
            notices.signals.push((pg.clone(), info));
        }
        if unwanted && !traced {
            // Let go with the rest, after the lock.
            notices.wake.extend(t.release(tgid).map(|node| node.group));
        }
    }
    notices.wake.push(pg);
}

/// si_code and si_status of a wait status.
pub fn exit_code_of(status: i32) -> (i32, i32) {
    if status & 0x7f == 0 {
        (libc::CLD_EXITED, status >> 8 & 0xff)
    } else if status & 0x80 != 0 {
        (libc::CLD_DUMPED, status & 0x7f)
    } else {
        (libc::CLD_KILLED, status & 0x7f)
    }
}

/// SIGCHLD for the end of a traced thread or process.
pub(crate) fn tell_tracer_of_end(
    t: &Tree,
    tracer: i32,
    number: i32,
    uid: u32,
    status: i32,
    notices: &mut Notices,
) {
    let Some(n) = t.node(tracer) else { return };
    let g = n.group.clone();
    if g.handlers().lock().get(Signal::SIGCHLD).handler != SIG_IGN {
        let (code, st) = exit_code_of(status);
        notices.signals.push((g.clone(), SigInfo::child(code, number, uid, st, 0, 0)));
    }
    notices.wake.push(g);
}

//! Delivering signals to the running thread: handlers, default actions, stops. See signal(7).
//!
//! [`handle_pending`] deals with everything that wants the thread's attention before it resumes.

use crate::current::Current;
use crate::group_exit::kill_group;
use crate::send::{Sender, group_stop_changed, tell_parent_stopped};
use abi::{Errno, SigInfo, SigSet, Signal};
use signal::{DefaultAction, SIG_DFL, SIG_IGN, SigAction, TrapInfo, default_action};
use std::sync::atomic::Ordering;
use sysresult::Restart;
use tracee::After;

/// Whether the thread goes on.
pub(crate) enum Flow {
    Resume,
    Leave,
}

/// Delivers a signal that cannot be postponed: blocked or ignored, it is fatal.
pub(crate) fn force(c: &mut Current, info: SigInfo, trap: TrapInfo) {
    let Some(info) = seen_by_tracer(c, info, trap) else { return };
    force_through(c, info, trap);
}

/// A tracer, if there is one, has let it through.
pub(crate) fn force_through(c: &mut Current, info: SigInfo, trap: TrapInfo) {
    let Some(sig) = Signal::new(info.signo) else { return };
    let act = take_action(c, sig);
    if c.task.blocked().has(sig) || act.handler == SIG_IGN || act.handler == SIG_DFL {
        die(c, &info);
        return;
    }
    if !deliver(c, sig, &act, info, trap) {
        die(c, &SigInfo::new(Signal::SIGSEGV, libc::SI_KERNEL));
    }
}

/// A forced signal as the tracer lets it through. The signal has its default action then, if it was blocked or ignored.
fn seen_by_tracer(c: &mut Current, info: SigInfo, trap: TrapInfo) -> Option<SigInfo> {
    let sig = Signal::new(info.signo)?;
    if !c.task.trace.is_traced() {
        return Some(info);
    }
    let blocked = c.task.blocked();
    let handlers = c.task.group.handlers();
    let ignored = handlers.lock().get(sig).handler == SIG_IGN;
    if blocked.has(sig) || ignored {
        handlers.lock().set(sig, SigAction { handler: SIG_DFL, ..SigAction::default() });
        c.task.set_blocked(blocked.minus(SigSet::of(sig)));
    }
    let in_call = c.task.in_syscall.load(Ordering::Relaxed) != 0;
    c.ptrace_signal(info, After::Forced { trap: [trap.trapno, trap.err, trap.cr2], in_call })
}

/// Ends the process with a signal's default action, after its core file was written if it makes one.
fn die(c: &mut Current, info: &SigInfo) {
    let Some(sig) = Signal::new(info.signo) else { return };
    log::debug!("[{}] killed by {} at {:#x}", c.task.tid(), abi::signal::name(sig), c.ctx.regs().rip);
    // Another thread may be about to end the process with a core file of its own.
    c.join_gathering();
    let core = default_action(sig) == DefaultAction::Core && !c.dying();
    let calls = c.kernel().calls.clone();
    let dumped = core && calls.dump_core(c, info);
    let mut s = c.task.group.signals.lock();
    let bit = if dumped { 0x80 } else { 0 };
    kill_group(&c.task.group, &mut s, sig.raw() | bit);
    drop(s);
    c.task.waiter.set_interrupted(true);
}

/// The action for a signal that is delivered now. It is read once, as another thread may change it at any time, and
/// SA_RESETHAND takes effect under the same lock.
fn take_action(c: &Current, sig: Signal) -> SigAction {
    let handlers = c.task.group.handlers();
    let mut table = handlers.lock();
    let act = table.get(sig);
    if act.flags & libc::SA_RESETHAND as u64 != 0 && act.handler != SIG_IGN && act.handler != SIG_DFL {
        table.set(sig, SigAction { handler: SIG_DFL, ..act });
    }
    act
}

/// Sets up the frame of a handler. False when the stack cannot take it.
fn deliver(c: &mut Current, sig: Signal, act: &SigAction, info: SigInfo, trap: TrapInfo) -> bool {
    // What the call still has to do in the guest's memory can fail, and the frame holds its result.
    c.finish_call();
    // An interrupted call is resolved before the frame saves the registers.
    if let Some(k) = c.restart.take() {
        let again = match k {
            Restart::Sys => act.flags & libc::SA_RESTART as u64 != 0,
            Restart::NoIntr => true,
            Restart::NoHand | Restart::Block => false,
        };
        if again {
            let r = c.ctx.regs_mut();
            r.rax = r.orig_rax;
            r.rip = r.rip.wrapping_sub(2);
        }
    }
    c.waits_until = None;
    let mask = c.saved_mask.take().unwrap_or(c.task.blocked());
    if c.push_frame(act, &info, mask, trap).is_err() {
        return false;
    }
    let mut blocked = c.task.blocked().union(act.mask);
    if act.flags & libc::SA_NODEFER as u64 == 0 {
        blocked.add(sig);
    }
    c.task.set_blocked(blocked);
    c.stepped_into_handler();
    true
}

/// Deals with everything that wants the thread's attention before it resumes.
pub(crate) fn handle_pending(c: &mut Current) -> Flow {
    c.sync_report_all();
    if c.task.own_timers.swap(false, Ordering::SeqCst) {
        c.look_at_own_timers();
    }
    loop {
        c.task.waiter.set_interrupted(false);
        c.task.undoom();
        c.join_gathering();
        c.join_standstill();
        if c.dying() {
            return Flow::Leave;
        }
        if c.exit_before() {
            continue;
        }
        if c.task.trace.is_traced() {
            if c.ptrace_trap() {
                continue;
            }
        } else {
            if let Flow::Leave = park_while_stopped(c) {
                return Flow::Leave;
            }
            // A tracer may have attached meanwhile: its stop comes before any signal.
            if c.task.trace.is_traced() {
                continue;
            }
        }
        if c.stand_still() {
            continue;
        }
        let Some((mut info, continues)) = dequeue(c) else { break };
        if c.task.trace.is_traced() && info.signo != libc::SIGKILL {
            match c.ptrace_signal(info, After::Delivers { continues }) {
                Some(changed) => info = changed,
                None => continue,
            }
        }
        act_on(c, info, continues);
    }
    if let Some(k) = c.restart.take() {
        let r = c.ctx.regs_mut();
        r.rip = r.rip.wrapping_sub(2);
        r.rax = if k == Restart::Block { libc::SYS_restart_syscall as u64 } else { r.orig_rax };
    }
    c.restore_mask();
    // Restoring the mask may have made something deliverable.
    if c.task.waiter.interrupted() && c.task.has_deliverable() {
        return handle_pending(c);
    }
    Flow::Resume
}

/// What a signal does that was dequeued when there had been `continues`.
pub(crate) fn act_on(c: &mut Current, info: SigInfo, continues: u32) {
    let Some(sig) = Signal::new(info.signo) else { return };
    let act = take_action(c, sig);
    match act.handler {
        SIG_IGN => {}
        SIG_DFL => match default_action(sig) {
            DefaultAction::Ignore | DefaultAction::Continue => {}
            // It was blocked when it was sent, else it had been dropped then.
            _ if c.task.group.is_immune(sig, Sender::of(&info, false)) => {}
            DefaultAction::Stop => stop(c, sig, continues),
            DefaultAction::Terminate | DefaultAction::Core => die(c, &info),
        },
        _ => {
            if !deliver(c, sig, &act, info, TrapInfo::default()) {
                // No room for the frame: that is a fault of its own, which may have a handler elsewhere.
                match sig {
                    Signal::SIGSEGV => die(c, &SigInfo::new(sig, libc::SI_KERNEL)),
                    _ => c.force_signal(Signal::SIGSEGV, libc::SI_KERNEL),
                }
            }
        }
    }
}

/// Takes the next deliverable signal of the thread or its group.
fn dequeue(c: &Current) -> Option<(SigInfo, u32)> {
    if !c.task.has_deliverable() {
        return None;
    }
    c.task.dequeue_counted(SigSet::ALL.minus(c.task.blocked()))
}

/// Starts stopping the group, unless a SIGCONT has come since the signal was dequeued, when there had been `continues`.
/// Terminal stop signals do nothing to an orphaned group.
fn stop(c: &mut Current, sig: Signal, continues: u32) {
    let g = &c.task.group;
    if sig != Signal::SIGSTOP {
        let t = c.kernel().tree.lock();
        let orphaned = t.node(g.tgid).is_some_and(|n| t.is_orphaned(n.pgid(), None));
        if orphaned {
            return;
        }
    }
    let mut s = g.signals.lock();
    if s.continues != continues {
        return;
    }
    if s.begin_stop(sig) {
        for t in &s.threads {
            group_stop_changed(t);
            t.kick();
        }
    } else if c.task.trace.is_traced() && s.stop.is_on() {
        // A tracer has had it go on in the stop: it stops again.
        c.task.trace.ask_to_stop();
    }
}

fn park_while_stopped(c: &mut Current) -> Flow {
    let g = c.task.group.clone();
    loop {
        let tell = {
            let mut s = g.signals.lock();
            if !s.stop.is_on() || c.task.trace.is_traced() {
                return Flow::Resume;
            }
            s.park(&c.task)
        };
        if let Some(sig) = tell {
            tell_parent_stopped(&g, sig);
        }
        c.task.cgroup.set_frozen(true);
        loop {
            let _ = c.task.waiter.sleep_uninterruptible(None);
            c.join_gathering();
            c.join_standstill();
            let s = g.signals.lock();
            if !s.stop.is_on() || !s.life.is_running() || c.task.trace.is_traced() {
                break;
            }
        }
        if c.dying() {
            return Flow::Leave;
        }
    }
}

impl Current {
    /// Carries out what a call still has to do in the guest's memory, and settles its result.
    pub(crate) fn finish_call(&mut self) {
        match self.ctx.flush() {
            Ok(()) => {
                self.mm.settle();
                self.settle_transfer();
            }
            Err(Errno::ESRCH) => {}
            Err(_) if self.take_back_transfer() => {}
            Err(errno) => self.ctx.set_rax(self.mm.refused(errno)),
        }
    }

    /// Ends the process with a signal's default action.
    pub fn kill_by(&mut self, sig: Signal) {
        die(self, &SigInfo::new(sig, libc::SI_KERNEL));
    }

    /// A signal raised by the kernel on behalf of the running instruction (bad sigreturn frame).
    pub fn force_signal(&mut self, sig: Signal, code: i32) {
        force(self, SigInfo::new(sig, code), TrapInfo::default());
    }
}

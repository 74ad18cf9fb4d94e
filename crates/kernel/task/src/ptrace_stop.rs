//! The tracee's side of ptrace(2): its stops.
//!
//! A traced thread stops by itself, at a few places: before a signal is delivered, at an event (clone, execve, exit), for a group
//! stop, and at the entry and the exit of a call (`ptrace_syscall`). It then shows its registers in [`tracee::Stopped`] and
//! waits. The tracer reads and changes them there.
//!
//! Locks: the table of tracees is under the tree's lock, then a group's signals, then TRACE. No lock is held while a job runs.

use crate::current::Current;
use crate::send::tell_parent_stopped;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use abi::{Errno, SigInfo, Signal};
use caller::{Blocking, HasCredentials};
use libc::{CLD_STOPPED, CLD_TRAPPED};
use platform::Regs;
use signal::SIG_IGN;
use sysresult::Restart;
use tracee::{After, NOTIFY, STEP, Stopped, TRAP, Tracer, WATCHED, event};
use wait::Events;

/// The trap flag of the processor.
const EFLAGS_TF: u64 = 0x100;

/// What a stop tells the tracer.
pub(crate) struct Report {
    /// For wait(2): signal number, and an event above it.
    pub(crate) code: i32,
    /// CLD_TRAPPED or CLD_STOPPED.
    pub(crate) why: i32,
    /// PTRACE_GETEVENTMSG.
    pub(crate) message: u64,
    /// PTRACE_GETSIGINFO.
    pub(crate) info: Option<SigInfo>,
    /// How the thread goes on.
    pub(crate) after: After,
}

/// How the tracer let it go on.
pub(crate) struct Resumed {
    /// Signal number, 0 for none.
    pub(crate) signal: i32,
    /// As the tracer may have changed it.
    pub(crate) info: Option<SigInfo>,
}

/// What Linux's kernel has in rax of an interrupted call.
fn restart_code(k: Restart) -> u64 {
    let code: i64 = match k {
        Restart::Sys => -512,
        Restart::NoIntr => -513,
        Restart::NoHand => -514,
        Restart::Block => -516,
    };
    code as u64
}

fn restart_of(r: &Regs) -> Option<Restart> {
    if (r.orig_rax as i64) < 0 {
        return None;
    }
    [Restart::Sys, Restart::NoIntr, Restart::NoHand, Restart::Block]
        .into_iter()
        .find(|k| restart_code(*k) == r.rax)
}

impl Current {
    /// Stops for the tracer, if there is one and the thread is not about to end.
    pub(crate) fn ptrace_stop(&mut self, r: Report) -> Resumed {
        let task = self.task.clone();
        let unchanged = Resumed { signal: r.code, info: r.info };
        if !task.trace.is_traced() {
            return unchanged;
        }
        self.finish_writes();
        self.mm.show_own_text(self.ctx.as_mut());
        self.ctx.forget_captured();
        let regs = self.regs_for_tracer();
        let exiting = matches!(r.after, After::Ends { .. });
        let Some((tracer, group_stop)) = self.enter_stop(&r, regs, exiting) else { return unchanged };
        self.tell_tracer(&tracer, r.why, r.code);
        if let Some(sig) = group_stop
            && !self.traced_by_parent(&tracer)
        {
            tell_parent_stopped(&task.group, sig);
        }
        self.await_resume(r.after).unwrap_or(unchanged)
    }

    /// Waits in the stop, and ends it.
    pub(crate) fn await_resume(&mut self, after: After) -> Option<Resumed> {
        self.stay_stopped(after == After::Ends { begun: true });
        let task = self.task.clone();
        let stop = task.trace.state.lock().stop.take()?;
        if stop.dirty {
            self.take_regs(stop.regs, after.calls());
        }
        if task.trace.has(TRAP | NOTIFY) {
            task.waiter.set_interrupted(true);
        }
        task.recheck();
        Some(Resumed { signal: stop.resumed.unwrap_or(0), info: stop.info })
    }

    /// Publishes the stop. `None` when there is to be none.
    fn enter_stop(
        &self,
        r: &Report,
        regs: Regs,
        exiting: bool,
    ) -> Option<(Tracer<ThreadGroup>, Option<Signal>)> {
        let task = &self.task;
        let mut s = task.group.signals.lock();
        let mut state = task.trace.state.lock();
        let tracer = state.tracer.clone()?;
        if !exiting && s.life.ends(task.tid()) {
            return None;
        }
        let group_stop = if r.why == CLD_STOPPED && s.stop.is_on() { s.park(task) } else { None };
        task.trace.set(TRAP, false);
        if r.code >> 8 == event::STOP as i32 {
            task.trace.set(NOTIFY, false);
        }
        state.stop = Some(Stopped {
            code: r.code,
            info: r.info,
            message: r.message,
            regs,
            dirty: false,
            listening: false,
            resumed: None,
            jobs: Vec::new(),
            after: r.after,
        });
        Some((tracer, group_stop))
    }

    /// Waits for the tracer, and does what it asks for. `ends` says that the thread's end does not end the stop.
    fn stay_stopped(&mut self, ends: bool) {
        loop {
            {
                let state = self.task.trace.state.lock();
                let Some(stop) = &state.stop else { return };
                if stop.resumed.is_some() || stop.listening && self.task.trace.has(NOTIFY | TRAP) {
                    return;
                }
            }
            let idle = !self.work_for_tracer();
            if !ends && self.dying() {
                return;
            }
            if idle {
                self.task.cgroup.set_frozen(true);
                let _ = self.task.waiter.sleep_uninterruptible(None);
                self.task.cgroup.set_frozen(false);
                self.join_gathering();
                self.join_standstill();
            }
        }
    }

    /// Does what the tracer has asked for in a stop; false when there is nothing.
    pub(crate) fn work_for_tracer(&mut self) -> bool {
        let jobs = self.task.trace.state.lock().stop.as_mut().map(|stop| std::mem::take(&mut stop.jobs));
        let jobs = jobs.unwrap_or_default();
        let any = !jobs.is_empty();
        jobs.into_iter().for_each(|job| job(self));
        any
    }

    /// Carries out what is queued for the memory: the tracer is to see it.
    pub(crate) fn finish_writes(&mut self) {
        match self.ctx.flush() {
            Ok(()) => self.mm.settle(),
            Err(Errno::ESRCH) => {}
            Err(errno) => {
                let rax = self.mm.refused(errno);
                self.ctx.set_rax(rax);
            }
        }
    }

    fn regs_for_tracer(&mut self) -> Regs {
        let mut regs = *self.ctx.regs();
        if let Some(k) = self.restart {
            regs.rax = restart_code(k);
        }
        regs
    }

    /// `in_call`: the call is still to be made.
    fn take_regs(&mut self, mut regs: Regs, in_call: bool) {
        if !in_call {
            self.restart = restart_of(&regs);
            if self.restart.is_some() {
                regs.rax = Errno::EINTR.to_ret();
            }
        }
        *self.ctx.regs_mut() = regs;
    }

    fn traced_by_parent(&self, tracer: &Tracer<ThreadGroup>) -> bool {
        let t = self.kernel().tree.lock();
        t.node(self.task.tgid()).is_some_and(|n| n.parent() == tracer.group.tgid)
    }

    fn tell_tracer(&self, tracer: &Tracer<ThreadGroup>, why: i32, code: i32) {
        let g = &tracer.group;
        let act = g.handlers().lock().get(Signal::SIGCHLD);
        if act.handler != SIG_IGN && act.flags & libc::SA_NOCLDSTOP as u64 == 0 {
            let number = self.task.nr_in(g.pids_seen());
            let _ = g.send(SigInfo::child(why, number, self.creds().uid, code & 0x7f, 0, 0));
        }
        g.child_wait.notify(Events::IN);
    }

    /// Linux's `ptrace_notify`: a stop with a SIGTRAP without a sender.
    pub(crate) fn ptrace_notify(
        &mut self,
        (code, why): (i32, i32),
        signo: Signal,
        message: u64,
        after: After,
    ) -> i32 {
        let info = SigInfo::user(signo, code, self.task.own_tid(), self.creds().uid);
        self.ptrace_stop(Report { code, why, message, info: Some(info), after }).signal
    }

    /// An event of this thread, if the tracer asked for it. `message`: see PTRACE_GETEVENTMSG.
    pub(crate) fn ptrace_event(&mut self, event: u32, message: u64, after: After) {
        if self.task.trace.wants(event) {
            let code = (event << 8) as i32 | libc::SIGTRAP;
            self.ptrace_notify((code, CLD_TRAPPED), Signal::SIGTRAP, message, after);
        }
    }

    /// execve(2) has replaced the program; `former` is the thread's ID before, as the tracer calls it.
    pub(crate) fn ptrace_exec(&mut self, former: i32) {
        if !self.task.trace.is_traced() {
            return;
        }
        let regs = self.ctx.regs_mut();
        regs.orig_rax = libc::SYS_execve as u64;
        regs.rax = Errno::ENOSYS.to_ret();
        if self.task.trace.wants(event::EXEC) {
            self.ptrace_event(event::EXEC, former as u64, After::Executes);
        } else if !self.task.trace.is_seized() {
            self.raise(Signal::SIGTRAP);
        }
        self.ctx.set_rax(0);
    }

    /// A thread's ID as its tracer calls it.
    pub(crate) fn number_for_tracer(&self, of: &Task) -> i32 {
        let tracer = self.task.trace.state.lock().tracer.clone();
        tracer.map_or(0, |t| of.nr_in(t.group.pids_seen()))
    }

    /// The thread is about to end with this wait status.
    pub(crate) fn ptrace_exit(&mut self) {
        if !self.task.trace.wants(event::EXIT) {
            return;
        }
        let tracer = self.task.trace.tracer().and_then(|tid| self.kernel().task(tid));
        // A tracer that ends itself resumes no thread: two that trace each other would wait for ever.
        if tracer.is_none_or(|t| t.group.signals.lock().life.ends(t.tid())) {
            return;
        }
        let group = self.task.group.signals.lock().life.status();
        let status = group.or(self.exit_code).unwrap_or(0);
        let after = After::Ends { begun: self.dying() };
        self.ptrace_event(event::EXIT, status as u32 as u64, after);
    }

    /// A signal is about to be delivered: what the tracer makes of it. `None`: nothing.
    pub(crate) fn ptrace_signal(&mut self, info: SigInfo, after: After) -> Option<SigInfo> {
        let code = info.signo;
        let r = self.ptrace_stop(Report { code, why: CLD_TRAPPED, message: 0, info: Some(info), after });
        self.signal_let_through(r, info)
    }

    /// The signal of a thread that has stopped for `info`.
    pub(crate) fn signal_let_through(&mut self, r: Resumed, info: SigInfo) -> Option<SigInfo> {
        let sig = Signal::new(r.signal)?;
        let mut new = r.info.unwrap_or(info);
        if sig.raw() != new.signo {
            let tracer = self.task.trace.state.lock().tracer.clone();
            let (pid, uid) = tracer
                .and_then(|t| Some((t.group.pid_for(&self.task.group), t.group.any_thread()?.creds().uid)))
                .unwrap_or((0, 0));
            new = SigInfo::user(sig, libc::SI_USER, pid, uid);
        }
        if self.task.blocked().has(sig) {
            let _ = self.task.send(new);
            return None;
        }
        Some(new)
    }

    /// Stops for a group stop, an attach, PTRACE_INTERRUPT. False when there is nothing to stop for.
    pub(crate) fn ptrace_trap(&mut self) -> bool {
        let (task, g) = (self.task.clone(), self.task.group.clone());
        let sig = {
            let s = g.signals.lock();
            if s.stop.is_on() && !s.is_parked(&task) {
                task.trace.set(TRAP, true);
            }
            s.stop.signal()
        };
        if !task.trace.has(TRAP | NOTIFY) {
            return false;
        }
        if task.trace.is_seized() {
            let signo = sig.unwrap_or(Signal::SIGTRAP);
            let code = signo.raw() | (event::STOP << 8) as i32;
            self.ptrace_notify((code, CLD_STOPPED), signo, 0, After::Looks);
        } else {
            task.trace.set(NOTIFY, false);
            if task.trace.has(TRAP) {
                let code = sig.unwrap_or(Signal::SIGSTOP).raw();
                self.ptrace_stop(Report {
                    code,
                    why: CLD_STOPPED,
                    message: 0,
                    info: None,
                    after: After::Looks,
                });
            }
        }
        // A stop that could not be made, as the thread ends or is no longer traced.
        task.trace.set(TRAP, task.trace.has(TRAP) && task.trace.is_traced());
        true
    }

    /// Stop for SECCOMP_RET_TRACE. `None`: it has no tracer, or the call is not to be made; else its number.
    pub(crate) fn ptrace_seccomp(&mut self, data: u32) -> Option<u64> {
        if !self.task.trace.wants(event::SECCOMP) {
            return None;
        }
        self.ptrace_event(event::SECCOMP, u64::from(data), After::Filtered);
        let nr = self.ctx.regs().orig_rax;
        ((nr as i32) >= 0 && !self.dying()).then_some(nr)
    }

    /// A handler's frame was made for a thread that steps: it stops at the handler's first instruction.
    pub(crate) fn stepped_into_handler(&mut self) {
        if self.task.trace.has(STEP) {
            self.task.trace.set(STEP, false);
            self.ptrace_notify((libc::SIGTRAP, CLD_TRAPPED), Signal::SIGTRAP, 0, After::Looks);
        }
    }

    /// Before the thread runs: sets the processor's trap flag for a step.
    pub(crate) fn begin_step(&mut self) {
        if self.task.trace.has(STEP | WATCHED) && self.ctx.regs().eflags & EFLAGS_TF == 0 {
            self.ctx.regs_mut().eflags |= EFLAGS_TF;
            self.forced_tf = true;
        }
    }

    /// After it has run: the flag is not the program's own. True when it was set.
    pub(crate) fn end_step(&mut self) -> bool {
        let forced = std::mem::take(&mut self.forced_tf);
        if forced {
            self.ctx.regs_mut().eflags &= !EFLAGS_TF;
        }
        forced
    }
}

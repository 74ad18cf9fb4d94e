//! Stops of a traced thread at the entry and the exit of a call. See ptrace(2), "Syscall-stops".

use crate::current::Current;
use crate::deliver::force;
use abi::{Errno, SigInfo, Signal};
use libc::CLD_TRAPPED;
use signal::TrapInfo;
use std::sync::atomic::Ordering;
use sysresult::{Restart, SysErr};
use tracee::{After, MESSAGE_ENTRY, MESSAGE_EXIT, NOTIFY, O_SYSGOOD, STEP, SYSCALL, SYSEMU, TRAP};

/// si_code of the SIGTRAP after a stepped call.
const TRAP_BRKPT: i32 = 1;
impl Current {
    /// `emulated`: at the entry of a call that is not made.
    fn syscall_stop(&mut self, message: u64, emulated: bool) {
        let good = if self.task.trace.option(O_SYSGOOD) { 0x80 } else { 0 };
        let code = libc::SIGTRAP | good;
        let after = match message {
            MESSAGE_ENTRY => After::Enters { code, emulated },
            _ => After::Exits { code },
        };
        let signal = self.ptrace_notify((code, CLD_TRAPPED), Signal::SIGTRAP, message, after);
        self.syscall_stop_over(signal, code);
    }

    /// The stop with this code has ended with this signal.
    pub(crate) fn syscall_stop_over(&self, signal: i32, code: i32) {
        if let Some(sig) = Signal::new(signal)
            && signal != code
        {
            let _ = self.task.send(SigInfo::new(sig, libc::SI_KERNEL));
        }
    }

    /// At the entry of a call of a traced thread. False when the call is not to be made; rax then holds its result.
    pub fn trace_entry(&mut self) -> bool {
        self.ctx.set_rax(Errno::ENOSYS.to_ret());
        if !self.task.trace.has(SYSCALL | SYSEMU) || std::mem::take(&mut self.exit_due) {
            return true;
        }
        let emulated = self.task.trace.has(SYSEMU);
        self.syscall_stop(MESSAGE_ENTRY, emulated);
        self.makes_call(emulated)
    }

    /// Whether the call is made after the stop at its entry.
    pub(crate) fn makes_call(&mut self, emulated: bool) -> bool {
        !emulated && !self.dying() && (self.ctx.regs().orig_rax as i32) >= 0
    }

    /// At the exit of a call of a traced thread.
    pub fn trace_exit(&mut self) {
        if self.exit_code.is_some() || self.passed_futex.is_some() {
            return;
        }
        // One that a standstill has interrupted goes on afterwards: no tracer sees it end, and begin again.
        if self.restart.is_some()
            && self.task.asked_to_stand.load(Ordering::SeqCst)
            && !self.task.has_deliverable()
            && !self.dying()
        {
            self.exit_due = true;
            return;
        }
        self.forget_watched();
        if self.task.trace.has(STEP) && !self.task.trace.has(SYSEMU) {
            self.finish_writes();
            let info = SigInfo::fault(Signal::SIGTRAP, TRAP_BRKPT, self.ctx.regs().rip);
            force(self, info, TrapInfo::default());
        } else if self.task.trace.has(SYSCALL) {
            self.syscall_stop(MESSAGE_EXIT, false);
        }
    }

    /// Something comes between the parts of a call that a standstill has interrupted: the tracer sees its exit now. False when
    /// there is nothing to show.
    pub(crate) fn exit_before(&mut self) -> bool {
        if !self.exit_due {
            return false;
        }
        let stopping = || {
            let s = self.task.group.signals.lock();
            s.stop.is_on() && !s.is_parked(&self.task)
        };
        let traced = self.task.trace.is_traced();
        if traced && !self.task.has_deliverable() && !self.task.trace.has(TRAP | NOTIFY) && !stopping() {
            return false;
        }
        self.exit_due = false;
        if traced {
            self.trace_exit();
        }
        traced
    }

    /// A futex call that the platform makes is over, or was interrupted before it began.
    pub(crate) fn futex_passed(&mut self, interrupted: bool) {
        let Some(rip) = self.passed_futex.take() else { return };
        if interrupted {
            let regs = self.ctx.regs_mut();
            regs.rip = rip;
            regs.orig_rax = libc::SYS_futex as u64;
            self.set_result(Err(SysErr::Restart(Restart::Sys)));
        }
        self.trace_exit();
    }
}

//! Stops of a traced thread at the entry and the exit of a call. See ptrace(2), "Syscall-stops".

use crate::current::Current;
use crate::deliver::force;
use abi::{Errno, SigInfo, Signal};
use libc::CLD_TRAPPED;
use signal::TrapInfo;
use sysresult::{Restart, SysErr};
use tracee::{MESSAGE_ENTRY, MESSAGE_EXIT, O_SYSGOOD, STEP, SYSCALL, SYSEMU};

/// si_code of the SIGTRAP after a stepped call.
const TRAP_BRKPT: i32 = 1;
impl Current {
    fn syscall_stop(&mut self, message: u64) {
        let good = if self.task.trace.option(O_SYSGOOD) { 0x80 } else { 0 };
        let code = libc::SIGTRAP | good;
        let signal = self.ptrace_notify(code, CLD_TRAPPED, Signal::SIGTRAP, message);
        if let Some(sig) = Signal::new(signal)
            && signal != code
        {
            let _ = self.task.send(SigInfo::new(sig, libc::SI_KERNEL));
        }
    }

    /// At the entry of a call of a traced thread. False when the call is not to be made; rax then holds its result.
    pub fn trace_entry(&mut self) -> bool {
        self.ctx.set_rax(Errno::ENOSYS.to_ret());
        if !self.task.trace.has(SYSCALL | SYSEMU) {
            return true;
        }
        let emulated = self.task.trace.has(SYSEMU);
        self.syscall_stop(MESSAGE_ENTRY);
        !emulated && !self.dying() && (self.ctx.regs().orig_rax as i32) >= 0
    }

    /// At the exit of a call of a traced thread.
    pub fn trace_exit(&mut self) {
        if self.exit_code.is_some() || self.passed_futex.is_some() {
            return;
        }
        self.forget_watched();
        if self.task.trace.has(STEP) && !self.task.trace.has(SYSEMU) {
            self.finish_writes();
            let info = SigInfo::fault(Signal::SIGTRAP, TRAP_BRKPT, self.ctx.regs().rip);
            force(self, info, TrapInfo::default());
        } else if self.task.trace.has(SYSCALL) {
            self.syscall_stop(MESSAGE_EXIT);
        }
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

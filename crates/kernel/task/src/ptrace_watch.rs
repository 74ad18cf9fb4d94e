//! Debug registers of a traced thread: reading and setting them, and looking at what they watch. See `tracee::DebugRegs`.

use crate::current::Current;
use crate::deliver::force;
use crate::task::Task;
use abi::{Result, SigInfo, Signal};
use signal::TrapInfo;

/// si_code of a hardware breakpoint.
const TRAP_HWBKPT: i32 = 4;
/// si_code of a step.
const TRAP_TRACE: i32 = 2;

impl Current {
    /// PTRACE_PEEKUSER of a debug register, for a tracer.
    pub fn peek_debug(&self, task: &Task, n: u64) -> u64 {
        task.trace.state.lock().debug.get(n)
    }

    /// PTRACE_POKEUSER of a debug register, for a tracer. EINVAL for what no processor takes, ENOSPC for a watchpoint for reads.
    pub fn poke_debug(&self, task: &Task, n: u64, value: u64) -> Result<()> {
        let max = self.kernel().platform.limits().max;
        let mm = task.mm();
        let mut state = task.trace.state.lock();
        state.debug.set(n, value, max)?;
        let _ = state.debug.look(0, |addr, len| read(&mm, addr, len));
        task.trace.set(tracee::WATCHED, state.debug.active());
        Ok(())
    }

    fn look_at_watched(&mut self, rip: u64) -> u64 {
        let mm = &self.mm;
        let mut state = self.task.trace.state.lock();
        let met = state.debug.look(rip, |addr, len| read(mm, addr, len));
        state.debug.note(met);
        met
    }

    /// After a system call: what the kernel has written does not count.
    pub(crate) fn forget_watched(&mut self) {
        if self.task.trace.has(tracee::WATCHED) {
            self.finish_writes();
            let mm = &self.mm;
            let mut state = self.task.trace.state.lock();
            let _ = state.debug.look(0, |addr, len| read(mm, addr, len));
        }
    }

    /// A fault of a thread that has its trap flag set by the kernel. True when that is dealt with: the step was for the
    /// debug registers, whether they have met something or not.
    pub(crate) fn stepped_for_watch(&mut self, signo: i32, code: i32) -> bool {
        if signo != libc::SIGTRAP || code != TRAP_TRACE || !self.task.trace.has(tracee::WATCHED) {
            return false;
        }
        let rip = self.ctx.regs().rip;
        if self.look_at_watched(rip) != 0 {
            force(self, SigInfo::fault(Signal::SIGTRAP, TRAP_HWBKPT, rip), TrapInfo::default());
            return true;
        }
        !self.task.trace.has(tracee::STEP)
    }
}

fn read(mm: &mm::Mm, addr: u64, len: usize) -> u64 {
    let mut bytes = [0; 8];
    mm.space.read(addr, bytes.get_mut(..len).unwrap_or_default());
    u64::from_le_bytes(bytes)
}

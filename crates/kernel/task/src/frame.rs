//! Signal frames on the guest's stack, and rt_sigreturn(2). Their layout is `signal::frame`.

use crate::current::Current;
use abi::{Errno, Result, SigInfo, SigSet};
use platform::Moved;
use signal::frame::{Frame, Place};
use signal::{AltStack, SS_AUTODISARM, SigAction, TrapInfo};
use zerocopy::IntoBytes;

impl Current {
    /// Pushes a frame and points the registers at the handler. EFAULT when the stack cannot take it.
    pub(crate) fn push_frame(
        &mut self,
        act: &SigAction,
        info: &SigInfo,
        mask: SigSet,
        trap: TrapInfo,
    ) -> Result<()> {
        let regs = *self.ctx.regs();
        let size = self.kernel().platform.limits().xstate_size as u64;
        let Place { top, at, xstate } = Place::find(regs.rsp, &self.altstack, act, size)?;
        let fpstate = if size == 0 { 0 } else { xstate };
        let frame = Frame::new(act, &regs, &self.altstack, mask, info, trap, fpstate);
        self.check_range(at, xstate.wrapping_sub(at).wrapping_add(size))?;
        // What could only fail because of another thread, at this moment, may fail with the resume.
        let later = self.mm.is_memory(at, xstate.wrapping_sub(at).wrapping_add(size), libc::PROT_WRITE);
        let stored = match size {
            0 => Moved::Not,
            _ => self.ctx.store_frame(at, frame.as_bytes(), xstate, later)?,
        };
        if stored == Moved::Not {
            let mut bytes = frame.as_bytes().to_vec();
            bytes.resize((xstate - at) as usize, 0);
            bytes.extend_from_slice(&self.ctx.xstate()?);
            self.write_now(at, &bytes)?;
            self.ctx.reset_xstate();
        }
        if self.altstack.flags & SS_AUTODISARM != 0
            && top == self.altstack.sp.wrapping_add(self.altstack.size)
        {
            self.altstack = AltStack::default();
        }
        let regs = self.ctx.regs_mut();
        frame.enter(regs, act, at);
        if stored != Moved::Not {
            // As a system call leaves them, which the thread is in: the platform returns faster then.
            (regs.rcx, regs.r11) = (regs.rip, regs.eflags);
        }
        Ok(())
    }

    /// rt_sigreturn(2): everything comes from the guest's stack. An unreadable frame is a SIGSEGV.
    pub fn sigreturn(&mut self) -> Result<()> {
        let at = self.ctx.regs().rsp.wrapping_sub(8);
        let frame: Frame = self.read_value(at)?;
        let fpstate = frame.fpstate();
        let size = self.kernel().platform.limits().xstate_size;
        let later = fpstate != 0 && self.mm.is_memory(fpstate, size as u64, libc::PROT_READ);
        let fetched = match fpstate {
            0 => Moved::Not,
            _ => self.ctx.fetch_xstate(fpstate, later)?,
        };
        if fpstate == 0 {
            self.ctx.reset_xstate();
        } else if fetched == Moved::Not {
            let mut x = vec![0; size];
            let n = self.read_some(fpstate, &mut x)?;
            x.truncate(n);
            self.ctx.set_xstate(&x).map_err(|_| Errno::EFAULT)?;
        }
        self.task.set_blocked(frame.mask());
        let old = *self.ctx.regs();
        self.altstack = frame.altstack(self.altstack, old.rsp);
        *self.ctx.regs_mut() = frame.regs(&old);
        self.restart = None;
        Ok(())
    }
}

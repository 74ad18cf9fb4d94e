//! Signal frames of x86-64 and rt_sigreturn(2). See sigreturn(2), signal(7).
//!
//! Layout from low to high addresses: return address, ucontext, siginfo, then
//! (64-byte aligned) the extended state. A program may read and change all of it.

use crate::current::{AltStack, Current};
use crate::signal::SigAction;
use abi::{Errno, Result, SigInfo, SigSet};
use platform::Regs;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const UC_FP_XSTATE: u64 = 1;
const UC_SIGCONTEXT_SS: u64 = 2;
const UC_STRICT_RESTORE_SS: u64 = 4;
/// SS_AUTODISARM: the alternate stack is off while a handler runs on it.
pub const SS_AUTODISARM: i32 = 1 << 31;
const REDZONE: u64 = 128;
const USER_CS: u16 = 0x33;
const USER_SS: u16 = 0x2b;
/// eflags bits that a program may set: CF PF AF ZF SF TF DF OF AC ID and RF.
const EFLAGS_USER: u64 = 0x0025_0dd5;
const EFLAGS_FIXED: u64 = 0x202;
const EFLAGS_TF_DF_RF: u64 = 0x1_0500;

/// `stack_t`.
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StackT {
    /// ss_sp.
    pub sp: u64,
    /// ss_flags.
    pub flags: i32,
    /// Padding.
    pub pad: i32,
    /// ss_size.
    pub size: u64,
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SigContext {
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    eflags: u64,
    cs: u16,
    gs: u16,
    fs: u16,
    ss: u16,
    err: u64,
    trapno: u64,
    oldmask: u64,
    cr2: u64,
    fpstate: u64,
    reserved: [u64; 8],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Frame {
    pretcode: u64,
    uc_flags: u64,
    uc_link: u64,
    uc_stack: StackT,
    mc: SigContext,
    uc_sigmask: SigSet,
    info: SigInfo,
}

/// Fault details that the frame shows.
#[derive(Clone, Copy, Default, Debug)]
pub struct TrapInfo {
    /// Trap number.
    pub trapno: u64,
    /// Error code.
    pub err: u64,
    /// Faulting address.
    pub cr2: u64,
}

impl AltStack {
    /// True when `sp` is on this stack.
    pub fn holds(&self, sp: u64) -> bool {
        self.flags & SS_AUTODISARM == 0 && self.size != 0 && sp > self.sp && sp - self.sp <= self.size
    }

    /// As sigaltstack(2) reports it to code running at `sp`.
    pub fn report(&self, sp: u64) -> StackT {
        let state = if self.size == 0 {
            libc::SS_DISABLE
        } else if self.holds(sp) {
            libc::SS_ONSTACK
        } else {
            0
        };
        StackT { sp: self.sp, flags: state | self.flags & SS_AUTODISARM, pad: 0, size: self.size }
    }
}

impl Current {
    /// Pushes a frame and points the registers at the handler. EFAULT when the stack cannot take it.
    pub(crate) fn push_frame(
        &mut self,
        act: &SigAction,
        info: &SigInfo,
        mask: SigSet,
        trap: TrapInfo,
    ) -> Result<()> {
        let r = *self.ctx.regs();
        let size = self.kernel().platform.limits().xstate_size as u64;
        let mut sp = r.rsp.wrapping_sub(REDZONE);
        let on_alt = self.altstack.holds(r.rsp);
        if act.flags & libc::SA_ONSTACK as u64 != 0 && self.altstack.size != 0 && !on_alt {
            sp = self.altstack.sp.wrapping_add(self.altstack.size);
        }
        let fp = sp.wrapping_sub(size) & !63;
        let at = (fp.wrapping_sub(size_of::<Frame>() as u64) & !15).wrapping_sub(8);
        // A frame that leaves an alternate stack it started on is an overflow.
        if on_alt && !self.altstack.holds(at) {
            return Err(Errno::EFAULT);
        }
        let fpstate = if size == 0 { 0 } else { fp };
        let frame = Frame {
            pretcode: act.restorer,
            uc_flags: UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS | if fpstate != 0 { UC_FP_XSTATE } else { 0 },
            uc_link: 0,
            uc_stack: self.altstack.report(r.rsp),
            mc: to_sigcontext(&r, mask, trap, fpstate),
            uc_sigmask: mask,
            info: *info,
        };
        self.check_range(at, fp.wrapping_sub(at).wrapping_add(size))?;
        let direct = size != 0 && self.ctx.store_frame(at, frame.as_bytes(), fp)?;
        if !direct {
            let mut bytes = frame.as_bytes().to_vec();
            bytes.resize((fp - at) as usize, 0);
            bytes.extend_from_slice(&self.ctx.xstate()?);
            self.write_now(at, &bytes)?;
            self.ctx.reset_xstate();
        }
        if self.altstack.flags & SS_AUTODISARM != 0 && sp == self.altstack.sp.wrapping_add(self.altstack.size)
        {
            self.altstack = AltStack::default();
        }
        let regs = self.ctx.regs_mut();
        regs.rsp = at;
        regs.rip = act.handler;
        regs.rdi = info.signo as u64;
        regs.rsi = at + std::mem::offset_of!(Frame, info) as u64;
        regs.rdx = at + std::mem::offset_of!(Frame, uc_flags) as u64;
        regs.rax = 0;
        regs.eflags = regs.eflags & !EFLAGS_TF_DF_RF | EFLAGS_FIXED;
        if direct {
            // As a system call leaves them, which the thread is in: the platform returns faster then.
            (regs.rcx, regs.r11) = (regs.rip, regs.eflags);
        }
        Ok(())
    }

    /// rt_sigreturn(2): everything comes from the guest's stack. An unreadable frame is a SIGSEGV.
    pub fn sigreturn(&mut self) -> Result<()> {
        let at = self.ctx.regs().rsp.wrapping_sub(8);
        let f: Frame = self.read_value(at)?;
        let mc = f.mc;
        if mc.fpstate != 0 && !self.ctx.fetch_xstate(mc.fpstate)? {
            let mut x = vec![0; self.kernel().platform.limits().xstate_size];
            let n = self.read_some(mc.fpstate, &mut x)?;
            x.truncate(n);
            self.ctx.set_xstate(&x).map_err(|_| Errno::EFAULT)?;
        } else if mc.fpstate == 0 {
            self.ctx.reset_xstate();
        }
        self.task.set_blocked(f.uc_sigmask);
        let (sp, size) = (f.uc_stack.sp, f.uc_stack.size);
        let flags = f.uc_stack.flags;
        if !self.altstack.holds(self.ctx.regs().rsp) || flags & SS_AUTODISARM != 0 {
            self.altstack = if flags & libc::SS_DISABLE != 0 {
                AltStack::default()
            } else {
                AltStack { sp, flags: flags & SS_AUTODISARM, size }
            };
        }
        let old = *self.ctx.regs();
        *self.ctx.regs_mut() = Regs {
            r8: mc.r8,
            r9: mc.r9,
            r10: mc.r10,
            r11: mc.r11,
            r12: mc.r12,
            r13: mc.r13,
            r14: mc.r14,
            r15: mc.r15,
            rdi: mc.rdi,
            rsi: mc.rsi,
            rbp: mc.rbp,
            rbx: mc.rbx,
            rdx: mc.rdx,
            rax: mc.rax,
            rcx: mc.rcx,
            rsp: mc.rsp,
            rip: mc.rip,
            eflags: mc.eflags & EFLAGS_USER | EFLAGS_FIXED,
            orig_rax: u64::MAX,
            fs_base: old.fs_base,
            gs_base: old.gs_base,
        };
        self.restart = None;
        Ok(())
    }
}

fn to_sigcontext(r: &Regs, mask: SigSet, trap: TrapInfo, fpstate: u64) -> SigContext {
    SigContext {
        r8: r.r8,
        r9: r.r9,
        r10: r.r10,
        r11: r.r11,
        r12: r.r12,
        r13: r.r13,
        r14: r.r14,
        r15: r.r15,
        rdi: r.rdi,
        rsi: r.rsi,
        rbp: r.rbp,
        rbx: r.rbx,
        rdx: r.rdx,
        rax: r.rax,
        rcx: r.rcx,
        rsp: r.rsp,
        rip: r.rip,
        eflags: r.eflags,
        cs: USER_CS,
        gs: 0,
        fs: 0,
        ss: USER_SS,
        err: trap.err,
        trapno: trap.trapno,
        oldmask: mask.0,
        cr2: trap.cr2,
        fpstate,
        reserved: [0; 8],
    }
}

const _: () = assert!(size_of::<Frame>() == platform::SIGNAL_FRAME);
const _: () = assert!(
    std::mem::offset_of!(Frame, mc) + std::mem::offset_of!(SigContext, fpstate)
        == platform::SIGNAL_FRAME_FPSTATE
);

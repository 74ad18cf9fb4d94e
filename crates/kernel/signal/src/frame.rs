//! Signal frames of x86-64 and rt_sigreturn(2). See sigreturn(2), signal(7).
//!
//! Layout from low to high addresses: return address, ucontext, siginfo, then
//! (64-byte aligned) the extended state. A program may read and change all of it.

use crate::action::SigAction;
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

/// `struct sigcontext`.
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
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

/// `struct rt_sigframe`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Frame {
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

/// Alternate signal stack, sigaltstack(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AltStack {
    /// Lowest address.
    pub sp: u64,
    /// SS_* flags as set.
    pub flags: i32,
    /// Length in bytes; 0 when disabled.
    pub size: u64,
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

/// Where a frame goes on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where the stack that takes it begins, red zone excluded.
    pub top: u64,
    /// The frame, and the stack pointer of the handler.
    pub at: u64,
    /// The extended state.
    pub xstate: u64,
}

impl Place {
    /// The place for a frame with `size` bytes of extended state, for code with the stack pointer `sp`. EFAULT when the
    /// alternate stack that it runs on has no room.
    pub fn find(sp: u64, alt: &AltStack, act: &SigAction, size: u64) -> Result<Place> {
        let on_alt = alt.holds(sp);
        let switch = act.flags & libc::SA_ONSTACK as u64 != 0 && alt.size != 0 && !on_alt;
        let top = if switch { alt.sp.wrapping_add(alt.size) } else { sp.wrapping_sub(REDZONE) };
        let xstate = top.wrapping_sub(size) & !63;
        let at = (xstate.wrapping_sub(size_of::<Frame>() as u64) & !15).wrapping_sub(8);
        // A frame that leaves an alternate stack it started on is an overflow.
        if on_alt && !alt.holds(at) { Err(Errno::EFAULT) } else { Ok(Place { top, at, xstate }) }
    }
}

impl Frame {
    /// The frame for a handler that interrupts code with these registers and this mask. `fpstate` is where the extended
    /// state is, 0 for nowhere.
    pub fn new(
        act: &SigAction,
        regs: &Regs,
        alt: &AltStack,
        mask: SigSet,
        info: &SigInfo,
        trap: TrapInfo,
        fpstate: u64,
    ) -> Frame {
        Frame {
            pretcode: act.restorer,
            uc_flags: UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS | if fpstate != 0 { UC_FP_XSTATE } else { 0 },
            uc_link: 0,
            uc_stack: alt.report(regs.rsp),
            mc: to_sigcontext(regs, mask, trap, fpstate),
            uc_sigmask: mask,
            info: *info,
        }
    }

    /// Has the registers call the handler on the frame at `at`.
    pub fn enter(&self, regs: &mut Regs, act: &SigAction, at: u64) {
        regs.rsp = at;
        regs.rip = act.handler;
        regs.rdi = self.info.signo as u64;
        regs.rsi = at + std::mem::offset_of!(Frame, info) as u64;
        regs.rdx = at + std::mem::offset_of!(Frame, uc_flags) as u64;
        regs.rax = 0;
        regs.eflags = regs.eflags & !EFLAGS_TF_DF_RF | EFLAGS_FIXED;
    }

    /// Where the extended state is, 0 for nowhere.
    pub fn fpstate(&self) -> u64 {
        self.mc.fpstate
    }

    /// The signal mask to go back to.
    pub fn mask(&self) -> SigSet {
        self.uc_sigmask
    }

    /// The alternate stack after the return of a handler that runs at `sp`.
    pub fn altstack(&self, now: AltStack, sp: u64) -> AltStack {
        let StackT { sp: base, flags, size, .. } = self.uc_stack;
        if now.holds(sp) && flags & SS_AUTODISARM == 0 {
            return now;
        }
        match flags & libc::SS_DISABLE {
            0 => AltStack { sp: base, flags: flags & SS_AUTODISARM, size },
            _ => AltStack::default(),
        }
    }

    /// The registers to go back to; the segment bases are those of `old`.
    pub fn regs(&self, old: &Regs) -> Regs {
        let mc = self.mc;
        Regs {
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
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const ON_STACK: SigAction =
        SigAction { handler: 7, flags: libc::SA_ONSTACK as u64, restorer: 8, mask: SigSet::EMPTY };

    #[test]
    fn what_a_frame_keeps_comes_back() {
        let regs = Regs { rip: 1, rsp: 0x8000, rbx: 3, fs_base: 4, eflags: 0x202, ..Regs::default() };
        let info = SigInfo::new(abi::Signal::SIGUSR1, 0);
        let alt = AltStack { sp: 0x1000, flags: 0, size: 0x2000 };
        let frame = Frame::new(&ON_STACK, &regs, &alt, SigSet(5), &info, TrapInfo::default(), 0);
        let back = frame.regs(&regs);
        assert_eq!((back.rip, back.rsp, back.rbx, back.fs_base), (1, 0x8000, 3, 4));
        assert_eq!((frame.mask(), frame.altstack(AltStack::default(), 0)), (SigSet(5), alt));
        let mut called = regs;
        frame.enter(&mut called, &ON_STACK, 0x2000);
        assert_eq!((called.rip, called.rsp, called.rdi), (7, 0x2000, 10));
    }

    #[test]
    fn frames_go_to_the_alternate_stack_and_stay_there() {
        let alt = AltStack { sp: 0x1000, flags: 0, size: 0x2000 };
        let first = Place::find(0x8000, &alt, &ON_STACK, 0).unwrap();
        assert_eq!(first.top, 0x3000);
        assert!(alt.holds(first.at));
        let second = Place::find(first.at, &alt, &ON_STACK, 0).unwrap();
        assert!(second.at < first.at && alt.holds(second.at));
        assert_eq!(Place::find(0x1100, &alt, &ON_STACK, 0), Err(Errno::EFAULT));
        assert_eq!(Place::find(0x8000, &AltStack::default(), &ON_STACK, 0).unwrap().top, 0x8000 - REDZONE);
    }
}

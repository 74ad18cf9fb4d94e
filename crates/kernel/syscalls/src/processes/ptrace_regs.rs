//! Register sets as ptrace(2) and core files show them: `struct user_regs_struct`, the FXSAVE image, the XSAVE image.
//!
//! A tracer may ask for anything: what Linux refuses is refused with its error, and nothing reaches a processor that
//! rt_sigreturn(2) of the program itself could not bring there.

use abi::{Errno, Result};
use platform::Regs;
use std::sync::Arc;
use task::{Current, Task};

/// NT_PRSTATUS.
pub const PRSTATUS: u64 = 1;
/// NT_PRFPREG.
pub const PRFPREG: u64 = 2;
/// NT_X86_XSTATE.
pub const XSTATE: u64 = 0x202;

const WORDS: usize = 27;
/// Of `struct user`.
const USER_SIZE: u64 = 928;
const DEBUGREG: u64 = 848;
/// FXSAVE image.
const FX_SIZE: usize = 512;
/// Where Linux puts XCR0 for tracers, and what is there in a signal frame.
const SW: usize = 464;
/// eflags bits that a tracer may change: those of a program, and the nested task flag.
const EFLAGS: u64 = 0x5_4dd5;
const CS: u64 = 0x33;
const SS: u64 = 0x2b;

/// The registers in the order of `struct user_regs_struct`.
pub fn to_words(r: &Regs) -> [u64; WORDS] {
    [
        r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx, r.rsi,
        r.rdi, r.orig_rax, r.rip, CS, r.eflags, r.rsp, SS, r.fs_base, r.gs_base, 0, 0, 0, 0,
    ]
}

/// Changes one of them. EIO for what cannot be: other segments than those of 64-bit programs, bases outside user space.
fn put(r: &mut Regs, i: usize, v: u64, max: u64) -> Result<()> {
    let to = match i {
        0 => &mut r.r15,
        1 => &mut r.r14,
        2 => &mut r.r13,
        3 => &mut r.r12,
        4 => &mut r.rbp,
        5 => &mut r.rbx,
        6 => &mut r.r11,
        7 => &mut r.r10,
        8 => &mut r.r9,
        9 => &mut r.r8,
        10 => &mut r.rax,
        11 => &mut r.rcx,
        12 => &mut r.rdx,
        13 => &mut r.rsi,
        14 => &mut r.rdi,
        15 => &mut r.orig_rax,
        16 => &mut r.rip,
        18 => {
            r.eflags = r.eflags & !EFLAGS | v & EFLAGS;
            return Ok(());
        }
        19 => &mut r.rsp,
        21 | 22 if v >= max => return Err(Errno::EIO),
        21 => &mut r.fs_base,
        22 => &mut r.gs_base,
        // The segments of a 64-bit program are what they are.
        17 if v == CS => return Ok(()),
        20 if v == SS => return Ok(()),
        23..=26 if v == 0 => return Ok(()),
        _ => return Err(Errno::EIO),
    };
    *to = v;
    Ok(())
}

/// PTRACE_PEEKUSER.
pub fn peek_user(r: &Regs, addr: u64) -> Result<u64> {
    if !addr.is_multiple_of(8) || addr >= USER_SIZE {
        return Err(Errno::EIO);
    }
    Ok(to_words(r).get((addr / 8) as usize).copied().unwrap_or(0))
}

/// Which debug register is at this offset of `struct user`.
pub fn debug_register(addr: u64) -> Option<u64> {
    let offset = addr.checked_sub(DEBUGREG).filter(|o| o.is_multiple_of(8))?;
    Some(offset / 8).filter(|n| *n < 8)
}

/// PTRACE_POKEUSER; gives the changed registers.
pub fn poke_user(r: &Regs, addr: u64, v: u64, max: u64) -> Result<Regs> {
    let index = (addr / 8) as usize;
    if !addr.is_multiple_of(8) || addr >= USER_SIZE {
        return Err(Errno::EIO);
    }
    let mut new = *r;
    if index < WORDS {
        put(&mut new, index, v, max)?;
        return Ok(new);
    }
    Err(Errno::EIO)
}

/// Bytes of a register set; EINVAL for one there is not.
pub fn size(c: &Current, set: u64) -> Result<usize> {
    match set {
        PRSTATUS => Ok(WORDS * 8),
        PRFPREG => Ok(FX_SIZE),
        XSTATE => Ok(c.kernel().platform.limits().xstate_size),
        _ => Err(Errno::EINVAL),
    }
}

/// The extended state as tracers see it, from that of a signal frame: in the words that Linux defines is XCR0.
pub fn xstate_for_tracer(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(words) = bytes.get_mut(SW..FX_SIZE) {
        words.copy_within(8..16, 0);
        words[8..].fill(0);
    }
    bytes
}

/// Reads a register set of a stopped tracee.
pub fn get(c: &Current, t: &Arc<Task>, set: u64) -> Result<Vec<u8>> {
    if set == PRSTATUS {
        let words = c.with_stopped(t, |s| to_words(&s.regs))?;
        return Ok(words.iter().flat_map(|w| w.to_le_bytes()).collect());
    }
    let size = size(c, set)?;
    let mut bytes = xstate_for_tracer(c.in_tracee(t, |c| c.ctx.xstate())??);
    bytes.resize(size, 0);
    Ok(bytes)
}

/// Changes a register set of a stopped tracee.
pub fn set(c: &Current, t: &Arc<Task>, set: u64, bytes: &[u8]) -> Result<()> {
    if set == PRSTATUS {
        let max = c.kernel().platform.limits().max;
        return c.with_stopped(t, |s| {
            let mut new = s.regs;
            // As Linux does, registers before the refused one have changed.
            let outcome = bytes.chunks_exact(8).enumerate().try_for_each(|(i, b)| {
                put(&mut new, i, b.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)), max)
            });
            s.set_regs(new);
            outcome
        })?;
    }
    let whole = size(c, set)?;
    if bytes.len() != whole {
        return Err(if set == XSTATE { Errno::EFAULT } else { Errno::EINVAL });
    }
    let bytes = bytes.to_vec();
    c.in_tracee(t, move |c| {
        if set == XSTATE {
            return c.ctx.set_xstate(&bytes);
        }
        // The legacy part only: the others stay as they are.
        let mut all = c.ctx.xstate()?;
        all.get_mut(..SW).ok_or(Errno::EIO)?.copy_from_slice(&bytes[..SW]);
        if let Some(features) = all.get_mut(FX_SIZE) {
            *features |= 3;
        }
        c.ctx.set_xstate(&all)
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 0x7fff_0000_0000;

    #[test]
    fn what_no_processor_takes_is_refused() {
        let r = Regs { eflags: 0x202, rip: 5, ..Regs::default() };
        assert_eq!(poke_user(&r, 16 * 8, u64::MAX, MAX).map(|r| r.rip), Ok(u64::MAX));
        assert_eq!(poke_user(&r, 18 * 8, u64::MAX, MAX).map(|r| r.eflags), Ok(0x202 | EFLAGS));
        for (i, v) in [(17, 0), (17, 0x23), (20, 0x10), (21, MAX), (22, u64::MAX), (23, 3), (27, 0)] {
            assert_eq!(poke_user(&r, i * 8, v, MAX), Err(Errno::EIO), "{i}");
        }
        for addr in [1, 928, u64::MAX, u64::MAX - 7] {
            assert_eq!(poke_user(&r, addr, 0, MAX), Err(Errno::EIO));
            assert_eq!(peek_user(&r, addr), Err(Errno::EIO));
        }
        assert_eq!((debug_register(848), debug_register(904)), (Some(0), Some(7)));
        assert_eq!((debug_register(849), debug_register(912), debug_register(0)), (None, None, None));
    }

    #[test]
    fn words_and_back() {
        let mut r = Regs { eflags: 0x202, ..Regs::default() };
        for i in (0..17).chain([19, 21, 22]) {
            put(&mut r, i, 100 + i as u64, MAX).unwrap();
            assert_eq!(to_words(&r)[i], 100 + i as u64);
        }
    }
}

//! The checks before a program is accepted, as Linux makes them.

use crate::code::*;
use crate::{MAX_INSTRUCTIONS, MEMORY, SockFilter};
use abi::{Errno, Result};

/// EINVAL for a program that may not run.
pub(crate) fn check(code: &[SockFilter], allowed: impl Fn(&SockFilter) -> bool) -> Result<()> {
    if code.is_empty() || code.len() > MAX_INSTRUCTIONS {
        return Err(Errno::EINVAL);
    }
    let good = |(pc, i): (usize, &SockFilter)| is_known(i, (code.len() - pc - 1) as u32) && allowed(i);
    let ends = code.last().is_some_and(|last| matches!(last.code, RET_K | RET_A));
    if !ends || !code.iter().enumerate().all(good) {
        return Err(Errno::EINVAL);
    }
    memory(code)
}

/// Whether an instruction with `left` others behind it is one of classic BPF and stays inside of the program and its memory.
fn is_known(i: &SockFilter, left: u32) -> bool {
    match i.code {
        LD_W_ABS | LD_H_ABS | LD_B_ABS | LD_W_IND | LD_H_IND | LD_B_IND | LDX_B_MSH => true,
        LD_W_LEN | LDX_W_LEN | LD_IMM | LDX_IMM | RET_K | RET_A | TAX | TXA => true,
        LD_MEM | LDX_MEM | ST | STX => (i.k as usize) < MEMORY,
        JA => i.k < left,
        c if c & CLASS == ALU && c & !0xff == 0 => {
            let by_x = c & X != 0;
            match c & OPERATION {
                NEG => !by_x,
                DIV | MOD => by_x || i.k != 0,
                LSH | RSH => by_x || i.k < 32,
                ADD | SUB | MUL | OR | AND | XOR => true,
                _ => false,
            }
        }
        c if c & CLASS == JMP && c & !0xff == 0 => {
            let inside = u32::from(i.jt) < left && u32::from(i.jf) < left;
            matches!(c & OPERATION, JEQ | JGT | JGE | JSET) && inside
        }
        _ => false,
    }
}

/// Every load of scratch memory must come after a store to the same word, on every way.
fn memory(code: &[SockFilter]) -> Result<()> {
    // Words that are set for certain when an instruction is reached by a jump.
    let mut known = vec![u16::MAX; code.len()];
    let mut valid = 0u16;
    let join = |known: &mut Vec<u16>, at: usize, valid: u16| {
        if let Some(k) = known.get_mut(at) {
            *k &= valid;
        }
    };
    for (pc, i) in code.iter().enumerate() {
        valid &= known.get(pc).copied().unwrap_or(0);
        match i.code {
            ST | STX => valid |= 1 << i.k,
            LD_MEM | LDX_MEM if valid & 1 << i.k == 0 => return Err(Errno::EINVAL),
            JA => {
                join(&mut known, pc + 1 + i.k as usize, valid);
                valid = u16::MAX;
            }
            c if c & CLASS == JMP => {
                join(&mut known, pc + 1 + usize::from(i.jt), valid);
                join(&mut known, pc + 1 + usize::from(i.jf), valid);
                valid = u16::MAX;
            }
            _ => {}
        }
    }
    Ok(())
}

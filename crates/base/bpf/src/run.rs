//! The interpreter.

use crate::code::*;
use crate::{Input, MEMORY, Outside, SockFilter};

/// See [`crate::Program::run`]. A register is `None` while its value is not known.
pub(crate) fn run(code: &[SockFilter], input: &impl Input) -> Option<u32> {
    let (mut a, mut x) = (Some(0u32), Some(0u32));
    let mut memory = [Some(0u32); MEMORY];
    let mut pc = 0;
    while let Some(i) = code.get(pc) {
        pc += 1;
        let slot = i.k as usize % MEMORY;
        let operand = if i.code & X != 0 { x } else { Some(i.k) };
        match i.code {
            LD_W_ABS | LD_H_ABS | LD_B_ABS => match input.load(i.k, size(i.code)) {
                Ok(value) => a = value,
                Err(Outside) => return Some(0),
            },
            LD_W_IND | LD_H_IND | LD_B_IND => {
                match i.k.checked_add(x?).map(|at| input.load(at, size(i.code))) {
                    Some(Ok(value)) => a = value,
                    Some(Err(Outside)) | None => return Some(0),
                }
            }
            LDX_B_MSH => match input.load(i.k, 1) {
                Ok(value) => x = value.map(|byte| (byte & 0xf) * 4),
                Err(Outside) => return Some(0),
            },
            LD_W_LEN => a = Some(input.length()),
            LDX_W_LEN => x = Some(input.length()),
            LD_IMM => a = Some(i.k),
            LDX_IMM => x = Some(i.k),
            LD_MEM => a = memory[slot],
            LDX_MEM => x = memory[slot],
            ST => memory[slot] = a,
            STX => memory[slot] = x,
            TAX => x = a,
            TXA => a = x,
            RET_K => return Some(i.k),
            RET_A => return a,
            JA => pc += i.k as usize,
            c if c & CLASS == ALU => {
                a = match (c & OPERATION, a, operand) {
                    (NEG, Some(v), _) => Some(v.wrapping_neg()),
                    // Division by zero ends the program with 0.
                    (DIV | MOD, _, Some(0)) => return Some(0),
                    (DIV | MOD, _, None) => return None,
                    (operation, Some(v), Some(w)) => Some(calculate(operation, v, w)),
                    _ => None,
                }
            }
            c => {
                let (v, w) = (a?, operand?);
                let holds = match c & OPERATION {
                    JEQ => v == w,
                    JGT => v > w,
                    JGE => v >= w,
                    _ => v & w != 0,
                };
                pc += usize::from(if holds { i.jt } else { i.jf });
            }
        }
    }
    // Checked programs end with a return.
    Some(0)
}

/// How many bytes a load takes.
fn size(code: u16) -> usize {
    match code & 0x18 {
        0x00 => 4,
        0x08 => 2,
        _ => 1,
    }
}

fn calculate(operation: u16, v: u32, w: u32) -> u32 {
    match operation {
        ADD => v.wrapping_add(w),
        SUB => v.wrapping_sub(w),
        MUL => v.wrapping_mul(w),
        DIV => v.checked_div(w).unwrap_or(0),
        MOD => v.checked_rem(w).unwrap_or(0),
        OR => v | w,
        AND => v & w,
        XOR => v ^ w,
        LSH => v.wrapping_shl(w),
        _ => v.wrapping_shr(w),
    }
}

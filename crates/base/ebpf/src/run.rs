//! The interpreter.

use crate::code::*;
use crate::{Instruction, REGISTERS, Use};
use zerocopy::IntoBytes;

/// See [`crate::Program::run`]. The registers that hold the context or the frame pointer have no value: the verifier sees to
/// it that only loads use them. What the verifier does not let through returns 0, which refuses.
pub(crate) fn run(code: &[Instruction], of: &Use) -> u64 {
    let mut registers = [0u64; REGISTERS];
    let mut pc = 0;
    while let Some(i) = code.get(pc) {
        let (Some(&dst), Some(&src)) = (registers.get(i.dst()), registers.get(i.src())) else { return 0 };
        let operand = if i.by_register() { src } else { i.immediate as i64 as u64 };
        let mut next = pc + 1;
        let result = match i.class() {
            ALU | ALU64 => match calculate(i.operation(), dst, operand, i.is_wide()) {
                Some(value) if i.offset == 0 => Some(value),
                _ => return 0,
            },
            LDX => match load(of, i) {
                Some(value) => Some(value),
                None => return 0,
            },
            LD => {
                let high = code.get(next).map_or(0, |second| second.immediate);
                next += 1;
                Some(u64::from(i.immediate as u32) | u64::from(high as u32) << 32)
            }
            JMP | JMP32 => {
                match i.operation() {
                    EXIT => return registers[0],
                    operation => {
                        let Some(jumps) = holds(operation, dst, operand, i.is_wide()) else { return 0 };
                        if jumps {
                            // Forward only, so it ends.
                            next = i.target(pc).unwrap_or(0).max(next);
                        }
                    }
                }
                None
            }
            _ => return 0,
        };
        if let (Some(value), Some(register)) = (result, registers.get_mut(i.dst())) {
            *register = value;
        }
        pc = next;
    }
    0
}

/// A load from the context; `None` outside of it.
fn load(of: &Use, i: &Instruction) -> Option<u64> {
    let at = usize::try_from(i.offset).ok()?;
    let bytes = of.as_bytes().get(at..)?.get(..size(i.code))?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// How many bytes a load or a store takes.
pub(crate) fn size(code: u8) -> usize {
    match code & SIZE {
        0x00 => 4,
        0x08 => 2,
        0x10 => 1,
        _ => 8,
    }
}

/// An operation of the class ALU64 (`wide`) or ALU; `None` for one that is not known.
pub(crate) fn calculate(operation: u8, a: u64, b: u64, wide: bool) -> Option<u64> {
    if wide { of_64(operation, a, b) } else { of_32(operation, a as u32, b as u32).map(u64::from) }
}

fn of_64(operation: u8, a: u64, b: u64) -> Option<u64> {
    Some(match operation {
        ADD => a.wrapping_add(b),
        SUB => a.wrapping_sub(b),
        MUL => a.wrapping_mul(b),
        DIV => a.checked_div(b).unwrap_or(0),
        MOD => a.checked_rem(b).unwrap_or(a),
        OR => a | b,
        AND => a & b,
        XOR => a ^ b,
        LSH => a.wrapping_shl(b as u32),
        RSH => a.wrapping_shr(b as u32),
        ARSH => (a as i64).wrapping_shr(b as u32) as u64,
        NEG => a.wrapping_neg(),
        MOV => b,
        _ => return None,
    })
}

fn of_32(operation: u8, a: u32, b: u32) -> Option<u32> {
    Some(match operation {
        ADD => a.wrapping_add(b),
        SUB => a.wrapping_sub(b),
        MUL => a.wrapping_mul(b),
        DIV => a.checked_div(b).unwrap_or(0),
        MOD => a.checked_rem(b).unwrap_or(a),
        OR => a | b,
        AND => a & b,
        XOR => a ^ b,
        LSH => a.wrapping_shl(b),
        RSH => a.wrapping_shr(b),
        ARSH => (a as i32).wrapping_shr(b) as u32,
        NEG => a.wrapping_neg(),
        MOV => b,
        _ => return None,
    })
}

/// Whether a comparison holds; `None` for one that is not known.
fn holds(operation: u8, a: u64, b: u64, wide: bool) -> Option<bool> {
    let (a, b) = if wide { (a, b) } else { (u64::from(a as u32), u64::from(b as u32)) };
    let (signed_a, signed_b) =
        if wide { (a as i64, b as i64) } else { (i64::from(a as i32), i64::from(b as i32)) };
    Some(match operation {
        JA => true,
        JEQ => a == b,
        JNE => a != b,
        JGT => a > b,
        JGE => a >= b,
        JLT => a < b,
        JLE => a <= b,
        JSET => a & b != 0,
        JSGT => signed_a > signed_b,
        JSGE => signed_a >= signed_b,
        JSLT => signed_a < signed_b,
        JSLE => signed_a <= signed_b,
        _ => return None,
    })
}

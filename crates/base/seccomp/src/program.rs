//! One program: the checks Linux makes before it accepts it, and its execution.

use crate::{ACTION_FULL, ARCH, Data, MAX_INSTRUCTIONS, RET_ALLOW, SockFilter};
use abi::{Errno, Result};

/// Words of scratch memory (BPF_MEMWORDS).
const MEM: usize = 16;

// Instruction classes and modes of linux/bpf_common.h.
const LD_W_ABS: u16 = 0x20;
const LD_W_LEN: u16 = 0x80;
const LDX_W_LEN: u16 = 0x81;
const LD_IMM: u16 = 0x00;
const LDX_IMM: u16 = 0x01;
const LD_MEM: u16 = 0x60;
const LDX_MEM: u16 = 0x61;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const RET_K: u16 = 0x06;
const RET_A: u16 = 0x16;
const TAX: u16 = 0x07;
const TXA: u16 = 0x87;
const JA: u16 = 0x05;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
/// Operand is the index register.
const X: u16 = 0x08;
const ADD: u16 = 0x00;
const SUB: u16 = 0x10;
const MUL: u16 = 0x20;
const DIV: u16 = 0x30;
const OR: u16 = 0x40;
const AND: u16 = 0x50;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const NEG: u16 = 0x80;
const XOR: u16 = 0xa0;
const JEQ: u16 = 0x10;
const JGT: u16 = 0x20;
const JGE: u16 = 0x30;
const JSET: u16 = 0x40;

/// A checked program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Box<[SockFilter]>);

impl Program {
    /// Checks a program. EINVAL when Linux would refuse it.
    pub fn new(code: &[SockFilter]) -> Result<Program> {
        if code.is_empty() || code.len() > MAX_INSTRUCTIONS {
            return Err(Errno::EINVAL);
        }
        for (pc, i) in code.iter().enumerate() {
            check(i, (code.len() - pc - 1) as u32)?;
        }
        let last = code.last().map_or(0, |i| i.code);
        if last != RET_K && last != RET_A {
            return Err(Errno::EINVAL);
        }
        check_memory(code)?;
        Ok(Program(code.into()))
    }

    /// Number of instructions.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Number of instructions after Linux's translation to its own machine, which is what its limit counts.
    pub fn weight(&self) -> usize {
        const PROLOGUE: usize = 3;
        let one = |i: &SockFilter| match i.code {
            RET_K => 2,
            JA => 1,
            c if c == ALU | DIV | X => 5,
            c if c & 7 == JMP => {
                let far = usize::from(i.code & X == 0 && (i.k as i32) < 0);
                let single = i.jf == 0 || i.jt == 0 && i.code & 0xf0 != JSET;
                far + if single { 1 } else { 2 }
            }
            _ => 1,
        };
        PROLOGUE + self.0.iter().map(one).sum::<usize>()
    }

    /// What the program returns for a call.
    pub fn run(&self, data: &Data) -> u32 {
        // Every value is known, so the answer is.
        self.execute(|offset| Some(data.word(offset))).unwrap_or(0)
    }

    /// True when the program allows this call whatever its arguments and its place are. May say no where it
    /// does so all the same.
    pub fn always_allows(&self, nr: i32) -> bool {
        let r = self.execute(|offset| match offset {
            0 => Some(nr as u32),
            4 => Some(ARCH),
            _ => None,
        });
        r.is_some_and(|v| v & ACTION_FULL == RET_ALLOW)
    }

    /// Runs with the words that `load` knows; `None` when the way or the result depends on one it does not know.
    fn execute(&self, load: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let (mut a, mut x) = (Some(0u32), Some(0u32));
        let mut mem = [Some(0u32); MEM];
        let mut pc = 0;
        while let Some(i) = self.0.get(pc) {
            pc += 1;
            let slot = i.k as usize % MEM;
            let operand = if i.code & X != 0 { x } else { Some(i.k) };
            match i.code {
                LD_W_ABS => a = load(i.k),
                LD_W_LEN => a = Some(Data::SIZE),
                LDX_W_LEN => x = Some(Data::SIZE),
                LD_IMM => a = Some(i.k),
                LDX_IMM => x = Some(i.k),
                LD_MEM => a = mem[slot],
                LDX_MEM => x = mem[slot],
                ST => mem[slot] = a,
                STX => mem[slot] = x,
                TAX => x = a,
                TXA => a = x,
                RET_K => return Some(i.k),
                RET_A => return a,
                JA => pc += i.k as usize,
                c if c & 7 == ALU => {
                    a = match (c & 0xf0, a, operand) {
                        (NEG, Some(v), _) => Some(v.wrapping_neg()),
                        // Division by zero ends the program with 0.
                        (DIV, _, Some(0)) => return Some(0),
                        (DIV, _, None) => return None,
                        (op, Some(v), Some(w)) => Some(alu(op, v, w)),
                        _ => None,
                    }
                }
                c => {
                    let (v, w) = (a?, operand?);
                    let holds = match c & 0xf0 {
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
}

fn alu(op: u16, v: u32, w: u32) -> u32 {
    match op {
        ADD => v.wrapping_add(w),
        SUB => v.wrapping_sub(w),
        MUL => v.wrapping_mul(w),
        DIV => v.checked_div(w).unwrap_or(0),
        OR => v | w,
        AND => v & w,
        XOR => v ^ w,
        LSH => v.wrapping_shl(w),
        _ => v.wrapping_shr(w),
    }
}

/// Checks one instruction with `left` others behind it.
fn check(i: &SockFilter, left: u32) -> Result<()> {
    let good = match i.code {
        LD_W_ABS => i.k < Data::SIZE && i.k.is_multiple_of(4),
        LD_W_LEN | LDX_W_LEN | LD_IMM | LDX_IMM | RET_K | RET_A | TAX | TXA => true,
        LD_MEM | LDX_MEM | ST | STX => (i.k as usize) < MEM,
        JA => i.k < left,
        c if c & 7 == ALU && c & !0xff == 0 => {
            let (op, by_x) = (c & 0xf0, c & X != 0);
            match op {
                NEG => !by_x,
                DIV => by_x || i.k != 0,
                LSH | RSH => by_x || i.k < 32,
                ADD | SUB | MUL | OR | AND | XOR => true,
                _ => false,
            }
        }
        c if c & 7 == JMP && c & !0xff == 0 => {
            matches!(c & 0xf0, JEQ | JGT | JGE | JSET) && u32::from(i.jt) < left && u32::from(i.jf) < left
        }
        _ => false,
    };
    if good { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Every load of scratch memory must come after a store to the same word, on every way.
fn check_memory(code: &[SockFilter]) -> Result<()> {
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
            c if c & 7 == JMP => {
                join(&mut known, pc + 1 + usize::from(i.jt), valid);
                join(&mut known, pc + 1 + usize::from(i.jf), valid);
                valid = u16::MAX;
            }
            _ => {}
        }
    }
    Ok(())
}

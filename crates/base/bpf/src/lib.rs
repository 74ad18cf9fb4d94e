//! Classic BPF: the programs of seccomp(2) and of SO_ATTACH_FILTER (socket(7)).
//!
//! [`Program::new`] makes the checks that Linux makes for every program. The kind of the program limits its
//! instructions. [`Program::run`] executes it over an [`Input`]: a system call or a packet. Pure: words in, a number
//! out. Classic BPF has no backward jumps, so both end after at most as many steps as the program has instructions.

#![forbid(unsafe_code)]

mod check;
mod run;
#[cfg(test)]
mod tests;

use abi::Result;
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most instructions of one program (BPF_MAXINSNS).
pub const MAX_INSTRUCTIONS: usize = 4096;
/// Words of scratch memory (BPF_MEMWORDS).
const MEMORY: usize = 16;

/// `struct sock_filter`: one instruction.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(C)]
pub struct SockFilter {
    /// Operation.
    pub code: u16,
    /// Jump distance when true.
    pub jt: u8,
    /// Jump distance when false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// Values of [`SockFilter::code`] with the names of linux/bpf_common.h, and parts of them.
pub mod code {
    /// Loads of a word, a half word and a byte from a fixed place.
    pub const LD_W_ABS: u16 = 0x20;
    /// See [`LD_W_ABS`].
    pub const LD_H_ABS: u16 = 0x28;
    /// See [`LD_W_ABS`].
    pub const LD_B_ABS: u16 = 0x30;
    /// Loads from a place that the index register is added to.
    pub const LD_W_IND: u16 = 0x40;
    /// See [`LD_W_IND`].
    pub const LD_H_IND: u16 = 0x48;
    /// See [`LD_W_IND`].
    pub const LD_B_IND: u16 = 0x50;
    /// The length of an IPv4 header, from its first byte, into the index register.
    pub const LDX_B_MSH: u16 = 0xb1;
    /// The length of the input.
    pub const LD_W_LEN: u16 = 0x80;
    /// The same, into the index register.
    pub const LDX_W_LEN: u16 = 0x81;
    /// A constant.
    pub const LD_IMM: u16 = 0x00;
    /// A constant, into the index register.
    pub const LDX_IMM: u16 = 0x01;
    /// A word of scratch memory.
    pub const LD_MEM: u16 = 0x60;
    /// A word of scratch memory, into the index register.
    pub const LDX_MEM: u16 = 0x61;
    /// Stores the accumulator.
    pub const ST: u16 = 0x02;
    /// Stores the index register.
    pub const STX: u16 = 0x03;
    /// Returns a constant.
    pub const RET_K: u16 = 0x06;
    /// Returns the accumulator.
    pub const RET_A: u16 = 0x16;
    /// Copies the accumulator to the index register.
    pub const TAX: u16 = 0x07;
    /// Copies the index register to the accumulator.
    pub const TXA: u16 = 0x87;
    /// Jumps in any case.
    pub const JA: u16 = 0x05;
    /// The class of calculations.
    pub const ALU: u16 = 0x04;
    /// The class of jumps.
    pub const JMP: u16 = 0x05;
    /// The bits of a class.
    pub const CLASS: u16 = 0x07;
    /// The bits of an operation in its class.
    pub const OPERATION: u16 = 0xf0;
    /// The operand is the index register.
    pub const X: u16 = 0x08;
    /// Addition.
    pub const ADD: u16 = 0x00;
    /// Subtraction.
    pub const SUB: u16 = 0x10;
    /// Multiplication.
    pub const MUL: u16 = 0x20;
    /// Division.
    pub const DIV: u16 = 0x30;
    /// Bitwise or.
    pub const OR: u16 = 0x40;
    /// Bitwise and.
    pub const AND: u16 = 0x50;
    /// Shift to the left.
    pub const LSH: u16 = 0x60;
    /// Shift to the right.
    pub const RSH: u16 = 0x70;
    /// Negation.
    pub const NEG: u16 = 0x80;
    /// Remainder.
    pub const MOD: u16 = 0x90;
    /// Bitwise exclusive or.
    pub const XOR: u16 = 0xa0;
    /// Jumps when equal.
    pub const JEQ: u16 = 0x10;
    /// Jumps when greater.
    pub const JGT: u16 = 0x20;
    /// Jumps when greater or equal.
    pub const JGE: u16 = 0x30;
    /// Jumps when the values have a bit in common.
    pub const JSET: u16 = 0x40;
}

/// What a program reads beyond the end of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside;

/// What a program looks at.
pub trait Input {
    /// The number of `size` (1, 2 or 4) bytes at an offset; `None` when it is not known. A program that reads
    /// outside ends with 0.
    fn load(&self, at: u32, size: usize) -> std::result::Result<Option<u32>, Outside>;

    /// Length in bytes.
    fn length(&self) -> u32;
}

/// A checked program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Box<[SockFilter]>);

impl Program {
    /// Checks a program: EINVAL when Linux would refuse it, or when `allowed` does an instruction of it. The instruction
    /// is one of classic BPF.
    pub fn new(code: &[SockFilter], allowed: impl Fn(&SockFilter) -> bool) -> Result<Program> {
        check::check(code, allowed)?;
        Ok(Program(code.into()))
    }

    /// The instructions.
    pub fn code(&self) -> &[SockFilter] {
        &self.0
    }

    /// What the program returns; `None` when the way or the result depends on a number that is not known.
    pub fn run(&self, input: &impl Input) -> Option<u32> {
        run::run(&self.0, input)
    }
}

//! One program: which instructions it may have beside the checks of every classic BPF program, and its execution.

use crate::{ACTION_FULL, ARCH, Data, RET_ALLOW, SockFilter};
use abi::Result;
use bpf::code::*;
use bpf::{Input, Outside};

/// A checked program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(bpf::Program);

impl Program {
    /// Checks a program. EINVAL when Linux would refuse it.
    pub fn new(code: &[SockFilter]) -> Result<Program> {
        bpf::Program::new(code, is_allowed).map(Program)
    }

    /// Its instructions.
    pub(crate) fn code(&self) -> &[SockFilter] {
        self.0.code()
    }

    /// Number of instructions.
    pub(crate) fn len(&self) -> usize {
        self.0.code().len()
    }

    /// Number of instructions after Linux's translation to its own machine, which is what its limit counts.
    pub fn weight(&self) -> usize {
        const PROLOGUE: usize = 3;
        let one = |i: &SockFilter| match i.code {
            RET_K => 2,
            JA => 1,
            c if c == ALU | DIV | X => 5,
            c if c & CLASS == JMP => {
                let far = usize::from(i.code & X == 0 && (i.k as i32) < 0);
                let single = i.jf == 0 || i.jt == 0 && i.code & OPERATION != JSET;
                far + if single { 1 } else { 2 }
            }
            _ => 1,
        };
        PROLOGUE + self.0.code().iter().map(one).sum::<usize>()
    }

    /// What the program returns for a call.
    pub fn run(&self, data: &Data) -> u32 {
        // Every value is known, so the answer is.
        self.0.run(data).unwrap_or(0)
    }

    /// True when the program allows this call whatever its arguments and its place are. May say no where it
    /// does so all the same.
    pub fn always_allows(&self, nr: i32) -> bool {
        self.0.run(&Number(nr)).is_some_and(|v| v & ACTION_FULL == RET_ALLOW)
    }
}

/// Programs load whole words at their places, and calculate no remainders.
fn is_allowed(i: &SockFilter) -> bool {
    match i.code {
        LD_W_ABS => i.k < Data::SIZE && i.k.is_multiple_of(4),
        LD_H_ABS | LD_B_ABS | LD_W_IND | LD_H_IND | LD_B_IND | LDX_B_MSH => false,
        c => c & CLASS != ALU || c & OPERATION != MOD,
    }
}

impl Input for Data {
    fn load(&self, at: u32, _size: usize) -> std::result::Result<Option<u32>, Outside> {
        Ok(Some(self.word(at)))
    }

    fn length(&self) -> u32 {
        Data::SIZE
    }
}

/// A call of which only the number is known.
struct Number(i32);

impl Input for Number {
    fn load(&self, at: u32, _size: usize) -> std::result::Result<Option<u32>, Outside> {
        Ok(match at {
            0 => Some(self.0 as u32),
            4 => Some(ARCH),
            _ => None,
        })
    }

    fn length(&self) -> u32 {
        Data::SIZE
    }
}

//! eBPF programs that decide about devices (BPF_PROG_TYPE_CGROUP_DEVICE), see bpf(2) and linux/bpf.h.
//!
//! [`Program::new`] verifies a program, [`Program::run`] executes it for a use of a device ([`Use`]). The verifier
//! accepts what container engines, systemd and compilers generate from rules for devices: calculations, comparisons,
//! jumps forward and loads from the context at fixed places. There are no loops, no calls, no maps and no stack. So a
//! program ends after at most as many steps as it has instructions, and reads only the context and registers that it
//! has set. The verifier refuses everything else with Linux's error and a line of text.
//!
//! Pure: words in, a number out.

#![forbid(unsafe_code)]

mod range;
mod run;
#[cfg(test)]
mod tests;
mod verify;

use abi::Errno;
use sha2::{Digest, Sha256};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most instructions of a program (BPF_MAXINSNS). Linux takes more from privileged callers.
pub const MAX_INSTRUCTIONS: usize = 4096;
/// Registers, the frame pointer included.
const REGISTERS: usize = 11;
/// The frame pointer.
const FRAME: usize = 10;

/// `struct bpf_insn`: one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Instruction {
    /// Operation.
    pub code: u8,
    /// Destination register in the low half, source register in the high half.
    pub registers: u8,
    /// Offset of a jump or of an access to memory.
    pub offset: i16,
    /// Operand.
    pub immediate: i32,
}

impl Instruction {
    fn dst(&self) -> usize {
        usize::from(self.registers & 0xf)
    }

    fn src(&self) -> usize {
        usize::from(self.registers >> 4)
    }

    fn class(&self) -> u8 {
        self.code & code::CLASS
    }

    fn operation(&self) -> u8 {
        self.code & code::OPERATION
    }

    /// The operand is the source register.
    fn by_register(&self) -> bool {
        self.code & code::X != 0
    }

    /// Calculates or compares 64 bits.
    fn is_wide(&self) -> bool {
        matches!(self.class(), code::ALU64 | code::JMP)
    }

    /// Where a jump at `pc` leads.
    fn target(&self, pc: usize) -> Option<usize> {
        (pc + 1).checked_add_signed(isize::from(self.offset))
    }
}

/// Values of [`Instruction::code`] with the names of linux/bpf.h, and parts of them.
pub(crate) mod code {
    pub(crate) const CLASS: u8 = 0x07;
    pub(crate) const OPERATION: u8 = 0xf0;
    pub(crate) const X: u8 = 0x08;
    pub(crate) const LD: u8 = 0x00;
    pub(crate) const LDX: u8 = 0x01;
    pub(crate) const ST: u8 = 0x02;
    pub(crate) const STX: u8 = 0x03;
    pub(crate) const ALU: u8 = 0x04;
    pub(crate) const JMP: u8 = 0x05;
    pub(crate) const JMP32: u8 = 0x06;
    pub(crate) const ALU64: u8 = 0x07;
    /// A 64-bit constant, in two instructions.
    pub(crate) const LD_IMM64: u8 = 0x18;
    /// Sizes of loads and stores, and their mode.
    pub(crate) const SIZE: u8 = 0x18;
    pub(crate) const MODE: u8 = 0xe0;
    pub(crate) const MEM: u8 = 0x60;
    pub(crate) const ADD: u8 = 0x00;
    pub(crate) const SUB: u8 = 0x10;
    pub(crate) const MUL: u8 = 0x20;
    pub(crate) const DIV: u8 = 0x30;
    pub(crate) const OR: u8 = 0x40;
    pub(crate) const AND: u8 = 0x50;
    pub(crate) const LSH: u8 = 0x60;
    pub(crate) const RSH: u8 = 0x70;
    pub(crate) const NEG: u8 = 0x80;
    pub(crate) const MOD: u8 = 0x90;
    pub(crate) const XOR: u8 = 0xa0;
    pub(crate) const MOV: u8 = 0xb0;
    pub(crate) const ARSH: u8 = 0xc0;
    pub(crate) const JA: u8 = 0x00;
    pub(crate) const JEQ: u8 = 0x10;
    pub(crate) const JGT: u8 = 0x20;
    pub(crate) const JGE: u8 = 0x30;
    pub(crate) const JSET: u8 = 0x40;
    pub(crate) const JNE: u8 = 0x50;
    pub(crate) const JSGT: u8 = 0x60;
    pub(crate) const JSGE: u8 = 0x70;
    pub(crate) const CALL: u8 = 0x80;
    pub(crate) const EXIT: u8 = 0x90;
    pub(crate) const JLT: u8 = 0xa0;
    pub(crate) const JLE: u8 = 0xb0;
    pub(crate) const JSLT: u8 = 0xc0;
    pub(crate) const JSLE: u8 = 0xd0;
}

/// A use of a device, as a program sees it (`struct bpf_cgroup_dev_ctx`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(C)]
pub struct Use {
    /// Kind of the device (BPF_DEVCG_DEV_*) in the low half, what is done (BPF_DEVCG_ACC_*) in the high half.
    pub access_type: u32,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// Why a program is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// EACCES or EINVAL.
    pub errno: Errno,
    /// The same as text.
    pub reason: String,
    /// The instruction, when it is about one that would be executed.
    pub at: Option<(usize, u8)>,
    /// Instructions looked at until then.
    pub processed: usize,
}

impl Refused {
    /// What the verifier's log says.
    pub fn log(&self) -> String {
        let at = self.at.map_or(String::new(), |(pc, code)| format!("{pc}: ({code:02x})\n"));
        format!("{at}{}\n{}", self.reason, processed(self.processed))
    }
}

fn processed(count: usize) -> String {
    format!("processed {count} insns (limit {MAX_INSTRUCTIONS})\n")
}

/// What a program is for (`enum bpf_prog_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Deciding about devices.
    CgroupDevice,
    /// Deciding about packets. Such a program cannot look at any yet.
    CgroupSkb,
}

impl Kind {
    /// The kind with this number.
    pub fn of(number: u32) -> Option<Kind> {
        [Kind::CgroupDevice, Kind::CgroupSkb].into_iter().find(|kind| kind.number() == number)
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Kind::CgroupSkb => 8,
            Kind::CgroupDevice => 15,
        }
    }
}

/// A verified program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    kind: Kind,
    code: Box<[Instruction]>,
}

impl Program {
    /// Verifies a program.
    pub fn new(kind: Kind, code: Vec<Instruction>) -> Result<Program, Refused> {
        verify::verify(kind, &code)?;
        Ok(Program { kind, code: code.into() })
    }

    /// What it is for.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The instructions.
    pub fn code(&self) -> &[Instruction] {
        &self.code
    }

    /// What the verifier's log says.
    pub fn log(&self) -> String {
        processed(self.code.len())
    }

    /// What the program is known by: the beginning of the hash of its instructions.
    pub fn tag(&self) -> [u8; 8] {
        let hash = Sha256::digest(self.code.as_bytes());
        std::array::from_fn(|i| hash[i])
    }

    /// Whether the program allows a use.
    pub fn allows(&self, of: &Use) -> bool {
        self.run(of) == 1
    }

    /// What the program returns: 0 or 1.
    pub fn run(&self, of: &Use) -> u64 {
        run::run(&self.code, of)
    }
}

//! The verifier decides before a program runs whether it is accepted.
//!
//! It checks the form of the program first (jumps, constants of two instructions, reachability). Then it makes one pass
//! over the program with the state of the registers. One pass is enough: all jumps lead forward, so all paths to an
//! instruction come before it.

use crate::code::*;
use crate::range::Range;
use crate::run::size;
use crate::{FRAME, Instruction, Kind, MAX_INSTRUCTIONS, REGISTERS, Refused};
use abi::Errno;

type Checked<T = ()> = Result<T, (Errno, String)>;

fn invalid<T>(reason: impl Into<String>) -> Checked<T> {
    Err((Errno::EINVAL, reason.into()))
}

fn denied<T>(reason: impl Into<String>) -> Checked<T> {
    Err((Errno::EACCES, reason.into()))
}

/// Refuses a program that may not run.
pub(crate) fn verify(kind: Kind, code: &[Instruction]) -> Result<(), Refused> {
    form(code).map_err(|(errno, reason)| Refused { errno, reason, at: None, processed: 0 })?;
    flow(kind, code)
}

/// Where an instruction leads besides the next one; and whether it leads to the next one.
fn ways(pc: usize, i: &Instruction) -> (Option<usize>, bool) {
    match (i.class(), i.operation()) {
        (JMP | JMP32, EXIT) => (None, false),
        (JMP | JMP32, CALL) => (None, true),
        (JMP | JMP32, JA) => (Some(i.target(pc).unwrap_or(usize::MAX)), false),
        (JMP | JMP32, _) => (Some(i.target(pc).unwrap_or(usize::MAX)), true),
        _ => (None, true),
    }
}

/// How many instructions one takes.
fn length(i: &Instruction) -> usize {
    if i.code == LD_IMM64 { 2 } else { 1 }
}

fn form(code: &[Instruction]) -> Checked {
    if code.is_empty() || code.len() > MAX_INSTRUCTIONS {
        return invalid(format!("{} instructions, of at most {MAX_INSTRUCTIONS}", code.len()));
    }
    for (pc, i) in code.iter().enumerate() {
        if let (Some(to), _) = ways(pc, i)
            && to >= code.len()
        {
            let to = pc as i64 + 1 + i64::from(i.offset);
            return invalid(format!("jump out of range from insn {pc} to {to}"));
        }
    }
    let ends =
        |last: &Instruction| matches!(last.class(), JMP | JMP32) && matches!(last.operation(), EXIT | JA);
    if !code.last().is_some_and(ends) {
        return invalid("last insn is not an exit or jmp");
    }
    let mut starts = vec![false; code.len()];
    let mut pc = 0;
    while let Some(i) = code.get(pc) {
        if i.code == LD_IMM64 {
            let second = code.get(pc + 1).copied().unwrap_or(Instruction { code: u8::MAX, ..*i });
            if (second.code, second.registers, second.offset) != (0, 0, 0) || i.offset != 0 {
                return invalid("invalid bpf_ld_imm64 insn");
            }
            if i.src() != 0 {
                return invalid("maps are not supported");
            }
        } else if !is_known(i) {
            return invalid(format!("unknown opcode {:02x}", i.code));
        }
        starts[pc] = true;
        pc += length(i);
    }
    reached(code, &starts)
}

/// Everything is reached, and nothing twice on one way.
fn reached(code: &[Instruction], starts: &[bool]) -> Checked {
    let mut seen = vec![false; code.len()];
    let mut back = None;
    let mut todo = vec![0];
    while let Some(pc) = todo.pop() {
        let (Some(seen), Some(i)) = (seen.get_mut(pc), code.get(pc)) else { continue };
        if std::mem::replace(seen, true) {
            continue;
        }
        let (jump, on) = ways(pc, i);
        if let Some(to) = jump.filter(|to| starts.get(*to) != Some(&true)) {
            return invalid(format!("jump into the middle of ldimm64 insn {to}"));
        }
        back = back.or(jump.filter(|to| *to <= pc).map(|to| (pc, to)));
        todo.extend(jump);
        todo.extend(on.then(|| pc + length(i)));
    }
    let missed = seen.iter().zip(starts).position(|(seen, start)| *start && !seen);
    if let Some(pc) = missed {
        return invalid(format!("unreachable insn {pc}"));
    }
    match back {
        Some((from, to)) => invalid(format!("back-edge from insn {from} to {to}")),
        None => Ok(()),
    }
}

/// Whether it is an operation of eBPF. Those that are not for such programs are refused later, with their reason.
fn is_known(i: &Instruction) -> bool {
    match i.class() {
        LDX | ST | STX => true,
        LD => matches!(i.code & MODE, 0x20 | 0x40),
        ALU | ALU64 => i.operation() <= 0xd0,
        JMP => i.operation() <= JSLE && (i.operation() != EXIT || !i.by_register()),
        _ => i.operation() <= JSLE && !matches!(i.operation(), CALL | EXIT),
    }
}

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegisterValue {
    /// Nothing on some way.
    Unset,
    /// The address of the context.
    Context,
    /// The address of the stack.
    Frame,
    /// A number.
    Number(Range),
}

impl RegisterValue {
    fn join(self, other: RegisterValue) -> RegisterValue {
        match (self, other) {
            (RegisterValue::Number(a), RegisterValue::Number(b)) => RegisterValue::Number(a.join(b)),
            (a, b) if a == b => a,
            _ => RegisterValue::Unset,
        }
    }

    fn name(self) -> &'static str {
        match self {
            RegisterValue::Context => "ctx",
            RegisterValue::Frame => "fp",
            _ => "scalar",
        }
    }
}

type Registers = [RegisterValue; REGISTERS];

fn flow(kind: Kind, code: &[Instruction]) -> Result<(), Refused> {
    let mut first = [RegisterValue::Unset; REGISTERS];
    first[1] = RegisterValue::Context;
    first[FRAME] = RegisterValue::Frame;
    let mut known: Vec<Option<Registers>> = vec![None; code.len()];
    known[0] = Some(first);
    for (processed, (pc, i)) in code.iter().enumerate().enumerate() {
        // The second half of a constant: nothing leads there.
        let Some(mut registers) = known[pc].take() else { continue };
        step(kind, code, pc, i, &mut registers).map_err(|(errno, reason)| Refused {
            errno,
            reason,
            at: Some((pc, i.code)),
            processed: processed + 1,
        })?;
        let (jump, on) = ways(pc, i);
        for to in jump.into_iter().chain(on.then(|| pc + length(i))) {
            let Some(there) = known.get_mut(to) else { continue };
            *there = Some(match *there {
                None => registers,
                Some(others) => std::array::from_fn(|r| others[r].join(registers[r])),
            });
        }
    }
    Ok(())
}

/// Reads a register.
fn read(registers: &Registers, number: usize) -> Checked<RegisterValue> {
    match registers.get(number) {
        None => invalid(format!("R{number} is invalid")),
        Some(RegisterValue::Unset) => denied(format!("R{number} !read_ok")),
        Some(held) => Ok(*held),
    }
}

/// Reads a register that must hold a number for `what`.
fn number(registers: &Registers, register: usize, what: &str) -> Checked<Range> {
    match read(registers, register)? {
        RegisterValue::Number(range) => Ok(range),
        _ => denied(format!("R{register} pointer {what} prohibited")),
    }
}

fn set(registers: &mut Registers, number: usize, held: RegisterValue) -> Checked {
    if number == FRAME {
        return denied("frame pointer is read only");
    }
    match registers.get_mut(number) {
        Some(register) => *register = held,
        None => return invalid(format!("R{number} is invalid")),
    }
    Ok(())
}

/// Changes the registers as the instruction does.
fn step(kind: Kind, code: &[Instruction], pc: usize, i: &Instruction, registers: &mut Registers) -> Checked {
    match i.class() {
        ALU | ALU64 => alu(i, registers),
        LDX => load(kind, i, registers),
        ST | STX => store(i, registers),
        LD if i.code == LD_IMM64 => {
            let high = code.get(pc + 1).map_or(0, |second| second.immediate);
            let value = u64::from(i.immediate as u32) | u64::from(high as u32) << 32;
            set(registers, i.dst(), RegisterValue::Number(Range::one(value)))
        }
        LD => invalid("BPF_LD_[ABS|IND] instructions not allowed for this program type"),
        _ => jump(i, registers),
    }
}

fn alu(i: &Instruction, registers: &mut Registers) -> Checked {
    let (operation, wide) = (i.operation(), i.is_wide());
    let name = match operation {
        MOV => "BPF_MOV",
        NEG => "BPF_NEG",
        // BPF_END.
        0xd0 => return invalid("changes of byte order are not supported"),
        _ => "BPF_ALU",
    };
    let unused = match (operation, i.by_register()) {
        (NEG, false) => i.src() == 0 && i.immediate == 0,
        (NEG, true) => false,
        (_, true) => i.immediate == 0,
        (_, false) => i.src() == 0,
    };
    if !unused || i.offset != 0 {
        return invalid(format!("{name} uses reserved fields"));
    }
    if operation == MOV {
        let held = match i.by_register() {
            false => RegisterValue::Number(Range::one(if wide {
                i64::from(i.immediate) as u64
            } else {
                u64::from(i.immediate as u32)
            })),
            true => match read(registers, i.src())? {
                RegisterValue::Number(range) => RegisterValue::Number(range.calculate(MOV, range, wide)),
                _ if !wide => return denied(format!("R{} partial copy of pointer", i.src())),
                address => address,
            },
        };
        return set(registers, i.dst(), held);
    }
    let by = match i.by_register() {
        true => number(registers, i.src(), "arithmetic")?,
        false => Range::one(i64::from(i.immediate) as u64),
    };
    let bits = if wide { 64 } else { 32 };
    if !i.by_register() {
        match operation {
            DIV | MOD if i.immediate == 0 => return invalid("div by zero"),
            LSH | RSH | ARSH if !(0..bits).contains(&i.immediate) => {
                return invalid(format!("invalid shift {}", i.immediate));
            }
            _ => {}
        }
    }
    if i.dst() == FRAME {
        return denied("frame pointer is read only");
    }
    let from = number(registers, i.dst(), "arithmetic")?;
    set(registers, i.dst(), RegisterValue::Number(from.calculate(operation, by, wide)))
}

fn load(kind: Kind, i: &Instruction, registers: &mut Registers) -> Checked {
    if i.code & MODE != MEM || i.immediate != 0 {
        return invalid("BPF_LDX uses reserved fields");
    }
    match read(registers, i.src())? {
        RegisterValue::Context => {}
        RegisterValue::Frame => return denied("the stack is not supported"),
        other => return denied(format!("R{} invalid mem access '{}'", i.src(), other.name())),
    }
    let (at, size) = (i.offset, size(i.code));
    // The first word may be read in parts, the others as a whole.
    let inside = match usize::try_from(at) {
        _ if kind != Kind::CgroupDevice => false,
        Ok(at @ 0..4) => size <= 4 && at % size == 0,
        Ok(4 | 8) => size == 4,
        _ => false,
    };
    if !inside {
        return denied(format!("invalid bpf_context access off={at} size={size}"));
    }
    set(registers, i.dst(), RegisterValue::Number(Range::up_to(u64::MAX >> (64 - 8 * size))))
}

/// Nothing can be written to.
fn store(i: &Instruction, registers: &Registers) -> Checked {
    if i.class() == STX {
        read(registers, i.src())?;
    }
    match read(registers, i.dst())? {
        RegisterValue::Context => {
            denied(format!("invalid bpf_context access off={} size={}", i.offset, size(i.code)))
        }
        RegisterValue::Frame => denied("the stack is not supported"),
        other => denied(format!("R{} invalid mem access '{}'", i.dst(), other.name())),
    }
}

fn jump(i: &Instruction, registers: &Registers) -> Checked {
    let plain = i.registers == 0 && i.immediate == 0;
    match i.operation() {
        EXIT if !plain || i.offset != 0 => invalid("BPF_EXIT uses reserved fields"),
        EXIT => exit(registers),
        JA if i.class() == JMP32 => invalid("jumps over more than 32767 instructions are not supported"),
        JA if !plain || i.by_register() => invalid("BPF_JA uses reserved fields"),
        JA => Ok(()),
        CALL => invalid("calls are not supported"),
        _ if if i.by_register() { i.immediate != 0 } else { i.src() != 0 } => {
            invalid("BPF_JMP/JMP32 uses reserved fields")
        }
        _ => {
            if i.by_register() {
                number(registers, i.src(), "comparison")?;
            }
            number(registers, i.dst(), "comparison").map(drop)
        }
    }
}

/// The result is 0 or 1.
fn exit(registers: &Registers) -> Checked {
    let text = "At program exit the register R0";
    match read(registers, 0)? {
        RegisterValue::Number(Range { max: 0..=1, .. }) => Ok(()),
        RegisterValue::Number(Range { min, max }) => {
            invalid(format!("{text} has smin={} smax={} should have been in [0, 1]", min as i64, max as i64))
        }
        other => invalid(format!("{text} is not a known value ({})", other.name())),
    }
}

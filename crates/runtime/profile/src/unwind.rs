//! Finds a function's callers by the file's unwind information, which nearly every program has for its exceptions and
//! debuggers. Without such information it uses frame pointers.
//!
//! Files and stacks are not trusted. A step reads from the copy of the stack only and goes up only. The rules for a
//! place are computed once.

use crate::records::Registers;
use crate::symbols::{Image, Source};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, EhFrame, EhFrameOffset, EndianSlice,
    LittleEndian, RegisterRule, Section, UnwindContext, UnwindSection, X86_64,
};
use std::collections::HashMap;

/// Longest tables of one file, and rules that are kept for it.
const MAX_TABLES: usize = 64 << 20;
const MAX_RULES: usize = 1 << 16;
/// Longest entry of one function, and of what several have in common.
const MAX_ENTRY: usize = 16 << 10;
const MAX_COMMON: i32 = 512;
/// Most functions of a file without an index.
const MAX_FUNCTIONS: usize = 1 << 21;

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Frames<'a> = EhFrame<Slice<'a>>;

/// How to get from a function to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The caller's stack pointer is `offset` above the stack pointer or the frame pointer; the return address is below
    /// it, and the caller's frame pointer at `saved` from there, or still in its register.
    Frame { from_bp: bool, offset: i64, saved: Option<i64> },
    /// As frame pointers say.
    FramePointer,
    /// There is no caller.
    Outermost,
}

/// The unwind information of a file.
#[derive(Debug)]
pub(crate) struct Tables {
    image: Image,
    index: Index,
    /// Address of the entries.
    start: u64,
    frames: Vec<u8>,
    bases: BaseAddresses,
    rules: HashMap<u64, Rule>,
}

/// Leads from an address to the entry of its function.
#[derive(Debug)]
enum Index {
    /// The file's own (.eh_frame_hdr), in the one form that linkers make.
    Own { address: u64, bytes: Vec<u8> },
    /// Made by us for a file without one, as static programs may be: first addresses and entries.
    Made(Vec<(u64, u32)>),
}

/// Version 1; a pointer relative to itself; a number; a table of numbers relative to the beginning.
const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().map(|bytes| i32::from_le_bytes(*bytes))
}

/// What the entries of several functions have in common. It is read for each of them: a long one is not.
fn common<'a>(
    frames: &Frames<'a>,
    bases: &BaseAddresses,
    offset: EhFrameOffset,
) -> gimli::Result<CommonInformationEntry<Slice<'a>>> {
    match number(frames.reader().slice(), offset.0) {
        Some(len) if (0..=MAX_COMMON).contains(&len) => frames.cie_from_offset(bases, offset),
        _ => Err(gimli::Error::NoUnwindInfoForAddress),
    }
}

impl Index {
    /// The file's own, and the address of the entries.
    fn own(address: u64, bytes: Vec<u8>) -> Option<(Self, u64)> {
        let start = address.wrapping_add(4).wrapping_add_signed(number(&bytes, 4)?.into());
        bytes.starts_with(&FORM).then_some((Self::Own { address, bytes }, start))
    }

    fn make(frames: &[u8], bases: &BaseAddresses) -> Self {
        let section: Frames<'_> = EhFrame::new(frames, LittleEndian);
        let mut entries = section.entries(bases);
        let mut made = Vec::new();
        while made.len() < MAX_FUNCTIONS
            && let Ok(Some(entry)) = entries.next()
        {
            let CieOrFde::Fde(partial) = entry else { continue };
            if let (Ok(entry), Ok(at)) = (partial.parse(common), u32::try_from(partial.offset())) {
                made.push((entry.initial_address(), at));
            }
        }
        made.sort_unstable();
        Self::Made(made)
    }

    /// Where, among the entries at `start`, that of the last function is that begins at or before an address.
    fn entry(&self, start: u64, address: u64) -> Option<u64> {
        match self {
            Self::Own { address: own, bytes } => {
                let rows = bytes.get(12..)?.as_chunks::<8>().0;
                let rows = &rows[..rows.len().min(number(bytes, 8)? as u32 as usize)];
                let at =
                    |row: &[u8], half: usize| own.wrapping_add_signed(number(row, half).unwrap_or(0).into());
                let after = rows.partition_point(|row| at(row, 0) <= address);
                at(rows.get(after.checked_sub(1)?)?, 4).checked_sub(start)
            }
            Self::Made(rows) => {
                let after = rows.partition_point(|row| row.0 <= address);
                rows.get(after.checked_sub(1)?).map(|row| row.1.into())
            }
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Own { bytes, .. } => bytes.len(),
            Self::Made(rows) => size_of_val(&rows[..]),
        }
    }
}

impl Tables {
    /// Reads it, if the file has it.
    pub(crate) fn read(source: &impl Source) -> Option<Self> {
        let image = Image::open(source)?;
        let own = image.unwind_index(source).and_then(|(address, bytes)| Index::own(address, bytes));
        let (index, start, frames) = match own {
            Some((index, start)) => (Some(index), start, image.rest_of_segment(source, start)?),
            None => {
                let (start, frames) = image.section(source, ".eh_frame")?;
                (None, start, frames)
            }
        };
        if frames.len() > MAX_TABLES {
            return None;
        }
        let bases = BaseAddresses::default().set_eh_frame(start);
        let index = index.unwrap_or_else(|| Index::make(&frames, &bases));
        Some(Self { image, index, start, frames, bases, rules: HashMap::new() })
    }

    /// Bytes that it holds.
    pub(crate) fn size(&self) -> usize {
        self.index.size() + self.frames.len()
    }

    /// The rule at a place in the file.
    pub(crate) fn rule(&mut self, offset: u64) -> Rule {
        if let Some(rule) = self.rules.get(&offset) {
            return *rule;
        }
        let rule =
            self.image.address(offset).and_then(|address| self.find(address)).unwrap_or(Rule::FramePointer);
        if self.rules.len() < MAX_RULES {
            self.rules.insert(offset, rule);
        }
        rule
    }

    fn find(&self, address: u64) -> Option<Rule> {
        let offset = self.index.entry(self.start, address)?;
        let frames: Frames<'_> = EhFrame::new(&self.frames, LittleEndian);
        let offset = EhFrameOffset(usize::try_from(offset).ok()?);
        let entry = frames.fde_from_offset(&self.bases, offset, common).ok()?;
        if entry.entry_len() > MAX_ENTRY {
            return None;
        }
        let mut context = UnwindContext::new();
        let row = entry.unwind_info_for_address(&frames, &self.bases, &mut context, address).ok()?;
        let return_address = row.register(X86_64::RA);
        if return_address == Some(RegisterRule::Undefined) {
            return Some(Rule::Outermost);
        }
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return None };
        if return_address != Some(RegisterRule::Offset(-8)) || ![X86_64::RSP, X86_64::RBP].contains(&register)
        {
            return None;
        }
        let saved = match row.register(X86_64::RBP) {
            Some(RegisterRule::Offset(saved)) => Some(saved),
            None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => None,
            Some(_) => return None,
        };
        Some(Rule::Frame { from_bp: register == X86_64::RBP, offset, saved })
    }
}

/// The top of a thread's stack.
pub(crate) struct Stack<'a> {
    /// Address of the first byte.
    pub(crate) base: u64,
    pub(crate) bytes: &'a [u8],
}

impl Stack<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        self.bytes.get(start..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// The caller's registers, as a rule says. The stack is left upwards only, so there is an end.
pub(crate) fn step(rule: Rule, registers: Registers, stack: &Stack<'_>) -> Option<Registers> {
    let Registers { bp, sp, .. } = registers;
    let (top, saved) = match rule {
        Rule::Frame { from_bp, offset, saved } => {
            ((if from_bp { bp } else { sp }).wrapping_add_signed(offset), saved)
        }
        Rule::FramePointer => (bp.wrapping_add(16), Some(-16)),
        Rule::Outermost => return None,
    };
    if top <= sp {
        return None;
    }
    let ip = stack.word(top.wrapping_sub(8))?;
    let bp = match saved {
        Some(saved) => stack.word(top.wrapping_add_signed(saved))?,
        None => bp,
    };
    Some(Registers { bp, sp: top, ip })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn stack(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn steps_go_up() {
        let bytes = stack(&[10, 11, 12, 13]);
        let stack = Stack { base: 0x1000, bytes: &bytes };
        let at = |bp, sp| Registers { bp, sp, ip: 1 };
        let frame = |from_bp, offset, saved| Rule::Frame { from_bp, offset, saved };
        let to = |ip, bp, sp| Some(Registers { bp, sp, ip });
        assert_eq!(step(frame(false, 8, None), at(7, 0x1000), &stack), to(10, 7, 0x1008));
        assert_eq!(step(frame(false, 32, Some(-24)), at(7, 0x1000), &stack), to(13, 11, 0x1020));
        assert_eq!(step(frame(true, 16, Some(-16)), at(0x1008, 0x1000), &stack), to(12, 11, 0x1018));
        assert_eq!(step(Rule::FramePointer, at(0x1010, 0x1000), &stack), to(13, 12, 0x1020));
        for (rule, registers) in [
            (frame(false, 0, None), at(0, 0x1000)),
            (frame(false, -8, None), at(0, 0x1010)),
            (frame(false, 40, None), at(0, 0x1000)),
            (frame(false, i64::MIN, Some(i64::MAX)), at(0, u64::MAX)),
            (Rule::FramePointer, at(0xff0, 0x1000)),
            (Rule::FramePointer, at(u64::MAX, 0x1000)),
            (Rule::Outermost, at(0x1010, 0x1000)),
        ] {
            assert_eq!(step(rule, registers, &stack), None, "{rule:?}");
        }
    }

    #[inline(never)]
    fn here(x: u64) -> u64 {
        std::hint::black_box(x) + 1
    }

    #[test]
    fn rules_are_found() {
        let file = fs::read("/proc/self/exe").unwrap();
        let at = here as fn(u64) -> u64 as usize as u64;
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let mappings = || maps.lines().filter_map(crate::records::parse_mapping);
        let code = mappings().find(|m| m.start <= at && at < m.end).unwrap();
        let mut tables = Tables::read(&&file[..]).unwrap();
        // Before its first instruction a function has nothing on the stack but where to return to.
        let rule = tables.rule(code.offset + at - code.start);
        assert_eq!(rule, Rule::Frame { from_bp: false, offset: 8, saved: None });
        assert_eq!(tables.rule(code.offset + at - code.start), rule);
        assert_eq!(tables.rule(u64::MAX), Rule::FramePointer);
        // The same without the file's own index.
        tables.index = Index::make(&tables.frames, &tables.bases);
        tables.rules.clear();
        assert_eq!(tables.rule(code.offset + at - code.start), rule);
        // Broken tables have no rules, or others.
        let len = tables.frames.len();
        for cut in [0, 1, 7, 100, len / 2, len - 1] {
            tables.frames.truncate(len.min(cut).max(1));
            tables.rules.clear();
            tables.rule(code.offset + at - code.start);
        }
        for value in [0u8, 0x7f, 0xff] {
            let mut tables = Tables::read(&&file[..]).unwrap();
            if let Index::Own { bytes, .. } = &mut tables.index {
                bytes.iter_mut().skip(4).for_each(|byte| *byte = value);
            }
            tables.rule(code.offset + at - code.start);
            tables.frames.iter_mut().for_each(|byte| *byte = value);
            tables.rules.clear();
            tables.rule(code.offset + at - code.start);
        }
    }
}

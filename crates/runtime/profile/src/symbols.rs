//! ELF files: names of functions from their symbol tables, and where their unwind information is.
//!
//! The file is not trusted: every table is bounded, and every number in it is checked before it is used.

use elf::{
    FileHeader, ProgramHeader, SectionHeader, Symbol, program_kind, section_kind, symbol_binding, symbol_kind,
};
use std::fmt::{self, Write};
use zerocopy::{FromBytes, Immutable};

/// Longest table that is read; the programs with most symbols have some ten million bytes of them.
const MAX_TABLE: u64 = 128 << 20;
/// Longest symbol table, and how many of its entries are read at a time.
const MAX_SYMBOLS: u64 = 64 << 20;
const AT_ONCE: u64 = 1 << 15;
/// Longest name as it is in the file.
const MAX_NAME: usize = 4096;
/// Longest name as it is shown.
const MAX_SHOWN: usize = 240;
/// How many symbols that begin before an address are looked at, for one that reaches it.
const LOOK_BACK: usize = 64;

/// The section of symbols that are defined elsewhere.
const UNDEFINED: u16 = 0;

/// A file that is read in pieces.
pub(crate) trait Source {
    /// These bytes, if all of them are there.
    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>>;
}

impl Source for &[u8] {
    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        self.get(start..start.checked_add(len)?).map(<[u8]>::to_vec)
    }
}

/// What a program's file says about where it is in memory, before it is moved.
#[derive(Debug)]
pub(crate) struct Image {
    header: FileHeader,
    segments: Vec<ProgramHeader>,
}

impl Image {
    pub(crate) fn open(source: &impl Source) -> Option<Self> {
        let header = FileHeader::read(&source.read(0, size_of::<FileHeader>())?)?;
        let segments = table(source, header.phoff, u64::from(header.phnum))?;
        Some(Self { header, segments })
    }

    fn loaded(&self) -> impl Iterator<Item = &ProgramHeader> {
        self.segments.iter().filter(|segment| segment.kind == program_kind::LOAD)
    }

    /// Where a place in the file is in memory.
    pub(crate) fn address(&self, offset: u64) -> Option<u64> {
        self.loaded().find_map(|segment| {
            let into = offset.checked_sub(segment.offset)?;
            (into < segment.filesz).then(|| segment.vaddr.wrapping_add(into))
        })
    }

    /// The index of the unwind information: its address and its bytes.
    pub(crate) fn unwind_index(&self, source: &impl Source) -> Option<(u64, Vec<u8>)> {
        let index = self.segments.iter().find(|segment| segment.kind == program_kind::GNU_EH_FRAME)?;
        Some((index.vaddr, bytes(source, index.offset, index.filesz)?))
    }

    fn sections(&self, source: &impl Source) -> Option<Vec<SectionHeader>> {
        table(source, self.header.shoff, u64::from(self.header.shnum))
    }

    /// A section by its name: its address and its bytes.
    pub(crate) fn section(&self, source: &impl Source, name: &str) -> Option<(u64, Vec<u8>)> {
        let sections = self.sections(source)?;
        let names = sections.get(usize::from(self.header.shstrndx))?;
        let names = bytes(source, names.offset, names.size)?;
        let called = |section: &&SectionHeader| {
            let own = names.get(section.name as usize..).unwrap_or_default();
            own.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        };
        let section = sections.iter().find(called)?;
        Some((section.addr, bytes(source, section.offset, section.size)?))
    }

    /// What is in the file from an address to the end of its segment.
    pub(crate) fn rest_of_segment(&self, source: &impl Source, address: u64) -> Option<Vec<u8>> {
        let (offset, len) = self.loaded().find_map(|segment| {
            let into = address.checked_sub(segment.vaddr)?;
            let left = segment.filesz.checked_sub(into)?;
            Some((segment.offset.checked_add(into)?, left))
        })?;
        bytes(source, offset, len)
    }
}

/// The function at each of these places in the file, as far as the file says, or a file with its symbols.
pub(crate) fn names<S: Source>(source: &S, symbols: Option<&S>, offsets: &[u64]) -> Vec<Option<String>> {
    let mut found = vec![None; offsets.len()];
    let _ = fill(source, symbols, offsets, &mut found);
    found
}

/// The same for addresses that the file gives its program, before it is moved.
pub(crate) fn names_at<S: Source>(source: &S, symbols: Option<&S>, addresses: &[u64]) -> Vec<Option<String>> {
    let mut found = vec![None; addresses.len()];
    let addresses: Vec<_> = addresses.iter().copied().map(Some).collect();
    let _ = Image::open(source).and_then(|image| fill_at(&image, source, symbols, &addresses, &mut found));
    found
}

/// The build ID in hexadecimal.
pub(crate) fn build_id(source: &impl Source) -> Option<String> {
    let (_, note) = Image::open(source)?.section(source, BUILD_ID)?;
    // Three numbers, the owner "GNU" and a zero, then the ID.
    let id = note.get(16..)?;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The section with the build ID.
const BUILD_ID: &str = ".note.gnu.build-id";

/// The symbol table of a file that was taken out of another one, if it is that one's: both have the same build id.
fn apart(image: &Image, source: &impl Source, symbols: &impl Source) -> Option<(Image, SectionHeader)> {
    let other = Image::open(symbols)?;
    let (_, id) = image.section(source, BUILD_ID)?;
    let table = other.sections(symbols)?.into_iter().find(|s| s.kind == section_kind::SYMTAB)?;
    (other.section(symbols, BUILD_ID)?.1 == id).then_some((other, table))
}

fn fill<S: Source>(
    source: &S,
    symbols: Option<&S>,
    offsets: &[u64],
    found: &mut [Option<String>],
) -> Option<()> {
    let image = Image::open(source)?;
    let addresses: Vec<Option<u64>> = offsets.iter().map(|offset| image.address(*offset)).collect();
    fill_at(&image, source, symbols, &addresses, found)
}

fn fill_at<S: Source>(
    image: &Image,
    source: &S,
    symbols: Option<&S>,
    addresses: &[Option<u64>],
    found: &mut [Option<String>],
) -> Option<()> {
    let sections = image.sections(source)?;
    if let Some(symbols) = symbols
        && let Some((other, table)) = apart(image, source, symbols)
    {
        let _ = from_table(symbols, &other.sections(symbols)?, &table, addresses, found);
    }
    // What is stripped has the second table only, with the functions that others call.
    for kind in [section_kind::SYMTAB, section_kind::DYNSYM] {
        if let Some(section) = sections.iter().find(|section| section.kind == kind) {
            let _ = from_table(source, &sections, section, addresses, found);
        }
    }
    Some(())
}

/// A function.
#[derive(Clone, Copy)]
struct Function {
    start: u64,
    size: u64,
    name: u32,
    /// Of several at one address the one with the highest is shown.
    rank: u8,
}

fn from_table(
    source: &impl Source,
    sections: &[SectionHeader],
    section: &SectionHeader,
    addresses: &[Option<u64>],
    found: &mut [Option<String>],
) -> Option<()> {
    if found.iter().all(Option::is_some) {
        return Some(());
    }
    let mut functions: Vec<Function> = Vec::new();
    let (start, mut left) = (section.offset, section.size);
    if left > MAX_SYMBOLS {
        return None;
    }
    let entry = size_of::<Symbol>() as u64;
    while left >= entry {
        let done = section.size - left;
        let some = left.min(AT_ONCE * entry) / entry;
        let symbols: Vec<Symbol> = table(source, start.checked_add(done)?, some)?;
        functions.extend(symbols.iter().filter_map(function));
        left -= some * entry;
    }
    functions.sort_unstable_by_key(|f| (f.start, f.rank));
    let strings = sections.get(section.link as usize)?;
    let strings = bytes(source, strings.offset, strings.size)?;
    for (address, found) in addresses.iter().zip(found) {
        let (Some(address), None) = (*address, &found) else { continue };
        *found = function_at(&functions, address).and_then(|function| {
            let name = strings.get(function.name as usize..)?;
            let name = name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
            Some(shown(&String::from_utf8_lossy(&name[..name.len().min(MAX_NAME)])))
        });
    }
    Some(())
}

fn function(symbol: &Symbol) -> Option<Function> {
    let (kind, binding) = (symbol.kind(), symbol.binding());
    let size = symbol.size;
    let code = match kind {
        symbol_kind::FUNC | symbol_kind::GNU_IFUNC => 4,
        // Assembly does not always say what is a function.
        symbol_kind::NOTYPE => 0,
        _ => return None,
    };
    let start = symbol.value;
    if symbol.shndx == UNDEFINED || start == 0 {
        return None;
    }
    let bound = match binding {
        symbol_binding::GLOBAL => 2,
        symbol_binding::WEAK => 1,
        _ => 0,
    };
    Some(Function { start, size, name: symbol.name, rank: code + bound })
}

fn function_at(functions: &[Function], address: u64) -> Option<&Function> {
    let before = &functions[..functions.partition_point(|function| function.start <= address)];
    let near = || before.iter().rev().take(LOOK_BACK);
    near()
        .find(|function| address - function.start < function.size)
        .or_else(|| near().next().filter(|f| f.size == 0))
}

fn bytes(source: &impl Source, offset: u64, len: u64) -> Option<Vec<u8>> {
    source.read(offset, usize::try_from(len).ok().filter(|_| len <= MAX_TABLE)?)
}

fn table<T: FromBytes + Immutable>(source: &impl Source, offset: u64, count: u64) -> Option<Vec<T>> {
    let bytes = bytes(source, offset, count.checked_mul(size_of::<T>() as u64)?)?;
    Some(elf::entries(&bytes).collect())
}

/// A name without what the compiler put around it.
fn shown(name: &str) -> String {
    let mut text = BoundedText(String::new());
    let written = match rustc_demangle::try_demangle(name) {
        Ok(demangled) => write!(text, "{demangled:#}"),
        Err(_) => text.write_str(name),
    };
    if written.is_err() {
        text.0.push('…');
    }
    text.0
}

/// Text that ends where it gets too long: a short name can stand for an endless one.
struct BoundedText(String);

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.0.len() >= MAX_SHOWN {
                return Err(fmt::Error);
            }
            self.0.push(c);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[inline(never)]
    fn here(x: u64) -> u64 {
        std::hint::black_box(x) + 1
    }

    /// Our own executable, and where in it a function of ours is.
    fn own() -> (Vec<u8>, u64) {
        let at = here as fn(u64) -> u64 as usize as u64;
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let place = maps.lines().find_map(|line| {
            let mapping = crate::records::parse_mapping(line)?;
            (mapping.start <= at && at < mapping.end).then(|| mapping.offset + at - mapping.start)
        });
        (fs::read("/proc/self/exe").unwrap(), place.unwrap())
    }

    #[test]
    fn a_function_is_found() {
        let (file, place) = own();
        let names = names(&&file[..], None, &[0, place, place + 1, u64::MAX]);
        assert_eq!(names[0], None);
        assert_eq!(names[1].as_deref(), Some("profile::symbols::tests::here"));
        assert_eq!(names[2], names[1]);
        assert_eq!(names[3], None);
    }

    #[test]
    fn broken_files_have_no_names() {
        let (file, place) = own();
        for len in [0, 1, 63, 64, 100, 5000, file.len() - 1] {
            names(&&file[..len], None, &[place]);
        }
        // Every byte of the header, and some of the section headers, at their extremes.
        let sections = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
        for at in (0..64).chain(sections..(sections + 640).min(file.len())) {
            for value in [0, 1, 0x7f, 0xff] {
                names(&Patched { file: &file, at: at as u64, value }, None, &[place]);
            }
        }
        assert!(names(&&b"#!/bin/sh\n"[..], None, &[0]) == [None]);
    }

    struct Patched<'a> {
        file: &'a [u8],
        at: u64,
        value: u8,
    }

    impl Source for Patched<'_> {
        fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
            let mut bytes = self.file.read(offset, len)?;
            if let Some(byte) = self.at.checked_sub(offset).and_then(|at| bytes.get_mut(at as usize)) {
                *byte = self.value;
            }
            Some(bytes)
        }
    }

    #[test]
    fn names_are_short() {
        assert_eq!(shown("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(shown("main"), "main");
        assert!(shown(&"x".repeat(5000)).len() < 250);
    }
}

//! ELF files of x86-64: their structures, and the parts of a program that a kernel loads. See elf(5).
//!
//! Everything here is pure: bytes in, numbers out. A file is not trusted: readers check each number before they use it
//! as an offset or a length.

#![forbid(unsafe_code)]

pub mod core_file;
mod program;

pub use program::{Image, Segment, parse};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `Elf64_Ehdr`: what a file begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileHeader {
    /// Magic number, class, byte order, version, padding.
    pub ident: [u8; 16],
    /// ET_*.
    pub kind: u16,
    /// EM_*.
    pub machine: u16,
    /// EV_CURRENT.
    pub version: u32,
    /// Entry point.
    pub entry: u64,
    /// Where the program headers are in the file.
    pub phoff: u64,
    /// Where the section headers are in the file.
    pub shoff: u64,
    /// Flags of the processor.
    pub flags: u32,
    /// Size of this header.
    pub ehsize: u16,
    /// Size of a program header.
    pub phentsize: u16,
    /// Number of program headers.
    pub phnum: u16,
    /// Size of a section header.
    pub shentsize: u16,
    /// Number of section headers.
    pub shnum: u16,
    /// Index of the section that holds the names of sections.
    pub shstrndx: u16,
}

/// `Elf64_Phdr`: a part of the file that a loader needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProgramHeader {
    /// PT_*.
    pub kind: u32,
    /// PF_*.
    pub flags: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Virtual address.
    pub vaddr: u64,
    /// Physical address, without a meaning here.
    pub paddr: u64,
    /// Bytes in the file.
    pub filesz: u64,
    /// Bytes in memory.
    pub memsz: u64,
    /// Alignment.
    pub align: u64,
}

/// `Elf64_Shdr`: a part of the file that concerns linkers and debuggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SectionHeader {
    /// Offset of the name in the section of names.
    pub name: u32,
    /// SHT_*.
    pub kind: u32,
    /// SHF_*.
    pub flags: u64,
    /// Virtual address.
    pub addr: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub size: u64,
    /// Index of another section.
    pub link: u32,
    /// More, by kind.
    pub info: u32,
    /// Alignment.
    pub addralign: u64,
    /// Size of an entry.
    pub entsize: u64,
}

/// `Elf64_Sym`: a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Symbol {
    /// Offset of the name in the table's strings.
    pub name: u32,
    /// Binding and type.
    pub info: u8,
    /// Visibility.
    pub other: u8,
    /// Section that it is in.
    pub shndx: u16,
    /// Address.
    pub value: u64,
    /// Bytes.
    pub size: u64,
}

const _: () = assert!(
    size_of::<FileHeader>() == 64
        && size_of::<ProgramHeader>() == 56
        && size_of::<SectionHeader>() == 64
        && size_of::<Symbol>() == 24
);

/// Values of [`FileHeader::kind`].
pub mod file_kind {
    /// A program at a fixed address.
    pub const EXEC: u16 = 2;
    /// A program or library that may be placed anywhere.
    pub const DYN: u16 = 3;
    /// A core file.
    pub const CORE: u16 = 4;
}

/// Values of [`ProgramHeader::kind`].
pub mod program_kind {
    /// To be loaded.
    pub const LOAD: u32 = 1;
    /// Path of the interpreter.
    pub const INTERP: u32 = 3;
    /// Notes.
    pub const NOTE: u32 = 4;
    /// The program headers themselves.
    pub const PHDR: u32 = 6;
    /// Index of the unwind information.
    pub const GNU_EH_FRAME: u32 = 0x6474_e550;
    /// Protection of the stack.
    pub const GNU_STACK: u32 = 0x6474_e551;
}

/// Bits of [`ProgramHeader::flags`].
pub mod program_flags {
    /// Executable.
    pub const X: u32 = 1;
    /// Writable.
    pub const W: u32 = 2;
    /// Readable.
    pub const R: u32 = 4;
}

/// Values of [`SectionHeader::kind`].
pub mod section_kind {
    /// Symbols.
    pub const SYMTAB: u32 = 2;
    /// Symbols for the dynamic linker.
    pub const DYNSYM: u32 = 11;
}

/// Values of [`Symbol::kind`].
pub mod symbol_kind {
    /// Not said.
    pub const NOTYPE: u8 = 0;
    /// A function.
    pub const FUNC: u8 = 2;
    /// A function that returns the address of a function.
    pub const GNU_IFUNC: u8 = 10;
}

/// Values of [`Symbol::binding`].
pub mod symbol_binding {
    /// Seen by everybody.
    pub const GLOBAL: u8 = 1;
    /// The same, unless there is another one.
    pub const WEAK: u8 = 2;
}

const X86_64: u16 = 62;

impl FileHeader {
    /// Reads the header at the beginning of a file, if that is a 64-bit little-endian ELF file.
    pub fn read(head: &[u8]) -> Option<Self> {
        let (header, _) = Self::read_from_prefix(head).ok()?;
        header.ident.starts_with(b"\x7fELF\x02\x01").then_some(header)
    }

    /// Whether it is for this processor.
    pub fn is_for_x86_64(&self) -> bool {
        self.machine == X86_64
    }

    /// Bytes of the table of program headers; `None` when its entries are not of the known size.
    pub fn program_table_len(&self) -> Option<usize> {
        let known = usize::from(self.phentsize) == size_of::<ProgramHeader>();
        known.then(|| usize::from(self.phnum) * size_of::<ProgramHeader>())
    }
}

impl Symbol {
    /// What it is.
    pub fn kind(&self) -> u8 {
        self.info & 15
    }

    /// Its visibility to other files.
    pub fn binding(&self) -> u8 {
        self.info >> 4
    }
}

/// The entries of a table; half an entry at the end is left out.
pub fn entries<T: FromBytes + Immutable>(table: &[u8]) -> impl Iterator<Item = T> {
    table.chunks_exact(size_of::<T>()).filter_map(|entry| T::read_from_bytes(entry).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_file() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let header = FileHeader::read(&file).unwrap();
        assert!(header.is_for_x86_64() && header.kind == file_kind::DYN || header.kind == file_kind::EXEC);
        let table = &file[header.phoff as usize..][..header.program_table_len().unwrap()];
        let loads = entries::<ProgramHeader>(table).filter(|p| p.kind == program_kind::LOAD);
        assert!(loads.count() >= 2);
        assert_eq!(FileHeader::read(&file[..63]), None);
        assert_eq!(FileHeader::read(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn tables_of_another_form_have_no_length() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let mut header = FileHeader::read(&file).unwrap();
        header.phentsize = 57;
        assert_eq!(header.program_table_len(), None);
    }

    #[test]
    fn half_an_entry_is_none() {
        assert_eq!(entries::<Symbol>(&[0; 47]).count(), 1);
    }
}

//! Core files: headers and notes. See elf(5), core(5), and `struct elf_prstatus` of sys/procfs.h.

use crate::{FileHeader, ProgramHeader, X86_64, file_kind, program_flags, program_kind};
use zerocopy::IntoBytes;

/// Kinds of notes.
pub mod note_kind {
    /// Registers and more of a thread.
    pub const PRSTATUS: u32 = 1;
    /// Registers of the floating-point unit.
    pub const PRFPREG: u32 = 2;
    /// The process.
    pub const PRPSINFO: u32 = 3;
    /// The auxiliary vector.
    pub const AUXV: u32 = 6;
    /// Extended state.
    pub const XSTATE: u32 = 0x202;
    /// Where the components of extended states lie.
    pub const XSAVE_LAYOUT: u32 = 0x205;
    /// Mapped files.
    pub const FILE: u32 = 0x4649_4c45;
    /// The signal.
    pub const SIGINFO: u32 = 0x5349_4749;
}

const PAGE: u64 = 4096;
/// Most bytes of the names in the list of mapped files.
const MAX_NAMES: usize = 4 << 20;
/// Most segments of memory: their count has 16 bits.
pub const MAX_SEGMENTS: usize = 0xff00;
/// Bytes of the part of an extended state that NT_PRFPREG holds.
const LEGACY: usize = 512;

/// A segment of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// PROT_*.
    pub prot: i32,
    /// Bytes of it that the file holds.
    pub held: u64,
}

/// What the file begins with; the memory follows at the second value, each segment behind the one before.
pub fn head(notes: &[u8], segments: &[Segment]) -> (Vec<u8>, u64) {
    let count = segments.len() + 1;
    let notes_at = (size_of::<FileHeader>() + count * size_of::<ProgramHeader>()) as u64;
    let data_at = (notes_at + notes.len() as u64).next_multiple_of(PAGE);
    let mut ident = [0; 16];
    ident[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let file = FileHeader {
        ident,
        kind: file_kind::CORE,
        machine: X86_64,
        version: 1,
        entry: 0,
        phoff: size_of::<FileHeader>() as u64,
        shoff: 0,
        flags: 0,
        ehsize: size_of::<FileHeader>() as u16,
        phentsize: size_of::<ProgramHeader>() as u16,
        phnum: count as u16,
        shentsize: 0,
        shnum: 0,
        shstrndx: 0,
    };
    let mut out = file.as_bytes().to_vec();
    let note = ProgramHeader {
        kind: program_kind::NOTE,
        flags: 0,
        offset: notes_at,
        vaddr: 0,
        paddr: 0,
        filesz: notes.len() as u64,
        memsz: 0,
        align: 4,
    };
    out.extend(note.as_bytes());
    let mut at = data_at;
    for segment in segments {
        let bit = |prot: i32, flag: u32| if segment.prot & prot != 0 { flag } else { 0 };
        let header = ProgramHeader {
            kind: program_kind::LOAD,
            flags: bit(libc::PROT_READ, program_flags::R)
                | bit(libc::PROT_WRITE, program_flags::W)
                | bit(libc::PROT_EXEC, program_flags::X),
            offset: at,
            vaddr: segment.start,
            paddr: 0,
            filesz: segment.held,
            memsz: segment.end - segment.start,
            align: PAGE,
        };
        out.extend(header.as_bytes());
        at += segment.held;
    }
    out.extend(notes);
    (out, data_at)
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// The signal that ends the process, or 0.
    pub signo: i32,
    /// Its si_code.
    pub code: i32,
    /// Pending signals.
    pub pending: u64,
    /// Blocked signals.
    pub blocked: u64,
    /// IDs of the thread, the process's parent, process group and session.
    pub ids: [i32; 4],
    /// Registers, in the order of `struct user_regs_struct`.
    pub regs: [u64; 27],
    /// Extended state as PTRACE_GETREGSET gives it, or nothing.
    pub xstate: Vec<u8>,
}

/// The components (XCR0) that the extended states of threads are about.
pub fn enabled(threads: &[Thread]) -> Option<u64> {
    const XCR0: usize = 464;
    let words = threads.first()?.xstate.get(XCR0..)?.first_chunk()?;
    Some(u64::from_le_bytes(*words))
}

/// A component of extended states (`struct x86_xfeat_component`): its number, size, offset, and 0.
pub type XstateComponent = [u32; 4];

/// A process.
#[derive(Clone, Debug)]
pub struct Process<'a> {
    /// The components of its threads' extended states, but for the first two.
    pub layout: &'a [XstateComponent],
    /// Its niceness.
    pub nice: i8,
    /// User and group.
    pub owner: [u32; 2],
    /// IDs of the process, its parent, process group and session.
    pub ids: [i32; 4],
    /// Name, at most 16 bytes.
    pub comm: &'a [u8],
    /// Command line; zero bytes stand between the words.
    pub line: &'a [u8],
    /// The whole siginfo_t of the signal that ends it.
    pub siginfo: Option<&'a [u8]>,
    /// Auxiliary vector.
    pub auxv: &'a [u8],
    /// Mapped files.
    pub files: &'a [MappedFile],
}

/// A mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Offset in the file in bytes.
    pub offset: u64,
    /// The file's name.
    pub name: Vec<u8>,
}

/// All notes: those of the process stand between those of its first thread, which is the one that dies.
pub fn notes(process: &Process<'_>, threads: &[Thread]) -> Vec<u8> {
    use note_kind as kind;
    let mut out = Vec::new();
    for (i, thread) in threads.iter().enumerate() {
        note(&mut out, b"CORE\0", kind::PRSTATUS, &prstatus(thread));
        if i == 0 {
            note(&mut out, b"CORE\0", kind::PRPSINFO, &prpsinfo(process));
            if let Some(info) = process.siginfo {
                note(&mut out, b"CORE\0", kind::SIGINFO, info);
            }
            note(&mut out, b"CORE\0", kind::AUXV, process.auxv);
            note(&mut out, b"CORE\0", kind::FILE, &files(process.files));
        }
        if let Some(legacy) = thread.xstate.get(..LEGACY) {
            note(&mut out, b"CORE\0", kind::PRFPREG, legacy);
            note(&mut out, b"LINUX\0", kind::XSTATE, &thread.xstate);
        }
    }
    if !process.layout.is_empty() {
        note(&mut out, b"LINUX\0", kind::XSAVE_LAYOUT, process.layout.as_bytes());
    }
    out
}

fn note(out: &mut Vec<u8>, name: &[u8], kind: u32, bytes: &[u8]) {
    out.extend((name.len() as u32).to_le_bytes());
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(kind.to_le_bytes());
    for part in [name, bytes] {
        out.extend(part);
        out.resize(out.len().next_multiple_of(4), 0);
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(to) = bytes.get_mut(at..at + value.len()) {
        to.copy_from_slice(value);
    }
}

/// struct elf_prstatus.
fn prstatus(t: &Thread) -> Vec<u8> {
    let mut b = vec![0; 336];
    put(&mut b, 0, &t.signo.to_le_bytes());
    put(&mut b, 4, &t.code.to_le_bytes());
    put(&mut b, 12, &(t.signo as i16).to_le_bytes());
    put(&mut b, 16, &t.pending.to_le_bytes());
    put(&mut b, 24, &t.blocked.to_le_bytes());
    for (i, id) in t.ids.iter().enumerate() {
        put(&mut b, 32 + 4 * i, &id.to_le_bytes());
    }
    for (i, word) in t.regs.iter().enumerate() {
        put(&mut b, 112 + 8 * i, &word.to_le_bytes());
    }
    put(&mut b, 328, &i32::from(!t.xstate.is_empty()).to_le_bytes());
    b
}

/// struct elf_prpsinfo.
fn prpsinfo(process: &Process<'_>) -> Vec<u8> {
    let mut b = vec![0; 136];
    b[1] = b'R';
    b[3] = process.nice as u8;
    for (i, id) in process.owner.iter().enumerate() {
        put(&mut b, 16 + 4 * i, &id.to_le_bytes());
    }
    for (i, id) in process.ids.iter().enumerate() {
        put(&mut b, 24 + 4 * i, &id.to_le_bytes());
    }
    put(&mut b, 40, process.comm.get(..16).unwrap_or(process.comm));
    let line: Vec<u8> = process.line.iter().take(79).map(|b| if *b == 0 { b' ' } else { *b }).collect();
    put(&mut b, 56, &line);
    b
}

/// NT_FILE: the mapped files.
fn files(all: &[MappedFile]) -> Vec<u8> {
    let (mut numbers, mut names, mut count) = (Vec::new(), Vec::new(), 0u64);
    for file in all {
        if names.len() + file.name.len() > MAX_NAMES {
            break;
        }
        for word in [file.start, file.end, file.offset / PAGE] {
            numbers.extend(word.to_le_bytes());
        }
        names.extend(&file.name);
        names.push(0);
        count += 1;
    }
    let mut out = Vec::new();
    out.extend(count.to_le_bytes());
    out.extend(PAGE.to_le_bytes());
    out.extend(numbers);
    out.extend(names);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    #[test]
    fn a_file_is_laid_out_as_its_headers_say() {
        let thread = Thread {
            signo: 11,
            code: 1,
            pending: 0,
            blocked: 0,
            ids: [7, 1, 7, 7],
            regs: [9; 27],
            xstate: vec![0; 600],
        };
        let mapped = [MappedFile { start: 0x1000, end: 0x3000, offset: 0x2000, name: b"/bin/x".to_vec() }];
        let process = Process {
            layout: &[[2, 256, 576, 0]],
            nice: 0,
            owner: [1, 2],
            ids: [7, 1, 7, 7],
            comm: b"a-name-that-is-too-long",
            line: b"x\0y\0",
            siginfo: None,
            auxv: &[0; 16],
            files: &mapped,
        };
        let notes = notes(&process, &[thread.clone(), thread]);
        let segments = [
            Segment { start: 0x1000, end: 0x3000, prot: libc::PROT_READ, held: 0x1000 },
            Segment { start: 0x5000, end: 0x6000, prot: libc::PROT_READ | libc::PROT_WRITE, held: 0x1000 },
        ];
        let (head, data_at) = head(&notes, &segments);
        assert!(data_at >= head.len() as u64 && data_at.is_multiple_of(PAGE));
        let file = FileHeader::read(&head).unwrap();
        assert!(file.kind == file_kind::CORE && file.phnum == 3 && file.is_for_x86_64());
        let table = &head[file.phoff as usize..][..file.program_table_len().unwrap()];
        let headers: Vec<ProgramHeader> =
            table.chunks(56).map(|b| ProgramHeader::read_from_bytes(b).unwrap()).collect();
        assert_eq!(headers[0].kind, program_kind::NOTE);
        assert_eq!(&head[headers[0].offset as usize..], notes);
        assert_eq!((headers[1].offset, headers[2].offset), (data_at, data_at + 0x1000));
        assert_eq!((headers[1].flags, headers[2].flags), (4, 6));
        // Kinds of the notes, in order.
        let (mut at, mut kinds) = (0, Vec::new());
        while at < notes.len() {
            let word = |i: usize| u32::from_le_bytes(notes[at + i..at + i + 4].try_into().unwrap()) as usize;
            kinds.push(word(8) as u32);
            at += 12 + word(0).next_multiple_of(4) + word(4).next_multiple_of(4);
        }
        use note_kind as k;
        let want = [k::PRSTATUS, k::PRPSINFO, k::AUXV, k::FILE, k::PRFPREG, k::XSTATE];
        assert_eq!(kinds[..6], want);
        assert_eq!(kinds[6..], [k::PRSTATUS, k::PRFPREG, k::XSTATE, k::XSAVE_LAYOUT]);
    }
}

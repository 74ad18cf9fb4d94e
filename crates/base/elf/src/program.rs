//! Programs: the segments that are loaded, and their addresses. Errors are Linux's: ENOEXEC for a file that is no
//! program of this machine.

use crate::{FileHeader, ProgramHeader, entries, file_kind, program_flags, program_kind};
use abi::{Errno, PAGE_SIZE, Result, page_down, page_up};

/// A loadable segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Virtual address.
    pub vaddr: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes from the file.
    pub filesz: u64,
    /// Bytes in memory.
    pub memsz: u64,
    /// PROT_* bits.
    pub prot: i32,
}

/// A checked image.
#[derive(Clone, Debug)]
pub struct Image {
    /// ET_DYN: may be placed anywhere.
    pub relocatable: bool,
    /// Entry point, not relocated.
    pub entry: u64,
    /// Segments in the file's order.
    pub segments: Vec<Segment>,
    /// Something about the segments cannot be loaded. Linux finds out when the old program is gone already.
    pub broken: bool,
    /// Where the program headers are in memory, not relocated.
    pub phdr: u64,
    /// Number of program headers.
    pub phnum: u64,
    /// Path of the interpreter.
    pub interp: Option<Vec<u8>>,
    /// PT_GNU_STACK asks for an executable stack.
    pub exec_stack: bool,
    /// Largest alignment of a segment.
    pub align: u64,
}

/// Most bytes of program headers that Linux reads.
const MAX_PHDRS: usize = 65536;

impl Image {
    /// Lowest and highest address, page rounded.
    pub fn span(&self) -> (u64, u64) {
        let lo = self.segments.iter().map(|s| page_down(s.vaddr)).min().unwrap_or(0);
        let hi = self.segments.iter().filter_map(|s| page_up(s.vaddr + s.memsz)).max().unwrap_or(0);
        (lo, hi)
    }
}

/// Reads and checks an image. `read` fills a buffer from an offset and says how much there was.
pub fn parse(read: &mut dyn FnMut(u64, &mut [u8]) -> Result<usize>) -> Result<Image> {
    let mut head = [0u8; size_of::<FileHeader>()];
    let n = read(0, &mut head)?;
    if n < head.len() {
        return Err(Errno::ENOEXEC);
    }
    let h = FileHeader::read(&head).ok_or(Errno::ENOEXEC)?;
    if !h.is_for_x86_64() || !matches!(h.kind, file_kind::EXEC | file_kind::DYN) {
        return Err(Errno::ENOEXEC);
    }
    let bytes = h.program_table_len().ok_or(Errno::ENOEXEC)?;
    if bytes == 0 || bytes > MAX_PHDRS {
        return Err(Errno::ENOEXEC);
    }
    let mut table = vec![0u8; bytes];
    if read(h.phoff, &mut table)? < bytes {
        return Err(Errno::ENOEXEC);
    }
    let mut image = Image {
        relocatable: h.kind == file_kind::DYN,
        entry: h.entry,
        segments: Vec::new(),
        broken: false,
        phdr: 0,
        phnum: h.phnum.into(),
        interp: None,
        exec_stack: false,
        align: PAGE_SIZE,
    };
    for p in entries::<ProgramHeader>(&table) {
        match p.kind {
            program_kind::LOAD => load_segment(&mut image, &p, h.phoff),
            program_kind::INTERP if image.interp.is_none() => image.interp = Some(interp(&p, read)?),
            program_kind::GNU_STACK => image.exec_stack = p.flags & program_flags::X != 0,
            program_kind::PHDR => image.phdr = p.vaddr,
            _ => {}
        }
    }
    image.broken |= image.segments.is_empty();
    Ok(image)
}

fn load_segment(image: &mut Image, p: &ProgramHeader, phoff: u64) {
    let s = Segment {
        vaddr: p.vaddr,
        offset: p.offset,
        filesz: p.filesz,
        memsz: p.memsz,
        prot: protection(p.flags),
    };
    let end = s.vaddr.checked_add(s.memsz);
    let file_end = s.offset.checked_add(s.filesz);
    if s.filesz > s.memsz
        || end.is_none_or(|x| x > 1 << 47)
        || file_end.is_none_or(|x| x > i64::MAX as u64)
        || s.filesz > 0 && s.vaddr % PAGE_SIZE != s.offset % PAGE_SIZE
    {
        image.broken = true;
        return;
    }
    if p.align.is_power_of_two() {
        image.align = image.align.max(p.align.min(1 << 30));
    }
    if image.phdr == 0 && s.offset <= phoff && phoff < s.offset + s.filesz {
        image.phdr = s.vaddr + (phoff - s.offset);
    }
    if s.memsz > 0 {
        image.segments.push(s);
    }
}

fn interp(p: &ProgramHeader, read: &mut dyn FnMut(u64, &mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let len = p.filesz as usize;
    if !(2..=abi::PATH_MAX).contains(&len) {
        return Err(Errno::ENOEXEC);
    }
    let mut path = vec![0; len];
    if read(p.offset, &mut path)? < len {
        return Err(Errno::EIO);
    }
    if path.pop() != Some(0) {
        return Err(Errno::ENOEXEC);
    }
    if let Some(z) = path.iter().position(|&b| b == 0) {
        path.truncate(z);
    }
    Ok(path)
}

fn protection(flags: u32) -> i32 {
    let bit = |f: u32, p: i32| if flags & f != 0 { p } else { 0 };
    bit(program_flags::R, libc::PROT_READ)
        | bit(program_flags::W, libc::PROT_WRITE)
        | bit(program_flags::X, libc::PROT_EXEC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(data: &[u8]) -> impl FnMut(u64, &mut [u8]) -> Result<usize> + '_ {
        move |off, buf| {
            let from = data.get(off.min(data.len() as u64) as usize..).unwrap_or(&[]);
            let n = from.len().min(buf.len());
            buf[..n].copy_from_slice(&from[..n]);
            Ok(n)
        }
    }

    #[test]
    fn own_binary_parses_and_every_truncation_is_refused_or_parses() {
        let data = std::fs::read("/proc/self/exe").unwrap();
        let image = parse(&mut reader(&data)).unwrap();
        assert!(image.segments.len() >= 2 && image.entry != 0);
        for cut in 0..512 {
            let r = parse(&mut reader(&data[..cut]));
            assert!(matches!(r, Err(Errno::ENOEXEC | Errno::EIO) | Ok(_)));
        }
    }

    #[test]
    fn every_flipped_header_byte_is_survived() {
        let data = std::fs::read("/proc/self/exe").unwrap();
        let mut d = data[..4096].to_vec();
        for i in 0..1024 {
            for v in [0u8, 0xff, 0x7f, 0x80] {
                let old = std::mem::replace(&mut d[i], v);
                let _ = parse(&mut reader(&d));
                d[i] = old;
            }
        }
    }
}

//! ELF images: what load and where. See elf(5). Errors are Linux's: ENOEXEC for
//! what is no program for this machine.

use abi::{Errno, PAGE_SIZE, Result, page_down, page_up};
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::pod;
use object::read::elf::{FileHeader, ProgramHeader};

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

/// Bytes of the file header.
pub const HEADER: usize = 64;
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
    let mut head = [0u8; HEADER];
    let n = read(0, &mut head)?;
    if n < head.len() {
        return Err(Errno::ENOEXEC);
    }
    let (h, _) = pod::from_bytes::<FileHeader64<LE>>(&head).map_err(|()| Errno::ENOEXEC)?;
    let e = LE;
    let kind = h.e_type(e);
    if h.e_ident.magic != elf::ELFMAG
        || h.e_ident.class != elf::ELFCLASS64
        || h.e_ident.data != elf::ELFDATA2LSB
        || h.e_machine(e) != elf::EM_X86_64
        || !matches!(kind, elf::ET_EXEC | elf::ET_DYN)
        || h.e_phentsize(e) as usize != size_of::<ProgramHeader64<LE>>()
    {
        return Err(Errno::ENOEXEC);
    }
    let count = h.e_phnum(e) as usize;
    let bytes = count * size_of::<ProgramHeader64<LE>>();
    if count == 0 || bytes > MAX_PHDRS {
        return Err(Errno::ENOEXEC);
    }
    let mut table = vec![0u8; bytes];
    if read(h.e_phoff(e), &mut table)? < bytes {
        return Err(Errno::ENOEXEC);
    }
    let (ph, _) = pod::slice_from_bytes::<ProgramHeader64<LE>>(&table, count).map_err(|()| Errno::ENOEXEC)?;
    let mut image = Image {
        relocatable: kind == elf::ET_DYN,
        entry: h.e_entry(e),
        segments: Vec::new(),
        broken: false,
        phdr: 0,
        phnum: count as u64,
        interp: None,
        exec_stack: false,
        align: PAGE_SIZE,
    };
    for p in ph {
        match p.p_type(e) {
            elf::PT_LOAD => load_segment(&mut image, p, h.e_phoff(e)),
            elf::PT_INTERP if image.interp.is_none() => image.interp = Some(interp(p, read)?),
            elf::PT_GNU_STACK => image.exec_stack = p.p_flags(e) & elf::PF_X != 0,
            elf::PT_PHDR => image.phdr = p.p_vaddr(e),
            _ => {}
        }
    }
    image.broken |= image.segments.is_empty();
    Ok(image)
}

fn load_segment(image: &mut Image, p: &ProgramHeader64<LE>, phoff: u64) {
    let e = LE;
    let s = Segment {
        vaddr: p.p_vaddr(e),
        offset: p.p_offset(e),
        filesz: p.p_filesz(e),
        memsz: p.p_memsz(e),
        prot: protection(p.p_flags(e)),
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
    if p.p_align(e).is_power_of_two() {
        image.align = image.align.max(p.p_align(e).min(1 << 30));
    }
    if image.phdr == 0 && s.offset <= phoff && phoff < s.offset + s.filesz {
        image.phdr = s.vaddr + (phoff - s.offset);
    }
    if s.memsz > 0 {
        image.segments.push(s);
    }
}

fn interp(p: &ProgramHeader64<LE>, read: &mut dyn FnMut(u64, &mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let len = p.p_filesz(LE) as usize;
    if !(2..=abi::PATH_MAX).contains(&len) {
        return Err(Errno::ENOEXEC);
    }
    let mut path = vec![0; len];
    if read(p.p_offset(LE), &mut path)? < len {
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
    bit(elf::PF_R, libc::PROT_READ) | bit(elf::PF_W, libc::PROT_WRITE) | bit(elf::PF_X, libc::PROT_EXEC)
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

//! PROCMAP_QUERY: ioctl(2) of /proc/PID/maps that asks for one mapping.

use crate::pid::maps::{self, Line};
use abi::stat::{major, minor};
use abi::{Errno, PAGE_SIZE, Result};
use caller::UserMemory;
use kernfs::At;
use mm::Vma;
use vfs::{Caller, OpenFile};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `_IOWR('f', 17, struct procmap_query)`.
pub const PROCMAP_QUERY: u32 = 0xc068_6611;

/// `struct procmap_query`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Query {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    major: u32,
    minor: u32,
    name_size: u32,
    build_id_size: u32,
    name_addr: u64,
    build_id_addr: u64,
}

const SIZE: usize = size_of::<Query>();
/// The size up to the address: the least that a program may give.
const LEAST: u64 = 24;

const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;
const COVERING_OR_NEXT: u64 = 0x10;
const FILE_BACKED: u64 = 0x20;
const RIGHTS: u64 = READABLE | WRITABLE | EXECUTABLE | SHARED;
const KNOWN: u64 = RIGHTS | COVERING_OR_NEXT | FILE_BACKED;

/// Longest name.
const PATH_MAX: u32 = 4096;
/// Longest build ID.
const BUILD_ID_MAX: usize = 20;

fn flags(v: &Vma) -> u64 {
    let bit = |prot: i32, flag: u64| if v.prot & prot != 0 { flag } else { 0 };
    bit(libc::PROT_READ, READABLE)
        | bit(libc::PROT_WRITE, WRITABLE)
        | bit(libc::PROT_EXEC, EXECUTABLE)
        | if v.shared { SHARED } else { 0 }
}

/// The mapping at an address, or the next one, that a question is about. ENOENT; ESRCH when the memory is gone.
fn find(at: &At, q: &Query) -> Result<Line> {
    let mm = at.mm()?.ok_or(Errno::ESRCH)?;
    let mut addr = q.addr;
    loop {
        let own = mm.with_map(|m| m.overlapping(addr, m.max).find(|v| v.end > addr).cloned());
        let kernel = maps::of_the_kernel(at).filter(|l| l.vma.end > addr);
        let first = kernel.chain(own.map(|vma| maps::line(at, vma))).min_by_key(|l| l.vma.start);
        let line = first.ok_or(Errno::ENOENT)?;
        let asked = q.flags & RIGHTS;
        let fits =
            flags(&line.vma) & asked == asked && (q.flags & FILE_BACKED == 0 || line.vma.file.is_some());
        let next = q.flags & COVERING_OR_NEXT != 0;
        if fits && (next || line.vma.start <= addr) {
            return Ok(line);
        }
        if !next {
            return Err(Errno::ENOENT);
        }
        addr = line.vma.end;
    }
}

/// Answers the request. E2BIG, EINVAL, ENOENT, ESRCH, ENAMETOOLONG.
pub fn query(at: &At, mem: &mut dyn UserMemory, arg: u64) -> Result<u64> {
    let size: u64 = mem.read_value(arg)?;
    if size > PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    if size < LEAST {
        return Err(Errno::EINVAL);
    }
    let mut bytes = vec![0; (size as usize).max(SIZE)];
    mem.copy_in(arg, &mut bytes[..size as usize])?;
    let (known, tail) = bytes.split_at(SIZE);
    if tail.iter().any(|byte| *byte != 0) {
        return Err(Errno::E2BIG);
    }
    let mut q = Query::read_from_bytes(known).map_err(|_| Errno::EINVAL)?;
    let half = |size: u32, addr: u64| (size == 0) != (addr == 0);
    if q.flags & !KNOWN != 0 || half(q.name_size, q.name_addr) || half(q.build_id_size, q.build_id_addr) {
        return Err(Errno::EINVAL);
    }
    let line = find(at, &q)?;
    let vma = &line.vma;
    (q.start, q.end, q.vma_flags, q.page_size) = (vma.start, vma.end, flags(vma), PAGE_SIZE);
    q.offset = if vma.file.is_some() { vma.offset } else { 0 };
    (q.inode, q.major, q.minor) = (line.object.1, major(line.object.0), minor(line.object.0));
    let mut id = Vec::new();
    if q.build_id_size > 0 {
        id = vma.file.as_ref().and_then(|file| build_id(at.cx().ok()?, file)).unwrap_or_default();
        if id.len() > q.build_id_size as usize {
            return Err(Errno::ENAMETOOLONG);
        }
        q.build_id_size = id.len() as u32;
    }
    let mut name = Vec::new();
    if q.name_size > 0 {
        if !line.name.is_empty() {
            name = line.name;
            name.push(0);
        }
        if name.len() > q.name_size.min(PATH_MAX) as usize {
            return Err(Errno::ENAMETOOLONG);
        }
        q.name_size = name.len() as u32;
    }
    mem.copy_out(q.name_addr, &name)?;
    mem.copy_out(q.build_id_addr, &id)?;
    mem.copy_out(arg, &q.as_bytes()[..(size as usize).min(SIZE)])?;
    Ok(0)
}

/// The build ID of an ELF file of 64 bits: the note NT_GNU_BUILD_ID of its PT_NOTE segments. See elf(5).
fn build_id(cx: &dyn Caller, file: &OpenFile) -> Option<Vec<u8>> {
    let read = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        (file.ops.read(cx, file, &mut bytes, at).ok()? == len).then_some(bytes)
    };
    let header = read(0, 64)?;
    if header.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let (table, entry, count) = (word8(&header, 32)?, word2(&header, 54)?, word2(&header, 56)?);
    if entry != 56 {
        return None;
    }
    let table = read(table, usize::from(count.min(64)) * 56)?;
    table.chunks_exact(56).filter(|segment| word4(segment, 0) == Some(4)).find_map(|segment| {
        let (offset, len) = (word8(segment, 8)?, word8(segment, 32)?.min(PAGE_SIZE));
        note(&read(offset, len as usize)?)
    })
}

/// The build ID among notes.
fn note(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let (name, len, kind) = (word4(notes, 0)?, word4(notes, 4)?, word4(notes, 8)?);
        let at = 12usize.checked_add((name as usize).checked_next_multiple_of(4)?)?;
        let value = notes.get(at..at.checked_add(len as usize)?)?;
        if kind == 3
            && notes.get(12..16) == Some(b"GNU\0")
            && name == 4
            && (1..=BUILD_ID_MAX).contains(&value.len())
        {
            return Some(value.to_vec());
        }
        notes = notes.get(at + (len as usize).checked_next_multiple_of(4)?..)?;
    }
}

fn word2(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word4(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn word8(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_has_its_size() {
        assert_eq!(SIZE, (PROCMAP_QUERY >> 16 & 0x3fff) as usize);
    }

    #[test]
    fn notes() {
        let mut all = [[4u32, 2, 1].map(u32::to_le_bytes).concat(), b"GNU\0ab\0\0".to_vec()].concat();
        assert_eq!(note(&all), None);
        all.extend([[4u32, 3, 3].map(u32::to_le_bytes).concat(), b"GNU\0xyz\0".to_vec()].concat());
        assert_eq!(note(&all), Some(b"xyz".to_vec()));
        assert_eq!(note(&all[..all.len() - 2]), None);
        assert_eq!(note(&[255; 64]), None);
    }
}

//! Core files: where they go (core_pattern), which mappings they hold (coredump_filter), how much (RLIMIT_CORE). See core(5).
//!
//! The file is an ELF file of type ET_CORE: one note segment, then one segment for each mapping. A program as a handler of core
//! files (`|program`) is not run: no file is made then, and the wait status says so.

use crate::processes::corenotes;
use abi::{PAGE_SIZE, SigInfo};
use caller::{HasCredentials, Identity};
use mm::{TOUCHED, TRAMPOLINES, Vma};
use namei::OpenHow;
use namei::lookup::Start;
use namei::open::open_at;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use task::{CoreThread, Current};
use vfs::OpenFile;

/// Bytes copied at once.
const PIECE: usize = 256 << 10;
/// Larger mappings are reservations rather than data: their content is left out.
const MAX_MAPPING: u64 = 4 << 30;
const EHDR: u64 = 64;
const PHDR: u64 = 56;

/// A segment of memory.
struct Segment {
    start: u64,
    end: u64,
    prot: i32,
    /// Bytes of it that the file holds.
    held: u64,
}

/// Writes the core file of a process that a signal ends; true when there is one, if only its beginning for want of
/// room.
pub fn dump(c: &mut Current, info: &SigInfo) -> bool {
    let limit = c.task.group.rlimit(libc::RLIMIT_CORE as i32);
    if limit < PAGE_SIZE || c.mm.dumpable.load(Ordering::Relaxed) != 1 {
        return false;
    }
    let Some(name) = file_name(c, info) else { return false };
    let Some(threads) = c.gather() else { return false };
    let file = create(c, &name);
    // A policy may have refused the file and want more.
    c.task.serve_sentence();
    let done = file.is_some_and(|file| {
        let whole = write(c, &file, info, &threads, limit);
        log::debug!("[{}] core file, whole: {}", c.task.tid(), whole.is_some());
        true
    });
    c.scatter();
    done
}

/// The name that core_pattern gives. `None`: it names a program.
fn file_name(c: &Current, info: &SigInfo) -> Option<Vec<u8>> {
    let set = |key| c.kernel().sysctls.lock().get(key).cloned();
    let pattern = set("kernel/core_pattern").unwrap_or_else(|| "core".into());
    let pattern = pattern.trim_end();
    if pattern.starts_with('|') || pattern.is_empty() {
        return None;
    }
    let pid = c.task.group.pid.own_nr().to_string();
    let mut name = Vec::new();
    let mut has_pid = false;
    let mut bytes = pattern.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            name.push(b);
            continue;
        }
        let comm = || c.comm().into_iter().map(|b| if b == b'/' { b'!' } else { b }).collect::<Vec<u8>>();
        let creds = c.creds();
        let value = match bytes.next() {
            Some(b'%') => b"%".to_vec(),
            Some(b'p') => {
                has_pid = true;
                pid.clone().into_bytes()
            }
            Some(b'P') => c.task.tgid().to_string().into_bytes(),
            Some(b'i' | b'I') => c.task.own_tid().to_string().into_bytes(),
            Some(b'u') => creds.uid.to_string().into_bytes(),
            Some(b'g') => creds.gid.to_string().into_bytes(),
            Some(b'd') => b"1".to_vec(),
            Some(b's') => info.signo.to_string().into_bytes(),
            Some(b't') => {
                let now = hostsys::clock::gettime_ns(libc::CLOCK_REALTIME).unwrap_or(0);
                (now / 1_000_000_000).to_string().into_bytes()
            }
            Some(b'h') => c.task.nsproxy().uts.names().nodename.into_bytes(),
            Some(b'e' | b'f') => comm(),
            Some(b'c') => c.task.group.rlimit(libc::RLIMIT_CORE as i32).to_string().into_bytes(),
            _ => Vec::new(),
        };
        name.extend(value);
    }
    if !has_pid && set("kernel/core_uses_pid").is_some_and(|v| v.trim() != "0") {
        name.push(b'.');
        name.extend(pid.bytes());
    }
    Some(name)
}

/// A new file of the process's user, in place of what has the name.
fn create(c: &Current, name: &[u8]) -> Option<Arc<OpenFile>> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_NOFOLLOW;
    let view = c.fs().view();
    // Whatever else it may be, the file cannot be made then.
    let _ = namei::link::unlink(c, &view, &Start::Cwd, name);
    let file = open_at(c, &view, &Start::Cwd, name, &OpenHow::legacy(flags, 0o600).ok()?).ok()?;
    let attr = file.attr().ok()?;
    let fit = attr.mode & libc::S_IFMT == libc::S_IFREG && attr.nlink == 1 && attr.uid == c.creds().fsuid;
    if !fit {
        return None;
    }
    vfs::policing::decide_io(c, policy::Kind::FileWrite, &file).ok()?;
    Some(file)
}

/// What the file holds of each mapping, by the process's filter.
fn segments(c: &Current) -> Vec<Segment> {
    let filter = c.mm.dump_filter.load(Ordering::Relaxed);
    let wants = |bit: u32| filter & 1 << bit != 0;
    let held = |v: &Vma| {
        if v.flags & mm::DONT_DUMP != 0 {
            return 0;
        }
        let whole = match (v.shared, v.file.is_some()) {
            (false, false) => wants(0),
            (true, false) => wants(1),
            (false, true) => {
                let own = v.prot & libc::PROT_WRITE != 0 || v.flags & TOUCHED != 0;
                if own { wants(0) } else { wants(2) }
            }
            (true, true) => wants(3),
        };
        if whole && v.len() <= MAX_MAPPING {
            return v.len();
        }
        let head = v.file.is_some() && v.offset == 0 && v.prot & libc::PROT_READ != 0 && wants(4);
        let mut magic = [0; 4];
        if head && c.mm.space.read(v.start, &mut magic) == 4 && magic == *b"\x7fELF" { PAGE_SIZE } else { 0 }
    };
    let vmas: Vec<Vma> =
        c.mm.with_map(|m| m.iter().filter(|v| v.flags & TRAMPOLINES == 0).cloned().collect());
    let mut all: Vec<Segment> =
        vmas.iter().map(|v| Segment { start: v.start, end: v.end, prot: v.prot, held: held(v) }).collect();
    if let Some((start, len)) = c.kernel().platform.limits().vdso {
        let prot = libc::PROT_READ | libc::PROT_EXEC;
        all.push(Segment { start, end: start + len, prot, held: len });
    }
    // The count has 16 bits.
    all.truncate(0xff00);
    all
}

fn write(c: &mut Current, file: &OpenFile, info: &SigInfo, threads: &[CoreThread], limit: u64) -> Option<()> {
    let notes = corenotes::all(c, info, threads);
    let segments = segments(c);
    let notes_at = EHDR + PHDR * (segments.len() as u64 + 1);
    let data_at = (notes_at + notes.len() as u64).next_multiple_of(PAGE_SIZE);
    let mut head = corenotes::elf_header(segments.len() as u16 + 1);
    head.extend(corenotes::program_header(4, 0, notes_at, 0, notes.len() as u64, 0, 4));
    let mut at = data_at;
    for s in &segments {
        let flags =
            (s.prot & libc::PROT_READ) << 2 | s.prot & libc::PROT_WRITE | (s.prot & libc::PROT_EXEC) >> 2;
        let len = s.end - s.start;
        head.extend(corenotes::program_header(1, flags as u32, at, s.start, s.held, len, PAGE_SIZE));
        at += s.held;
    }
    head.extend(notes);
    put(c, file, &head, 0, limit)?;
    let mut at = data_at;
    let mut piece = vec![0; PIECE];
    for s in &segments {
        let mut from = s.start;
        while from < s.start + s.held {
            let n = (s.start + s.held - from).min(PIECE as u64) as usize;
            let part = piece.get_mut(..n)?;
            copy(c, from, part);
            // What is zero, or cannot be read, is a hole.
            for (i, page) in part.chunks(PAGE_SIZE as usize).enumerate() {
                if page.iter().any(|b| *b != 0) {
                    put(c, file, page, at + i as u64 * PAGE_SIZE, limit)?;
                }
            }
            (from, at) = (from + n as u64, at + n as u64);
            if c.is_killed() {
                return None;
            }
        }
    }
    if at > limit {
        return None;
    }
    namei::attr::ftruncate(c, file, at as i64).ok()
}

/// Reads memory; what cannot be read is zero.
fn copy(c: &mut Current, from: u64, to: &mut [u8]) {
    let mut done = 0;
    while done < to.len() {
        let rest = &mut to[done..];
        done += c.mm.space.read(from + done as u64, rest);
        if done < to.len() {
            // To the next page.
            let next = ((from + done as u64) / PAGE_SIZE + 1) * PAGE_SIZE;
            let end = ((next - from) as usize).min(to.len());
            to[done..end].fill(0);
            done = end;
        }
    }
}

fn put(c: &Current, file: &OpenFile, bytes: &[u8], at: u64, limit: u64) -> Option<()> {
    if at + bytes.len() as u64 > limit {
        return None;
    }
    let mut done = 0;
    while done < bytes.len() {
        match file.ops.write(c, file, bytes.get(done..)?, at + done as u64) {
            Ok(n) if n > 0 => done += n,
            _ => return None,
        }
    }
    Some(())
}

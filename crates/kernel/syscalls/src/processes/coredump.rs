//! Core files: where they go (core_pattern), which mappings they hold (coredump_filter), how much (RLIMIT_CORE). See core(5).
//!
//! The file is an ELF file of type ET_CORE: one note segment, then one segment for each mapping. A program as a handler of core
//! files (`|program`) is not run: no file is made then, and the wait status says so.

use crate::processes::corenotes;
use abi::{PAGE_SIZE, SigInfo};
use caller::{HasCredentials, Identity};
use elf::core_file::{self, Segment};
use mm::{Mm, TOUCHED, TRAMPOLINES, Vma};
use namei::OpenHow;
use namei::lookup::Start;
use namei::open::open_at;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use task::{CoreThread, Current, Task, ThreadGroup};
use vfs::OpenFile;

/// Bytes copied at once.
const PIECE: usize = 256 << 10;
/// Larger mappings are reservations rather than data: their content is left out.
const MAX_MAPPING: u64 = 4 << 30;
/// How long the writer waits for a reader that does not keep up, before it looks again.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a process waits at most for a core file that was asked for.
const LONGEST: Duration = Duration::from_secs(60);

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
        let (task, mm) = (c.task.clone(), c.mm.clone());
        let mut to = Dump { c, file: &file, limit };
        let whole = write(&task, &mm, Some(info), &threads, &mut to);
        log::debug!("[{}] core file, whole: {}", task.tid(), whole.is_some());
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
fn segments(task: &Task, mm: &Mm) -> Vec<Segment> {
    let filter = mm.dump_filter.load(Ordering::Relaxed);
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
        if head && mm.space.read(v.start, &mut magic) == 4 && magic == *b"\x7fELF" { PAGE_SIZE } else { 0 }
    };
    let vmas: Vec<Vma> = mm.with_map(|m| m.iter().filter(|v| v.flags & TRAMPOLINES == 0).cloned().collect());
    let mut all: Vec<Segment> =
        vmas.iter().map(|v| Segment { start: v.start, end: v.end, prot: v.prot, held: held(v) }).collect();
    if let Some((start, len)) = task.kernel().platform.limits().vdso {
        let prot = libc::PROT_READ | libc::PROT_EXEC;
        all.push(Segment { start, end: start + len, prot, held: len });
    }
    all.truncate(core_file::MAX_SEGMENTS);
    all
}

/// Where a core file is written to.
trait Target {
    /// Writes bytes at an offset. `None`: the file ends here.
    fn put(&mut self, bytes: &[u8], at: u64) -> Option<()>;
    /// Gives the file its length.
    fn finish(&mut self, len: u64) -> Option<()>;
    /// Whether the rest is not wanted any more.
    fn gives_up(&self) -> bool;
}

fn write(
    task: &Task,
    mm: &Mm,
    info: Option<&SigInfo>,
    threads: &[CoreThread],
    to: &mut dyn Target,
) -> Option<()> {
    let notes = corenotes::all(task, mm, info, threads);
    let segments = segments(task, mm);
    let (head, data_at) = core_file::head(&notes, &segments);
    to.put(&head, 0)?;
    let mut at = data_at;
    let mut piece = vec![0; PIECE];
    for s in &segments {
        let mut from = s.start;
        while from < s.start + s.held {
            let n = (s.start + s.held - from).min(PIECE as u64) as usize;
            let part = piece.get_mut(..n)?;
            copy(mm, from, part);
            // What is zero, or cannot be read, is a hole.
            let is_hole = |page: &[u8]| page.iter().all(|b| *b == 0);
            let mut pages = part.chunks(PAGE_SIZE as usize).enumerate().peekable();
            while let Some((first, page)) = pages.next() {
                if is_hole(page) {
                    continue;
                }
                let mut behind = first + 1;
                while pages.next_if(|(_, page)| !is_hole(page)).is_some() {
                    behind += 1;
                }
                let bytes = first * PAGE_SIZE as usize..(behind * PAGE_SIZE as usize).min(part.len());
                to.put(part.get(bytes)?, at + first as u64 * PAGE_SIZE)?;
            }
            (from, at) = (from + n as u64, at + n as u64);
            if to.gives_up() {
                return None;
            }
        }
    }
    to.finish(at)
}

/// Reads memory; what cannot be read is zero.
fn copy(mm: &Mm, from: u64, to: &mut [u8]) {
    let mut done = 0;
    while done < to.len() {
        let rest = &mut to[done..];
        done += mm.space.read_own(from + done as u64, rest);
        if done < to.len() {
            // To the next page.
            let next = ((from + done as u64) / PAGE_SIZE + 1) * PAGE_SIZE;
            let end = ((next - from) as usize).min(to.len());
            to[done..end].fill(0);
            done = end;
        }
    }
}

/// The file inside of a process that ends.
struct Dump<'a> {
    c: &'a mut Current,
    file: &'a OpenFile,
    limit: u64,
}

impl Target for Dump<'_> {
    fn put(&mut self, bytes: &[u8], at: u64) -> Option<()> {
        if at + bytes.len() as u64 > self.limit {
            return None;
        }
        let mut done = 0;
        while done < bytes.len() {
            match self.file.ops.write(self.c, self.file, bytes.get(done..)?, at + done as u64) {
                Ok(n) if n > 0 => done += n,
                _ => return None,
            }
        }
        Some(())
    }

    fn finish(&mut self, len: u64) -> Option<()> {
        if len > self.limit {
            return None;
        }
        namei::attr::ftruncate(self.c, self.file, len as i64).ok()
    }

    fn gives_up(&self) -> bool {
        self.c.is_killed()
    }
}

/// The pipe to a file outside, for a process that goes on. See `core_pieces` of crate `sandbox`.
struct Outside<'a> {
    pipe: &'a File,
    until: Instant,
    error: Option<String>,
}

impl Outside<'_> {
    /// Writes to the pipe, which does not block: a reader outside that stops must not hold the process up for ever.
    fn send(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            match self.pipe.write(bytes) {
                Ok(n) if n > 0 => bytes = bytes.get(n..)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.gives_up() {
                        return None;
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => {
                    self.error = Some(done.map_or_else(|error| error.to_string(), |_| "no room".into()));
                    return None;
                }
            }
        }
        Some(())
    }
}

impl Target for Outside<'_> {
    fn put(&mut self, bytes: &[u8], at: u64) -> Option<()> {
        let mut at = at;
        for piece in bytes.chunks(PIECE) {
            self.send(&at.to_le_bytes())?;
            self.send(&(piece.len() as u32).to_le_bytes())?;
            self.send(piece)?;
            at += piece.len() as u64;
        }
        Some(())
    }

    fn finish(&mut self, len: u64) -> Option<()> {
        self.send(&len.to_le_bytes())?;
        self.send(&0u32.to_le_bytes())
    }

    fn gives_up(&self) -> bool {
        Instant::now() > self.until
    }
}

/// Writes the core file of a process that goes on to a pipe, as [`dump`] does for one that ends. The process stands
/// still meanwhile. Gives the number of its threads and how many of them did not come.
pub fn dump_running(group: &Arc<ThreadGroup>, pipe: &File) -> Result<(usize, usize), String> {
    let task = group.any_thread().ok_or("it has ended")?;
    let gathered = group.gather().ok_or("it ends, or a core file of it is being written")?;
    if gathered.threads.is_empty() {
        return Err("none of its threads came to a stop in time; is it paused or not started?".into());
    }
    let mm = task.mm();
    let mut to = Outside { pipe, until: Instant::now() + LONGEST, error: None };
    let whole = write(&task, &mm, None, &gathered.threads, &mut to);
    let count = gathered.threads.len();
    match (whole, to.error) {
        (_, Some(error)) => Err(error),
        (None, None) => Err(format!("it took longer than {} seconds", LONGEST.as_secs())),
        (Some(()), None) if group.exit_status().is_some() => Err("it has ended meanwhile".into()),
        (Some(()), None) => Ok((count, gathered.missing)),
    }
}

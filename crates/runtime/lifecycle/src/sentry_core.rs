//! `debug --core`: a core file of the sentry for its developers.
//!
//! This process attaches to the threads of the sentry by ptrace(2) from outside, reads, and lets them go. The sentry takes
//! no part, so it may hang. It is stopped for [`LONGEST`] at most; if this process is killed the host lets the threads go.
//!
//! The file holds private memory, and only pages that the sentry has touched: nothing is faulted in. What the sentry shares
//! is memory of guest programs and the slots of their stubs, and is held on request alone.

use crate::Result;
use elf::core_file::{self, MappedFile, Process, Segment, Thread};
use hostsys::process::vm_read;
use hostsys::ptrace::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

/// How long the sentry is stopped at most.
pub const LONGEST: Duration = Duration::from_secs(10);
/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
const PAGE: u64 = 4096;
/// Bytes of the largest extended state.
const MAX_XSTATE: usize = 16 << 10;

/// What is to be written.
#[derive(Debug)]
pub struct SentryCore<'a> {
    /// A regular file.
    pub file: &'a File,
    /// Hold the memory that the sentry shares, too.
    pub with_guest_memory: bool,
    /// Readable when the user does not want it any more.
    pub stop: BorrowedFd<'a>,
}

/// What was written.
#[derive(Clone, Copy, Debug)]
pub struct SentryCoreWritten {
    /// Threads in it.
    pub threads: usize,
    /// Bytes of memory in it.
    pub bytes: u64,
    /// How long the sentry was stopped.
    pub stopped: Duration,
    /// Bytes of memory that are not in it, since it took too long.
    pub left_out: u64,
}

/// Threads that this one has attached to; dropping it lets them go.
#[derive(Default)]
struct Stopped {
    /// Those that stand still, each with the signal that it is about to get.
    still: Vec<(i32, i32)>,
    /// Those that do not yet.
    running: BTreeSet<i32>,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for (tid, signo) in &self.still {
            let _ = ptrace::detach(*tid, *signo);
        }
        // A thread that has not stopped cannot be detached from: it goes on when this process ends.
    }
}

impl Stopped {
    /// Stops all threads of a process, those that are made meanwhile included.
    fn all(pid: i32, until: Instant) -> Result<Stopped> {
        let mut stopped = Stopped::default();
        loop {
            for tid in tids(pid)? {
                if stopped.running.contains(&tid) || stopped.still.iter().any(|(known, _)| *known == tid) {
                    continue;
                }
                match ptrace::seize_to_look(tid).and_then(|()| ptrace::interrupt(tid)) {
                    Ok(()) => drop(stopped.running.insert(tid)),
                    // It has ended.
                    Err(abi::Errno::ESRCH) => {}
                    Err(abi::Errno::EPERM) => return Err(refused()),
                    Err(error) => return Err(format!("attaching to the sandbox's kernel: {error}").into()),
                }
            }
            if stopped.running.is_empty() {
                return Ok(stopped);
            }
            let asked: Vec<i32> = stopped.running.iter().copied().collect();
            for tid in asked {
                match ptrace::look(tid) {
                    Ok(None) => {}
                    Ok(Some(Event::Stopped(signo, event))) => {
                        stopped.running.remove(&tid);
                        stopped.still.push((tid, if event == 0 { signo } else { 0 }));
                    }
                    Ok(Some(Event::Gone)) | Err(_) => drop(stopped.running.remove(&tid)),
                }
            }
            if Instant::now() > until {
                let text = format!(
                    "{} of {} threads of the sandbox's kernel did not stop within {} seconds: they wait for the host, or the \
                     container is paused",
                    stopped.running.len(),
                    stopped.running.len() + stopped.still.len(),
                    LONGEST.as_secs()
                );
                return Err(text.into());
            }
            if !stopped.running.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn refused() -> crate::Error {
    "attaching to the sandbox's kernel is refused: --core is for root and for the user that made the sandbox, while no other \
     debugger is attached and /proc/sys/kernel/yama/ptrace_scope is below 3"
        .into()
}

fn tids(pid: i32) -> Result<Vec<i32>> {
    let names = fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| ended())?.flatten();
    Ok(names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

fn ended() -> crate::Error {
    "the sandbox's kernel is not there any more".into()
}

/// A mapping as /proc/PID/maps shows it.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    prot: i32,
    shared: bool,
    offset: u64,
    /// Of a file, or in brackets.
    name: Vec<u8>,
}

impl Mapping {
    fn parse(line: &[u8]) -> Option<Mapping> {
        let mut words = line.splitn(6, |b| *b == b' ');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let (start, end) = word()?.split_once('-')?;
        let bits = word()?.as_bytes();
        let offset = u64::from_str_radix(word()?, 16).ok()?;
        let (_device, _inode) = (word()?, word()?);
        let name = words.next().unwrap_or_default().trim_ascii_start().to_vec();
        let bit = |i: usize, letter: u8, prot: i32| if bits.get(i) == Some(&letter) { prot } else { 0 };
        Some(Mapping {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            prot: bit(0, b'r', libc::PROT_READ)
                | bit(1, b'w', libc::PROT_WRITE)
                | bit(2, b'x', libc::PROT_EXEC),
            shared: bits.get(3) == Some(&b's'),
            offset,
            name,
        })
    }

    fn is_file(&self) -> bool {
        self.name.starts_with(b"/")
    }

    fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// Which pages of a process are there: /proc/PID/pagemap, see proc(5).
struct PageMap(File);

/// Bits of an entry.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

impl PageMap {
    /// Calls `each` with the entries of an area, some at a time, and the address of the first of them.
    fn visit(&self, area: &Mapping, mut each: impl FnMut(u64, &[u64])) -> io::Result<()> {
        let (mut at, mut bytes) = (area.start, vec![0; PIECE]);
        while at < area.end {
            let pages = ((area.end - at) / PAGE).min((PIECE / 8) as u64);
            let part = bytes.get_mut(..pages as usize * 8).unwrap_or_default();
            self.0.read_exact_at(part, at / PAGE * 8)?;
            let entry = |b: &[u8]| b.try_into().map_or(0, u64::from_le_bytes);
            let entries: Vec<u64> = part.chunks_exact(8).map(entry).collect();
            each(at, &entries);
            at += pages * PAGE;
        }
        Ok(())
    }
}

/// A mapping, how much of it the file holds, and the pieces that are read: addresses and lengths.
struct Part {
    area: Mapping,
    held: u64,
    pieces: Vec<(u64, u64)>,
}

impl Part {
    fn of(pid: i32, pages: &PageMap, area: Mapping, with_shared: bool) -> io::Result<Part> {
        let nothing = |area| Part { area, held: 0, pieces: Vec::new() };
        if area.prot == 0 || area.name.starts_with(b"[vvar") || area.name == b"[vsyscall]" {
            return Ok(nothing(area));
        }
        let mut magic = [0; 4];
        let program = area.is_file()
            && area.offset == 0
            && area.prot & libc::PROT_READ != 0
            && vm_read(pid, area.start, &mut magic) == Ok(4)
            && magic == *b"\x7fELF";
        let first = |area: Mapping| Part { held: PAGE, pieces: vec![(area.start, PAGE)], area };
        if area.shared && !with_shared {
            return Ok(if program { first(area) } else { nothing(area) });
        }
        let (mut pieces, mut own): (Vec<(u64, u64)>, bool) = (Vec::new(), false);
        pages.visit(&area, |start, entries| {
            for (i, entry) in entries.iter().enumerate() {
                if entry & (PRESENT | SWAPPED) == 0 {
                    continue;
                }
                own |= entry & OF_FILE == 0;
                let at = start + i as u64 * PAGE;
                match pieces.last_mut() {
                    Some((from, len)) if *from + *len == at => *len += PAGE,
                    _ => pieces.push((at, PAGE)),
                }
            }
        })?;
        if area.is_file() && !area.shared {
            // What the sentry has not changed is in the file, which a debugger reads. A page that is not in the core file
            // would read as zero behind one that is.
            return Ok(match (own, program) {
                (true, _) => Part { held: area.len(), pieces: vec![(area.start, area.len())], area },
                (false, true) => first(area),
                (false, false) => nothing(area),
            });
        }
        let held = pieces.last().map_or(0, |(from, len)| from + len - area.start);
        Ok(Part { area, held, pieces })
    }
}

/// Writes a core file of a process.
pub(crate) fn write(pid: i32, wanted: &SentryCore<'_>) -> Result<SentryCoreWritten> {
    // Before anything is stopped: they need the same rights.
    let pages = PageMap(File::open(format!("/proc/{pid}/pagemap")).map_err(|_| refused())?);
    let began = Instant::now();
    let until = began + LONGEST;
    let mut threads = Stopped::all(pid, until)?;
    if threads.still.is_empty() {
        return Err(ended());
    }
    threads.still.sort_by_key(|(tid, _)| (*tid != pid, *tid));
    let mut maps = fs::read(format!("/proc/{pid}/maps"))?;
    maps.truncate(maps.trim_ascii_end().len());
    let areas: Vec<Mapping> = maps.split(|b| *b == b'\n').filter_map(Mapping::parse).collect();
    let notes = notes(pid, &threads.still, &areas)?;
    let mut parts = areas
        .into_iter()
        // Of the host's kernel.
        .filter(|area| area.end < 1 << 63)
        .take(core_file::MAX_SEGMENTS)
        .map(|area| Part::of(pid, &pages, area, wanted.with_guest_memory))
        .collect::<io::Result<Vec<Part>>>()?;
    let segment =
        |p: &Part| Segment { start: p.area.start, end: p.area.end, prot: p.area.prot, held: p.held };
    let segments: Vec<Segment> = parts.iter().map(segment).collect();
    let (head, data_at) = core_file::head(&notes, &segments);
    wanted.file.set_len(0)?;
    wanted.file.write_all_at(&head, 0)?;
    let mut at = data_at;
    let mut places = Vec::new();
    for part in parts.drain(..) {
        places.push((at, part.area.start, part.pieces));
        at += part.held;
    }
    // Before its content, so that a disk that is full is told; a debugger reads what is missing as zero.
    wanted.file.set_len(at)?;
    // Small ones first: stacks and the program's data, if there is no time for all.
    let size = |pieces: &[(u64, u64)]| pieces.iter().map(|(_, len)| len).sum::<u64>();
    places.sort_by_key(|(_, _, pieces)| size(pieces));
    let (mut bytes, mut left_out) = (0, 0);
    for (at, start, pieces) in &places {
        for (from, len) in pieces {
            if Instant::now() > until {
                left_out += len;
                continue;
            }
            bytes += copy(pid, *from, *len, wanted, at + (from - start), until)?;
        }
    }
    let count = threads.still.len();
    drop(threads);
    Ok(SentryCoreWritten { threads: count, bytes, stopped: began.elapsed(), left_out })
}

/// Copies memory to the file; what cannot be read stays a hole.
fn copy(pid: i32, from: u64, len: u64, wanted: &SentryCore<'_>, to: u64, until: Instant) -> Result<u64> {
    let (mut done, mut piece) = (0, vec![0; PIECE.min(len as usize)]);
    while done < len && Instant::now() <= until {
        let mut fds = [PollFd::from_borrowed_fd(wanted.stop, PollFlags::IN)];
        if poll(&mut fds, Some(&Timespec::default())) == Ok(1) {
            return Err("interrupted".into());
        }
        let n = (len - done).min(PIECE as u64) as usize;
        let part = piece.get_mut(..n).unwrap_or_default();
        match vm_read(pid, from + done, part) {
            Ok(n) if n > 0 => {
                wanted.file.write_all_at(part.get(..n).unwrap_or_default(), to + done)?;
                done += n as u64;
            }
            Err(abi::Errno::ESRCH) => return Err(ended()),
            // To the next page.
            _ => done = (done / PAGE + 1) * PAGE,
        }
    }
    Ok(len)
}

/// The notes of all threads and of the process.
fn notes(pid: i32, threads: &[(i32, i32)], areas: &[Mapping]) -> Result<Vec<u8>> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    let stat = String::from_utf8_lossy(&stat).into_owned();
    let words: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let number = |i: usize| words.get(i).and_then(|word| word.parse::<i32>().ok()).unwrap_or(0);
    // State, parent, process group, session.
    let [parent, pgid, sid] = [number(1), number(2), number(3)];
    let mut all = Vec::new();
    for (tid, _) in threads {
        let regs = match ptrace::regs(*tid) {
            Ok(regs) => regs,
            // It was killed meanwhile.
            Err(_) => continue,
        };
        let mut xstate = vec![0; MAX_XSTATE];
        let len = ptrace::xstate(*tid, &mut xstate).unwrap_or(0);
        xstate.truncate(len);
        all.push(Thread {
            signo: 0,
            code: 0,
            pending: 0,
            blocked: 0,
            ids: [*tid, parent, pgid, sid],
            regs: ptrace::words(&regs),
            xstate,
        });
    }
    let comm = fs::read(format!("/proc/{pid}/comm"))?;
    let owner = fs::metadata(format!("/proc/{pid}"))?;
    let files = areas.iter().filter(|area| area.is_file());
    let files: Vec<MappedFile> = files
        .map(|area| MappedFile {
            start: area.start,
            end: area.end,
            offset: area.offset,
            name: area.name.clone(),
        })
        .collect();
    let layout = core_file::enabled(&all).map(hostsys::cpu::component_places).unwrap_or_default();
    let process = Process {
        layout: &layout,
        nice: i8::try_from(number(16)).unwrap_or(0),
        owner: [owner.uid(), owner.gid()],
        ids: [pid, parent, pgid, sid],
        comm: comm.trim_ascii_end(),
        line: &fs::read(format!("/proc/{pid}/cmdline"))?,
        siginfo: None,
        auxv: &fs::read(format!("/proc/{pid}/auxv"))?,
        files: &files,
    };
    Ok(core_file::notes(&process, &all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read() {
        let m = Mapping::parse(b"7f00-8000 rw-s 00001000 00:01 1035   /memfd:a b (deleted)").unwrap();
        assert_eq!((m.start, m.end, m.offset, m.shared), (0x7f00, 0x8000, 0x1000, true));
        assert_eq!((m.prot, &m.name[..]), (libc::PROT_READ | libc::PROT_WRITE, &b"/memfd:a b (deleted)"[..]));
        let m = Mapping::parse(b"7f00-8000 ---p 00000000 00:00 0 ").unwrap();
        assert!(m.prot == 0 && !m.shared && m.name.is_empty());
        assert!(Mapping::parse(b"").is_none() && Mapping::parse(b"x-y rw-p 0 0 0").is_none());
    }
}

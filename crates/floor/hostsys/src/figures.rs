//! Figures of processes in the host's procfs, asked for across a socket: a process that can open no file of the host
//! gets them from one that has a procfs.
//!
//! A request names a file and processes. The answer is the files' text. Another one asks which pages of a process are its
//! own, for a checkpoint. Neither side trusts the other: an answer is only
//! parsed, and a request can name nothing but the files of [`File`] and a process's pagemap.

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{read, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A file of a process, or of a thread, in /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// Memory in pages.
    Statm,
    /// Processor time, faults, memory of a process.
    Stat,
    /// Memory of a process in words, with the peak of resident memory; switches of a thread.
    Status,
    /// The faults of a thread.
    ThreadStat,
    /// A thread's time on a processor, and waiting for one.
    Schedstat,
}

/// By the number that stands for a file in a request; `#` is the number of the process or thread.
const FILES: [(File, &str); 5] = [
    (File::Statm, "statm"),
    (File::Stat, "stat"),
    (File::Status, "status"),
    (File::ThreadStat, "task/#/stat"),
    (File::Schedstat, "schedstat"),
];

/// Stands for the request of [`own_pages`].
const OWN_PAGES: u8 = 255;
/// Ranges in one answer to it.
const RANGES: usize = 1000;

/// Most processes of a request.
pub const MOST: usize = 64;
/// Longest text of one file.
const LONGEST: usize = 4096;
/// Longest answer.
const ANSWER: usize = 16 << 10;
/// How an [`open`](OFlags) of a file is done, for filters.
pub const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// Asks for a file of at most [`MOST`] processes. One text for each, empty where there is no such process; `None` when
/// the other side is gone or has no procfs.
pub fn ask(socket: BorrowedFd<'_>, file: File, pids: &[i32]) -> Option<Vec<String>> {
    let number = FILES.iter().position(|(known, _)| *known == file)?;
    let mut request = vec![number as u8];
    request.extend(pids.iter().take(MOST).flat_map(|pid| pid.to_le_bytes()));
    if write(socket, &request).ok()? != request.len() {
        return None;
    }
    let mut answer = vec![0; ANSWER];
    let length = read(socket, &mut answer).ok()?;
    let text = std::str::from_utf8(answer.get(..length)?).ok()?;
    let mut texts: Vec<String> = text.split('\0').map(str::to_owned).collect();
    texts.truncate(pids.len());
    (texts.len() == pids.len()).then_some(texts)
}

/// What of `start..end` of a process is its own, as [`crate::pagemap::own_pages`] finds it: how far the answer goes, and
/// ranges in ascending order. `None` when the other side is gone or cannot tell.
pub fn own_pages(socket: BorrowedFd<'_>, pid: i32, start: u64, end: u64) -> Option<(u64, Vec<(u64, u64)>)> {
    let mut request = vec![OWN_PAGES];
    request.extend(pid.to_le_bytes());
    request.extend([start, end].iter().flat_map(|n| n.to_le_bytes()));
    if write(socket, &request).ok()? != request.len() {
        return None;
    }
    let mut answer = vec![0; 8 + 16 * RANGES];
    let length = read(socket, &mut answer).ok()?;
    let (words, _) = answer.get(..length)?.as_chunks();
    let (until, ranges) = words.split_first().map(|(w, rest)| (u64::from_le_bytes(*w), rest))?;
    let mut at = start;
    let mut found = Vec::new();
    for [a, b] in ranges.as_chunks().0 {
        let (a, b) = (u64::from_le_bytes(*a), u64::from_le_bytes(*b));
        let sound = at <= a && a < b && b <= end && a % 4096 == 0 && b % 4096 == 0;
        sound.then_some(())?;
        found.push((a, b));
        at = b;
    }
    (start < until && at <= until && until <= end).then_some((until, found))
}

/// The answer to that; empty when there is none.
fn answer_own_pages(procfs: BorrowedFd<'_>, request: &[u8]) -> Vec<u8> {
    let ask = || {
        let (pid, rest) = request.split_first_chunk()?;
        let pid = i32::from_le_bytes(*pid);
        let [start, end] = *rest.as_chunks().0 else { return None };
        let file = open(procfs, pid, "pagemap").ok()?;
        let range = (u64::from_le_bytes(start), u64::from_le_bytes(end));
        crate::pagemap::own_pages(file.as_fd(), range.0, range.1, RANGES).ok()
    };
    let Some((until, ranges)) = ask() else { return Vec::new() };
    let words = std::iter::once(until).chain(ranges.into_iter().flat_map(|(a, b)| [a, b]));
    words.flat_map(u64::to_le_bytes).collect()
}

/// Answers one request from the root directory of a procfs; false when the other side is gone.
pub fn answer(socket: BorrowedFd<'_>, procfs: BorrowedFd<'_>) -> io::Result<bool> {
    let mut request = [0; 1 + 4 * MOST];
    let length = read(socket, &mut request)?;
    let Some((number, pids)) = request.get(..length).and_then(|request| request.split_first()) else {
        return Ok(false);
    };
    if *number == OWN_PAGES {
        let answer = answer_own_pages(procfs, pids);
        // An empty message would be taken for the end.
        let answer = if answer.is_empty() { vec![0] } else { answer };
        return Ok(write(socket, &answer)? == answer.len());
    }
    let Some((_, name)) = FILES.get(usize::from(*number)) else { return Ok(false) };
    let mut answer = Vec::new();
    for (i, pid) in pids.as_chunks().0.iter().enumerate() {
        if i > 0 {
            answer.push(0);
        }
        let room = ANSWER.saturating_sub(answer.len() + MOST).min(LONGEST);
        let text = text(procfs, i32::from_le_bytes(*pid), name, room).unwrap_or_default();
        // A name of a process may hold any bytes.
        answer.extend(text.iter().map(|byte| if byte.is_ascii() && *byte != 0 { *byte } else { b'?' }));
    }
    Ok(write(socket, &answer)? == answer.len())
}

fn text(procfs: BorrowedFd<'_>, pid: i32, name: &str, room: usize) -> io::Result<Vec<u8>> {
    let file = open(procfs, pid, name)?;
    let mut text = vec![0; room];
    let length = read(&file, &mut text)?;
    text.truncate(length);
    Ok(text)
}

fn open(procfs: BorrowedFd<'_>, pid: i32, name: &str) -> io::Result<OwnedFd> {
    if pid <= 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    let path = format!("#/{name}").replace('#', &pid.to_string());
    Ok(openat(procfs, path, FLAGS, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn figures_of_processes() {
        let kind = SocketType::SEQPACKET;
        let (asks, answers) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let procfs = openat(rustix::fs::CWD, "/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let me = std::process::id() as i32;
        let thread = std::thread::spawn(move || while answer(answers.as_fd(), procfs.as_fd()).unwrap() {});
        let status = ask(asks.as_fd(), File::Status, &[me]).unwrap();
        assert!(status[0].contains("VmHWM:"), "{status:?}");
        let both = ask(asks.as_fd(), File::Statm, &[me, -1, i32::MAX, me]).unwrap();
        assert!(both.len() == 4 && both[0].split(' ').count() == 7, "{both:?}");
        assert!(both[1].is_empty() && both[2].is_empty() && !both[3].is_empty(), "{both:?}");
        for file in [File::Stat, File::ThreadStat] {
            let stat = ask(asks.as_fd(), file, &[me]).unwrap();
            assert!(stat[0].starts_with(&format!("{me} (")), "{stat:?}");
        }
        let page = (&raw const asks) as u64 / 4096 * 4096;
        if let Some(found) = own_pages(asks.as_fd(), me, page, page + 4096) {
            assert_eq!(found, (page + 4096, vec![(page, page + 4096)]));
        }
        assert_eq!(own_pages(asks.as_fd(), i32::MAX, page, page + 4096), None);
        // No such file: the other side gives up, and nothing is answered.
        write(&asks, &[9, 1, 0, 0, 0]).unwrap();
        thread.join().unwrap();
        assert_eq!(ask(asks.as_fd(), File::Stat, &[me]), None);
    }
}

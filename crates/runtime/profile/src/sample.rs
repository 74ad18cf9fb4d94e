//! Taking a profile: from the first look at the sandbox's processes to the names of the last frame.

use crate::files::{Files, MAX_MAPS};
use crate::records::{Record, parse, parse_mapping};
use crate::stacks::{Profile, Stacks};
use crate::world::{Process, Processes};
use crate::{Error, kallsyms};
use abi::Errno;
use hostsys::perf::Sampler;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Bytes of all rings together, and of one.
const RINGS: usize = 64 << 20;
const RING: std::ops::RangeInclusive<usize> = 512 << 10..=8 << 20;
const PAGE: usize = 4096;
/// Bytes of the stack that come with a sample, unless a second's would not fit into the ring: on a busy machine it may
/// take a second until the ring is read.
const STACK: usize = 16 << 10;
/// Time between two looks at the rings.
const ROUND: Duration = Duration::from_millis(50);
/// A record is in its ring no later than this after its time.
const LATE: u64 = 5_000_000;

/// What is to be sampled.
#[derive(Debug)]
pub struct Request<'a> {
    /// The sandbox's pid 1, by its id on the host.
    pub init: i32,
    /// The process that has the container's files in its mount namespace.
    pub shown: i32,
    /// Samples in a second, on each processor.
    pub frequency: u32,
    /// How long.
    pub duration: Duration,
    /// Ends it early when there is something to read.
    pub stop: BorrowedFd<'a>,
}

/// Samples a sandbox. Ends early with the sandbox.
pub fn take(request: &Request<'_>) -> Result<Profile, Error> {
    let init = hostsys::process::pidfd_open(request.init).map_err(|_| Error::Gone)?;
    let namespace = readlinkat(CWD, format!("/proc/{}/ns/pid", request.init), Vec::new());
    let namespace = namespace.map_err(|error| match error {
        rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => Error::Refused,
        _ => Error::Gone,
    })?;
    let mut samplers = samplers(request.frequency)?;
    for sampler in &samplers {
        sampler.enable().map_err(refusal)?;
    }
    let start = now();
    let end = start.saturating_add(u64::try_from(request.duration.as_nanos()).unwrap_or(u64::MAX));
    let mut world = Processes::default();
    look(&mut world, request.init, &namespace);
    if !world.processes.values().any(|process| process.sentry) {
        return Err(Error::Gone);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, format!("/proc/{}/root", request.shown), flags, Mode::empty()).ok();
    let mut files = Files::new(namespace, root);
    let mut stacks = Stacks::default();
    let mut waiting: Vec<Record> = Vec::new();
    loop {
        let over = pause(init.as_fd(), request.stop, end)?;
        let until = if over { u64::MAX } else { now().saturating_sub(LATE) };
        let mut bytes = Vec::new();
        for sampler in &mut samplers {
            bytes.clear();
            sampler.drain(&mut bytes);
            parse(&bytes, &mut waiting);
        }
        // Each ring is in order; together they are put in order, up to what may still come.
        waiting.sort_by_key(|record| record.time);
        let later = waiting.split_off(waiting.partition_point(|record| record.time < until));
        for record in std::mem::replace(&mut waiting, later) {
            if let Some(seen) = world.apply(record) {
                stacks.add(&seen, &mut files);
            }
        }
        if over {
            break;
        }
    }
    drop(samplers);
    let took = Duration::from_nanos(now() - start);
    let kernel = kernel_names(&stacks.kernel_addresses());
    Ok(stacks.finish(&files.names(), &kernel, took, request.frequency, world.lost))
}

/// Waits for the next round; true when there is none.
fn pause(init: BorrowedFd<'_>, stop: BorrowedFd<'_>, end: u64) -> Result<bool, Error> {
    let left = Duration::from_nanos(end.saturating_sub(now()));
    let round = left.min(ROUND);
    let wait = Timespec { tv_sec: round.as_secs() as i64, tv_nsec: round.subsec_nanos().into() };
    let mut fds = [PollFd::new(&init, PollFlags::IN), PollFd::new(&stop, PollFlags::IN)];
    match poll(&mut fds, Some(&wait)) {
        Ok(0) => Ok(left <= ROUND),
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(Error::Io("poll", error.into())),
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// One for each processor.
fn samplers(frequency: u32) -> Result<Vec<Sampler>, Error> {
    let path = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(path).map_err(|error| Error::Io(path, error))?;
    let cpus: Vec<u32> = cpus(&text).collect();
    let ring = (RINGS / cpus.len().max(1)).clamp(*RING.start(), *RING.end()) / PAGE;
    let pages = ring.next_power_of_two().min(RING.end() / PAGE);
    let stack = STACK.min(pages * PAGE / frequency.max(1) as usize) & !7;
    let all = |kernel: bool| -> abi::Result<Vec<Sampler>> {
        let one = |cpu| match Sampler::new(cpu, frequency, kernel, stack as u32, pages) {
            // Gone offline since.
            Err(Errno::ENODEV) => Ok(None),
            sampler => sampler.map(Some),
        };
        cpus.iter().filter_map(|cpu| one(*cpu).transpose()).collect()
    };
    match all(true) {
        // The kernel's own frames may be refused alone.
        Err(Errno::EACCES | Errno::EPERM) => all(false),
        result => result,
    }
    .map_err(refusal)
}

fn refusal(error: Errno) -> Error {
    match error {
        Errno::EACCES | Errno::EPERM => Error::Refused,
        Errno::EINVAL => Error::TooOften,
        Errno::ENOSYS | Errno::ENOENT | Errno::EOPNOTSUPP => Error::Unsupported,
        other => Error::Io("perf_event_open", io::Error::from_raw_os_error(other.raw())),
    }
}

/// The numbers in a list like `0-3,8`.
fn cpus(list: &str) -> impl Iterator<Item = u32> {
    list.trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
        })
        .flatten()
}

/// Finds the processes of the sandbox.
fn look(world: &mut Processes, init: i32, namespace: &std::ffi::CString) {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    for pid in names.filter_map(|name| name.to_str()?.parse::<i32>().ok()) {
        if readlinkat(CWD, format!("/proc/{pid}/ns/pid"), Vec::new()).is_ok_and(|own| own == *namespace)
            && pid != init
            && let Some(process) = snapshot(pid)
        {
            world.processes.insert(pid, process);
        }
    }
    // The first process that init started; all others come from there.
    let children = world.processes.keys().filter(|pid| parent(**pid) == Some(init));
    if let Some(sentry) = children.copied().min_by_key(|pid| inner_id(*pid))
        && let Some(process) = world.processes.get_mut(&sentry)
    {
        process.sentry = true;
    }
}

fn status(pid: i32, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.map(|value| value.trim().to_string())
}

fn parent(pid: i32) -> Option<i32> {
    status(pid, "PPid")?.parse().ok()
}

/// A process's id in its own pid namespace.
fn inner_id(pid: i32) -> i32 {
    let ids = status(pid, "NSpid").unwrap_or_default();
    ids.split_whitespace().last().and_then(|id| id.parse().ok()).unwrap_or(i32::MAX)
}

/// A process as /proc has it now.
fn snapshot(pid: i32) -> Option<Process> {
    let comm =
        |path: String| fs::read(path).map(|name| String::from_utf8_lossy(&name).trim_end().to_string());
    let mut process = Process { name: comm(format!("/proc/{pid}/comm")).ok()?.into(), ..Process::default() };
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut known = HashMap::new();
    for thread in threads.flatten() {
        let id = thread.file_name().to_str().and_then(|id| id.parse::<i32>().ok());
        if let Some(id) = id
            && let Ok(name) = comm(format!("/proc/{pid}/task/{id}/comm"))
        {
            known.insert(id, name.into());
        }
    }
    process.threads = known;
    let mut maps = Vec::new();
    File::open(format!("/proc/{pid}/maps")).ok()?.take(MAX_MAPS).read_to_end(&mut maps).ok()?;
    process.since = now();
    for line in String::from_utf8_lossy(&maps).lines().filter(|line| executable(line)) {
        if let Some(mapping) = parse_mapping(line) {
            process.map(mapping);
        }
    }
    Some(process)
}

fn executable(line: &str) -> bool {
    line.split(' ').nth(1).is_some_and(|bits| bits.as_bytes().get(2) == Some(&b'x'))
}

/// Names of the host kernel's functions, as far as this user may know them.
fn kernel_names(addresses: &[u64]) -> HashMap<u64, String> {
    let list = if addresses.is_empty() { None } else { File::open("/proc/kallsyms").ok() };
    let Some(list) = list else { return HashMap::new() };
    let names = kallsyms::names(BufReader::new(list).lines(), addresses);
    addresses.iter().zip(names).filter_map(|(address, name)| Some((*address, name?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{FileId, Mapping};

    #[test]
    fn lines_of_maps() {
        let line =
            "7ff9f2ff0000-7ff9f30c1000 r-xp 00026000 fe:01 326269                     /0/usr/lib/a b.so";
        let file = FileId { major: 0xfe, minor: 1, inode: 326_269 };
        let (start, end) = (0x7ff9_f2ff_0000, 0x7ff9_f30c_1000);
        let wanted = Mapping { start, end, offset: 0x26000, file, path: "/0/usr/lib/a b.so".into() };
        assert_eq!(parse_mapping(line), Some(wanted));
        assert!(executable(line));
        assert_eq!(parse_mapping("7f0-7f1 rw-p 0 00:00 0 ").map(|m| m.path), Some(String::new()));
        for bad in ["", "7f0", "7f0-7f1 rw-p", "x-y rw-p 0 00:00 0", "1-2 r-xp 0 0 0"] {
            assert_eq!(parse_mapping(bad), None, "{bad}");
        }
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!(cpus("0-2,7\n").collect::<Vec<_>>(), [0, 1, 2, 7]);
        assert_eq!(cpus("0").collect::<Vec<_>>(), [0]);
        assert_eq!(cpus("\n").count(), 0);
    }
}

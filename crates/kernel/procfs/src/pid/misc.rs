//! The small files of a process.

use crate::pid::check_read;
use crate::pid::stat::{name, relations, times};
use crate::pid::status::switches;
use abi::{Errno, Result};
use kernfs::{At, Entry, What, line, parse_int};
use rights::Cap;
use sched::{IoTotals, RESET_ON_FORK, add_io};
use std::fmt::Write;
use std::num::IntErrorKind;
use std::sync::atomic::Ordering;
use task::Task;

/// Bytes of a block of struct rusage.
const BLOCK: u64 = 512;

const LIMITS: [(&str, &str); 16] = [
    ("Max cpu time", "seconds"),
    ("Max file size", "bytes"),
    ("Max data size", "bytes"),
    ("Max stack size", "bytes"),
    ("Max core file size", "bytes"),
    ("Max resident set", "bytes"),
    ("Max processes", "processes"),
    ("Max open files", "files"),
    ("Max locked memory", "bytes"),
    ("Max address space", "bytes"),
    ("Max file locks", "locks"),
    ("Max pending signals", "signals"),
    ("Max msgqueue size", "bytes"),
    ("Max nice priority", ""),
    ("Max realtime priority", ""),
    ("Max realtime timeout", "us"),
];

pub fn limits(at: &At) -> Result<Vec<u8>> {
    let l = *at.proc()?.group.rlimits.lock();
    let mut s = format!("{:<25} {:<20} {:<20} {:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units");
    let show = |v: u64| if v == u64::MAX { "unlimited".to_string() } else { v.to_string() };
    for ((what, unit), (soft, hard)) in LIMITS.iter().zip(l.iter()) {
        let _ = write!(s, "{what:<25} {:<20} {:<20} ", show(soft), show(hard));
        let _ = if unit.is_empty() { writeln!(s) } else { writeln!(s, "{unit:<10}") };
    }
    Ok(s.into_bytes())
}

pub fn personality(at: &At) -> Result<Vec<u8>> {
    check_read(at, Errno::EPERM)?;
    line(format_args!("{:08x}", at.proc()?.group.personality.load(Ordering::Relaxed)))
}

pub fn syscall(at: &At) -> Result<Vec<u8>> {
    check_read(at, Errno::EPERM)?;
    let Some(t) = at.proc()?.task() else { return Ok(b"0 0x0 0x0\n".to_vec()) };
    let nr = t.in_syscall.load(Ordering::Relaxed);
    if !t.is_sleeping() || nr == 0 {
        return Ok(b"running\n".to_vec());
    }
    line(format_args!("{} 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0", nr - 1))
}

pub fn wchan(at: &At) -> Result<Vec<u8>> {
    at.proc()?;
    Ok(b"0".to_vec())
}

/// Only the kernel's owner may see kernel stacks, and this kernel has none to show.
pub fn stack(at: &At) -> Result<Vec<u8>> {
    if !at.cx()?.creds().capable(Cap::SYS_ADMIN) {
        return Err(Errno::EACCES);
    }
    check_read(at, Errno::EPERM)?;
    Ok(Vec::new())
}

pub fn sched(at: &At) -> Result<Vec<u8>> {
    let p = at.proc()?;
    let r = relations(at.kernel(), p);
    let mut out = name(p, &r);
    let threads = p.group.threads().len();
    let (u, s) = times(p, &r);
    let (policy, prio) = p.task().map_or((0, 120), |t| {
        let policy = t.scheduling.policy.lock().0 & !RESET_ON_FORK;
        (policy, t.scheduling.kernel_priority())
    });
    let [voluntary, involuntary] = p.task().map_or([0; 2], |t| switches(&t));
    let ms = |ns: u64| format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000);
    let mut t = format!(" ({}, #threads: {threads})\n{}\n", at.pid_nr(p.id()), "-".repeat(67));
    for (k, v) in [
        ("se.sum_exec_runtime", ms(u + s)),
        ("nr_switches", (voluntary + involuntary).to_string()),
        ("nr_voluntary_switches", voluntary.to_string()),
        ("nr_involuntary_switches", involuntary.to_string()),
        ("policy", policy.to_string()),
        ("prio", prio.to_string()),
    ] {
        let _ = writeln!(t, "{k:<45}:{v:>21}");
    }
    out.extend(t.into_bytes());
    Ok(out)
}

/// Time on a processor, time that the thread was ready and waited for one, and how often it got one.
pub fn schedstat(at: &At) -> Result<Vec<u8>> {
    let p = at.proc()?;
    let (u, s) = times(p, &relations(at.kernel(), p));
    let Some(task) = p.task() else { return line(format_args!("{} 0 0", u + s)) };
    let host = task.guest_thread().and_then(|tid| at.kernel().figures.run_time(tid)).unwrap_or_default();
    let [voluntary, involuntary] = switches(&task);
    line(format_args!("{} {} {}", u + s, host.waited, voluntary + involuntary + 1))
}

pub fn cpuset(at: &At) -> Result<Vec<u8>> {
    at.proc()?;
    line("/")
}

/// POSIX timers are not listed.
pub fn timers(at: &At) -> Result<Vec<u8>> {
    at.proc()?;
    Ok(Vec::new())
}

pub fn cgroup(at: &At) -> Result<Vec<u8>> {
    let p = at.proc()?;
    let group = match &p.thread {
        Some(thread) => thread.cgroup.group(),
        None => at.kernel().tree.lock().cgroup_of(p.group.tgid).ok_or(Errno::ESRCH)?,
    };
    let reader = at.caller().map_or_else(|| at.kernel().first.namespaces.clone(), |task| task.nsproxy());
    Ok(group.line(&reader.cgroup.root))
}

/// No audit: (uid_t)-1.
pub fn no_id(at: &At) -> Result<Vec<u8>> {
    at.proc()?;
    Ok(u32::MAX.to_string().into_bytes())
}

/// What a thread, or a process with all threads that it had, has read and written; of disks what the host counts for the
/// threads that serve it.
pub fn io(at: &At) -> Result<Vec<u8>> {
    check_read(at, Errno::EACCES)?;
    let p = at.proc()?;
    let mut sum = IoTotals::default();
    let mut blocks = [0; 2];
    // Of its own blocks the reader knows the latest number.
    if let Some(reader) = at.caller() {
        reader.note_blocks();
    }
    let mut add = |t: &Task| {
        add_io(&mut sum, t.io.now());
        blocks.iter_mut().zip(t.blocks()).for_each(|(sum, n)| *sum += n);
    };
    match &p.thread {
        Some(_) => p.task().iter().for_each(|t| add(t)),
        None => {
            p.group.threads().iter().for_each(|t| add(t));
            let usage = *p.group.usage.lock();
            add_io(&mut sum, usage.io);
            let [_, _, read, written, ..] = usage.own_counts();
            blocks = [blocks[0] + read, blocks[1] + written];
        }
    }
    let mut s = String::new();
    for (name, n) in ["rchar", "wchar", "syscr", "syscw"].iter().zip(sum) {
        let _ = writeln!(s, "{name}: {n}");
    }
    let [read, written] = blocks.map(|blocks| blocks * BLOCK);
    let _ = write!(s, "read_bytes: {read}\nwrite_bytes: {written}\ncancelled_write_bytes: 0\n");
    Ok(s.into_bytes())
}

pub fn coredump_filter(at: &At) -> Result<Vec<u8>> {
    match at.proc()?.mm() {
        Some(mm) => line(format_args!("{:08x}", mm.dump_filter.load(Ordering::Relaxed))),
        None => Ok(Vec::new()),
    }
}

/// Takes a number in any base, as kstrtouint does; bits that mean nothing are dropped.
pub fn set_coredump_filter(at: &At, data: &[u8]) -> Result<()> {
    const KNOWN: u32 = 0x1ff;
    let text = std::str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_prefix('+').unwrap_or(text);
    let (digits, base) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let value = match u32::from_str_radix(digits, base) {
        // A second sign is none of a number.
        _ if digits.starts_with('+') => return Err(Errno::EINVAL),
        Ok(value) => value,
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => return Err(Errno::ERANGE),
        Err(_) => return Err(Errno::EINVAL),
    };
    let mm = at.proc()?.mm().ok_or(Errno::ESRCH)?;
    mm.dump_filter.store(value & KNOWN, Ordering::Relaxed);
    Ok(())
}

pub fn autogroup(at: &At) -> Result<Vec<u8>> {
    let nice = at.proc()?.task().map_or(0, |t| t.scheduling.nice.load(Ordering::Relaxed));
    line(format_args!("/autogroup-1 nice {nice}"))
}

/// A file that cannot be read.
pub fn write_only(_at: &At) -> Result<Vec<u8>> {
    Err(Errno::EINVAL)
}

/// Accepts a write that only tunes what this kernel leaves to the host.
pub fn ignore(_at: &At, _data: &[u8]) -> Result<()> {
    Ok(())
}

/// Refuses a number, whichever it is.
pub fn refuse_number(_at: &At, data: &[u8]) -> Result<()> {
    parse_int(data)?;
    Err(Errno::EPERM)
}

/// Takes the numbers that there are. The host counts references to pages and marks them.
pub fn clear_refs(_at: &At, data: &[u8]) -> Result<()> {
    if (1..=5).contains(&parse_int(data)?) { Ok(()) } else { Err(Errno::EINVAL) }
}

fn no_module(at: &At) -> Result<Vec<u8>> {
    at.proc()?;
    Err(Errno::EINVAL)
}

fn no_module_write(at: &At, _data: &[u8]) -> Result<()> {
    at.proc()?;
    Err(Errno::EINVAL)
}

const fn attr(name: &'static str, mode: u32) -> Entry {
    Entry { name, mode, what: What::Text(no_module, Some(no_module_write)) }
}

/// Attributes of security modules: the names are there, no module answers.
pub static ATTR: [Entry; 6] = [
    attr("current", 0o666),
    Entry { name: "prev", mode: 0o444, what: What::Text(no_module, None) },
    attr("exec", 0o666),
    attr("fscreate", 0o666),
    attr("keycreate", 0o666),
    attr("sockcreate", 0o666),
];

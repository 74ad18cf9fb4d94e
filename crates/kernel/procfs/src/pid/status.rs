//! /proc/PID/status. See proc_pid_status(5).

use crate::pid::stat::{name, relations, state};
use abi::{CpuMask, PAGE_SIZE, Result, SigSet, Signal, page_down, page_up};
use kernfs::{At, Proc, resident};
use mm::{Mm, VmaKind};
use sched::Usage;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use task::{Kernel, ResidentKib, Task};

/// Sizes of an address space in bytes.
#[derive(Clone, Copy, Default)]
pub struct MemNumbers {
    /// Everything mapped.
    pub size: u64,
    /// The most that was mapped.
    pub peak: u64,
    /// Locked.
    pub locked: u64,
    /// Private and writable, the stack apart.
    pub data: u64,
    /// Stack.
    pub stack: u64,
    /// Code of the program.
    pub exe: u64,
    /// Other code.
    pub lib: u64,
}

/// Adds up the mappings.
pub fn mem_numbers(mm: &Mm) -> MemNumbers {
    let code = mm.image().code;
    let exe = page_up(code.1).unwrap_or(code.1).saturating_sub(page_down(code.0));
    mm.with_map(|m| {
        let mut n = MemNumbers { size: m.total(), peak: m.peak(), exe, ..MemNumbers::default() };
        let mut text = 0;
        for v in m.iter() {
            let write = v.prot & libc::PROT_WRITE != 0;
            if v.locked {
                n.locked += v.len();
            }
            if v.kind == VmaKind::Stack || v.flags & libc::MAP_GROWSDOWN != 0 {
                n.stack += v.len();
            } else if write && !v.shared {
                n.data += v.len();
            } else if v.prot & libc::PROT_EXEC != 0 && !write {
                text += v.len();
            }
        }
        n.lib = text.saturating_sub(exe);
        n
    })
}

/// Signal sets of a thread and its process.
pub struct SignalSets {
    /// Pending for the thread.
    pub pending: SigSet,
    /// Pending for the process.
    pub shared: SigSet,
    /// Blocked.
    pub blocked: SigSet,
    /// Ignored.
    pub ignored: SigSet,
    /// With a handler.
    pub caught: SigSet,
}

/// Reads them.
pub fn signal_sets(p: &Proc, task: Option<&Task>) -> SignalSets {
    let pending = task.map_or(SigSet::EMPTY, |t| t.pending.lock().set());
    let shared = p.group.signals.lock().shared.set();
    let (mut ignored, mut caught) = (SigSet::EMPTY, SigSet::EMPTY);
    let handlers = p.group.handlers();
    let h = handlers.lock();
    for s in (1..=64).filter_map(Signal::new).filter(|_| task.is_some()) {
        match h.get(s).handler {
            signal::SIG_DFL => {}
            signal::SIG_IGN => ignored.add(s),
            _ => caught.add(s),
        }
    }
    let blocked = task.map_or(SigSet::EMPTY, |t| t.blocked_now());
    SignalSets { pending, shared, blocked, ignored, caught }
}

fn escaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for &b in name {
        match b {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b => out.push(b),
        }
    }
    out
}

/// `usage`: what was measured of the process before.
fn memory(s: &mut String, k: &Kernel, mm: &Mm, usage: &Usage) {
    let n = mem_numbers(mm);
    let r = k.figures.memory(mm.space.host_pid()).unwrap_or_else(|| {
        let (r, page) = (resident(k, mm), PAGE_SIZE / 1024);
        let (total, file) = (r.total * page, r.shared * page);
        let peak = total.max(usage.maxrss);
        let page_tables = (n.size / (512 * PAGE_SIZE) + 4) * page;
        ResidentKib {
            peak,
            total,
            anon: total.saturating_sub(file),
            file,
            page_tables,
            ..ResidentKib::default()
        }
    });
    for (k, v) in [
        ("VmPeak", n.peak / 1024),
        ("VmSize", n.size / 1024),
        ("VmLck", n.locked / 1024),
        ("VmPin", 0),
        ("VmHWM", r.peak.max(r.total)),
        ("VmRSS", r.total),
        ("RssAnon", r.anon),
        ("RssFile", r.file),
        ("RssShmem", r.shmem),
        ("VmData", n.data / 1024),
        ("VmStk", n.stack / 1024),
        ("VmExe", n.exe / 1024),
        ("VmLib", n.lib / 1024),
        ("VmPTE", r.page_tables),
        ("VmSwap", r.swap),
        ("HugetlbPages", 0),
    ] {
        let _ = writeln!(s, "{k}:\t{v:>8} kB");
    }
    let huge_pages = u8::from(mm.huge_pages_off.load(Ordering::Relaxed) != 1);
    let _ = write!(s, "CoreDumping:\t0\nTHP_enabled:\t{huge_pages}\nuntag_mask:\t0xffffffffffffffff\n");
}

/// Voluntary and involuntary switches of a thread: sleeps in this kernel, and what the host says of the thread that runs its code.
pub fn switches(task: &Task) -> [u64; 2] {
    let figures = &task.group.kernel.figures;
    let involuntary = task.guest_thread().and_then(|tid| figures.involuntary_switches(tid));
    [task.waiter.sleeps(), involuntary.unwrap_or(0)]
}

/// The numbers of a process ID from the file system's PID namespace down to the task's own, each after a tab.
fn numbers(at: &At, p: &Proc, id: i32) -> String {
    let find = |id| at.kernel().pids.find(id);
    let all = find(p.id()).zip(find(id)).map(|(task, pid)| pid.numbers_from(&task, at.pid_ns()));
    all.filter(|all| !all.is_empty())
        .map_or("\t0".into(), |all| all.iter().map(|n| format!("\t{n}")).collect())
}

pub fn status(at: &At) -> Result<Vec<u8>> {
    let p = at.proc()?;
    let k = at.kernel();
    let r = relations(k, p);
    let task = p.task();
    let (letter, word) = state(p, &r);
    let mut out = b"Name:\t".to_vec();
    out.extend(escaped(&name(p, &r)));
    let (tgid, id) = (at.pid_nr(p.group.tgid), at.pid_nr(p.id()));
    let mut s = String::from("\n");
    if let Some(fs) = task.as_ref().and_then(|t| t.fs()) {
        let _ = writeln!(s, "Umask:\t{:04o}", fs.umask());
    }
    let creds = task
        .as_ref()
        .map(|t| t.creds())
        .unwrap_or_else(|| rights::Credentials::root(&at.kernel().vfs.resources.user_ns, 0).in_use());
    let fdsize = task.as_ref().and_then(|t| t.fds()).map_or(0, |t| t.size().next_power_of_two().max(64));
    let reader = at.opener()?.user_ns.clone();
    let groups: String = creds.groups.iter().map(|g| format!("{} ", reader.show_group(*g))).collect();
    let groups = if groups.is_empty() { " ".into() } else { groups };
    let tracer = at.pid_nr(task.as_ref().and_then(|t| t.trace.tracer()).unwrap_or(0));
    let _ = write!(
        s,
        "State:\t{letter} ({word})\nTgid:\t{tgid}\nNgid:\t0\nPid:\t{id}\nPPid:\t{}\nTracerPid:\t{tracer}\n\
         Uid:\t{}\t{}\t{}\t{}\nGid:\t{}\t{}\t{}\t{}\nFDSize:\t{fdsize}\nGroups:\t{groups}\n\
         NStgid:{}\nNSpid:{}\nNSpgid:{}\nNSsid:{}\nKthread:\t0\n",
        at.pid_nr(r.ppid),
        reader.show_user(creds.uid),
        reader.show_user(creds.euid),
        reader.show_user(creds.suid),
        reader.show_user(creds.fsuid),
        reader.show_group(creds.gid),
        reader.show_group(creds.egid),
        reader.show_group(creds.sgid),
        reader.show_group(creds.fsgid),
        numbers(at, p, p.group.tgid),
        numbers(at, p, p.id()),
        numbers(at, p, r.pgid),
        numbers(at, p, r.sid),
    );
    if let Some(t) = &task {
        let usage = *p.group.usage.lock();
        memory(&mut s, k, &t.mm(), &usage);
    }
    let sig = signal_sets(p, task.as_deref());
    let limit = p.group.rlimit(libc::RLIMIT_SIGPENDING as i32);
    let nnp = task.as_ref().is_some_and(|t| t.no_new_privs.load(Ordering::Relaxed));
    let limits = p.group.container.limits();
    let asked = task.as_ref().map_or(CpuMask::ALL, |t| *t.scheduling.affinity.lock());
    let cpus = limits.allowed_of(&asked);
    let threads = p.group.threads().len().max(1);
    let [voluntary, involuntary] = task.as_ref().map_or([0; 2], |t| switches(t));
    let _ = write!(
        s,
        "Threads:\t{threads}\nSigQ:\t{}/{limit}\nSigPnd:\t{:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{:016x}\n\
         SigIgn:\t{:016x}\nSigCgt:\t{:016x}\nCapInh:\t{:016x}\nCapPrm:\t{:016x}\nCapEff:\t{:016x}\n\
         CapBnd:\t{:016x}\nCapAmb:\t{:016x}\nNoNewPrivs:\t{}\nSeccomp:\t{}\nSeccomp_filters:\t{}\n\
         Speculation_Store_Bypass:\tthread vulnerable\nSpeculationIndirectBranch:\tconditional enabled\n\
         Cpus_allowed:\t{}\nCpus_allowed_list:\t{}\nMems_allowed:\t{}\nMems_allowed_list:\t0\n\
         voluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{involuntary}\n",
        at.kernel().queued.of(creds.uid),
        sig.pending.0,
        sig.shared.0,
        sig.blocked.0,
        sig.ignored.0,
        sig.caught.0,
        creds.inheritable,
        creds.permitted,
        creds.effective,
        creds.bounding,
        creds.ambient,
        u8::from(nnp),
        task.as_ref().map_or(0, |t| t.seccomp.mode()),
        task.as_ref().map_or(0, |t| t.seccomp.filters()),
        cpus.words(limits.online().width()),
        cpus.list(),
        CpuMask::one(0).words(1024),
    );
    out.extend(s.into_bytes());
    Ok(out)
}

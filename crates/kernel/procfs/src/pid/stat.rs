//! /proc/PID/stat and statm. See proc_pid_stat(5).

use crate::pid::status::{mem_numbers, signal_sets};
use abi::{PAGE_SIZE, Result};
use kernfs::{At, Proc, resident};
use sched::Usage;
use std::sync::atomic::Ordering;
use task::Kernel;

/// Clock ticks a second.
pub const HZ: u64 = 100;

/// Nanoseconds as ticks.
pub fn ticks(ns: u64) -> u64 {
    ns / (1_000_000_000 / HZ)
}

/// What the tree of processes says.
#[derive(Clone, Copy, Default)]
pub struct Relations {
    /// Parent.
    pub ppid: i32,
    /// Process group.
    pub pgid: i32,
    /// Session.
    pub sid: i32,
    /// Signal to the parent.
    pub exit_signal: i32,
    /// Wait status of a zombie.
    pub zombie: Option<i32>,
    /// The thread group leader has ended, whether other threads are left or not.
    pub leader_left: bool,
    /// Its name.
    pub comm: [u8; 16],
    /// Its processor time.
    pub times: (u64, u64),
}

/// Reads the tree.
pub fn relations(k: &Kernel, p: &Proc) -> Relations {
    let t = k.tree.lock();
    let Some(n) = t.node(p.group.tgid) else { return Relations::default() };
    let z = n.zombie();
    Relations {
        ppid: n.parent(),
        pgid: n.pgid(),
        sid: n.sid(),
        exit_signal: n.exit_signal(),
        zombie: z.map(|z| z.status),
        leader_left: n.leader_creds().is_some(),
        comm: z.map_or([0; 16], |z| z.comm),
        times: z.map_or((0, 0), |z| (z.usage.utime, z.usage.stime)),
    }
}

/// The letter and the word for a state.
pub fn state(p: &Proc, r: &Relations) -> (char, &'static str) {
    if r.zombie.is_some() || r.leader_left && !p.is_thread() {
        return ('Z', "zombie");
    }
    let Some(t) = p.task() else { return ('Z', "zombie") };
    if t.trace.is_stopped() {
        return ('t', "tracing stop");
    }
    let (stopped, all) = {
        let s = p.group.signals.lock();
        (s.stop.is_on(), s.parked >= s.threads.len())
    };
    if stopped && (all || t.is_sleeping()) {
        ('T', "stopped")
    } else if t.is_sleeping() {
        ('S', "sleeping")
    } else {
        ('R', "running")
    }
}

/// The name, NUL padding removed.
pub fn name(p: &Proc, r: &Relations) -> Vec<u8> {
    let c = p.task().map_or(r.comm, |t| t.comm());
    c.iter().copied().take_while(|&b| b != 0).collect()
}

/// User and system time in nanoseconds of what the directory stands for.
pub fn times(p: &Proc, r: &Relations) -> (u64, u64) {
    if r.zombie.is_some() {
        return r.times;
    }
    let (user, sys) = p.group.cpu_times();
    let Some(t) = &p.thread else { return (user, sys) };
    let only = p.group.threads().len() <= 1;
    if only { (user, sys) } else { (t.user_time(), t.sentry_time()) }
}

/// Minor and major faults of what the directory stands for, and of waited-for children.
fn faults(p: &Proc) -> ([u64; 2], [u64; 2], Usage) {
    p.group.measure_faults();
    let usage = *p.group.usage.lock();
    let ([minor, major, ..], [children_minor, children_major, ..]) = (usage.own_counts(), usage.child_counts);
    let own = p.thread.as_ref().filter(|_| p.group.threads().len() > 1).and_then(|t| t.guest_thread());
    let own = own.and_then(|tid| p.group.kernel.figures.thread_faults(tid));
    (own.unwrap_or([minor, major]), [children_minor, children_major], usage)
}

pub fn stat(at: &At) -> Result<Vec<u8>> {
    let p = at.proc()?;
    let r = relations(at.kernel(), p);
    let task = p.task();
    let seen = at.cx.map_or_else(|| Ok(p.mm()), |cx| p.mm_access(cx));
    let allowed = seen.is_ok();
    let (tty, tpgid) = at.kernel().terminal_of(r.sid).map_or((0, -1), |(tty, pgid)| (tty, at.pid_nr(pgid)));
    let (utime, stime) = times(p, &r);
    let ([minor, major], [children_minor, children_major], usage) = faults(p);
    let (nice, (policy, rt)) = task
        .as_ref()
        .map_or((0, (0, 0)), |t| (t.scheduling.nice.load(Ordering::Relaxed), *t.scheduling.policy.lock()));
    let priority = task.as_ref().map_or(20, |t| t.scheduling.kernel_priority() - 100);
    let started = task.as_ref().filter(|_| p.is_thread()).map_or(p.group.started, |t| t.started);
    let offset = at.caller().map_or(0, |t| t.nsproxy().time.offset_ns(libc::CLOCK_BOOTTIME));
    let start = at.kernel().boottime_of(started).saturating_add_signed(offset);
    let threads = p.group.threads().len().max(usize::from(r.zombie.is_none()));
    let (vsize, rss) = match task.as_ref().map(|t| t.mm()) {
        Some(mm) => (mem_numbers(&mm).size, resident(at.kernel(), &mm).total),
        None => (0, 0),
    };
    let img = seen.ok().flatten().map(|mm| (mm.image(), mm.with_map(|m| m.brk_start)));
    let (img, brk) = img.unwrap_or_default();
    let s = signal_sets(p, task.as_deref());
    let rsslim = p.group.rlimit(libc::RLIMIT_RSS as i32);
    let mut out = format!("{} (", at.pid_nr(p.id())).into_bytes();
    out.extend(name(p, &r));
    let sleeping = task.as_ref().is_some_and(|t| t.is_sleeping());
    out.extend(
        format!(
            ") {} {} {} {} {tty} {tpgid} 4194304 {minor} {children_minor} {major} {children_major} {} {} {} {} {priority} {nice} {threads} 0 {} {vsize} {rss} \
             {rsslim} {} {} {} 0 0 {} {} {} {} {} 0 0 {} 0 {rt} {policy} 0 0 0 {} {} {} {} {} {} {} {}\n",
            state(p, &r).0,
            at.pid_nr(r.ppid),
            at.pid_nr(r.pgid),
            at.pid_nr(r.sid),
            ticks(utime),
            ticks(stime),
            ticks(usage.child_utime),
            ticks(usage.child_stime),
            ticks(start),
            img.code.0,
            img.code.1,
            img.stack,
            s.pending.0 & 0x7fff_ffff,
            s.blocked.0 & 0x7fff_ffff,
            s.ignored.0 & 0x7fff_ffff,
            s.caught.0 & 0x7fff_ffff,
            u8::from(sleeping && allowed),
            if p.is_thread() && p.id() != p.group.tgid { -1 } else { r.exit_signal },
            img.data.0,
            img.data.1,
            brk,
            img.args.0,
            img.args.1,
            img.env.0,
            img.env.1,
            r.zombie.filter(|_| allowed).unwrap_or(0),
        )
        .into_bytes(),
    );
    Ok(out)
}

pub fn statm(at: &At) -> Result<Vec<u8>> {
    let Some(mm) = at.proc()?.mm() else { return Ok(b"0 0 0 0 0 0 0\n".to_vec()) };
    let n = mem_numbers(&mm);
    let r = resident(at.kernel(), &mm);
    let pages = |b: u64| b / PAGE_SIZE;
    Ok(format!(
        "{} {} {} {} 0 {} 0\n",
        pages(n.size),
        r.total,
        r.shared,
        pages(n.exe),
        pages(n.data + n.stack)
    )
    .into_bytes())
}

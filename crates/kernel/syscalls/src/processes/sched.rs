//! Scheduling parameters: recorded and reported; the host schedules. See sched(7).

use crate::arg::Ptr;
use abi::time::Timespec;
use abi::{CpuMask, Errno, PAGE_SIZE};
use caller::{HasCredentials, Identity};
use rights::Cap;
use sched::{Deadline, RESET_ON_FORK, SCHED_DEADLINE, Scheduling};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use task::{Current, Holder, Node, SysResult};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The thread that a process ID argument names; a zombie is as good.
fn holder(c: &Current, pid: i32) -> Result<Holder, Errno> {
    if pid < 0 {
        return Err(Errno::EINVAL);
    }
    any_holder(c, pid)
}

/// The same for calls that take a negative number as an unused one.
fn any_holder(c: &Current, pid: i32) -> Result<Holder, Errno> {
    c.holder(pid).ok_or(Errno::ESRCH)
}

fn may_change(c: &Current, t: &Holder) -> Result<(), Errno> {
    let (me, them) = (c.creds(), &t.creds);
    let mine = me.euid == them.euid || me.euid == them.uid;
    if mine || me.ns_capable(&them.user_ns, Cap::SYS_NICE) { Ok(()) } else { Err(Errno::EPERM) }
}

pub fn sched_yield(_c: &mut Current) -> SysResult {
    std::thread::yield_now();
    Ok(0)
}

/// The threads that (which, who) of getpriority(2) names.
fn priority_targets(c: &Current, which: i32, who: i32) -> Result<Vec<Holder>, Errno> {
    let v = match which as u32 {
        libc::PRIO_PROCESS => vec![c.holder(who).ok_or(Errno::ESRCH)?],
        libc::PRIO_PGRP => {
            let g = if who == 0 { c.pgid() } else { c.find_vpid(who) };
            c.holders(|n| n.pgid() == g)
        }
        libc::PRIO_USER => {
            let k = c.creds();
            let u = if who == 0 { k.uid } else { k.user_ns.user(who as u32).ok_or(Errno::ESRCH)? };
            let ours = |n: &Node| n.group.pid.nr_in(c.task.pids()) > 0;
            c.holders(ours).into_iter().filter(|t| t.creds.uid == u).collect()
        }
        _ => return Err(Errno::EINVAL),
    };
    if v.is_empty() { Err(Errno::ESRCH) } else { Ok(v) }
}

pub fn getpriority(c: &mut Current, which: i32, who: i32) -> SysResult {
    let best =
        priority_targets(c, which, who)?.iter().map(|t| t.scheduling.nice.load(Ordering::Relaxed)).min();
    Ok((20 - best.unwrap_or(0)) as u64)
}

pub fn setpriority(c: &mut Current, which: i32, who: i32, nice: i32) -> SysResult {
    let nice = nice.clamp(-20, 19);
    for t in priority_targets(c, which, who)? {
        may_change(c, &t)?;
        let lowest = 20 - t.group.rlimit(libc::RLIMIT_NICE as i32).min(40) as i32;
        let raised = nice < t.scheduling.nice.load(Ordering::Relaxed);
        if raised && nice < lowest && !c.creds().capable(Cap::SYS_NICE) {
            return Err(Errno::EACCES.into());
        }
        t.scheduling.nice.store(nice, Ordering::Relaxed);
    }
    Ok(0)
}

fn valid(policy: i32, prio: i32) -> Result<(), Errno> {
    let ok = match policy & !RESET_ON_FORK {
        libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE => prio == 0,
        libc::SCHED_FIFO | libc::SCHED_RR => (1..=99).contains(&prio),
        _ => false,
    };
    if ok { Ok(()) } else { Err(Errno::EINVAL) }
}

fn set_policy(c: &Current, pid: i32, policy: i32, prio: i32) -> Result<Holder, Errno> {
    valid(policy, prio)?;
    let t = holder(c, pid)?;
    may_change(c, &t)?;
    let real_time = matches!(policy & !RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR);
    if real_time
        && !c.creds().capable(Cap::SYS_NICE)
        && prio as u64 > t.group.rlimit(libc::RLIMIT_RTPRIO as i32)
    {
        return Err(Errno::EPERM);
    }
    *t.scheduling.policy.lock() = (policy, prio);
    Ok(t)
}

pub fn sched_setscheduler(c: &mut Current, pid: i32, policy: i32, param: Ptr) -> SysResult {
    if param.is_null() || pid < 0 || policy < 0 {
        return Err(Errno::EINVAL.into());
    }
    let prio: i32 = c.read_value(param.0)?;
    set_policy(c, pid, policy, prio)?;
    Ok(0)
}

pub fn sched_setparam(c: &mut Current, pid: i32, param: Ptr) -> SysResult {
    if param.is_null() {
        return Err(Errno::EINVAL.into());
    }
    let prio: i32 = c.read_value(param.0)?;
    let policy = holder(c, pid)?.scheduling.policy.lock().0;
    set_policy(c, pid, policy, prio)?;
    Ok(0)
}

pub fn sched_getscheduler(c: &mut Current, pid: i32) -> SysResult {
    Ok(holder(c, pid)?.scheduling.policy.lock().0 as u64)
}

pub fn sched_getparam(c: &mut Current, pid: i32, param: Ptr) -> SysResult {
    if param.is_null() {
        return Err(Errno::EINVAL.into());
    }
    let prio = holder(c, pid)?.scheduling.policy.lock().1;
    c.write_value(param.0, &prio)?;
    Ok(0)
}

pub fn sched_get_priority_max(_c: &mut Current, policy: i32) -> SysResult {
    match policy {
        libc::SCHED_FIFO | libc::SCHED_RR => Ok(99),
        libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE | 6 | 7 => Ok(0),
        _ => Err(Errno::EINVAL.into()),
    }
}

pub fn sched_get_priority_min(_c: &mut Current, policy: i32) -> SysResult {
    match policy {
        libc::SCHED_FIFO | libc::SCHED_RR => Ok(1),
        libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE | 6 | 7 => Ok(0),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// The time slice in nanoseconds: what was set, or Linux's default, which grows with the number of processors.
fn slice(c: &Current, pid: i32) -> Result<u64, Errno> {
    let set = holder(c, pid)?.scheduling.slice.load(Ordering::Relaxed);
    let factor = 1 + c.limits().online().count().clamp(1, 8).ilog2();
    Ok(if set > 0 { set } else { 700_000 * u64::from(factor) })
}

pub fn sched_rr_get_interval(c: &mut Current, pid: i32, out: Ptr) -> SysResult {
    let policy = holder(c, pid)?.scheduling.policy.lock().0 & !RESET_ON_FORK;
    let ns = match policy {
        libc::SCHED_RR => 100_000_000,
        libc::SCHED_FIFO => 0,
        // In units of a tick of 4 ms.
        _ => slice(c, pid)? / 4_000_000 * 4_000_000,
    };
    c.write_value(out.0, &Timespec::from_ns(ns as i64))?;
    Ok(0)
}

/// Bytes of a set of processors: as many words as Linux needs for the highest number.
fn set_size(c: &Current) -> usize {
    c.limits().online().width().div_ceil(64).max(1) * 8
}

pub fn sched_setaffinity(c: &mut Current, pid: i32, len: u64, mask: Ptr) -> SysResult {
    let size = set_size(c);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(size)];
    c.read_bytes(mask.0, &mut bytes)?;
    let t = any_holder(c, pid)?;
    may_change(c, &t)?;
    let asked = CpuMask::from_bytes(&bytes);
    if asked.and(&c.limits().allowed()).is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let online = c.limits().online();
    if reserved(&t.scheduling) > 0 && online.and(&asked) != online {
        return Err(Errno::EBUSY.into());
    }
    *t.scheduling.affinity.lock() = asked;
    Ok(0)
}

pub fn sched_getaffinity(c: &mut Current, pid: i32, len: u64, mask: Ptr) -> SysResult {
    let processors = c.limits().online().width() as u64;
    if len.saturating_mul(8) < processors || !len.is_multiple_of(8) {
        return Err(Errno::EINVAL.into());
    }
    let asked = *any_holder(c, pid)?.scheduling.affinity.lock();
    let bytes = c.limits().allowed_of(&asked).to_bytes();
    let size = set_size(c).min(usize::try_from(len).unwrap_or(usize::MAX)).min(bytes.len());
    c.write_bytes(mask.0, &bytes[..size])?;
    Ok(size as u64)
}

pub fn getcpu(c: &mut Current, cpu: Ptr, node: Ptr) -> SysResult {
    // The host decides where a thread runs; any allowed processor is a true answer of the moment.
    let asked = *c.task.scheduling.affinity.lock();
    if !cpu.is_null() {
        let first = c.limits().allowed_of(&asked).iter().next().unwrap_or(0);
        c.write_value(cpu.0, &(first as u32))?;
    }
    if !node.is_null() {
        c.write_value(node.0, &0u32)?;
    }
    Ok(0)
}

pub fn ioprio_set(c: &mut Current, which: i32, who: i32, prio: i32) -> SysResult {
    let (class, data) = (prio >> 13, prio & 0x1fff);
    match class {
        1 if !c.creds().capable(Cap::SYS_ADMIN) => return Err(Errno::EPERM.into()),
        1 | 2 if data < 8 => {}
        3 => {}
        0 if data == 0 => {}
        _ => return Err(Errno::EINVAL.into()),
    }
    for t in ioprio_targets(c, which, who)? {
        may_change(c, &t)?;
        t.scheduling.ioprio.store(prio, Ordering::Relaxed);
    }
    Ok(0)
}

fn ioprio_targets(c: &Current, which: i32, who: i32) -> Result<Vec<Holder>, Errno> {
    // IOPRIO_WHO_PROCESS is 1 where PRIO_PROCESS is 0, and so on.
    priority_targets(c, which.wrapping_sub(1), who)
}

pub fn ioprio_get(c: &mut Current, which: i32, who: i32) -> SysResult {
    let v = ioprio_targets(c, which, who)?;
    Ok(v.iter().map(|t| t.scheduling.ioprio.load(Ordering::Relaxed)).max().unwrap_or(0) as u64)
}

/// `struct sched_attr` as Linux knows it today.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Nanoseconds; the time slice where the policy is not SCHED_DEADLINE.
    runtime: u64,
    deadline: u64,
    period: u64,
    util: [u32; 2],
}

/// Size of its first version, without the last field.
const FIRST_SIZE: u32 = 48;
const SIZE: u32 = size_of::<SchedAttr>() as u32;
const FLAG_RESET_ON_FORK: u64 = 1;
const FLAG_KEEP_POLICY: u64 = 0x08;
const FLAG_KEEP_PARAMS: u64 = 0x10;
/// SCHED_FLAG_RECLAIM, SCHED_FLAG_DL_OVERRUN.
const FLAGS_DEADLINE: u64 = 0x06;
const FLAGS_UTIL_CLAMP: u64 = 0x60;
const KNOWN_FLAGS: u64 = 0x7f;
/// Shortest and longest time slice in nanoseconds.
const SLICES: (u64, u64) = (100_000, 100_000_000);

/// Copies a structure of any size in: what is missing is zero, and what is unknown must be.
fn read_attr(c: &mut Current, at: Ptr) -> Result<SchedAttr, Errno> {
    let given: u32 = c.read_value(at.0)?;
    let size = if given == 0 { FIRST_SIZE } else { given };
    let mut bytes = vec![0; size.clamp(SIZE, PAGE_SIZE as u32) as usize];
    let fits = (FIRST_SIZE..=PAGE_SIZE as u32).contains(&size);
    if fits {
        let end = size as usize;
        c.read_bytes(at.0, &mut bytes[..end])?;
    }
    let (known, tail) = bytes.split_at(SIZE as usize);
    if !fits || tail.iter().any(|b| *b != 0) {
        c.write_value(at.0, &SIZE)?;
        return Err(Errno::E2BIG);
    }
    let mut attr = SchedAttr::read_from_bytes(known).map_err(|_| Errno::EINVAL)?;
    if attr.flags & FLAGS_UTIL_CLAMP != 0 && size < SIZE {
        return Err(Errno::EINVAL);
    }
    attr.nice = attr.nice.clamp(-20, 19);
    Ok(attr)
}

pub fn sched_setattr(c: &mut Current, pid: i32, attr: Ptr, flags: u32) -> SysResult {
    if attr.is_null() || pid < 0 || flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    let a = read_attr(c, attr)?;
    if a.policy > i32::MAX as u32 || a.flags & !KNOWN_FLAGS != 0 {
        return Err(Errno::EINVAL.into());
    }
    if a.flags & FLAGS_UTIL_CLAMP != 0 {
        // A kernel without CONFIG_UCLAMP_TASK.
        return Err(Errno::EOPNOTSUPP.into());
    }
    let t = holder(c, pid)?;
    let before = *t.scheduling.policy.lock();
    let keep_params = a.flags & FLAG_KEEP_PARAMS != 0;
    let policy = if a.flags & FLAG_KEEP_POLICY != 0 { before.0 & !RESET_ON_FORK } else { a.policy as i32 };
    let priority = if keep_params { before.1 } else { a.priority as i32 };
    let reset = if a.flags & FLAG_RESET_ON_FORK != 0 { RESET_ON_FORK } else { 0 };
    if policy == SCHED_DEADLINE {
        let asked = Deadline {
            runtime: a.runtime,
            deadline: a.deadline,
            period: a.period,
            flags: a.flags & FLAGS_DEADLINE,
        };
        let deadline = if keep_params { *t.scheduling.deadline.lock() } else { asked };
        return set_deadline(c, &t, deadline, priority, reset);
    }
    let fair = matches!(policy, libc::SCHED_OTHER | libc::SCHED_BATCH);
    let current = t.scheduling.nice.load(Ordering::Relaxed);
    let lowest = 20 - t.group.rlimit(libc::RLIMIT_NICE as i32).min(40) as i32;
    if fair && !keep_params && a.nice < current.min(lowest) && !c.creds().capable(Cap::SYS_NICE) {
        return Err(Errno::EPERM.into());
    }
    let t = set_policy(c, pid, policy | reset, priority)?;
    if keep_params {
        return Ok(0);
    }
    if fair {
        t.scheduling.nice.store(a.nice, Ordering::Relaxed);
    }
    let slice = if a.runtime == 0 { 0 } else { a.runtime.clamp(SLICES.0, SLICES.1) };
    t.scheduling.slice.store(slice, Ordering::Relaxed);
    Ok(0)
}

/// Makes a thread one of SCHED_DEADLINE, as far as all of them together leave 5% of the processors.
fn set_deadline(c: &Current, t: &Holder, deadline: Deadline, priority: i32, reset: i32) -> SysResult {
    const SHARE: u64 = 950_000;
    if priority != 0 || !deadline.is_valid() {
        return Err(Errno::EINVAL.into());
    }
    may_change(c, t)?;
    let online = c.limits().online();
    let everywhere = online.and(&t.scheduling.affinity.lock()) == online;
    if !c.creds().capable(Cap::SYS_NICE) || !everywhere {
        return Err(Errno::EPERM.into());
    }
    let others =
        c.kernel().tasks().into_iter().filter(|other| !Arc::ptr_eq(&other.scheduling, &t.scheduling));
    let used: u64 = others.map(|other| reserved(&other.scheduling)).sum();
    if used + deadline.bandwidth() > SHARE * online.count() as u64 {
        return Err(Errno::EBUSY.into());
    }
    *t.scheduling.deadline.lock() = deadline;
    *t.scheduling.policy.lock() = (SCHED_DEADLINE | reset, 0);
    Ok(0)
}

/// The part of a processor that a thread has reserved.
fn reserved(scheduling: &Scheduling) -> u64 {
    let policy = scheduling.policy.lock().0 & !RESET_ON_FORK;
    if policy == SCHED_DEADLINE { scheduling.deadline.lock().bandwidth() } else { 0 }
}

pub fn sched_getattr(c: &mut Current, pid: i32, attr: Ptr, size: u32, flags: u32) -> SysResult {
    let fits = (FIRST_SIZE..=PAGE_SIZE as u32).contains(&size);
    if attr.is_null() || pid < 0 || flags != 0 || !fits {
        return Err(Errno::EINVAL.into());
    }
    let t = holder(c, pid)?;
    let (policy, priority) = *t.scheduling.policy.lock();
    let real_time = matches!(policy & !RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR);
    let mut a = SchedAttr {
        size: size.min(SIZE),
        policy: (policy & !RESET_ON_FORK) as u32,
        flags: if policy & RESET_ON_FORK != 0 { FLAG_RESET_ON_FORK } else { 0 },
        nice: if real_time { 0 } else { t.scheduling.nice.load(Ordering::Relaxed) },
        priority: priority as u32,
        runtime: if real_time { 0 } else { slice(c, pid)? },
        ..SchedAttr::default()
    };
    if a.policy == SCHED_DEADLINE as u32 {
        let Deadline { runtime, deadline, period, flags } = *t.scheduling.deadline.lock();
        (a.runtime, a.deadline, a.period) = (runtime, deadline, if period == 0 { deadline } else { period });
        (a.nice, a.flags) = (0, a.flags | flags);
    }
    let len = size.min(SIZE) as usize;
    let bytes = a.as_bytes().get(..len).unwrap_or_default();
    c.write_bytes(attr.0, bytes)?;
    Ok(0)
}

//! Scheduling parameters: recorded and reported; the host schedules. See sched(7).

use crate::arg::Ptr;
use abi::Errno;
use abi::time::Timespec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use task::{Current, SysResult, Task};
use vfs::{Caller, Cap};

const RESET_ON_FORK: i32 = 0x4000_0000;

fn task_of(c: &Current, pid: i32) -> Result<Arc<Task>, Errno> {
    match pid {
        0 => Ok(c.task.clone()),
        p if p < 0 => Err(Errno::EINVAL),
        p => c.find_task(p).ok_or(Errno::ESRCH),
    }
}

fn may_change(c: &Current, t: &Task) -> Result<(), Errno> {
    let (me, them) = (c.creds(), t.creds());
    let mine = me.euid == them.euid || me.euid == them.uid;
    if mine || me.capable(Cap::SYS_NICE) { Ok(()) } else { Err(Errno::EPERM) }
}

pub fn sched_yield(_c: &mut Current) -> SysResult {
    std::thread::yield_now();
    Ok(0)
}

/// Tasks that (which, who) of getpriority(2) names.
fn priority_targets(c: &Current, which: i32, who: i32) -> Result<Vec<Arc<Task>>, Errno> {
    let all = || c.kernel().tree.lock().tasks.values().cloned().collect::<Vec<_>>();
    let v = match which as u32 {
        libc::PRIO_PROCESS => {
            vec![if who == 0 { c.task.clone() } else { c.find_task(who).ok_or(Errno::ESRCH)? }]
        }
        libc::PRIO_PGRP => {
            let g = if who == 0 { c.pgid() } else { c.means(who) };
            let groups: Vec<_> = {
                let t = c.kernel().tree.lock();
                t.nodes.values().filter(|n| n.pgid == g).map(|n| n.group.clone()).collect()
            };
            groups.iter().flat_map(|g| g.threads()).collect()
        }
        libc::PRIO_USER => {
            let u = if who == 0 { c.creds().uid } else { who as u32 };
            all().into_iter().filter(|t| t.creds().uid == u && t.pids() == c.task.pids()).collect()
        }
        _ => return Err(Errno::EINVAL),
    };
    if v.is_empty() { Err(Errno::ESRCH) } else { Ok(v) }
}

pub fn getpriority(c: &mut Current, which: i32, who: i32) -> SysResult {
    let best = priority_targets(c, which, who)?.iter().map(|t| t.nice.load(Ordering::Relaxed)).min();
    Ok((20 - best.unwrap_or(0)) as u64)
}

pub fn setpriority(c: &mut Current, which: i32, who: i32, nice: i32) -> SysResult {
    let nice = nice.clamp(-20, 19);
    for t in priority_targets(c, which, who)? {
        may_change(c, &t)?;
        let lowest = 20 - t.group.rlimit(libc::RLIMIT_NICE as i32).min(40) as i32;
        if nice < t.nice.load(Ordering::Relaxed) && nice < lowest && !c.creds().capable(Cap::SYS_NICE) {
            return Err(Errno::EACCES.into());
        }
        t.nice.store(nice, Ordering::Relaxed);
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

fn set_policy(c: &Current, pid: i32, policy: i32, prio: i32) -> Result<(), Errno> {
    valid(policy, prio)?;
    let t = task_of(c, pid)?;
    may_change(c, &t)?;
    let real_time = matches!(policy & !RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR);
    if real_time
        && !c.creds().capable(Cap::SYS_NICE)
        && prio as u64 > t.group.rlimit(libc::RLIMIT_RTPRIO as i32)
    {
        return Err(Errno::EPERM);
    }
    *t.sched.lock() = (policy, prio);
    Ok(())
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
    let policy = task_of(c, pid)?.sched.lock().0;
    set_policy(c, pid, policy, prio)?;
    Ok(0)
}

pub fn sched_getscheduler(c: &mut Current, pid: i32) -> SysResult {
    Ok(task_of(c, pid)?.sched.lock().0 as u64)
}

pub fn sched_getparam(c: &mut Current, pid: i32, param: Ptr) -> SysResult {
    if param.is_null() {
        return Err(Errno::EINVAL.into());
    }
    let prio = task_of(c, pid)?.sched.lock().1;
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

pub fn sched_rr_get_interval(c: &mut Current, pid: i32, out: Ptr) -> SysResult {
    let policy = task_of(c, pid)?.sched.lock().0 & !RESET_ON_FORK;
    let ns = match policy {
        libc::SCHED_RR => 100_000_000,
        libc::SCHED_FIFO => 0,
        _ => 2_800_000,
    };
    c.write_value(out.0, &Timespec::from_ns(ns))?;
    Ok(0)
}

fn all_cpus(c: &Current) -> u64 {
    // Read once: an update may change it at any time.
    let cpus = c.limits().cpus();
    if cpus >= 64 { u64::MAX } else { (1 << cpus) - 1 }
}

pub fn sched_setaffinity(c: &mut Current, pid: i32, len: u64, mask: Ptr) -> SysResult {
    let t = task_of(c, pid)?;
    let mut b = [0u8; 8];
    let n = len.min(8) as usize;
    c.read_bytes(mask.0, &mut b[..n])?;
    may_change(c, &t)?;
    let m = u64::from_le_bytes(b) & all_cpus(c);
    if m == 0 {
        return Err(Errno::EINVAL.into());
    }
    t.affinity.store(m, Ordering::Relaxed);
    Ok(0)
}

pub fn sched_getaffinity(c: &mut Current, pid: i32, len: u64, mask: Ptr) -> SysResult {
    if len * 8 < c.limits().cpus() as u64 || !len.is_multiple_of(8) {
        return Err(Errno::EINVAL.into());
    }
    let m = task_of(c, pid)?.affinity.load(Ordering::Relaxed) & all_cpus(c);
    c.write_value(mask.0, &m)?;
    Ok(8)
}

pub fn getcpu(c: &mut Current, cpu: Ptr, node: Ptr) -> SysResult {
    // The host decides where a thread runs; any allowed processor is a true answer of the moment.
    let m = c.task.affinity.load(Ordering::Relaxed) & all_cpus(c);
    if !cpu.is_null() {
        c.write_value(cpu.0, &m.trailing_zeros())?;
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
        t.ioprio.store(prio, Ordering::Relaxed);
    }
    Ok(0)
}

fn ioprio_targets(c: &Current, which: i32, who: i32) -> Result<Vec<Arc<Task>>, Errno> {
    // IOPRIO_WHO_PROCESS is 1 where PRIO_PROCESS is 0, and so on.
    priority_targets(c, which - 1, who)
}

pub fn ioprio_get(c: &mut Current, which: i32, who: i32) -> SysResult {
    let v = ioprio_targets(c, which, who)?;
    Ok(v.iter().map(|t| t.ioprio.load(Ordering::Relaxed)).max().unwrap_or(0) as u64)
}

/// struct sched_attr, first version: size policy flags nice priority runtime deadline period.
const ATTR_SIZE: u32 = 48;

pub fn sched_setattr(c: &mut Current, pid: i32, attr: Ptr, flags: u32) -> SysResult {
    if attr.is_null() || pid < 0 || flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    let size: u32 = c.read_value(attr.0)?;
    let size = if size == 0 { ATTR_SIZE } else { size };
    if !(ATTR_SIZE..=4096).contains(&size) {
        c.write_value(attr.0, &56u32)?;
        return Err(Errno::E2BIG.into());
    }
    let words: [u32; 12] = c.read_value(attr.0)?;
    let (policy, bits, nice, prio) = (words[1] as i32, words[2], words[3] as i32, words[4] as i32);
    let reset = if bits & 1 != 0 { RESET_ON_FORK } else { 0 };
    if policy < 0 || bits & !0x7f != 0 {
        return Err(Errno::EINVAL.into());
    }
    set_policy(c, pid, policy | reset, prio)?;
    if matches!(policy, libc::SCHED_OTHER | libc::SCHED_BATCH) {
        task_of(c, pid)?.nice.store(nice.clamp(-20, 19), Ordering::Relaxed);
    }
    Ok(0)
}

pub fn sched_getattr(c: &mut Current, pid: i32, attr: Ptr, size: u32, flags: u32) -> SysResult {
    if attr.is_null() || pid < 0 || flags != 0 || !(ATTR_SIZE..=4096).contains(&size) {
        return Err(Errno::EINVAL.into());
    }
    let t = task_of(c, pid)?;
    let (policy, prio) = *t.sched.lock();
    let mut w = [0u32; 12];
    w[0] = ATTR_SIZE;
    w[1] = (policy & !RESET_ON_FORK) as u32;
    w[2] = u32::from(policy & RESET_ON_FORK != 0);
    w[3] = t.nice.load(Ordering::Relaxed) as u32;
    w[4] = prio as u32;
    c.write_value(attr.0, &w)?;
    Ok(0)
}

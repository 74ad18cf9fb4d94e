//! getrlimit(2), prlimit(2), getrusage(2), times(2).

use crate::arg::Ptr;
use abi::Errno;
use abi::time::Timeval;
use caller::HasCredentials;
use rights::Cap;
use sched::{HostCounts, Rlimits, Usage, add_counts};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use task::{Current, SysResult, ThreadGroup};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct rusage`, 144 bytes.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rusage {
    utime: Timeval,
    stime: Timeval,
    maxrss: i64,
    shared: [i64; 3],
    faults: [u64; 2],
    swaps: i64,
    blocks: [u64; 2],
    messages: [i64; 3],
    switches: [u64; 2],
}

/// Of a process that was waited for, its own children included.
pub fn rusage_of_child(u: &Usage) -> Rusage {
    let mut counts = u.own_counts();
    add_counts(&mut counts, u.child_counts);
    rusage_of(u.utime + u.child_utime, u.stime + u.child_stime, u.maxrss.max(u.child_maxrss), counts)
}

/// From nanoseconds and KiB.
pub fn rusage_of(utime: u64, stime: u64, maxrss: u64, counts: HostCounts) -> Rusage {
    let [minor, major, read, written, voluntary, involuntary] = counts;
    Rusage {
        utime: Duration::from_nanos(utime).into(),
        stime: Duration::from_nanos(stime).into(),
        maxrss: maxrss as i64,
        faults: [minor, major],
        blocks: [read, written],
        switches: [voluntary, involuntary],
        ..Rusage::default()
    }
}

pub fn getrusage(c: &mut Current, who: i32, out: Ptr) -> SysResult {
    c.kernel().usage_wanted.store(true, Ordering::Relaxed);
    if matches!(who, libc::RUSAGE_SELF | libc::RUSAGE_THREAD) {
        c.measure_usage();
    }
    let u = c.task.group.total_usage();
    let r = match who {
        libc::RUSAGE_SELF => rusage_of(u.utime, u.stime, u.maxrss, u.own_counts()),
        libc::RUSAGE_CHILDREN => rusage_of(u.child_utime, u.child_stime, u.child_maxrss, u.child_counts),
        libc::RUSAGE_THREAD => {
            let task = c.task.clone();
            let (user, system) = c.times_of(&task);
            rusage_of(user, system, u.maxrss, c.thread_counts())
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    c.write_value(out.0, &r)?;
    Ok(0)
}

pub fn times(c: &mut Current, out: Ptr) -> SysResult {
    let u = c.task.group.total_usage();
    let tick = 10_000_000;
    if !out.is_null() {
        let t = [u.utime / tick, u.stime / tick, u.child_utime / tick, u.child_stime / tick];
        c.write_value(out.0, &t)?;
    }
    Ok(process_timers::monotonic() / tick)
}

fn target(c: &Current, pid: i32) -> Result<Arc<ThreadGroup>, Errno> {
    let t = c.holder(pid).ok_or(Errno::ESRCH)?;
    let (me, them) = (c.creds(), &t.creds);
    let same = me.uid == them.uid
        && me.uid == them.euid
        && me.uid == them.suid
        && me.gid == them.gid
        && me.gid == them.egid
        && me.gid == them.sgid;
    let own = t.group.tgid == c.task.tgid();
    if own || same || me.ns_capable(&them.user_ns, Cap::SYS_RESOURCE) {
        Ok(t.group)
    } else {
        Err(Errno::EPERM)
    }
}

fn limit(c: &mut Current, pid: i32, resource: i32, new: Option<(u64, u64)>) -> Result<(u64, u64), Errno> {
    if Rlimits::UNLIMITED.get(resource).is_none() {
        return Err(Errno::EINVAL);
    }
    let group = target(c, pid)?;
    let capable = c.creds().capable(Cap::SYS_RESOURCE);
    let mut l = group.rlimits.lock();
    let old = l.get(resource).ok_or(Errno::EINVAL)?;
    if let Some((soft, hard)) = new {
        if soft > hard {
            return Err(Errno::EINVAL);
        }
        if resource == libc::RLIMIT_NOFILE as i32 && hard > c.kernel().vfs.resources.quotas.files.nr_open() {
            return Err(Errno::EPERM);
        }
        if hard > old.1 && !capable {
            return Err(Errno::EPERM);
        }
        l.set(resource, (soft, hard));
        drop(l);
        if resource == libc::RLIMIT_CPU as i32 {
            process_timers::watch_cpu_limit(&group);
        }
    }
    Ok(old)
}

pub fn getrlimit(c: &mut Current, resource: i32, out: Ptr) -> SysResult {
    let (s, h) = limit(c, 0, resource, None)?;
    c.write_value(out.0, &[s, h])?;
    Ok(0)
}

pub fn setrlimit(c: &mut Current, resource: i32, new: Ptr) -> SysResult {
    let [s, h] = c.read_value::<[u64; 2]>(new.0)?;
    limit(c, 0, resource, Some((s, h)))?;
    Ok(0)
}

pub fn prlimit64(c: &mut Current, pid: i32, resource: i32, new: Ptr, old: Ptr) -> SysResult {
    let set = match new.is_null() {
        true => None,
        false => {
            let [s, h] = c.read_value::<[u64; 2]>(new.0)?;
            Some((s, h))
        }
    };
    let (s, h) = limit(c, pid, resource, set)?;
    if !old.is_null() {
        c.write_value(old.0, &[s, h])?;
    }
    Ok(0)
}

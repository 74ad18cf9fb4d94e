//! process_madvise(2): madvise(2) of several ranges, also of another process's memory.

use crate::arg::{Fd, Ptr};
use crate::memory::mmap::{madvise, police_access, vm_iovecs};
use abi::{Errno, PAGE_SIZE, Result, page_up};
use caller::HasCredentials;
use mm::Mm;
use rights::Cap;
use std::sync::Arc;
use task::{Current, SysErr, SysResult, Task, ptrace_access};

const MADV_COLLAPSE: i32 = 25;
/// What may be advised about memory of others: nothing of it changes what they see.
const OF_OTHERS: &[i32] = &[libc::MADV_WILLNEED, libc::MADV_COLD, libc::MADV_PAGEOUT, MADV_COLLAPSE];

/// The thread that a pidfd stands for in calls on memory; PIDFD_SELF is the caller's own (pidfd_get_task).
pub(crate) fn pidfd_task(c: &Current, pidfd: Fd) -> Result<Arc<Task>, Errno> {
    const SELF_THREAD: i32 = -10_000;
    const SELF_GROUP: i32 = -10_001;
    if matches!(pidfd.0, SELF_THREAD | SELF_GROUP) {
        return Ok(c.task.clone());
    }
    let f = c.file(pidfd.0)?;
    let p = task::pidfd::of(&f)?;
    p.thread().transpose()?.or_else(|| p.group.any_thread()).ok_or(Errno::ESRCH)
}

pub fn process_madvise(
    c: &mut Current,
    pidfd: Fd,
    ranges: Ptr,
    count: u64,
    advice: i32,
    flags: u32,
) -> SysResult {
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    let ranges = vm_iovecs(c, ranges, count)?;
    let task = pidfd_task(c, pidfd)?;
    let mm = ptrace_access::mm_access(&c.creds(), c.task.tgid(), &task, ptrace_access::Mode::Fs);
    let mm = mm.ok_or(Errno::EACCES)?;
    police_access(c, task.tgid())?;
    let own = Arc::ptr_eq(&mm, &c.mm);
    if !own && !OF_OTHERS.contains(&advice) {
        return Err(Errno::EINVAL.into());
    }
    if !own && !c.creds().capable(Cap::SYS_NICE) {
        return Err(Errno::EPERM.into());
    }
    let mut done = 0;
    for [addr, len] in ranges {
        let advised = if own {
            madvise(c, addr, len, advice).map(drop)
        } else {
            look(&mm, addr, len).map_err(SysErr::from)
        };
        match advised {
            Ok(()) => done += len,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// The errors of a range of another process. What is advised is up to the host, which knows better.
fn look(mm: &Mm, addr: u64, len: u64) -> Result<()> {
    let end = page_up(len).and_then(|len| addr.checked_add(len)).ok_or(Errno::EINVAL)?;
    if !addr.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    if mm.with_map(|m| m.covered(addr, end)) { Ok(()) } else { Err(Errno::ENOMEM) }
}

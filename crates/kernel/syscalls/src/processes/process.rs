//! clone(2), fork(2), exit(2), pidfds.

use crate::arg::{Fd, Ptr};
use abi::clone::{
    CLONE_INTO_CGROUP, CLONE_PARENT, CLONE_PARENT_SETTID, CLONE_PIDFD, CLONE_THREAD, CLONE_VFORK, CLONE_VM,
    CLONE3, CSIGNAL,
};
use abi::{Errno, Signal};
use std::sync::Arc;
use task::{CloneArgs, Current, SysErr, SysResult};
use zerocopy::IntoBytes;

pub fn clone(
    c: &mut Current,
    flags: u64,
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
) -> SysResult {
    let flags = flags & 0xffff_ffff;
    let wants_pidfd = flags & CLONE_PIDFD != 0;
    if wants_pidfd && flags & CLONE_PARENT_SETTID != 0 {
        return Err(Errno::EINVAL.into());
    }
    let pidfd = if wants_pidfd { parent_tid } else { 0 };
    c.clone_task(&CloneArgs {
        flags: flags & !CSIGNAL,
        pidfd,
        child_tid,
        parent_tid,
        exit_signal: flags & CSIGNAL,
        stack,
        tls,
        ..CloneArgs::default()
    })
}

pub fn fork(c: &mut Current) -> SysResult {
    c.clone_task(&CloneArgs { exit_signal: Signal::SIGCHLD.raw() as u64, ..CloneArgs::default() })
}

pub fn vfork(c: &mut Current) -> SysResult {
    let flags = CLONE_VFORK | CLONE_VM;
    c.clone_task(&CloneArgs { flags, exit_signal: Signal::SIGCHLD.raw() as u64, ..CloneArgs::default() })
}

/// The control group with a directory that is open as `fd`; EBADF for anything else.
pub(crate) fn group_of(c: &Current, fd: i32) -> Result<Arc<cgroup::Cgroup>, Errno> {
    let file = c.file(fd)?;
    let path = file.path.as_ref().ok_or(Errno::EBADF)?;
    cgroupfs::group_of(path.inode()).ok_or(Errno::EBADF)
}

pub fn clone3(c: &mut Current, args: Ptr, size: u64) -> SysResult {
    // struct clone_args: flags pidfd child_tid parent_tid exit_signal stack stack_size tls set_tid set_tid_size cgroup
    if size > 4096 {
        return Err(Errno::E2BIG.into());
    }
    if size < 64 {
        return Err(Errno::EINVAL.into());
    }
    let mut raw = vec![0u8; (size as usize).max(88)];
    c.read_bytes(args.0, &mut raw[..size as usize])?;
    if raw[88..].iter().any(|&b| b != 0) {
        return Err(Errno::E2BIG.into());
    }
    let mut a = [0u64; 11];
    a.as_mut_bytes().copy_from_slice(&raw[..88]);
    let [
        flags,
        pidfd,
        child_tid,
        parent_tid,
        exit_signal,
        stack,
        stack_size,
        tls,
        set_tid,
        set_tid_size,
        group,
    ] = a;
    let bad = flags & !CLONE3 != 0
        || exit_signal > 64
        || (stack == 0) != (stack_size == 0)
        || flags & (CLONE_THREAD | CLONE_PARENT) != 0 && exit_signal != 0
        || (set_tid == 0) != (set_tid_size == 0);
    if bad {
        return Err(Errno::EINVAL.into());
    }
    if set_tid_size > pid::MAX_LEVEL as u64
        || flags & CLONE_INTO_CGROUP != 0 && (group > i32::MAX as u64 || size < 88)
    {
        return Err(Errno::EINVAL.into());
    }
    let cgroup = if flags & CLONE_INTO_CGROUP != 0 { Some(group_of(c, group as i32)?) } else { None };
    let mut numbers = vec![0i32; set_tid_size as usize];
    c.read_bytes(set_tid, numbers.as_mut_bytes())?;
    let top = stack.checked_add(stack_size).ok_or(Errno::EINVAL)?;
    let set_tid = numbers;
    c.clone_task(&CloneArgs {
        flags,
        pidfd,
        child_tid,
        parent_tid,
        exit_signal,
        stack: top,
        tls,
        cgroup,
        set_tid,
    })
}

pub fn exit(c: &mut Current, code: i32) -> SysResult {
    c.exit_code = Some((code & 0xff) << 8);
    Err(SysErr::NoReturn)
}

pub fn exit_group(c: &mut Current, code: i32) -> SysResult {
    c.exit_group((code & 0xff) << 8);
    Err(SysErr::NoReturn)
}

pub fn set_tid_address(c: &mut Current, addr: u64) -> SysResult {
    c.task.set_word(platform::Word::ClearChildTid, addr);
    Ok(c.task.own_tid() as u64)
}

pub fn pidfd_open(c: &mut Current, pid: i32, flags: u32) -> SysResult {
    if flags & !((libc::O_NONBLOCK | task::pidfd::PIDFD_THREAD) as u32) != 0 || pid <= 0 {
        return Err(Errno::EINVAL.into());
    }
    if flags & task::pidfd::PIDFD_THREAD as u32 != 0 {
        let t = c.find_task(pid).ok_or(Errno::ESRCH)?;
        return Ok(task::pidfd::install(c, &t.group, Some(&t), flags as i32)? as u64);
    }
    let g = match c.find_group(pid) {
        Some(g) => g,
        // A thread that leads no group is not a process.
        None if c.find_task(pid).is_some() => return Err(Errno::EINVAL.into()),
        None => return Err(Errno::ESRCH.into()),
    };
    Ok(task::pidfd::install(c, &g, None, flags as i32)? as u64)
}

/// Takes the memory of a process away that is about to end.
pub fn process_mrelease(c: &mut Current, pidfd: Fd, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    let t = crate::memory::process_madvise::pidfd_task(c, pidfd)?;
    let ends = t.group.signals.lock().life.is_over();
    // Others that share it must end as well.
    if !ends || t.mm().users.shared() {
        return Err(Errno::EINVAL.into());
    }
    t.mm().space.kill();
    Ok(0)
}

pub fn pidfd_getfd(c: &mut Current, pidfd: Fd, fd: i32, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    let f = c.file(pidfd.0)?;
    let p = task::pidfd::of(&f)?;
    let t = p.thread().transpose()?.or_else(|| p.group.any_thread()).ok_or(Errno::ESRCH)?;
    crate::memory::mmap::may_access(c, &t)?;
    let f = t.fds().ok_or(Errno::ESRCH)?.get(fd)?;
    // A program with more rights may have begun, and opened it.
    crate::memory::mmap::may_access(c, &t)?;
    vfs::policing::decide_received(c, &f)?;
    Ok(c.install(f, true)? as u64)
}

//! clone(2), fork(2), exit(2), unshare(2), pidfds.

use crate::arg::{Fd, Ptr};
use abi::{Errno, Signal};
use std::sync::atomic::Ordering;
use task::{CloneArgs, Current, SysErr, SysResult};
use vfs::{Caller, Cap};
use zerocopy::IntoBytes;

const CSIGNAL: u64 = 0xff;

pub fn clone(
    c: &mut Current,
    flags: u64,
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
) -> SysResult {
    let flags = flags & 0xffff_ffff;
    let wants_pidfd = flags & libc::CLONE_PIDFD as u64 != 0;
    if wants_pidfd && flags & libc::CLONE_PARENT_SETTID as u64 != 0 {
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
    })
}

pub fn fork(c: &mut Current) -> SysResult {
    c.clone_task(&CloneArgs { exit_signal: Signal::SIGCHLD.raw() as u64, ..CloneArgs::default() })
}

pub fn vfork(c: &mut Current) -> SysResult {
    let flags = (libc::CLONE_VFORK | libc::CLONE_VM) as u64;
    c.clone_task(&CloneArgs { flags, exit_signal: Signal::SIGCHLD.raw() as u64, ..CloneArgs::default() })
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
    let [flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, _] =
        a;
    let bad = flags & (CSIGNAL | libc::CLONE_DETACHED as u64) != 0
        || exit_signal > 64
        || (stack == 0) != (stack_size == 0)
        || flags & (libc::CLONE_THREAD | libc::CLONE_PARENT) as u64 != 0 && exit_signal != 0
        || (set_tid == 0) != (set_tid_size == 0)
        || flags & !0x3_ffff_ffff != 0;
    if bad {
        return Err(Errno::EINVAL.into());
    }
    if set_tid != 0 || flags & 0x2_0000_0000 != 0 {
        return Err(Errno::EINVAL.into());
    }
    let top = stack.checked_add(stack_size).ok_or(Errno::EINVAL)?;
    c.clone_task(&CloneArgs { flags, pidfd, child_tid, parent_tid, exit_signal, stack: top, tls })
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

pub fn unshare(c: &mut Current, flags: i32) -> SysResult {
    let plain = libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SYSVSEM;
    let threads = libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_VM;
    if flags & !(plain | threads | libc::CLONE_NEWNS) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mounts = flags & libc::CLONE_NEWNS != 0;
    if mounts && !c.creds().own_ns_capable(Cap::SYS_ADMIN) {
        return Err(Errno::EPERM.into());
    }
    if flags & threads != 0 && c.task.group.threads().len() > 1 {
        return Err(Errno::EINVAL.into());
    }
    if mounts || flags & libc::CLONE_FS != 0 {
        let fs = c.fs().fork_copy();
        if mounts {
            fs.unshare_mounts(c)?;
        }
        c.set_fs(fs);
    }
    if flags & libc::CLONE_SYSVSEM != 0 {
        let undo = c.task.sem_undo.lock().take();
        drop(undo);
    }
    if flags & libc::CLONE_FILES != 0 {
        let t = c.fd_table().fork_copy();
        c.set_fds(t);
    }
    Ok(0)
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

pub fn pidfd_getfd(c: &mut Current, pidfd: Fd, fd: i32, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    let f = c.file(pidfd.0)?;
    let p = task::pidfd::of(&f)?;
    let t = p.thread().transpose()?.or_else(|| p.group.any_thread()).ok_or(Errno::ESRCH)?;
    let (me, them) = (c.creds(), t.creds());
    let same = me.uid == them.uid && me.uid == them.euid && me.uid == them.suid;
    let dumpable = t.mm().dumpable.load(Ordering::Relaxed) == 1;
    if !(same && dumpable || me.ns_capable(&them.user_ns, vfs::Cap::SYS_PTRACE)) {
        return Err(Errno::EPERM.into());
    }
    let f = t.fds().ok_or(Errno::ESRCH)?.get(fd)?;
    Ok(c.install(f, true)? as u64)
}

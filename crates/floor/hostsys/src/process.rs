//! Other processes of the host: pidfds, thread signals, their memory.

use crate::check;
use abi::{Errno, Result};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Gives the calling thread a working directory and umask of its own, unshare(2) with CLONE_FS.
pub fn unshare_fs() -> Result<()> {
    // SAFETY: no other thread has a claim on this one's place and umask.
    check(unsafe { libc::unshare(libc::CLONE_FS) }.into()).map(drop)
}

/// Gives this process's descriptor table room for `count` descriptors, or for as many as its limit allows. Called while there is one
/// thread: when the table of a process with several threads grows, the host's kernel waits 8 to 24 ms (`synchronize_rcu`).
pub fn reserve_descriptors(any: BorrowedFd<'_>, count: u32) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(count.into());
    let last = limit.min(count.into()).saturating_sub(1);
    // It fails when `last` is in use: then there is room.
    let reserved = i32::try_from(last).map(|last| rustix::io::fcntl_dupfd_cloexec(any, last));
    drop(reserved);
}

/// How many descriptors this process may have open (RLIMIT_NOFILE).
pub fn most_descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX)
}

/// pidfd_open(2); EINVAL or ENOENT when `pid` is not a thread group leader.
pub fn pidfd_open(pid: i32) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = crate::check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0u32) })?;
    // SAFETY: a descriptor that the kernel has just given us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// pidfd_getfd(2): a copy of descriptor `fd` of that process.
pub fn pidfd_getfd(pidfd: BorrowedFd<'_>, fd: i32) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = crate::check(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0u32) })?;
    // SAFETY: a descriptor that the kernel has just given us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// pidfd_send_signal(2).
pub fn pidfd_kill(pidfd: BorrowedFd<'_>, signo: i32) -> Result<()> {
    // SAFETY: no siginfo is passed.
    let r = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signo, 0usize, 0u32) };
    crate::check(r).map(drop)
}

/// What [`wait_child`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It has ended (with this exit status or signal number) and was reaped.
    Reaped(i32),
    /// It is our child and still there.
    Running,
}

fn waitid(kind: libc::idtype_t, id: libc::id_t, flags: i32) -> Result<(i32, i32)> {
    // SAFETY: an all-zero siginfo_t is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: `info` is valid for writes.
        match crate::check(i64::from(unsafe { libc::waitid(kind, id, &mut info, flags) })) {
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
            // SAFETY: both are within siginfo_t for every kind; waitid leaves si_pid 0 when nothing has ended.
            Ok(_) => return Ok(unsafe { (info.si_pid(), info.si_status()) }),
        }
    }
}

/// Reaps that child if it has ended; with `block` waits for it. ECHILD when it is not our child.
pub fn wait_child(pidfd: BorrowedFd<'_>, block: bool) -> Result<Wait> {
    let flags = libc::WEXITED | libc::__WALL | if block { 0 } else { libc::WNOHANG };
    let (pid, status) = waitid(libc::P_PIDFD, pidfd.as_raw_fd() as libc::id_t, flags)?;
    Ok(if pid == 0 { Wait::Running } else { Wait::Reaped(status) })
}

/// Runs `action` in a thread with the working directory `dir`. The working directory of other threads does not change.
pub fn in_directory<T: Send>(dir: &Path, action: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let enter = || {
        // SAFETY: with CLONE_FS alone the thread gets its own working directory, root and umask; descriptors and
        // memory stay shared.
        crate::check(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_FS) })
            .map_err(|error| io::Error::from_raw_os_error(error.raw()))?;
        std::env::set_current_dir(dir)?;
        action()
    };
    std::thread::scope(|scope| match std::thread::Builder::new().spawn_scoped(scope, enter)?.join() {
        Ok(result) => result,
        Err(_) => Err(io::ErrorKind::Other.into()),
    })
}

/// Whether `pid` is a child of this process that was cloned without an exit signal.
pub fn is_silent_child(pid: i32) -> bool {
    let flags = libc::WEXITED | libc::__WCLONE | libc::WNOHANG | libc::WNOWAIT;
    pid > 0 && waitid(libc::P_PID, pid as libc::id_t, flags).is_ok()
}

/// Reaps a child that was cloned without an exit signal, if it has ended. True when there is no such child any more.
pub fn reap_silent_child(pid: i32) -> bool {
    let flags = libc::WEXITED | libc::__WCLONE | libc::WNOHANG;
    pid <= 0
        || waitid(libc::P_PID, pid as libc::id_t, flags).is_ok_and(|(ended, _)| ended != 0)
        || !is_silent_child(pid)
}

/// tgkill(2): signals one thread of a thread group; `signo` 0 only checks that it exists.
pub fn tgkill(tgid: i32, tid: i32, signo: i32) -> Result<()> {
    if tgid <= 0 || tid <= 0 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: no pointers.
    crate::check(unsafe { libc::syscall(libc::SYS_tgkill, tgid, tid, signo) }).map(drop)
}

/// Reads memory of a process; bytes read before the first fault.
pub fn vm_read(pid: i32, addr: u64, buf: &mut [u8]) -> Result<usize> {
    let local = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let remote = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: buf.len() };
    // SAFETY: `local` describes `buf`; the remote address is the other process's business.
    crate::check(unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) } as i64).map(|n| n as usize)
}

/// Writes memory of a process; bytes written before the first fault.
pub fn vm_write(pid: i32, addr: u64, data: &[u8]) -> Result<usize> {
    let local = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let remote = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: data.len() };
    // SAFETY: `local` describes `data`, which is only read; the remote address is the other process's business.
    crate::check(unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) } as i64).map(|n| n as usize)
}

/// Blocks that the calling thread has had the host read and write.
pub fn thread_blocks() -> [u64; 2] {
    // SAFETY: an all-zero struct rusage is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writes.
    if unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) } != 0 {
        return [0; 2];
    }
    [usage.ru_inblock as u64, usage.ru_oublock as u64]
}

/// This process's niceness.
pub fn niceness() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or(0)
}

/// Which kind of namespace a file refers to, as a CLONE_NEW* flag; an error for any other file.
pub fn namespace_kind(file: std::os::fd::BorrowedFd<'_>) -> std::io::Result<i32> {
    use std::os::fd::AsRawFd;
    const NS_GET_NSTYPE: libc::c_ulong = 0xb703;
    // SAFETY: the request takes no argument and touches no memory of ours.
    let kind = unsafe { libc::ioctl(file.as_raw_fd(), NS_GET_NSTYPE) };
    if kind < 0 { Err(std::io::Error::last_os_error()) } else { Ok(kind) }
}

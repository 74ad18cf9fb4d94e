//! Locks on host files: ranges that belong to an open file description, and flock(2). Only [`wait_for_range`] and
//! [`wait_for_file`] wait for a holder; a signal ends the wait.

use super::err;
use crate::check;
use abi::{Errno, Result};
use rustix::fs::FlockOperation;
use std::os::fd::{AsFd, AsRawFd};

/// A lock on a host file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostLock {
    /// F_RDLCK, LOCK_SH
    Shared,
    /// F_WRLCK, LOCK_EX
    Exclusive,
}

/// "To the end of the file" as last byte of a range.
const TO_END: u64 = i64::MAX as u64;

fn flock_of(lock: Option<HostLock>, start: u64, end: u64) -> Result<libc::flock> {
    let kind = match lock {
        None => libc::F_UNLCK,
        Some(HostLock::Shared) => libc::F_RDLCK,
        Some(HostLock::Exclusive) => libc::F_WRLCK,
    };
    let len = if end >= TO_END { 0 } else { end.checked_sub(start).ok_or(Errno::EINVAL)? + 1 };
    Ok(libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: i64::try_from(start).map_err(|_| Errno::EINVAL)?,
        l_len: i64::try_from(len).map_err(|_| Errno::EINVAL)?,
        l_pid: 0,
    })
}

/// F_OFD_SETLK: the description behind `fd` has `lock` on `start..=end`, or none. EAGAIN when another one is in the way;
/// then nothing has changed.
pub fn lock_range(fd: impl AsFd, lock: Option<HostLock>, start: u64, end: u64) -> Result<()> {
    let l = flock_of(lock, start, end)?;
    loop {
        // SAFETY: the host reads a local structure of the type that the command takes.
        let r = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &l) };
        match check(r.into()) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(Errno::EACCES) => return Err(Errno::EAGAIN),
            Err(e) => return Err(e),
        }
    }
}

/// A lock that another holder has: its type, first and last byte, and -1 for the holder of an open-file-description lock,
/// otherwise a process ID as the host sees it from here.
pub type Holder = (HostLock, u64, u64, i32);

/// F_OFD_GETLK: the first lock that would keep the description behind `fd` from having `lock` on `start..=end`.
pub fn test_range(fd: impl AsFd, lock: HostLock, start: u64, end: u64) -> Result<Option<Holder>> {
    let mut l = flock_of(Some(lock), start, end)?;
    // SAFETY: the host reads and writes a local structure of the type that the command takes.
    check(unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &mut l) }.into())?;
    let kind = match i32::from(l.l_type) {
        libc::F_RDLCK => HostLock::Shared,
        libc::F_WRLCK => HostLock::Exclusive,
        _ => return Ok(None),
    };
    let first = u64::try_from(l.l_start).unwrap_or(0);
    let last = match l.l_len {
        n if n > 0 => first.saturating_add(n as u64 - 1),
        _ => TO_END,
    };
    Ok(Some((kind, first, last, l.l_pid)))
}

/// flock(2) without waiting: the description behind `fd` has `lock`, or none. EAGAIN when another one is in the way; the
/// description then has none.
pub fn lock_file(fd: impl AsFd, lock: Option<HostLock>) -> Result<()> {
    let op = match lock {
        None => FlockOperation::NonBlockingUnlock,
        Some(HostLock::Shared) => FlockOperation::NonBlockingLockShared,
        Some(HostLock::Exclusive) => FlockOperation::NonBlockingLockExclusive,
    };
    rustix::io::retry_on_intr(|| rustix::fs::flock(&fd, op)).map_err(err)
}

/// F_OFD_SETLKW: waits until the description behind `fd` has `lock` on `start..=end`. EINTR after a signal.
pub fn wait_for_range(fd: impl AsFd, lock: HostLock, start: u64, end: u64) -> Result<()> {
    let l = flock_of(Some(lock), start, end)?;
    // SAFETY: the host reads a local structure of the type that the command takes.
    check(unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_OFD_SETLKW, &l) }.into()).map(drop)
}

/// flock(2): waits until the description behind `fd` has `lock`. EINTR after a signal.
pub fn wait_for_file(fd: impl AsFd, lock: HostLock) -> Result<()> {
    let op = match lock {
        HostLock::Shared => FlockOperation::LockShared,
        HostLock::Exclusive => FlockOperation::LockExclusive,
    };
    rustix::fs::flock(fd, op).map_err(err)
}

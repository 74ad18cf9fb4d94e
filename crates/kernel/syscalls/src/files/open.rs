//! open(2), openat2(2), close(2), close_range(2), dup(2).

use crate::arg::{DirFd, Fd, PathPtr, Ptr};
use crate::at::{self, CWD};
use abi::Errno;
use caller::Limits;
use namei::OpenHow;
use namei::Start;
use task::{Current, SysResult};

const RESOLVE_IN_ROOT: u64 = 0x10;
const RESOLVE_BENEATH: u64 = 0x08;
const CLOSE_RANGE_UNSHARE: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;
/// Bits of open_how.flags that openat2(2) accepts: what open(2) knows, and O_LARGEFILE.
const OPEN_KNOWN: u64 = 0o37777703;

pub fn limit(c: &Current) -> u64 {
    c.rlimit(libc::RLIMIT_NOFILE as i32)
}

fn do_open(c: &mut Current, dir: DirFd, path: PathPtr, how: OpenHow) -> SysResult {
    let path = c.read_path(path.0)?;
    if path.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    let slot = c.fd_table().reserve(limit(c))?;
    let start = if how.resolve() & (RESOLVE_IN_ROOT | RESOLVE_BENEATH) != 0 && dir != CWD {
        Start::File(c.file(dir.0)?)
    } else {
        at::start(c, dir, &path)?
    };
    let view = c.fs().view();
    let file = namei::open::open_at(c, &view, &start, &path, &how)?;
    c.task.counts.open();
    Ok(slot.commit(file, how.flags() & libc::O_CLOEXEC != 0) as u64)
}

pub fn open(c: &mut Current, path: PathPtr, flags: i32, mode: u32) -> SysResult {
    do_open(c, CWD, path, OpenHow::legacy(flags, mode)?)
}

pub fn openat(c: &mut Current, dir: DirFd, path: PathPtr, flags: i32, mode: u32) -> SysResult {
    do_open(c, dir, path, OpenHow::legacy(flags, mode)?)
}

pub fn creat(c: &mut Current, path: PathPtr, mode: u32) -> SysResult {
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
    do_open(c, CWD, path, OpenHow::legacy(flags, mode)?)
}

pub fn openat2(c: &mut Current, dir: DirFd, path: PathPtr, how: Ptr, size: u64) -> SysResult {
    const SIZE: usize = 24;
    if size < SIZE as u64 {
        return Err(Errno::EINVAL.into());
    }
    if size > abi::PAGE_SIZE {
        return Err(Errno::E2BIG.into());
    }
    let mut raw = vec![0; size as usize];
    c.read_bytes(how.0, &mut raw)?;
    // A longer structure of a newer program will do when it asks for nothing newer.
    if raw[SIZE..].iter().any(|&b| b != 0) {
        return Err(Errno::E2BIG.into());
    }
    let word = |i: usize| raw[i * 8..i * 8 + 8].iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b));
    let (flags, mode, resolve) = (word(0), word(1), word(2));
    if flags & !OPEN_KNOWN != 0 || mode > u64::from(u32::MAX) {
        return Err(Errno::EINVAL.into());
    }
    do_open(c, dir, path, OpenHow::new(flags as i32, mode as u32, resolve)?)
}

pub fn close(c: &mut Current, fd: Fd) -> SysResult {
    c.fd_table().close(c, fd.0)?;
    Ok(0)
}

pub fn close_range(c: &mut Current, first: u32, last: u32, flags: u32) -> SysResult {
    if flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 || first > last {
        return Err(Errno::EINVAL.into());
    }
    if flags & CLOSE_RANGE_UNSHARE != 0 && c.shares_fds() {
        let t = c.fd_table().fork_copy()?;
        c.set_fds(t);
    }
    if flags & CLOSE_RANGE_CLOEXEC != 0 {
        c.fd_table().set_cloexec_range(first, last);
    } else {
        c.fd_table().close_range(c, first, last);
    }
    Ok(0)
}

pub fn dup(c: &mut Current, fd: Fd) -> SysResult {
    let f = c.file(fd.0)?;
    Ok(c.install(f, false)? as u64)
}

pub fn dup2(c: &mut Current, old: Fd, new: Fd) -> SysResult {
    if old == new {
        c.file(old.0)?;
        return Ok(old.0 as u64);
    }
    dup3(c, old, new, 0)
}

pub fn dup3(c: &mut Current, old: Fd, new: Fd, flags: i32) -> SysResult {
    if flags & !libc::O_CLOEXEC != 0 || old == new {
        return Err(Errno::EINVAL.into());
    }
    if new.0 < 0 || new.0 as u64 >= limit(c) {
        return Err(Errno::EBADF.into());
    }
    let f = c.file(old.0)?;
    c.fd_table().install_at(c, new.0, f, flags & libc::O_CLOEXEC != 0, limit(c))?;
    Ok(new.0 as u64)
}

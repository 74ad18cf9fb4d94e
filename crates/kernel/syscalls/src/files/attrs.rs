//! chmod(2), chown(2), utimensat(2) and their relatives.

use crate::arg::{DirFd, Fd, PathPtr, Ptr, check_flags};
use crate::at::{At, CWD, follow};
use abi::Errno;
use abi::time::{Timespec, Timeval};
use namei::attr;
use task::{Current, SysResult};
use vfs::TimeSet;

pub fn chmod(c: &mut Current, path: PathPtr, mode: u32) -> SysResult {
    fchmodat(c, CWD, path, mode)
}

pub fn fchmodat(c: &mut Current, dir: DirFd, path: PathPtr, mode: u32) -> SysResult {
    fchmodat2(c, dir, path, mode, 0)
}

pub fn fchmodat2(c: &mut Current, dir: DirFd, path: PathPtr, mode: u32, flags: i32) -> SysResult {
    check_flags(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
    At::with_flags(c, dir, path, flags)?.change(c, follow(flags), |p| attr::chmod(c, p, mode))?;
    Ok(0)
}

pub fn fchmod(c: &mut Current, fd: Fd, mode: u32) -> SysResult {
    attr::fchmod(c, &*c.file(fd.0)?, mode)?;
    Ok(0)
}

pub fn chown(c: &mut Current, path: PathPtr, uid: u32, gid: u32) -> SysResult {
    fchownat(c, CWD, path, uid, gid, 0)
}

pub fn lchown(c: &mut Current, path: PathPtr, uid: u32, gid: u32) -> SysResult {
    fchownat(c, CWD, path, uid, gid, libc::AT_SYMLINK_NOFOLLOW)
}

pub fn fchown(c: &mut Current, fd: Fd, uid: u32, gid: u32) -> SysResult {
    attr::fchown(c, &*c.file(fd.0)?, uid, gid)?;
    Ok(0)
}

pub fn fchownat(c: &mut Current, dir: DirFd, path: PathPtr, uid: u32, gid: u32, flags: i32) -> SysResult {
    check_flags(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
    At::with_flags(c, dir, path, flags)?.change(c, follow(flags), |p| attr::chown(c, p, uid, gid))?;
    Ok(0)
}

type Times = (Option<TimeSet>, Option<TimeSet>);
const NOW: Times = (Some(TimeSet::Now), Some(TimeSet::Now));

fn set_times(c: &mut Current, dir: DirFd, path: PathPtr, t: Times, flags: i32) -> SysResult {
    if path.0 == 0 && dir != CWD {
        if flags != 0 {
            return Err(Errno::EINVAL.into());
        }
        attr::futimens(c, &*c.file(dir.0)?, t.0, t.1)?;
        return Ok(0);
    }
    check_flags(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
    At::with_flags(c, dir, path, flags)?.change(c, follow(flags), |p| attr::utimens(c, p, t.0, t.1))?;
    Ok(0)
}

fn time_set(t: Timespec) -> Result<Option<TimeSet>, Errno> {
    match t.nsec {
        libc::UTIME_NOW => Ok(Some(TimeSet::Now)),
        libc::UTIME_OMIT => Ok(None),
        0..1_000_000_000 => Ok(Some(TimeSet::At(t))),
        _ => Err(Errno::EINVAL),
    }
}

pub fn utimensat(c: &mut Current, dir: DirFd, path: PathPtr, times: Ptr, flags: i32) -> SysResult {
    let t = if times.is_null() {
        NOW
    } else {
        let [a, m]: [Timespec; 2] = [c.read_value(times.0)?, c.read_value(times.0 + 16)?];
        (time_set(a)?, time_set(m)?)
    };
    if t == (None, None) {
        // Nothing to do: not even the path is looked at.
        return Ok(0);
    }
    set_times(c, dir, path, t, flags)
}

fn micro(t: Timeval) -> Result<Option<TimeSet>, Errno> {
    if !(0..1_000_000).contains(&t.usec) {
        return Err(Errno::EINVAL);
    }
    Ok(Some(TimeSet::At(Timespec { sec: t.sec, nsec: t.usec * 1000 })))
}

pub fn futimesat(c: &mut Current, dir: DirFd, path: PathPtr, times: Ptr) -> SysResult {
    let t = if times.is_null() {
        NOW
    } else {
        let [a, m]: [Timeval; 2] = [c.read_value(times.0)?, c.read_value(times.0 + 16)?];
        (micro(a)?, micro(m)?)
    };
    set_times(c, dir, path, t, 0)
}

pub fn utimes(c: &mut Current, path: PathPtr, times: Ptr) -> SysResult {
    futimesat(c, CWD, path, times)
}

pub fn utime(c: &mut Current, path: PathPtr, times: Ptr) -> SysResult {
    let t = if times.is_null() {
        NOW
    } else {
        let [a, m]: [i64; 2] = [c.read_value(times.0)?, c.read_value(times.0 + 8)?];
        let at = |sec| Some(TimeSet::At(Timespec { sec, nsec: 0 }));
        (at(a), at(m))
    };
    set_times(c, CWD, path, t, 0)
}

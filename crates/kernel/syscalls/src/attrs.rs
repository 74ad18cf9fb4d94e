//! chmod(2), chown(2), utimensat(2), truncate(2), fallocate(2).

use crate::arg::{DirFd, Fd, PathPtr, Ptr, check_flags};
use crate::at::{At, CWD, follow, real_file};
use abi::time::{Timespec, Timeval};
use abi::{Errno, Signal};
use task::{Current, SysResult};
use vfs::dentry::{S_IFDIR, S_IFIFO, S_IFREG};
use vfs::open::file_kind;
use vfs::{Caller, TimeSet, attr, io};

pub fn chmod(c: &mut Current, path: PathPtr, mode: u32) -> SysResult {
    fchmodat(c, CWD, path, mode)
}

pub fn fchmodat(c: &mut Current, dir: DirFd, path: PathPtr, mode: u32) -> SysResult {
    fchmodat2(c, dir, path, mode, 0)
}

pub fn fchmodat2(c: &mut Current, dir: DirFd, path: PathPtr, mode: u32, flags: i32) -> SysResult {
    check_flags(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
    let p = At::with_flags(c, dir, path, flags)?.lookup(c, follow(flags))?;
    attr::chmod(c, &p, mode)?;
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
    let p = At::with_flags(c, dir, path, flags)?.lookup(c, follow(flags))?;
    attr::chown(c, &p, uid, gid)?;
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
    let p = At::with_flags(c, dir, path, flags)?.lookup(c, follow(flags))?;
    attr::utimens(c, &p, t.0, t.1)?;
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
    check_flags(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
    let t = if times.is_null() {
        NOW
    } else {
        let [a, m]: [Timespec; 2] = [c.read_value(times.0)?, c.read_value(times.0 + 16)?];
        (time_set(a)?, time_set(m)?)
    };
    if t == (None, None) && path.0 == 0 && dir != CWD {
        // Nothing to do, but the descriptor must be one.
        c.file(dir.0)?;
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

pub fn truncate(c: &mut Current, path: PathPtr, len: i64) -> SysResult {
    let at = At::new(c, CWD, path)?;
    attr::truncate(c, &at.view, &at.path, len)?;
    Ok(0)
}

pub fn ftruncate(c: &mut Current, fd: Fd, len: i64) -> SysResult {
    attr::ftruncate(c, &*c.file(fd.0)?, len)?;
    Ok(0)
}

pub fn fallocate(c: &mut Current, fd: Fd, mode: i32, off: i64, len: i64) -> SysResult {
    let f = real_file(c, fd)?;
    if off < 0 || len <= 0 {
        return Err(Errno::EINVAL.into());
    }
    io::check_writable(&f)?;
    match file_kind(&f) {
        S_IFREG => {}
        S_IFDIR => return Err(Errno::EISDIR.into()),
        S_IFIFO => return Err(Errno::ESPIPE.into()),
        _ => return Err(Errno::ENODEV.into()),
    }
    let end = off.checked_add(len).ok_or(Errno::EFBIG)? as u64;
    const KEEP_SIZE: i32 = 1;
    if mode & KEEP_SIZE == 0 && end > c.rlimit(libc::RLIMIT_FSIZE as i32) && end > f.attr()?.size {
        c.raise(Signal::SIGXFSZ);
        return Err(Errno::EFBIG.into());
    }
    f.ops.allocate(c, &f, mode, off as u64, len as u64)?;
    Ok(0)
}

pub fn umask(c: &mut Current, mask: u32) -> SysResult {
    Ok(u64::from(c.fs().set_umask(mask)))
}

pub fn chdir(c: &mut Current, path: PathPtr) -> SysResult {
    let at = At::new(c, CWD, path)?;
    let p = vfs::link::find_dir(c, &at.view, &at.start, &at.path)?;
    c.fs().set_cwd(p);
    Ok(0)
}

pub fn fchdir(c: &mut Current, fd: Fd) -> SysResult {
    let f = c.file(fd.0)?;
    let p = f.path.clone().filter(|p| p.is_dir()).ok_or(Errno::ENOTDIR)?;
    vfs::perm::inode_may(c, p.inode(), vfs::perm::MAY_EXEC)?;
    c.fs().set_cwd(p);
    Ok(0)
}

pub fn chroot(c: &mut Current, path: PathPtr) -> SysResult {
    let at = At::new(c, CWD, path)?;
    let p = vfs::link::find_root(c, &at.view, &at.path)?;
    c.fs().set_root(p);
    Ok(0)
}

pub fn getcwd(c: &mut Current, buf: Ptr, size: u64) -> SysResult {
    let view = c.fs().view();
    if view.cwd.dentry.is_unlinked() {
        return Err(Errno::ENOENT.into());
    }
    let mut p = view.cwd.display(&view.root);
    p.push(0);
    if p.len() as u64 > size {
        return Err(Errno::ERANGE.into());
    }
    if p.len() > abi::PATH_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    c.write_bytes(buf.0, &p)?;
    Ok(p.len() as u64)
}

/// sync(2): everything that is mounted.
pub fn sync(c: &mut Current) -> SysResult {
    for m in c.fs().view().ns.mounts() {
        // sync(2) has no way to report an error.
        let _ = m.fs().sync();
    }
    Ok(0)
}

pub fn syncfs(c: &mut Current, fd: Fd) -> SysResult {
    let f = real_file(c, fd)?;
    if let Some(p) = &f.path {
        p.mount.fs().sync()?;
    }
    Ok(0)
}

pub fn fsync(c: &mut Current, fd: Fd) -> SysResult {
    let f = real_file(c, fd)?;
    f.ops.sync(&f, false)?;
    Ok(0)
}

pub fn fdatasync(c: &mut Current, fd: Fd) -> SysResult {
    let f = real_file(c, fd)?;
    f.ops.sync(&f, true)?;
    Ok(0)
}

pub fn sync_file_range(c: &mut Current, fd: Fd, off: i64, len: i64, flags: u32) -> SysResult {
    let f = real_file(c, fd)?;
    if flags & !7 != 0 || off < 0 || len < 0 || off.checked_add(len).is_none() {
        return Err(Errno::EINVAL.into());
    }
    match file_kind(&f) {
        S_IFREG => {
            f.ops.sync(&f, true)?;
            Ok(0)
        }
        S_IFDIR => Ok(0),
        _ => Err(Errno::ESPIPE.into()),
    }
}

pub fn readahead(c: &mut Current, fd: Fd, _off: i64, _count: u64) -> SysResult {
    let f = real_file(c, fd)?;
    if !f.readable() {
        return Err(Errno::EBADF.into());
    }
    if file_kind(&f) == S_IFREG { Ok(0) } else { Err(Errno::EINVAL.into()) }
}

pub fn fadvise64(c: &mut Current, fd: Fd, _off: i64, len: i64, advice: i32) -> SysResult {
    let f = real_file(c, fd)?;
    if file_kind(&f) == S_IFIFO {
        return Err(Errno::ESPIPE.into());
    }
    if len < 0 || !(0..=5).contains(&advice) {
        return Err(Errno::EINVAL.into());
    }
    Ok(0)
}

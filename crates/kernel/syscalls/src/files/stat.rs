//! stat(2), statx(2), statfs(2), access(2), readlink(2).

use crate::arg::{DirFd, Fd, PathPtr, Ptr, check_flags};
use crate::at::{self, CWD};
use abi::stat::{Attr, major, minor};
use abi::time::Timespec;
use abi::{Errno, PAGE_SIZE, Result};
use caller::HasCredentials;
use namei::walk::{anew, lookup};
use namei::{Lookup, Start, anon, attr};
use rights::Credentials;
use std::sync::Arc;
use task::{Current, SysResult};
use vfs::{Mount, Path, access};
use zerocopy::{Immutable, IntoBytes};

const AT_NO_AUTOMOUNT: i32 = 0x800;
const AT_STATX_SYNC_TYPE: i32 = 0x6000;
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;
const STATX_MNT_ID: u32 = 0x1000;
/// The number of the mount that is never given again, in place of the other one.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
const STATX_RESERVED: u32 = 0x8000_0000;
const STATX_ATTR_MOUNT_ROOT: u64 = 0x2000;
const SECBIT_NO_SETUID_FIXUP: u32 = 4;

/// Owners as the caller's user namespace has them.
fn seen(c: &Current, mut a: Attr) -> Attr {
    let ns = &c.creds().user_ns;
    (a.uid, a.gid) = (ns.show_user(a.uid), ns.show_group(a.gid));
    a
}

fn put(c: &mut Current, a: &Attr, to: Ptr) -> SysResult {
    c.write_value(to.0, &seen(c, *a).to_stat())?;
    Ok(0)
}

pub fn stat(c: &mut Current, path: PathPtr, to: Ptr) -> SysResult {
    newfstatat(c, CWD, path, to, 0)
}

pub fn lstat(c: &mut Current, path: PathPtr, to: Ptr) -> SysResult {
    newfstatat(c, CWD, path, to, libc::AT_SYMLINK_NOFOLLOW)
}

pub fn fstat(c: &mut Current, fd: Fd, to: Ptr) -> SysResult {
    let a = c.file(fd.0)?.fresh_attr(c)?;
    put(c, &a, to)
}

pub fn newfstatat(c: &mut Current, dir: DirFd, path: PathPtr, to: Ptr, flags: i32) -> SysResult {
    let known = libc::AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;
    check_flags(flags, known)?;
    let (start, path) = at::read_null(c, dir, path, flags)?;
    let a = attr::stat(c, &c.fs().view(), &start, &path, at::follow(flags))?;
    put(c, &a, to)
}

#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
struct StatxTime {
    sec: i64,
    nsec: u32,
    pad: u32,
}

impl From<Timespec> for StatxTime {
    fn from(t: Timespec) -> StatxTime {
        StatxTime { sec: t.sec, nsec: t.nsec as u32, pad: 0 }
    }
}

/// `struct statx`, 256 bytes.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct Statx {
    mask: u32,
    blksize: u32,
    attributes: u64,
    nlink: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    pad0: u16,
    ino: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    atime: StatxTime,
    btime: StatxTime,
    ctime: StatxTime,
    mtime: StatxTime,
    rdev: [u32; 2],
    dev: [u32; 2],
    mnt_id: u64,
    spare: [u64; 13],
}

fn to_statx(a: &Attr, place: Option<&Path>, asked: u32) -> Statx {
    let unique = asked & STATX_MNT_ID_UNIQUE != 0;
    let mut mask = STATX_BASIC_STATS;
    if a.btime.is_some() {
        mask |= STATX_BTIME;
    }
    if place.is_some() {
        mask |= if unique { STATX_MNT_ID_UNIQUE } else { STATX_MNT_ID };
    }
    let mount_root = place.is_some_and(Path::is_mount_root);
    Statx {
        mask,
        blksize: a.blksize,
        attributes: if mount_root { STATX_ATTR_MOUNT_ROOT } else { 0 },
        nlink: a.nlink as u32,
        uid: a.uid,
        gid: a.gid,
        mode: a.mode as u16,
        pad0: 0,
        ino: a.ino,
        size: a.size,
        blocks: a.blocks,
        attributes_mask: STATX_ATTR_MOUNT_ROOT,
        atime: a.atime.into(),
        btime: a.btime.unwrap_or_default().into(),
        ctime: a.ctime.into(),
        mtime: a.mtime.into(),
        rdev: [major(a.rdev), minor(a.rdev)],
        dev: [major(a.dev), minor(a.dev)],
        mnt_id: place.map_or(0, |p| if unique { p.mount.unique_id() } else { p.mount.id().into() }),
        spare: [0; 13],
    }
}

pub fn statx(c: &mut Current, dir: DirFd, path: PathPtr, flags: i32, mask: u32, to: Ptr) -> SysResult {
    let known = libc::AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;
    if mask & STATX_RESERVED != 0 || flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE {
        return Err(Errno::EINVAL.into());
    }
    check_flags(flags, known)?;
    let (start, path) = at::read_null(c, dir, path, flags)?;
    let x = match &start {
        Start::File(f) if path.is_empty() => to_statx(&seen(c, f.fresh_attr(c)?), f.path.as_ref(), mask),
        _ => {
            let p = lookup(c, &c.fs().view(), &start, &path, at::follow(flags))?;
            p.inode().refresh(c)?;
            to_statx(&seen(c, p.attr()?), Some(&p), mask)
        }
    };
    c.write_value(to.0, &x)?;
    Ok(0)
}

pub fn statfs(c: &mut Current, path: PathPtr, to: Ptr) -> SysResult {
    let (start, path) = at::read(c, CWD, path)?;
    let p = lookup(c, &c.fs().view(), &start, &path, Lookup::FOLLOW)?;
    c.write_value(to.0, &attr::statfs(c, &p)?)?;
    Ok(0)
}

pub fn fstatfs(c: &mut Current, fd: Fd, to: Ptr) -> SysResult {
    let f = c.file(fd.0)?;
    let s = attr::statfs(c, &anon::path_of(c, &f))?;
    c.write_value(to.0, &s)?;
    Ok(0)
}

/// `struct ustat`.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
struct Ustat {
    free_blocks: i32,
    pad: u32,
    free_inodes: u64,
    names: [u8; 12],
    pad2: u32,
}

pub fn ustat(c: &mut Current, dev: u32, to: Ptr) -> SysResult {
    let mounts = c.fs().view().ns.mounts();
    let is_it = |m: &&Arc<Mount>| m.root.inode.attr().is_ok_and(|a| a.dev == u64::from(dev));
    let mount = mounts.iter().find(is_it).ok_or(Errno::EINVAL)?;
    let s = mount.fs().statfs()?;
    let answer = Ustat { free_blocks: s.f_bfree as i32, free_inodes: s.f_ffree, ..Ustat::default() };
    c.write_value(to.0, &answer)?;
    Ok(0)
}

/// Names and numbers of file system types.
pub fn sysfs(c: &mut Current, option: i32, which: u64, to: Ptr) -> SysResult {
    let types = c.kernel().fs_types.names();
    match option {
        1 => {
            let name = c.read_cstr(which, PAGE_SIZE as usize, Errno::ENAMETOOLONG)?;
            let index = types.iter().position(|(n, _)| n.as_bytes() == name).ok_or(Errno::EINVAL)?;
            Ok(index as u64)
        }
        2 => {
            let (name, _) = usize::try_from(which).ok().and_then(|i| types.get(i)).ok_or(Errno::EINVAL)?;
            c.write_bytes(to.0, &[name.as_bytes(), b"\0"].concat())?;
            Ok(0)
        }
        3 => Ok(types.len() as u64),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// Credentials that access(2) checks with: the real ids, and the capabilities these would give. `None` if these are the
/// thread's own.
fn real(creds: &Credentials) -> Option<Credentials> {
    let effective = match creds.securebits & SECBIT_NO_SETUID_FIXUP {
        0 if creds.user_ns.is_root(creds.uid) => creds.permitted,
        0 => 0,
        _ => creds.effective,
    };
    let same = (creds.fsuid, creds.fsgid, creds.effective) == (creds.uid, creds.gid, effective);
    (!same).then(|| Credentials { fsuid: creds.uid, fsgid: creds.gid, effective, ..creds.clone() })
}

fn do_access(c: &mut Current, dir: DirFd, path: PathPtr, mode: i32, flags: i32) -> Result<()> {
    if mode & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    check_flags(flags, libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
    let (start, path) = at::read_flags(c, dir, path, flags)?;
    let check = |c: &Current| attr::access(c, &c.fs().view(), &start, &path, at::follow(flags), mode as u32);
    match if flags & libc::AT_EACCESS == 0 { real(&c.creds()) } else { None } {
        Some(creds) => c.acting_as(creds, check),
        None => check(c),
    }
}

pub fn access(c: &mut Current, path: PathPtr, mode: i32) -> SysResult {
    do_access(c, CWD, path, mode, 0)?;
    Ok(0)
}

pub fn faccessat(c: &mut Current, dir: DirFd, path: PathPtr, mode: i32) -> SysResult {
    do_access(c, dir, path, mode, 0)?;
    Ok(0)
}

pub fn faccessat2(c: &mut Current, dir: DirFd, path: PathPtr, mode: i32, flags: i32) -> SysResult {
    do_access(c, dir, path, mode, flags)?;
    Ok(0)
}

pub fn readlink(c: &mut Current, path: PathPtr, buf: Ptr, size: i32) -> SysResult {
    readlinkat(c, CWD, path, buf, size)
}

pub fn readlinkat(c: &mut Current, dir: DirFd, path: PathPtr, buf: Ptr, size: i32) -> SysResult {
    if size <= 0 {
        return Err(Errno::EINVAL.into());
    }
    let (start, path) = at::read_flags(c, dir, path, libc::AT_EMPTY_PATH)?;
    let text = anew(&c.fs().view(), |view| {
        let p = lookup(c, view, &start, &path, Lookup::EMPTY_PATH)?;
        if p.kind() != abi::stat::S_IFLNK {
            return Err(if path.is_empty() { Errno::ENOENT } else { Errno::EINVAL });
        }
        access::inode_may(c, p.inode(), 0)?;
        namei::atime::followed(&p.mount, p.inode());
        p.inode().readlink(c)
    })?;
    let n = text.len().min(size as usize);
    c.write_bytes(buf.0, &text[..n])?;
    Ok(n as u64)
}

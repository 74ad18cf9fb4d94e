//! setxattr(2), getxattr(2), listxattr(2), removexattr(2) in their three forms, and setxattrat(2) and its relatives.

use crate::arg::{DirFd, Fd, PathPtr, Ptr, check_flags};
use crate::at::{At, CWD, follow, real_file};
use abi::{Errno, PAGE_SIZE};
use mounts::fs_context::FsView;
use namei::walk::{anew, lookup};
use namei::{Lookup, xattr};
use policy::Kind;
use std::sync::Arc;
use task::{Current, SysResult};
use vfs::policing::{self, Place};
use vfs::{InodeRef, OpenFile, Path, access, notify};
use zerocopy::FromBytes;

/// What an attribute call is about.
enum Object {
    Place(Path),
    File(Arc<OpenFile>),
}

impl Object {
    fn of(c: &Current, fd: Fd, change: bool) -> Result<Object, Errno> {
        let f = real_file(c, fd)?;
        if let (Some(p), true) = (&f.path, change) {
            access::writable_mount(p)?;
        }
        Ok(Object::File(f))
    }

    fn inode(&self) -> Result<&InodeRef, Errno> {
        match self {
            Object::Place(p) => Ok(p.inode()),
            Object::File(f) => f.inode.as_ref().ok_or(Errno::EOPNOTSUPP),
        }
    }

    /// The error of a policy that refuses a change.
    fn decide(&self, c: &Current) -> Result<(), Errno> {
        match self {
            Object::Place(p) => policing::decide(c, Kind::FileSetattr, Place::Object(p)),
            Object::File(f) => policing::decide(c, Kind::FileSetattr, Place::File(f)),
        }
    }

    /// Tells inotify(7) of a change.
    fn changed(&self) {
        match self {
            Object::Place(p) => notify::on_path(p, notify::event::ATTRIB),
            Object::File(f) => notify::on_file(f, notify::event::ATTRIB),
        }
    }
}

/// How a call names its object, and whether it may change things.
enum By {
    Path {
        path: PathPtr,
        look: Lookup,
        change: bool,
    },
    Fd {
        fd: Fd,
        change: bool,
    },
    /// `cwd`: an empty path may stand for the working directory.
    At {
        dir: DirFd,
        path: PathPtr,
        flags: i32,
        change: bool,
        cwd: bool,
    },
}

impl By {
    fn find(&self, c: &Current, view: &FsView) -> Result<Object, Errno> {
        match *self {
            By::Path { path, look, change } => {
                let at = At::new(c, CWD, path)?;
                let p = lookup(c, view, &at.start, &at.path, look)?;
                if change {
                    access::writable_mount(&p)?;
                }
                Ok(Object::Place(p))
            }
            By::Fd { fd, change } => Object::of(c, fd, change),
            By::At { dir, path, flags, change, cwd } => {
                let at = At::or_null(c, dir, path, flags)?;
                if at.path.is_empty() && !(cwd && dir == CWD) {
                    return Object::of(c, Fd(dir.0), change);
                }
                let p = lookup(c, view, &at.start, &at.path, follow(flags))?;
                if change {
                    access::writable_mount(&p)?;
                }
                Ok(Object::Place(p))
            }
        }
    }
}

fn by_path(path: PathPtr, follow: bool, change: bool) -> By {
    By::Path { path, look: if follow { Lookup::FOLLOW } else { Lookup::empty() }, change }
}

fn name(c: &Current, p: Ptr) -> Result<Vec<u8>, Errno> {
    let n = c.read_cstr(p.0, xattr::NAME_MAX + 1, Errno::ERANGE)?;
    xattr::check_name(&n)?;
    Ok(n)
}

fn do_set(c: &mut Current, by: &By, n: Ptr, value: Ptr, size: u64, flags: i32) -> SysResult {
    if flags & !3 != 0 {
        return Err(Errno::EINVAL.into());
    }
    let n = name(c, n)?;
    if size > xattr::SIZE_MAX as u64 {
        return Err(Errno::E2BIG.into());
    }
    let mut v = vec![0; size as usize];
    c.read_bytes(value.0, &mut v)?;
    anew(&c.fs().view(), |view| {
        let i = by.find(c, view)?;
        i.decide(c)?;
        xattr::set(c, i.inode()?, &n, &v, flags)?;
        i.changed();
        Ok::<_, Errno>(())
    })?;
    Ok(0)
}

/// A result of unknown length: only the length for size 0, ERANGE when it does not fit.
fn give(c: &mut Current, data: &[u8], out: Ptr, size: u64) -> SysResult {
    if size != 0 {
        if data.len() as u64 > size {
            return Err(Errno::ERANGE.into());
        }
        c.write_bytes(out.0, data)?;
    }
    Ok(data.len() as u64)
}

fn do_get(c: &mut Current, by: &By, n: Ptr, out: Ptr, size: u64) -> SysResult {
    let n = name(c, n)?;
    let v = anew(&c.fs().view(), |view| xattr::get(c, by.find(c, view)?.inode()?, &n))?;
    give(c, &v, out, size)
}

fn do_list(c: &mut Current, by: &By, out: Ptr, size: u64) -> SysResult {
    let v = anew(&c.fs().view(), |view| xattr::list(c, by.find(c, view)?.inode()?))?;
    give(c, &v, out, size)
}

fn do_remove(c: &mut Current, by: &By, n: Ptr) -> SysResult {
    let n = name(c, n)?;
    anew(&c.fs().view(), |view| {
        let i = by.find(c, view)?;
        i.decide(c)?;
        xattr::remove(c, i.inode()?, &n)?;
        i.changed();
        Ok::<_, Errno>(())
    })?;
    Ok(0)
}

pub fn setxattr(c: &mut Current, path: PathPtr, n: Ptr, value: Ptr, size: u64, flags: i32) -> SysResult {
    do_set(c, &by_path(path, true, true), n, value, size, flags)
}

pub fn lsetxattr(c: &mut Current, path: PathPtr, n: Ptr, value: Ptr, size: u64, flags: i32) -> SysResult {
    do_set(c, &by_path(path, false, true), n, value, size, flags)
}

pub fn fsetxattr(c: &mut Current, fd: Fd, n: Ptr, value: Ptr, size: u64, flags: i32) -> SysResult {
    do_set(c, &By::Fd { fd, change: true }, n, value, size, flags)
}

pub fn getxattr(c: &mut Current, path: PathPtr, n: Ptr, out: Ptr, size: u64) -> SysResult {
    do_get(c, &by_path(path, true, false), n, out, size)
}

pub fn lgetxattr(c: &mut Current, path: PathPtr, n: Ptr, out: Ptr, size: u64) -> SysResult {
    do_get(c, &by_path(path, false, false), n, out, size)
}

pub fn fgetxattr(c: &mut Current, fd: Fd, n: Ptr, out: Ptr, size: u64) -> SysResult {
    do_get(c, &By::Fd { fd, change: false }, n, out, size)
}

pub fn listxattr(c: &mut Current, path: PathPtr, out: Ptr, size: u64) -> SysResult {
    do_list(c, &by_path(path, true, false), out, size)
}

pub fn llistxattr(c: &mut Current, path: PathPtr, out: Ptr, size: u64) -> SysResult {
    do_list(c, &by_path(path, false, false), out, size)
}

pub fn flistxattr(c: &mut Current, fd: Fd, out: Ptr, size: u64) -> SysResult {
    do_list(c, &By::Fd { fd, change: false }, out, size)
}

pub fn removexattr(c: &mut Current, path: PathPtr, n: Ptr) -> SysResult {
    do_remove(c, &by_path(path, true, true), n)
}

pub fn lremovexattr(c: &mut Current, path: PathPtr, n: Ptr) -> SysResult {
    do_remove(c, &by_path(path, false, true), n)
}

pub fn fremovexattr(c: &mut Current, fd: Fd, n: Ptr) -> SysResult {
    do_remove(c, &By::Fd { fd, change: true }, n)
}

fn by_place(dir: DirFd, path: PathPtr, flags: i32, (change, cwd): (bool, bool)) -> Result<By, Errno> {
    check_flags(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
    Ok(By::At { dir, path, flags, change, cwd })
}

/// `struct xattr_args`: the address of the value, its size, and flags.
fn arguments(c: &Current, at: Ptr, size: u64) -> Result<(Ptr, u64, i32), Errno> {
    const SIZE: usize = 16;
    if size < SIZE as u64 {
        return Err(Errno::EINVAL);
    }
    if size > PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    let mut raw = vec![0; size as usize];
    c.read_bytes(at.0, &mut raw)?;
    let (known, more) = raw.split_at(SIZE);
    if more.iter().any(|byte| *byte != 0) {
        return Err(Errno::E2BIG);
    }
    let (value, rest) = <[u8; 8]>::read_from_prefix(known).map_err(|_| Errno::EINVAL)?;
    let (numbers, _) = <[u32; 2]>::read_from_prefix(rest).map_err(|_| Errno::EINVAL)?;
    Ok((Ptr(u64::from_ne_bytes(value)), numbers[0].into(), numbers[1] as i32))
}

pub fn setxattrat(
    c: &mut Current,
    dir: DirFd,
    path: PathPtr,
    flags: i32,
    n: Ptr,
    args: Ptr,
    size: u64,
) -> SysResult {
    let (value, len, how) = arguments(c, args, size)?;
    do_set(c, &by_place(dir, path, flags, (true, true))?, n, value, len, how)
}

pub fn getxattrat(
    c: &mut Current,
    dir: DirFd,
    path: PathPtr,
    flags: i32,
    n: Ptr,
    args: Ptr,
    size: u64,
) -> SysResult {
    let (value, len, how) = arguments(c, args, size)?;
    if how != 0 {
        return Err(Errno::EINVAL.into());
    }
    do_get(c, &by_place(dir, path, flags, (false, true))?, n, value, len)
}

pub fn listxattrat(c: &mut Current, dir: DirFd, path: PathPtr, flags: i32, out: Ptr, size: u64) -> SysResult {
    do_list(c, &by_place(dir, path, flags, (false, false))?, out, size)
}

pub fn removexattrat(c: &mut Current, dir: DirFd, path: PathPtr, flags: i32, n: Ptr) -> SysResult {
    do_remove(c, &by_place(dir, path, flags, (true, false))?, n)
}

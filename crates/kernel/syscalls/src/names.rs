//! link(2), unlink(2), rename(2), mkdir(2), mknod(2), symlink(2), rmdir(2).

use crate::arg::{DirFd, PathPtr, check_flags};
use crate::at::{At, CWD};
use abi::Errno;
use caller::HasCredentials;
use namei::walk::anew;
use namei::{Lookup, Start, dir, link, rename};
use rights::Cap;
use task::{Current, SysResult};

pub fn link_(c: &mut Current, old: PathPtr, new: PathPtr) -> SysResult {
    linkat(c, CWD, old, CWD, new, 0)
}

pub fn linkat(
    c: &mut Current,
    old_dir: DirFd,
    old: PathPtr,
    new_dir: DirFd,
    new: PathPtr,
    flags: i32,
) -> SysResult {
    check_flags(flags, libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH)?;
    let empty = flags & libc::AT_EMPTY_PATH != 0;
    let from = At::with_flags(c, old_dir, old, flags)?;
    // A descriptor gives no right to a name. Its opener has that right, and so has a process that could have opened it.
    if let Start::File(file) = &from.start
        && empty
        && !file.was_opened_by(&c.creds())
        && !file.opener_capable(&c.creds(), Cap::DAC_READ_SEARCH)
    {
        return Err(Errno::ENOENT.into());
    }
    let to = At::new(c, new_dir, new)?;
    let mut look = Lookup::empty();
    look.set(Lookup::FOLLOW, flags & libc::AT_SYMLINK_FOLLOW != 0);
    look.set(Lookup::EMPTY_PATH, empty);
    anew(&from.view, |view| link::link(c, view, &from.start, &from.path, look, &to.start, &to.path))?;
    Ok(0)
}

pub fn symlink(c: &mut Current, target: PathPtr, path: PathPtr) -> SysResult {
    symlinkat(c, target, CWD, path)
}

pub fn symlinkat(c: &mut Current, target: PathPtr, dir_: DirFd, path: PathPtr) -> SysResult {
    let target = c.read_path(target.0)?;
    let at = At::new(c, dir_, path)?;
    anew(&at.view, |view| dir::symlink(c, view, &target, &at.start, &at.path))?;
    Ok(0)
}

pub fn unlink(c: &mut Current, path: PathPtr) -> SysResult {
    unlinkat(c, CWD, path, 0)
}

pub fn rmdir(c: &mut Current, path: PathPtr) -> SysResult {
    unlinkat(c, CWD, path, libc::AT_REMOVEDIR)
}

pub fn unlinkat(c: &mut Current, dir_: DirFd, path: PathPtr, flags: i32) -> SysResult {
    check_flags(flags, libc::AT_REMOVEDIR)?;
    let at = At::new(c, dir_, path)?;
    if flags != 0 {
        anew(&at.view, |view| link::rmdir(c, view, &at.start, &at.path))?;
    } else {
        anew(&at.view, |view| link::unlink(c, view, &at.start, &at.path))?;
    }
    Ok(0)
}

pub fn rename(c: &mut Current, old: PathPtr, new: PathPtr) -> SysResult {
    renameat2(c, CWD, old, CWD, new, 0)
}

pub fn renameat(c: &mut Current, old_dir: DirFd, old: PathPtr, new_dir: DirFd, new: PathPtr) -> SysResult {
    renameat2(c, old_dir, old, new_dir, new, 0)
}

pub fn renameat2(
    c: &mut Current,
    old_dir: DirFd,
    old: PathPtr,
    new_dir: DirFd,
    new: PathPtr,
    flags: u32,
) -> SysResult {
    let from = At::new(c, old_dir, old)?;
    let to = At::new(c, new_dir, new)?;
    anew(&from.view, |view| rename::rename(c, view, &from.start, &from.path, &to.start, &to.path, flags))?;
    Ok(0)
}

pub fn mkdir(c: &mut Current, path: PathPtr, mode: u32) -> SysResult {
    mkdirat(c, CWD, path, mode)
}

pub fn mkdirat(c: &mut Current, dir_: DirFd, path: PathPtr, mode: u32) -> SysResult {
    let at = At::new(c, dir_, path)?;
    anew(&at.view, |view| dir::mkdir(c, view, &at.start, &at.path, mode))?;
    Ok(0)
}

pub fn mknod(c: &mut Current, path: PathPtr, mode: u32, dev: u64) -> SysResult {
    mknodat(c, CWD, path, mode, dev)
}

pub fn mknodat(c: &mut Current, dir_: DirFd, path: PathPtr, mode: u32, dev: u64) -> SysResult {
    let node = dir::node_of_mode(mode, u64::from(dev as u32))?;
    let at = At::new(c, dir_, path)?;
    anew(&at.view, |view| dir::mknod(c, view, &at.start, &at.path, &node, mode))?;
    Ok(0)
}

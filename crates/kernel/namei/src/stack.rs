//! Operations of a stacked file system on the file systems below it. They find, make, move and remove names, keep the
//! cache of names right, and use the rights of other credentials (Linux's `vfs_create`, `lookup_one` and similar). See
//! crate `overlayfs`.
//!
//! Locks: these functions are called with directories of the stacked file system locked, and lock directories of the
//! one below. The order is that of depth: everything of a file system comes before everything of the ones below it, and
//! a file system never lies below itself ([`vfs::FileSystem::stack_depth`]). Within one file system the order is the
//! usual one. No lock of mounts is taken: an object with a mount on it stays (EBUSY).

use crate::rename::EXCHANGE;
use crate::walk;
use abi::{Errno, Result};
use rights::mode::{MAY_EXEC, MAY_READ, MAY_WRITE};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::dentry::{Cached, Dentry};
use vfs::file::OpenFile;
use vfs::inode::{InodeRef, NewNode};
use vfs::mount::{Mount, Path};
use vfs::notify::{self, event};
use vfs::{Caller, access};

/// The object called `name` in `dir`; what is mounted there does not matter. Only a caller that may search the
/// directory finds it.
pub fn find(cx: &dyn Caller, dir: &Arc<Dentry>, name: &[u8]) -> Result<Arc<Dentry>> {
    if !dir.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    access::inode_may(cx, &dir.inode, MAY_EXEC)?;
    match dir.cached(name, dir.settled_epoch()) {
        Cached::Present(d) => return Ok(d),
        Cached::Absent => return Err(Errno::ENOENT),
        Cached::Unknown => {}
    }
    let _lock = dir.lock_second_dir();
    walk::find_locked(cx, dir, name)
}

/// What [`make`] makes besides its name.
#[derive(Clone, Copy)]
pub struct Start {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Makes `name` in `dir`; EEXIST when there. Neither umask nor default lists change the mode, and a device needs no privilege: the
/// caller has seen to that.
pub fn make(cx: &dyn Caller, dir: &Path, name: &[u8], node: &NewNode, start: Start) -> Result<Arc<Dentry>> {
    let dentry = {
        let _lock = dir.dentry.lock_second_dir();
        match walk::find_locked(cx, &dir.dentry, name) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        may_add(cx, dir)?;
        if let Some(device) = access::device_made(node) {
            cx.check_device(&device)?;
        }
        let epoch = dir.dentry.epoch();
        let inode = dir.inode().dir()?.create(cx, name, node, start.mode, start.uid, start.gid)?;
        dir.dentry.insert(name, inode, epoch)
    };
    let kind = if dentry.is_dir() { event::CREATE | event::ISDIR } else { event::CREATE };
    notify::on_dentry(&dir.dentry, kind, 0, name);
    Ok(dentry)
}

/// Makes a regular file without a name (O_TMPFILE).
pub fn make_unnamed(cx: &dyn Caller, dir: &Path, start: Start) -> Result<Arc<Dentry>> {
    may_add(cx, dir)?;
    let place = dir.inode().as_dir().ok_or(Errno::EOPNOTSUPP)?;
    let inode = place.create_unnamed(cx, start.mode, start.uid, start.gid)?;
    let dentry = Dentry::unnamed(&dir.dentry, inode);
    dentry.linkable.store(true, Ordering::Relaxed);
    Ok(dentry)
}

/// As `access::may_create` for an object that will not belong to the caller.
fn may_add(cx: &dyn Caller, dir: &Path) -> Result<()> {
    if dir.dentry.is_unlinked() {
        return Err(Errno::ENOENT);
    }
    access::writable_mount(dir)?;
    access::inode_may(cx, dir.inode(), MAY_WRITE | MAY_EXEC)
}

fn changed(inode: &InodeRef) {
    if let Some(object) = inode.as_confirming() {
        object.changed();
    }
}

/// Another name for `target`. EEXIST.
pub fn link(cx: &dyn Caller, target: &Arc<Dentry>, dir: &Path, name: &[u8]) -> Result<Arc<Dentry>> {
    let dentry = {
        let _lock = dir.dentry.lock_second_dir();
        match walk::find_locked(cx, &dir.dentry, name) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        may_add(cx, dir)?;
        let epoch = dir.dentry.epoch();
        dir.inode().dir()?.link(cx, name, &target.inode)?;
        changed(&target.inode);
        target.linkable.store(false, Ordering::Relaxed);
        dir.dentry.insert(name, target.inode.clone(), epoch)
    };
    notify::on_dentry(target, event::ATTRIB, 0, b"");
    notify::on_dentry(&dir.dentry, event::CREATE, 0, name);
    Ok(dentry)
}

/// Removes `name`, which must be an empty directory where `directory` says so, and must not be one otherwise.
pub fn remove(cx: &dyn Caller, dir: &Path, name: &[u8], directory: bool) -> Result<()> {
    let gone = {
        let _lock = dir.dentry.lock_second_dir();
        let victim = walk::find_locked(cx, &dir.dentry, name)?;
        access::may_delete(cx, dir, &victim.inode)?;
        if victim.is_mountpoint() {
            return Err(Errno::EBUSY);
        }
        let place = dir.inode().dir()?;
        let epoch = dir.dentry.epoch();
        match (directory, victim.is_dir()) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) => {
                let _inner = victim.lock_second_dir();
                place.rmdir(cx, name)?;
            }
            (false, false) => place.unlink(cx, name)?,
        }
        changed(&victim.inode);
        dir.dentry.removed(name, epoch);
        victim
    };
    let kind = if directory { event::DELETE | event::ISDIR } else { event::DELETE };
    if directory {
        gone.shrink(true);
    } else {
        notify::on_unlinked(&gone);
    }
    notify::on_dentry(&dir.dentry, kind, 0, name);
    drop(gone);
    Ok(())
}

/// Moves `name` of `from` to `new_name` of `to`, another directory of the file system or the same. `flags`: RENAME_*.
pub fn rename(
    cx: &dyn Caller,
    (from, name): (&Path, &[u8]),
    (to, new_name): (&Path, &[u8]),
    flags: u32,
) -> Result<()> {
    let (a, b) = (&from.dentry, &to.dentry);
    let (src, gone) = if Arc::ptr_eq(a, b) {
        let _lock = a.lock_second_dir();
        move_locked(cx, (from, name), (to, new_name), flags)?
    } else {
        let _renames = cx.resources().renames(from.inode().fs().stack_depth()).lock_out_of_order();
        let (first, second) = if a.is_below(b) { (b, a) } else { (a, b) };
        let _first = first.lock_second_dir();
        let _second = second.lock_second_dir();
        move_locked(cx, (from, name), (to, new_name), flags)?
    };
    let cookie = cx.resources().next_cookie();
    let dir = if src.is_dir() { event::ISDIR } else { 0 };
    notify::on_dentry(a, event::MOVED_FROM | dir, cookie, name);
    notify::on_dentry(b, event::MOVED_TO | dir, cookie, new_name);
    notify::on_dentry(&src, event::MOVE_SELF, 0, b"");
    if let Some(gone) = &gone {
        notify::on_unlinked(gone);
    }
    Ok(())
}

/// What moved, and what it replaced.
type Moved = (Arc<Dentry>, Option<Arc<Dentry>>);

fn move_locked(
    cx: &dyn Caller,
    (from, name): (&Path, &[u8]),
    (to, new_name): (&Path, &[u8]),
    flags: u32,
) -> Result<Moved> {
    let (a, b) = (&from.dentry, &to.dentry);
    let src = walk::find_locked(cx, a, name)?;
    let dst = match walk::find_locked(cx, b, new_name) {
        Ok(d) => Some(d),
        Err(Errno::ENOENT) => None,
        Err(e) => return Err(e),
    };
    let exchange = flags & EXCHANGE != 0;
    if flags & crate::rename::NOREPLACE != 0 && dst.is_some() {
        return Err(Errno::EEXIST);
    }
    let Some(new) = &dst else {
        if exchange {
            return Err(Errno::ENOENT);
        }
        return finish_move(cx, (from, name, src), (to, new_name, None), flags);
    };
    if Arc::ptr_eq(&src, new) || Arc::ptr_eq(&src.inode, &new.inode) {
        return Ok((src, None));
    }
    if a.is_below(new) || src.is_dir() && b.is_below(&src) {
        return Err(Errno::EINVAL);
    }
    access::may_delete(cx, to, &new.inode)?;
    match (src.is_dir(), new.is_dir()) {
        (true, false) if !exchange => Err(Errno::ENOTDIR),
        (false, true) if !exchange => Err(Errno::EISDIR),
        _ if new.is_mountpoint() => Err(Errno::EBUSY),
        _ => finish_move(cx, (from, name, src), (to, new_name, dst), flags),
    }
}

fn finish_move(
    cx: &dyn Caller,
    (from, name, src): (&Path, &[u8], Arc<Dentry>),
    (to, new_name, dst): (&Path, &[u8], Option<Arc<Dentry>>),
    flags: u32,
) -> Result<Moved> {
    let (a, b) = (&from.dentry, &to.dentry);
    access::may_delete(cx, from, &src.inode)?;
    if src.is_mountpoint() {
        return Err(Errno::EBUSY);
    }
    if dst.is_none() {
        if src.is_dir() && b.is_below(&src) {
            return Err(Errno::EINVAL);
        }
        may_add(cx, to)?;
    }
    src.inode.about_to_move(cx)?;
    if let Some(new) = dst.as_ref().filter(|_| flags & EXCHANGE != 0) {
        new.inode.about_to_move(cx)?;
    }
    let epochs = (a.epoch(), b.epoch());
    a.inode.dir()?.rename(cx, name, &b.inode, new_name, flags)?;
    if let Some(object) = src.inode.as_confirming() {
        object.renamed(&b.inode, new_name);
    }
    if let (Some(new), true) = (&dst, flags & EXCHANGE != 0) {
        if let Some(object) = new.inode.as_confirming() {
            object.renamed(&a.inode, name);
        }
        a.forget(name);
        b.forget(new_name);
        a.put(name, new, epochs.0);
        b.put(new_name, &src, epochs.1);
        return Ok((src, None));
    }
    if let Some(new) = &dst {
        changed(&new.inode);
    }
    a.moved(name, &src, b, new_name, epochs);
    if flags & crate::rename::WHITEOUT != 0 {
        a.forget(name);
    }
    Ok((src, dst))
}

/// Opens a regular file or a directory below. Operations on it cause no events for watchers below (FMODE_NONOTIFY).
pub fn open(cx: &dyn Caller, inode: &InodeRef, flags: i32) -> Result<Arc<OpenFile>> {
    let mask = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => MAY_READ,
        libc::O_WRONLY => MAY_WRITE,
        _ => MAY_READ | MAY_WRITE,
    };
    access::inode_may(cx, inode, mask)?;
    let ops = inode.open(cx, flags)?;
    Ok(OpenFile::new(None, Some(inode.clone()), ops, flags))
}

/// A writable upper inode is about to be changed through a stack: EROFS where its mount is read-only.
pub fn writable(mount: &Mount) -> Result<()> {
    if mount.readonly() { Err(Errno::EROFS) } else { Ok(()) }
}

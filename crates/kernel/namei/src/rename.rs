//! Renaming. See rename(2).
//!
//! One lock (rank RENAME) covers every rename between two directories, so that
//! the tree's shape stands still while ancestors are checked; then both
//! directories are locked, the ancestor first.

use crate::domain::Moving;
use crate::lookup::{Last, Parent, Start};
use crate::walk;
use abi::{Errno, Result};
use mounts::fs_context::FsView;
use mounts::umount;
use policy::Kind;
use rights::mode;
use std::sync::Arc;
use vfs::dentry::Dentry;
use vfs::mount::{Mount, Path};
use vfs::notify::{self, event};
use vfs::policing::{self, Place};
use vfs::{Caller, access};

/// RENAME_NOREPLACE.
pub const NOREPLACE: u32 = 1;
/// RENAME_EXCHANGE.
pub const EXCHANGE: u32 = 2;
/// RENAME_WHITEOUT: a character device 0:0 takes the old name. EINVAL from file systems that cannot do it.
pub const WHITEOUT: u32 = 4;

/// renameat2(2).
pub fn rename(
    cx: &dyn Caller,
    view: &FsView,
    from: &Start,
    old: &[u8],
    to: &Start,
    new: &[u8],
    flags: u32,
) -> Result<()> {
    if flags & !(NOREPLACE | EXCHANGE | WHITEOUT) != 0
        || flags & EXCHANGE != 0 && flags & (NOREPLACE | WHITEOUT) != 0
    {
        return Err(Errno::EINVAL);
    }
    let a = walk::lookup_parent(cx, view, from, old)?;
    let b = walk::lookup_parent(cx, view, to, new)?;
    if !Arc::ptr_eq(&a.dir.mount, &b.dir.mount) {
        return Err(Errno::EXDEV);
    }
    if a.last != Last::Normal {
        return Err(Errno::EBUSY);
    }
    if b.last != Last::Normal {
        return Err(if flags & NOREPLACE != 0 { Errno::EEXIST } else { Errno::EBUSY });
    }
    // What is mounted on the two in other namespaces, let go outside the locks.
    let mut mounts = Vec::new();
    let (moved, gone) = if Arc::ptr_eq(&a.dir.dentry, &b.dir.dentry) {
        let _l = a.dir.dentry.lock_dir_for(cx)?;
        locked(cx, view, (&a, &b), flags, &mut mounts)?
    } else {
        let fs = a.dir.inode().fs();
        let renames =
            fs.rename_lock().unwrap_or_else(|| cx.resources().renames(a.dir.inode().fs().stack_depth()));
        let _r = renames.lock_unless(|| cx.is_killed()).ok_or(Errno::EINTR)?;
        let (first, second) = if a.dir.dentry.is_below(&b.dir.dentry) { (&b, &a) } else { (&a, &b) };
        let _l1 = first.dir.dentry.lock_dir_for(cx)?;
        let _l2 = second.dir.dentry.lock_second_dir_for(cx)?;
        locked(cx, view, (&a, &b), flags, &mut mounts)?
    };
    if let Some(src) = moved {
        let cookie = cx.resources().next_cookie();
        let dir = if src.is_dir() { event::ISDIR } else { 0 };
        notify::on_dentry(&a.dir.dentry, event::MOVED_FROM | dir, cookie, &a.name);
        notify::on_dentry(&b.dir.dentry, event::MOVED_TO | dir, cookie, &b.name);
        notify::on_dentry(&src, event::MOVE_SELF, 0, b"");
    }
    drop(mounts);
    if let Some(g) = &gone {
        umount::expel(&cx.vfs().mounts, g);
        notify::on_unlinked(g);
    }
    Ok(())
}

/// What moved, and what it replaced.
type Renamed = (Option<Arc<Dentry>>, Option<Arc<Dentry>>);

/// The error of a policy that refuses to move `src` to the place of `b`, or to exchange the two.
fn decide(
    cx: &dyn Caller,
    (a, src): (&Parent, &Arc<Dentry>),
    (b, dst): (&Parent, Option<&Arc<Dentry>>),
) -> Result<()> {
    if !policing::concerns(cx, Kind::FileRename) {
        return Ok(());
    }
    let at = |dir: &Path, dentry: &Arc<Dentry>| Path { mount: dir.mount.clone(), dentry: dentry.clone() };
    let from = at(&a.dir, src);
    let to = Place::Name(&b.dir, &b.name);
    policing::decide_move(cx, Kind::FileRename, Place::Object(&from), to, src.is_dir())?;
    let Some(dst) = dst else { return Ok(()) };
    let (from, to) = (at(&b.dir, dst), Place::Name(&a.dir, &a.name));
    policing::decide_move(cx, Kind::FileRename, Place::Object(&from), to, dst.is_dir())
}

/// With both directories locked. What was replaced is to be dropped outside the locks, and so are `mounts`: those on the two.
fn locked(
    cx: &dyn Caller,
    view: &FsView,
    (a, b): (&Parent, &Parent),
    flags: u32,
    mounts: &mut Vec<Arc<Mount>>,
) -> Result<Renamed> {
    let (from, to) = (&a.dir.dentry, &b.dir.dentry);
    let src = walk::find_locked(cx, from, &a.name)?;
    let dst = match walk::find_locked(cx, to, &b.name) {
        Ok(d) => Some(d),
        Err(Errno::ENOENT) => None,
        Err(e) => return Err(e),
    };
    if flags & NOREPLACE != 0 && dst.is_some() {
        return Err(Errno::EEXIST);
    }
    if flags & EXCHANGE != 0 && dst.is_none() {
        return Err(Errno::ENOENT);
    }
    if !src.is_dir() && (a.slash || flags & EXCHANGE == 0 && b.slash) {
        return Err(Errno::ENOTDIR);
    }
    if flags & EXCHANGE != 0 && b.slash && !dst.as_ref().is_some_and(|d| d.is_dir()) {
        return Err(Errno::ENOTDIR);
    }
    // A directory cannot move below itself, nor replace what it lies in.
    if src.is_dir() && to.is_below(&src) {
        return Err(Errno::EINVAL);
    }
    if let Some(d) = &dst
        && from.is_below(d)
    {
        return Err(if flags & EXCHANGE != 0 { Errno::EINVAL } else { Errno::ENOTEMPTY });
    }
    if let Some(d) = &dst
        && (Arc::ptr_eq(&src, d) || Arc::ptr_eq(&src.inode, &d.inode))
    {
        return Ok((None, None));
    }
    Moving {
        from: &a.dir,
        old: &src,
        to: &b.dir,
        new: dst.as_deref(),
        leaves: true,
        exchange: flags & EXCHANGE != 0,
    }
    .check(cx)?;
    decide(cx, (a, &src), (b, dst.as_ref().filter(|_| flags & EXCHANGE != 0)))?;
    access::may_delete(cx, &a.dir, &src.inode)?;
    match &dst {
        Some(d) => {
            access::may_delete(cx, &b.dir, &d.inode)?;
            if flags & EXCHANGE == 0 {
                match (src.is_dir(), d.is_dir()) {
                    (true, false) => return Err(Errno::ENOTDIR),
                    (false, true) => return Err(Errno::EISDIR),
                    _ => {}
                }
            }
        }
        None => access::may_create(cx, &b.dir)?,
    }
    // Moving a directory elsewhere rewrites its `..`.
    if !Arc::ptr_eq(from, to) {
        if src.is_dir() {
            access::inode_may(cx, &src.inode, mode::MAY_WRITE)?;
        }
        if let Some(d) = dst.as_ref().filter(|d| flags & EXCHANGE != 0 && d.is_dir()) {
            access::inode_may(cx, &d.inode, mode::MAY_WRITE)?;
        }
    }
    mounts.extend([Some(&src), dst.as_ref()].into_iter().flatten().flat_map(|d| d.mounts()));
    if mounts.iter().any(|m| view.ns.contains(m)) {
        return Err(Errno::EBUSY);
    }
    src.inode.about_to_move(cx)?;
    if let Some(d) = dst.as_ref().filter(|_| flags & EXCHANGE != 0) {
        d.inode.about_to_move(cx)?;
    }
    let epochs = (from.epoch(), to.epoch());
    from.inode.dir()?.rename(cx, &a.name, &to.inode, &b.name, flags)?;
    if let Some(object) = src.inode.as_confirming() {
        object.renamed(&to.inode, &b.name);
    }
    match dst.as_ref().map(|d| d.inode.as_confirming()) {
        Some(Some(object)) if flags & EXCHANGE != 0 => object.renamed(&from.inode, &a.name),
        Some(Some(object)) => object.lost_name(),
        _ => {}
    }
    if let (Some(d), true) = (&dst, flags & EXCHANGE != 0) {
        from.forget(&a.name);
        to.forget(&b.name);
        from.put(&a.name, d, epochs.0);
        to.put(&b.name, &src, epochs.1);
        return Ok((Some(src), None));
    }
    from.moved(&a.name, &src, to, &b.name, epochs);
    if flags & WHITEOUT != 0 {
        // The whiteout has the name now.
        from.forget(&a.name);
    }
    Ok((Some(src), dst))
}

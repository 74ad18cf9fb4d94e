//! Renaming. See rename(2).
//!
//! One lock (rank RENAME) covers every rename between two directories, so that
//! the tree's shape stands still while ancestors are checked; then both
//! directories are locked, the ancestor first.

use crate::caller::Caller;
use crate::dentry::Dentry;
use crate::fs_context::FsView;
use crate::notify::{self, event};
use crate::path::Path;
use crate::perm;
use crate::walk::{self, Last, Parent, Start};
use abi::{Errno, Result};
use std::sync::Arc;

/// RENAME_NOREPLACE.
pub const NOREPLACE: u32 = 1;
/// RENAME_EXCHANGE.
pub const EXCHANGE: u32 = 2;
/// RENAME_WHITEOUT.
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
        || flags & WHITEOUT != 0
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
    let (moved, gone) = if Arc::ptr_eq(&a.dir.dentry, &b.dir.dentry) {
        let _l = a.dir.dentry.lock_dir();
        locked(cx, &a, &b, flags)?
    } else {
        let _r = cx.vfs().renames.lock();
        let (first, second) = if a.dir.dentry.is_below(&b.dir.dentry) { (&b, &a) } else { (&a, &b) };
        let _l1 = first.dir.dentry.lock_dir();
        let _l2 = second.dir.dentry.lock_second_dir();
        locked(cx, &a, &b, flags)?
    };
    if let Some(src) = moved {
        let cookie = cx.vfs().next_cookie();
        let dir = if src.is_dir() { event::ISDIR } else { 0 };
        notify::on_inode(a.dir.inode(), event::MOVED_FROM | dir, cookie, &a.name);
        notify::on_inode(b.dir.inode(), event::MOVED_TO | dir, cookie, &b.name);
        notify::on_inode(&src.inode, event::MOVE_SELF, 0, b"");
    }
    if let Some(g) = &gone {
        notify::on_unlinked(g);
    }
    Ok(())
}

/// What moved, and what it replaced.
type Renamed = (Option<Arc<Dentry>>, Option<Arc<Dentry>>);

/// With both directories locked. What was replaced is to be dropped outside the locks.
fn locked(cx: &dyn Caller, a: &Parent, b: &Parent, flags: u32) -> Result<Renamed> {
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
    perm::may_delete(cx, &a.dir, &src.inode)?;
    match &dst {
        Some(d) => {
            perm::may_delete(cx, &b.dir, &d.inode)?;
            if flags & EXCHANGE == 0 {
                match (src.is_dir(), d.is_dir()) {
                    (true, false) => return Err(Errno::ENOTDIR),
                    (false, true) => return Err(Errno::EISDIR),
                    _ => {}
                }
            }
        }
        None => perm::may_create(cx, &b.dir)?,
    }
    // Moving a directory elsewhere rewrites its `..`.
    if !Arc::ptr_eq(from, to) {
        if src.is_dir() {
            perm::inode_may(cx, &src.inode, perm::MAY_WRITE)?;
        }
        if let Some(d) = dst.as_ref().filter(|d| flags & EXCHANGE != 0 && d.is_dir()) {
            perm::inode_may(cx, &d.inode, perm::MAY_WRITE)?;
        }
    }
    if src.is_mountpoint() || dst.as_ref().is_some_and(|d| d.is_mountpoint()) {
        return Err(Errno::EBUSY);
    }
    let epochs = (from.epoch(), to.epoch());
    from.inode.dir()?.rename(cx, &a.name, &to.inode, &b.name, flags)?;
    if let Some(object) = src.inode.as_confirming() {
        object.renamed(&to.inode, &b.name);
    }
    match dst.as_ref().map(|d| d.inode.as_confirming()) {
        Some(Some(object)) if flags & EXCHANGE != 0 => object.renamed(&from.inode, &a.name),
        Some(Some(object)) => object.changed(),
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
    Ok((Some(src), dst))
}

/// True when `p` may not be renamed or removed because it is some task's or the namespace's root.
pub fn is_mount_root(p: &Path) -> bool {
    Arc::ptr_eq(&p.dentry, &p.mount.root)
}

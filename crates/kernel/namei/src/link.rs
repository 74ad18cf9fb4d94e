//! Hard links and removal. See link(2), unlink(2), rmdir(2).

use crate::domain::{self, Moving};
use crate::lookup::{Last, Lookup, Parent, Start};
use crate::walk;
use abi::stat::{S_IFDIR, S_IFREG};
use abi::{Errno, Result};
use mounts::fs_context::FsView;
use mounts::umount;
use policy::Kind;
use rights::cred::Cap;
use rights::mode;
use rights::mode::{MAY_READ, MAY_WRITE};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::in_use::InUse;
use vfs::inode::InodeRef;
use vfs::mount::{Mount, Path};
use vfs::notify::{self, event};
use vfs::policing::{self, Place};
use vfs::{Caller, Hold, access};

/// linkat(2). `look` holds FOLLOW and EMPTY_PATH as asked for.
pub fn link(
    cx: &dyn Caller,
    view: &FsView,
    from: &Start,
    old: &[u8],
    look: Lookup,
    to: &Start,
    new: &[u8],
) -> Result<()> {
    let target = walk::lookup(cx, view, from, old, look)?;
    let Parent { dir, name, last, slash } = walk::lookup_parent(cx, view, to, new)?;
    if last != Last::Normal {
        return Err(Errno::EEXIST);
    }
    if slash {
        walk::find(cx, &dir.dentry, &name, false)?;
        return Err(Errno::EEXIST);
    }
    let _lock = dir.dentry.lock_dir_for(cx)?;
    match walk::find_locked(cx, &dir.dentry, &name) {
        Ok(_) => return Err(Errno::EEXIST),
        Err(Errno::ENOENT) => {}
        Err(e) => return Err(e),
    }
    if !Arc::ptr_eq(&target.mount, &dir.mount) {
        return Err(Errno::EXDEV);
    }
    check_target(cx, &target)?;
    let parent =
        target.dentry.parent().map_or(target.clone(), |dentry| Path { mount: target.mount.clone(), dentry });
    let old = &target.dentry;
    Moving { from: &parent, old, to: &dir, new: None, leaves: false, exchange: false }.check(cx)?;
    access::may_create(cx, &dir)?;
    let place = Place::Name(&dir, &name);
    policing::decide_move(cx, Kind::FileLink, Place::Object(&target), place, false)?;
    policing::decide(cx, Kind::FileCreate, place)?;
    if target.kind() == S_IFDIR {
        return Err(Errno::EPERM);
    }
    // What has lost its last name stays without one; what never had one may get it once. A file of the host has the
    // name by which it was found just now.
    let named = !target.dentry.is_unlinked() && target.inode().as_confirming().is_some();
    if !named && target.attr()?.nlink == 0 && !target.dentry.linkable.load(Ordering::Relaxed) {
        return Err(Errno::ENOENT);
    }
    let epoch = dir.dentry.epoch();
    dir.inode().dir()?.link(cx, &name, target.inode())?;
    if let Some(object) = target.inode().as_confirming() {
        object.changed();
    }
    target.dentry.linkable.store(false, Ordering::Relaxed);
    let unnamed = target.dentry.is_unlinked() && target.attr()?.nlink == 1;
    if unnamed && !dir.dentry.volatile {
        dir.dentry.attach(&name, &target.dentry);
    } else {
        dir.dentry.insert(&name, target.inode().clone(), epoch);
    }
    notify::on_dentry(&target.dentry, event::ATTRIB, 0, b"");
    notify::on_dentry(&dir.dentry, event::CREATE, 0, &name);
    Ok(())
}

/// protected_hardlinks: only safe files of others may be linked to.
fn check_target(cx: &dyn Caller, target: &Path) -> Result<()> {
    let creds = cx.creds();
    let p = target.inode().perm()?;
    if !cx.resources().protected.hardlinks.load(Ordering::Relaxed) || mode::owner_or_capable(&creds, &p) {
        return Ok(());
    }
    let special = target.kind() != S_IFREG || p.mode & 0o4000 != 0 || p.mode & 0o2010 == 0o2010;
    if special || access::inode_allowed(&creds, target.inode(), MAY_READ | MAY_WRITE).is_err() {
        return Err(Errno::EPERM);
    }
    Ok(())
}

/// unlinkat(2) without AT_REMOVEDIR.
pub fn unlink(cx: &dyn Caller, view: &FsView, start: &Start, path: &[u8]) -> Result<()> {
    let Parent { dir, name, last, slash } = walk::lookup_parent(cx, view, start, path)?;
    if last != Last::Normal {
        return Err(Errno::EISDIR);
    }
    let mounts;
    let gone = {
        let _lock = dir.dentry.lock_dir_for(cx)?;
        let seen = dir.dentry.settled_epoch();
        let victim = match dir.dentry.cached_object(&name, seen) {
            Some(victim) => victim,
            None => walk::find_locked_in(cx, &dir.dentry, &name, seen)?,
        };
        if slash {
            return Err(if victim.is_dir() { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        domain::check_remove(cx, &dir, &victim)?;
        access::may_delete(cx, &dir, &victim.inode)?;
        let place = Path { mount: dir.mount.clone(), dentry: victim.clone() };
        policing::decide(cx, Kind::FileRemove, Place::Object(&place))?;
        if victim.is_dir() {
            return Err(Errno::EISDIR);
        }
        mounts = victim.mounts();
        if mounts.iter().any(|m| view.ns.contains(m)) {
            return Err(Errno::EBUSY);
        }
        let epoch = dir.dentry.epoch();
        dir.inode().dir()?.unlink(cx, &name)?;
        lost_name(&victim.inode);
        dir.dentry.removed(&name, epoch);
        victim
    };
    drop(mounts);
    umount::expel(&cx.vfs().mounts, &gone);
    notify::on_unlinked(&gone);
    // What the file holds goes when the last user does, outside the lock. Its own watches hear of that first.
    drop(gone);
    notify::on_dentry(&dir.dentry, event::DELETE, 0, &name);
    Ok(())
}

/// unlinkat(2) with AT_REMOVEDIR.
pub fn rmdir(cx: &dyn Caller, view: &FsView, start: &Start, path: &[u8]) -> Result<()> {
    let Parent { dir, name, last, .. } = walk::lookup_parent(cx, view, start, path)?;
    match last {
        Last::Normal => {}
        Last::Dot => return Err(Errno::EINVAL),
        Last::DotDot => return Err(Errno::ENOTEMPTY),
        Last::Root => return Err(Errno::EBUSY),
    }
    let mounts;
    let gone = {
        let _lock = dir.dentry.lock_dir_for(cx)?;
        let victim = walk::find_locked(cx, &dir.dentry, &name)?;
        domain::check_remove(cx, &dir, &victim)?;
        access::may_delete(cx, &dir, &victim.inode)?;
        let place = Path { mount: dir.mount.clone(), dentry: victim.clone() };
        policing::decide(cx, Kind::FileRemove, Place::Object(&place))?;
        if !victim.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        mounts = victim.mounts();
        if mounts.iter().any(|m| view.ns.contains(m)) {
            return Err(Errno::EBUSY);
        }
        let _inner = victim.lock_second_dir_for(cx)?;
        let epoch = dir.dentry.epoch();
        dir.inode().dir()?.rmdir(cx, &name)?;
        lost_name(&victim.inode);
        dir.dentry.removed(&name, epoch);
        victim.clone()
    };
    drop(mounts);
    umount::expel(&cx.vfs().mounts, &gone);
    gone.shrink(true);
    drop(gone);
    notify::on_dentry(&dir.dentry, event::DELETE | event::ISDIR, 0, &name);
    Ok(())
}

/// One of its names was removed.
fn lost_name(inode: &InodeRef) {
    if let Some(object) = inode.as_confirming() {
        object.lost_name();
    }
}

/// chdir(2), chroot(2): the directory at `path`, which the caller must be allowed to search.
pub fn find_dir(cx: &dyn Caller, view: &FsView, start: &Start, path: &[u8]) -> Result<FoundDirectory> {
    walk::anew(view, |view| {
        let (place, mount) = walk::lookup_held(cx, view, start, path, Lookup::FOLLOW | Lookup::DIRECTORY)?;
        let inode = place.inode();
        inode.refresh_access(cx)?;
        access::inode_may(cx, inode, mode::MAY_EXEC)?;
        inode.ask_access(cx, mode::MAY_EXEC)?;
        let object = inode.hold()?;
        Ok(FoundDirectory { place, _mount: mount, _object: object })
    })
}

/// A directory that a path led to. Its mount stays, and it stays within reach, as long as this lives.
pub struct FoundDirectory {
    /// Where it is.
    pub place: Path,
    _mount: InUse<Mount>,
    _object: Option<Hold>,
}

/// chroot(2) needs CAP_SYS_CHROOT.
pub fn find_root(cx: &dyn Caller, view: &FsView, path: &[u8]) -> Result<FoundDirectory> {
    let found = find_dir(cx, view, &Start::Cwd, path)?;
    if cx.creds().own_ns_capable(Cap::SYS_CHROOT) { Ok(found) } else { Err(Errno::EPERM) }
}

//! Discretionary access control: the decisions about rights. See path_resolution(7), capabilities(7).

use crate::acl;
use crate::file::Caller;
use crate::inode::{InodeRef, NewNode};
use crate::mount::Path;
use abi::stat::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFLNK, S_IFREG};
use abi::{Errno, Result};
use caller::DeviceUse;
use rights::Credentials;
use rights::mode::{self, MAY_EXEC, MAY_READ, MAY_WRITE, Protected, allowed};
use std::sync::atomic::Ordering;

/// EACCES unless `creds` grants every bit of `mask` on an inode: by its access control list or its mode, or by capabilities.
pub fn inode_allowed(creds: &Credentials, inode: &InodeRef, mask: u32) -> Result<()> {
    let rules = inode.as_permission();
    if let Some(judged) = rules.and_then(|rules| rules.judges(creds, mask)) {
        return judged;
    }
    let p = inode.perm()?;
    // Without group bits the list's mask grants nothing, and what others may is in the mode.
    if creds.fsuid == p.uid || p.mode & 0o070 == 0 || mask == 0 || mode::by_capability(creds, &p, mask) {
        allowed(creds, &p, mask)?;
    } else {
        match acl::deciding(inode)? {
            Some(acl) => acl.allows(creds, &p, mask)?,
            None => allowed(creds, &p, mask)?,
        }
    }
    rules.map_or(Ok(()), |rules| rules.permission(mask))
}

/// Permission on an inode, whatever the mount.
pub fn inode_may(cx: &dyn Caller, inode: &InodeRef, mask: u32) -> Result<()> {
    inode_allowed(&cx.creds(), inode, mask)?;
    device_may(cx, inode, mask)
}

/// EPERM for a device that the caller's control groups refuse it.
pub fn device_may(cx: &dyn Caller, inode: &InodeRef, mask: u32) -> Result<()> {
    if !matches!(inode.kind(), S_IFBLK | S_IFCHR) || !cx.has_device_rules() {
        return Ok(());
    }
    match device_use(inode, mask)? {
        Some(device) => cx.check_device(&device),
        None => Ok(()),
    }
}

/// Permission at a place: also EROFS for writing through a read-only mount.
pub fn may(cx: &dyn Caller, path: &Path, mask: u32) -> Result<()> {
    if mask & MAY_WRITE != 0 && matches!(path.kind(), S_IFREG | S_IFDIR | S_IFLNK) && path.mount.readonly() {
        return Err(Errno::EROFS);
    }
    inode_may(cx, path.inode(), mask)
}

/// EROFS when nothing can be changed through the mount.
pub fn writable_mount(path: &Path) -> Result<()> {
    if path.mount.readonly() { Err(Errno::EROFS) } else { Ok(()) }
}

/// Whether entries may be added to directory `dir`.
pub fn may_create(cx: &dyn Caller, dir: &Path) -> Result<()> {
    if dir.dentry.is_unlinked() {
        return Err(Errno::ENOENT);
    }
    writable_mount(dir)?;
    let creds = cx.creds();
    if !dir.mount.sb.can_hold(creds.fsuid, creds.fsgid) {
        return Err(Errno::EOVERFLOW);
    }
    inode_may(cx, dir.inode(), MAY_WRITE | MAY_EXEC)
}

/// Whether `victim` may be taken out of directory `dir` (sticky bit included).
pub fn may_delete(cx: &dyn Caller, dir: &Path, victim: &InodeRef) -> Result<()> {
    writable_mount(dir)?;
    let creds = cx.creds();
    let d = dir.inode().perm()?;
    inode_allowed(&creds, dir.inode(), MAY_WRITE | MAY_EXEC)?;
    if d.mode & 0o1000 == 0 { Ok(()) } else { mode::check_sticky(&creds, &d, &victim.perm()?) }
}

/// Whether a symbolic link found in `dir` may be followed (protected_symlinks).
pub fn may_follow(protected: &Protected, creds: &Credentials, dir: &InodeRef, link: &InodeRef) -> Result<()> {
    if !protected.symlinks.load(Ordering::Relaxed) {
        return Ok(());
    }
    let d = dir.perm()?;
    if d.mode & 0o1002 != 0o1002 {
        return Ok(());
    }
    let l = link.perm()?;
    if l.uid == creds.fsuid || l.uid == d.uid { Ok(()) } else { Err(Errno::EACCES) }
}

/// Accessing an inode as `mask` (MAY_*) says; `None` for an inode that is no device.
pub fn device_use(inode: &InodeRef, mask: u32) -> Result<Option<DeviceUse>> {
    let block = match inode.kind() {
        S_IFBLK => true,
        S_IFCHR => false,
        _ => return Ok(None),
    };
    let number = inode.attr()?.rdev;
    let read = if mask & MAY_READ != 0 { DeviceUse::READ } else { 0 };
    let write = if mask & MAY_WRITE != 0 { DeviceUse::WRITE } else { 0 };
    Ok((number != 0).then_some(DeviceUse { block, number, access: read | write }))
}

/// Making a node; `None` for a node that is no device, as whiteouts (character device 0:0).
pub fn device_made(node: &NewNode) -> Option<DeviceUse> {
    let (block, number) = match node {
        NewNode::Char(number @ 1..) => (false, *number),
        NewNode::Block(number) => (true, *number),
        _ => return None,
    };
    Some(DeviceUse { block, number, access: DeviceUse::MKNOD })
}

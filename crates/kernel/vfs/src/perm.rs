//! Who may do what: discretionary access control. See path_resolution(7), capabilities(7).

use crate::acl;
use crate::caller::Caller;
use crate::cred::{Cap, Credentials};
use crate::dentry::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use crate::devices::DeviceUse;
use crate::inode::{InodeRef, Perm};
use crate::path::Path;
use abi::{Errno, Result};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Execute a file, search a directory.
pub const MAY_EXEC: u32 = 1;
/// Write.
pub const MAY_WRITE: u32 = 2;
/// Read.
pub const MAY_READ: u32 = 4;

/// Settings of /proc/sys/fs that guard directories in which everybody may write.
pub struct Protected {
    /// fs.protected_symlinks: in sticky world-writable directories follow only one's own links.
    pub symlinks: AtomicBool,
    /// fs.protected_hardlinks: link only to files one owns or may read and write.
    pub hardlinks: AtomicBool,
    /// fs.protected_fifos.
    pub fifos: AtomicU32,
    /// fs.protected_regular.
    pub regular: AtomicU32,
}

impl Default for Protected {
    fn default() -> Protected {
        Protected {
            symlinks: AtomicBool::new(true),
            hardlinks: AtomicBool::new(true),
            fifos: AtomicU32::new(0),
            regular: AtomicU32::new(0),
        }
    }
}

/// EACCES unless `creds` grants every bit of `mask` on an object with these attributes and no access control list.
pub fn allowed(creds: &Credentials, p: &Perm, mask: u32) -> Result<()> {
    if by_mode(creds, p, mask) || by_capability(creds, p, mask) { Ok(()) } else { Err(Errno::EACCES) }
}

/// EACCES unless `creds` grants every bit of `mask` on an inode: by its access control list or its mode, or by capabilities.
pub fn inode_allowed(creds: &Credentials, inode: &InodeRef, mask: u32) -> Result<()> {
    if let Some(judged) = inode.judges(creds, mask) {
        return judged;
    }
    let p = inode.perm()?;
    // Without group bits the list's mask grants nothing, and what others may is in the mode.
    if creds.fsuid == p.uid || p.mode & 0o070 == 0 || mask == 0 || by_capability(creds, &p, mask) {
        allowed(creds, &p, mask)?;
    } else {
        match acl::deciding(inode)? {
            Some(acl) => acl.allows(creds, &p, mask)?,
            None => allowed(creds, &p, mask)?,
        }
    }
    inode.permission(mask)
}

fn by_mode(creds: &Credentials, p: &Perm, mask: u32) -> bool {
    let bits = if creds.fsuid == p.uid {
        p.mode >> 6
    } else if p.mode & 0o077 == (p.mode >> 3 & 7) * 0o11 || !creds.in_group(p.gid) {
        // Same bits for group and others: membership does not matter.
        p.mode
    } else {
        p.mode >> 3
    };
    mask & !(bits & 7) == 0
}

fn by_capability(creds: &Credentials, p: &Perm, mask: u32) -> bool {
    let dir = p.mode & S_IFMT == S_IFDIR;
    if creds.capable_over(p.uid, p.gid, Cap::DAC_OVERRIDE)
        && (dir || mask & MAY_EXEC == 0 || p.mode & 0o111 != 0)
    {
        return true;
    }
    creds.capable_over(p.uid, p.gid, Cap::DAC_READ_SEARCH)
        && (mask == MAY_READ || dir && mask & MAY_WRITE == 0)
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
    match DeviceUse::of(inode, mask)? {
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

/// True for the owner and for CAP_FOWNER.
pub fn owner_or_capable(creds: &Credentials, p: &Perm) -> bool {
    creds.fsuid == p.uid || creds.own_ns_capable(Cap::FOWNER) && creds.user_ns.user_here(p.uid).is_some()
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
    if d.mode & 0o1000 == 0 { Ok(()) } else { check_sticky(&creds, &d, &victim.perm()?) }
}

/// EPERM for what a sticky directory lets its owner, the victim's and CAP_FOWNER over the victim remove only.
pub fn check_sticky(creds: &Credentials, dir: &Perm, victim: &Perm) -> Result<()> {
    let sticky = dir.mode & 0o1000 != 0;
    let may = creds.fsuid == dir.uid
        || creds.fsuid == victim.uid
        || creds.capable_over(victim.uid, victim.gid, Cap::FOWNER);
    if sticky && !may { Err(Errno::EPERM) } else { Ok(()) }
}

/// Whether a symbolic link found in `dir` may be followed (protected_symlinks).
pub(crate) fn may_follow(
    protected: &Protected,
    creds: &Credentials,
    dir: &InodeRef,
    link: &InodeRef,
) -> Result<()> {
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

/// Mode bits that remain when someone without CAP_FSETID writes to or gives away a regular file.
pub fn drop_set_id(mode: u32) -> u32 {
    let mut m = mode & !0o4000;
    if mode & 0o2010 == 0o2010 {
        m &= !0o2000;
    }
    m
}

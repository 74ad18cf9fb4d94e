//! Who may do what: discretionary access control. See path_resolution(7), capabilities(7).

use crate::caller::Caller;
use crate::cred::{Cap, Credentials};
use crate::dentry::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
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

/// EACCES unless `creds` grants every bit of `mask` on an object with these attributes.
pub fn allowed(creds: &Credentials, p: &Perm, mask: u32) -> Result<()> {
    let bits = if creds.fsuid == p.uid {
        p.mode >> 6
    } else if p.mode & 0o077 == (p.mode >> 3 & 7) * 0o11 || !creds.in_group(p.gid) {
        // Same bits for group and others: membership does not matter.
        p.mode
    } else {
        p.mode >> 3
    };
    if mask & !(bits & 7) == 0 {
        return Ok(());
    }
    let dir = p.mode & S_IFMT == S_IFDIR;
    if creds.own_ns_capable(Cap::DAC_OVERRIDE) && (dir || mask & MAY_EXEC == 0 || p.mode & 0o111 != 0) {
        return Ok(());
    }
    if creds.own_ns_capable(Cap::DAC_READ_SEARCH) && (mask == MAY_READ || dir && mask & MAY_WRITE == 0) {
        return Ok(());
    }
    Err(Errno::EACCES)
}

/// Permission on an inode, whatever the mount.
pub fn inode_may(cx: &dyn Caller, inode: &InodeRef, mask: u32) -> Result<()> {
    allowed(&cx.creds(), &inode.perm()?, mask)
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
    creds.fsuid == p.uid || creds.own_ns_capable(Cap::FOWNER)
}

/// Whether entries may be added to directory `dir`.
pub fn may_create(cx: &dyn Caller, dir: &Path) -> Result<()> {
    if dir.dentry.is_unlinked() {
        return Err(Errno::ENOENT);
    }
    writable_mount(dir)?;
    inode_may(cx, dir.inode(), MAY_WRITE | MAY_EXEC)
}

/// Whether `victim` may be taken out of directory `dir` (sticky bit included).
pub fn may_delete(cx: &dyn Caller, dir: &Path, victim: &InodeRef) -> Result<()> {
    writable_mount(dir)?;
    let creds = cx.creds();
    let d = dir.inode().perm()?;
    allowed(&creds, &d, MAY_WRITE | MAY_EXEC)?;
    if d.mode & 0o1000 != 0 && creds.fsuid != d.uid {
        let v = victim.perm()?;
        if creds.fsuid != v.uid && !creds.own_ns_capable(Cap::FOWNER) {
            return Err(Errno::EPERM);
        }
    }
    Ok(())
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

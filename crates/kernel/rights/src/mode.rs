//! Discretionary access by owner, group and mode: the rights to read, write, execute, search and remove. See
//! path_resolution(7), inode(7), capabilities(7).

use crate::cred::{Cap, Credentials};
use abi::stat::{S_IFDIR, S_IFMT, S_IFREG};
use abi::{Errno, Result};
use std::sync::atomic::{AtomicBool, AtomicU32};

/// The attributes that decide access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Perm {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

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

/// Whether capabilities grant every bit of `mask`, whatever the mode.
pub fn by_capability(creds: &Credentials, p: &Perm, mask: u32) -> bool {
    let dir = p.mode & S_IFMT == S_IFDIR;
    if creds.capable_over(p.uid, p.gid, Cap::DAC_OVERRIDE)
        && (dir || mask & MAY_EXEC == 0 || p.mode & 0o111 != 0)
    {
        return true;
    }
    creds.capable_over(p.uid, p.gid, Cap::DAC_READ_SEARCH)
        && (mask == MAY_READ || dir && mask & MAY_WRITE == 0)
}

/// True for the owner and for CAP_FOWNER.
pub fn owner_or_capable(creds: &Credentials, p: &Perm) -> bool {
    creds.fsuid == p.uid || creds.own_ns_capable(Cap::FOWNER) && creds.user_ns.user_here(p.uid).is_some()
}

/// EPERM for what a sticky directory lets its owner, the victim's and CAP_FOWNER over the victim remove only.
pub fn check_sticky(creds: &Credentials, dir: &Perm, victim: &Perm) -> Result<()> {
    let sticky = dir.mode & 0o1000 != 0;
    let may = creds.fsuid == dir.uid
        || creds.fsuid == victim.uid
        || creds.capable_over(victim.uid, victim.gid, Cap::FOWNER);
    if sticky && !may { Err(Errno::EPERM) } else { Ok(()) }
}

/// Whether a caller may leave the set-group-ID bit on an object of `p`'s owner and this group.
pub fn keeps_set_gid(creds: &Credentials, p: &Perm, gid: u32) -> bool {
    creds.in_group(gid) || creds.capable_over(p.uid, p.gid, Cap::FSETID)
}

/// Mode that remains when a file changes hands: the set-group-ID bit of a file that its group may not execute stays for
/// members of the group (Linux's `setattr_should_drop_sgid`).
pub fn drop_set_id(creds: &Credentials, p: &Perm) -> u32 {
    let group = p.mode & 0o2000 != 0 && (p.mode & 0o010 != 0 || !keeps_set_gid(creds, p, p.gid));
    p.mode & !0o4000 & !(if group { 0o2000 } else { 0 })
}

/// Permission bits that a regular file gets when it is written to or resized; `None` if they stay
/// (`setattr_should_drop_suidgid`).
pub fn after_write(creds: &Credentials, p: &Perm) -> Option<u32> {
    if p.mode & 0o6000 == 0 || p.mode & S_IFMT != S_IFREG || creds.capable(Cap::FSETID) {
        return None;
    }
    let kept = drop_set_id(creds, p);
    (kept != p.mode).then_some(kept & 0o7777)
}

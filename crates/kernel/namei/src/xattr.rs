//! Extended attributes. See xattr(7).

use abi::stat::{S_IFDIR, S_IFMT, S_IFREG};
use abi::{Errno, Result};
use rights::acl::AclKind;
use rights::cred::Cap;
use rights::file_caps::{self, FileCaps};
use rights::mode;
use rights::mode::{MAY_READ, MAY_WRITE};
use vfs::inode::InodeRef;
use vfs::{Caller, access, acl};

/// Longest name.
pub const NAME_MAX: usize = 255;
/// Longest value.
pub const SIZE_MAX: usize = 65536;
/// Longest list of names.
pub const LIST_MAX: usize = 65536;

/// What the name space of an attribute demands of the caller.
pub fn check(cx: &dyn Caller, inode: &InodeRef, name: &[u8], mask: u32) -> Result<()> {
    let creds = cx.creds();
    let write = mask == MAY_WRITE;
    if name.starts_with(b"system.") {
        return Ok(());
    }
    if name.starts_with(b"security.") {
        let p = inode.perm()?;
        let allowed = match name == file_caps::XATTR {
            true => creds.capable_over(p.uid, p.gid, Cap::SETFCAP),
            false => creds.capable(Cap::SYS_ADMIN),
        };
        return if write && !allowed { Err(Errno::EPERM) } else { Ok(()) };
    }
    if name.starts_with(b"trusted.") {
        return match creds.capable(Cap::SYS_ADMIN) {
            true => Ok(()),
            false => Err(if write { Errno::EPERM } else { Errno::ENODATA }),
        };
    }
    if name.starts_with(b"user.") {
        if name.len() == 5 && !inode.as_xattrs().is_some_and(|xattrs| xattrs.takes_any_name()) {
            return Err(Errno::EINVAL);
        }
        let p = inode.perm()?;
        let kind = p.mode & S_IFMT;
        let hidden = || kind == 0 && inode.as_xattrs().is_some_and(|xattrs| xattrs.is_hidden_regular());
        if kind != S_IFREG && kind != S_IFDIR && !hidden() {
            return Err(if write { Errno::EPERM } else { Errno::ENODATA });
        }
        if kind == S_IFDIR && p.mode & 0o1000 != 0 && write && !mode::owner_or_capable(&creds, &p) {
            return Err(Errno::EPERM);
        }
        return access::inode_allowed(&creds, inode, mask);
    }
    if inode.as_xattrs().is_some_and(|xattrs| xattrs.takes_any_name()) {
        return access::inode_allowed(&creds, inode, mask);
    }
    Err(Errno::EOPNOTSUPP)
}

/// A valid name: not empty, not too long; ERANGE otherwise.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX { Err(Errno::ERANGE) } else { Ok(()) }
}

/// getxattr(2).
pub fn get(cx: &dyn Caller, inode: &InodeRef, name: &[u8]) -> Result<Vec<u8>> {
    check_name(name)?;
    if let Some(kind) = AclKind::of_xattr(name) {
        return acl::get(cx, inode, kind);
    }
    check(cx, inode, name, MAY_READ)?;
    let value = inode.xattrs()?.get_xattr(cx, name)?;
    if name == file_caps::XATTR { file_caps::shown(&cx.creds(), value) } else { Ok(value) }
}

/// setxattr(2).
pub fn set(cx: &dyn Caller, inode: &InodeRef, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
    if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
        return Err(Errno::EINVAL);
    }
    check_name(name)?;
    if value.len() > SIZE_MAX {
        return Err(Errno::E2BIG);
    }
    if let Some(kind) = AclKind::of_xattr(name) {
        return acl::set(cx, inode, kind, Some(value));
    }
    if name == file_caps::XATTR && !value.is_empty() && FileCaps::parse(value).is_none() {
        return Err(Errno::EINVAL);
    }
    check(cx, inode, name, MAY_WRITE)?;
    if name == file_caps::XATTR && !value.is_empty() {
        return inode.xattrs()?.set_xattr(cx, name, &file_caps::kept(&cx.creds(), value)?, flags);
    }
    inode.xattrs()?.set_xattr(cx, name, value, flags)
}

/// removexattr(2).
pub fn remove(cx: &dyn Caller, inode: &InodeRef, name: &[u8]) -> Result<()> {
    check_name(name)?;
    if let Some(kind) = AclKind::of_xattr(name) {
        return acl::set(cx, inode, kind, None);
    }
    check(cx, inode, name, MAY_WRITE)?;
    inode.xattrs()?.remove_xattr(cx, name)
}

/// listxattr(2): names with their terminating NULs.
pub fn list(cx: &dyn Caller, inode: &InodeRef) -> Result<Vec<u8>> {
    let trusted = cx.creds().capable(Cap::SYS_ADMIN);
    let mut out = Vec::new();
    for n in inode.as_xattrs().map_or(Ok(Vec::new()), |x| x.list_xattr(cx))? {
        if trusted || !n.starts_with(b"trusted.") {
            out.extend_from_slice(&n);
            out.push(0);
        }
    }
    if out.len() > LIST_MAX { Err(Errno::E2BIG) } else { Ok(out) }
}

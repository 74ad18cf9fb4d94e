//! Access control lists of inodes: reading and setting them, and the lists that new objects inherit. See acl(5).
//!
//! The form of a list and its rules are in [`rights::acl`]; the file system keeps the lists ([`AclInode`]).

use crate::file::Caller;
use crate::inode::{AclInode, InodeRef, NewNode};
use crate::mount::Path;
use abi::stat::{S_IFDIR, S_IFLNK, S_IFMT};
use abi::{Errno, Result};
use rights::acl::{Acl, AclKind};
use rights::mode;
use std::sync::Arc;

/// The list that decides about access where the mode alone does not.
pub fn deciding(inode: &InodeRef) -> Result<Option<Arc<Acl>>> {
    inode.as_acls().map_or(Ok(None), |acls| acls.acl(AclKind::Access))
}

/// EOPNOTSUPP where the object can have no list.
fn keeper(inode: &InodeRef) -> Result<&dyn AclInode> {
    if inode.kind() == S_IFLNK {
        return Err(Errno::EOPNOTSUPP);
    }
    inode.as_acls().ok_or(Errno::EOPNOTSUPP)
}

/// getxattr(2) of a list, with the IDs of the caller's user namespace. ENODATA.
pub fn get(cx: &dyn Caller, inode: &InodeRef, kind: AclKind) -> Result<Vec<u8>> {
    let acl = keeper(inode)?.acl(kind)?.ok_or(Errno::ENODATA)?;
    let ns = &cx.creds().user_ns;
    acl.map_ids(|id| Some(ns.show_user(id)), |id| Some(ns.show_group(id)))
        .map(|acl| acl.to_xattr())
        .ok_or(Errno::EINVAL)
}

/// setxattr(2) of a list; with `None`, and with a list that has no entries, it is removed.
pub fn set(cx: &dyn Caller, inode: &InodeRef, kind: AclKind, value: Option<&[u8]>) -> Result<()> {
    let acl = match value {
        Some(value) if !value.is_empty() => Acl::from_xattr(value)?,
        _ => None,
    };
    let keeper = keeper(inode)?;
    let p = inode.perm()?;
    if kind == AclKind::Default && p.mode & S_IFMT != S_IFDIR {
        return if acl.is_some() { Err(Errno::EACCES) } else { Ok(()) };
    }
    let creds = cx.creds();
    if !mode::owner_or_capable(&creds, &p) {
        return Err(Errno::EPERM);
    }
    let Some(acl) = acl else { return keeper.set_acl(cx, kind, None, None) };
    let ns = &creds.user_ns;
    let acl = acl.map_ids(|id| ns.user(id), |id| ns.group(id)).ok_or(Errno::EINVAL)?;
    acl.validate()?;
    if kind == AclKind::Default {
        return keeper.set_acl(cx, kind, Some(Arc::new(acl)), None);
    }
    let (bits, exact) = acl.mode();
    let mut mode = p.mode & 0o7000 | bits;
    if !mode::keeps_set_gid(&creds, &p, p.gid) {
        mode &= !0o2000;
    }
    keeper.set_acl(cx, kind, (!exact).then(|| Arc::new(acl)), Some(mode))
}

/// What an object inherits from its directory's default list.
#[derive(Default)]
pub struct Inherited {
    access: Option<Arc<Acl>>,
    default: Option<Arc<Acl>>,
}

impl Inherited {
    /// For something made in `dir` with this mode: the mode that it gets, the umask applied where no list takes its place.
    pub fn of(cx: &dyn Caller, dir: &Path, node: &NewNode, mode: u32) -> Result<(u32, Inherited)> {
        let keeper = dir.inode().as_acls().filter(|_| !matches!(node, NewNode::Symlink(_)));
        let default = match keeper {
            Some(keeper) => keeper.acl(AclKind::Default)?,
            None => None,
        };
        let umask = if dir.inode().keeps_umask() { 0 } else { cx.umask() };
        let Some(default) = default else { return Ok((mode & !umask, Inherited::default())) };
        let (mode, access) = default.inherited(mode);
        if keeper.is_some_and(|keeper| keeper.inherits_by_itself()) {
            return Ok((mode, Inherited::default()));
        }
        let access = (!access.mode().1).then(|| Arc::new(access));
        Ok((mode, Inherited { access, default: (*node == NewNode::Directory).then_some(default) }))
    }

    /// Gives a new object its lists.
    pub fn give(self, cx: &dyn Caller, inode: &InodeRef) -> Result<()> {
        let Some(keeper) = inode.as_acls() else { return Ok(()) };
        for (kind, acl) in [(AclKind::Access, self.access), (AclKind::Default, self.default)] {
            if acl.is_some() {
                keeper.set_acl(cx, kind, acl, None)?;
            }
        }
        Ok(())
    }
}

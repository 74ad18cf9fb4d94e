//! The inode operations, except those on names.

use crate::copy_up::Content;
use crate::file::{File, OpenDir};
use crate::node::Node;
use abi::stat::Attr;
use abi::{Errno, Result};
use namei::stack;
use rights::acl::{Acl, AclKind};
use rights::mode::{MAY_READ, MAY_WRITE};
use rights::{Cap, Credentials, Perm, mode};
use std::sync::Arc;
use vfs::attach::Attachments;
use vfs::{
    AclInode, Caller, DirInode, DirectoryFile, FileOps, FileSystem, Inode, InodeRef, LinkInode,
    PermissionInode, SetAttr, XattrInode, access,
};

impl Node {
    /// The object of the upper layer, copied up where need be, about to be changed. EROFS.
    pub(crate) fn writable(&self, cx: &dyn Caller, content: Content) -> Result<&InodeRef> {
        let upper = self.copy_up(cx, content)?;
        stack::writable(&self.core.upper()?.mount)?;
        Ok(&upper.inode)
    }
}

/// Whether a caller may change attributes of an object that has these, in the way of `setattr_prepare`.
fn may_change(creds: &Credentials, p: &Perm, set: &SetAttr) -> Result<()> {
    let chown = set.uid.is_some_and(|uid| uid != p.uid) || set.gid.is_some_and(|gid| gid != p.gid);
    let owner = set.mode.is_some() || set.atime.is_some() || set.mtime.is_some();
    let allowed = (!chown || creds.capable_over(p.uid, p.gid, Cap::CHOWN))
        && (!owner || mode::owner_or_capable(creds, p));
    if allowed { Ok(()) } else { Err(Errno::EPERM) }
}

impl Inode for Node {
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.core.clone()
    }
    fn attr(&self) -> Result<Attr> {
        self.attributes()
    }
    fn kind(&self) -> u32 {
        self.kind
    }
    fn perm(&self) -> Result<Perm> {
        self.real().inode.perm()
    }
    fn set_attr(&self, cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        let content = if set.size == Some(0) { Content::None } else { Content::All };
        let upper = self.writable(cx, content)?;
        let over = self.core.over(cx);
        may_change(&self.core.creds, &upper.perm()?, set)?;
        if set.size.is_some() {
            access::inode_allowed(&self.core.creds, upper, MAY_WRITE)?;
        }
        upper.set_attr(&over, set)
    }
    fn open(&self, cx: &dyn Caller, flags: i32) -> Result<Arc<dyn FileOps>> {
        match self.kind {
            libc::S_IFDIR => Ok(Arc::new(DirectoryFile(OpenDir::new(cx, self.this()?)?))),
            libc::S_IFREG => {
                let truncates = flags & libc::O_TRUNC != 0;
                if flags & libc::O_ACCMODE != libc::O_RDONLY || truncates {
                    self.writable(cx, if truncates { Content::None } else { Content::All })?;
                }
                Ok(Arc::new(File::new(cx, self.this()?, flags)?))
            }
            _ => Err(Errno::ENXIO),
        }
    }
    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }
    fn as_dir(&self) -> Option<&dyn DirInode> {
        Some(self)
    }
    fn as_link(&self) -> Option<&dyn LinkInode> {
        Some(self)
    }
    fn as_xattrs(&self) -> Option<&dyn XattrInode> {
        Some(self)
    }
    fn as_permission(&self) -> Option<&dyn PermissionInode> {
        Some(self)
    }
}

impl PermissionInode for Node {
    fn permission(&self, mask: u32) -> Result<()> {
        let plain = matches!(self.kind, libc::S_IFREG | libc::S_IFDIR | libc::S_IFLNK);
        if self.kind == libc::S_IFDIR && self.core.mounter_is_root() {
            return Ok(());
        }
        // What is written is copied up before: that needs reading only.
        let mask = match self.upper.get() {
            None if plain && mask & MAY_WRITE != 0 => mask & !MAY_WRITE | MAY_READ,
            _ => mask,
        };
        access::inode_allowed(&self.core.creds, &self.real().inode, mask)
    }
    fn about_to_move(&self, cx: &dyn Caller) -> Result<()> {
        if self.kind == libc::S_IFDIR && !self.is_pure_upper() {
            return Err(Errno::EXDEV);
        }
        self.copy_up(cx, Content::All).map(drop)
    }
}

impl LinkInode for Node {
    fn readlink(&self, cx: &dyn Caller) -> Result<Vec<u8>> {
        self.real().inode.readlink(&self.core.over(cx))
    }
}

impl AclInode for Node {
    fn acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        self.real().inode.as_acls().map_or(Ok(None), |real| real.acl(kind))
    }
    fn set_acl(
        &self,
        cx: &dyn Caller,
        kind: AclKind,
        acl: Option<Arc<Acl>>,
        mode: Option<u32>,
    ) -> Result<()> {
        let upper = self.writable(cx, Content::All)?;
        if !mode::owner_or_capable(&self.core.creds, &upper.perm()?) {
            return Err(Errno::EPERM);
        }
        upper.as_acls().ok_or(Errno::EOPNOTSUPP)?.set_acl(&self.core.over(cx), kind, acl, mode)
    }
}

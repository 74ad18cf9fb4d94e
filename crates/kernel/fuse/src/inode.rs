//! vfs's traits for nodes.

use crate::conn::Call;
use crate::dir::{self, OpenDir};
use crate::file::File;
use crate::fs;
use crate::handle::Handle;
use crate::node::Node;
use crate::wire::{self, AttrOut, EntryOut, Room, fattr, init, op};
use abi::stat::{Attr, S_IFDIR, S_IFLNK, S_IFREG, StatFs};
use abi::{Errno, Result};
use rights::mode::MAY_EXEC;
use rights::{Credentials, Perm};
use std::sync::Arc;
use vfs::attach::Attachments;
use vfs::{
    Caller, DirInode, DirectoryFile, FileOps, FileSystem, Inode, InodeRef, LinkInode, PermissionInode,
    ServedInode, SetAttr, TimeSet, XattrInode,
};

/// Longest text of a symbolic link, and its NUL.
const LINK_MAX: usize = 4096;

impl Inode for Node {
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }
    fn attr(&self) -> Result<Attr> {
        self.live()?;
        Ok(self.known.lock().attr)
    }
    fn kind(&self) -> u32 {
        self.kind
    }
    fn perm(&self) -> Result<Perm> {
        let a = self.attr()?;
        // The daemon decides about deleting in a sticky directory, unless the kernel decides everything.
        let hidden = if self.fs.conn.terms.default_permissions { 0 } else { 0o1000 };
        Ok(Perm { mode: a.mode & !hidden, uid: a.uid, gid: a.gid })
    }
    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }
    fn set_attr(&self, cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        self.admitted(cx)?;
        let ns = &self.fs.conn.terms.user_ns;
        let mut body = wire::SetattrIn::default();
        if let Some(mode) = set.mode {
            body.valid |= fattr::MODE;
            body.mode = self.kind | mode & 0o7777;
        }
        if let Some(uid) = set.uid {
            body.valid |= fattr::UID;
            body.uid = ns.user_here(uid).ok_or(Errno::EOVERFLOW)?;
        }
        if let Some(gid) = set.gid {
            body.valid |= fattr::GID;
            body.gid = ns.group_here(gid).ok_or(Errno::EOVERFLOW)?;
        }
        if let Some(size) = set.size {
            body.valid |= fattr::SIZE;
            body.size = size;
        }
        let at = |time: TimeSet| match time {
            TimeSet::Now => hostsys::fs::now(),
            TimeSet::At(time) => time,
        };
        if let Some(time) = set.atime {
            body.valid |= fattr::ATIME | if time == TimeSet::Now { fattr::ATIME_NOW } else { 0 };
            (body.atime, body.atimensec) = (at(time).sec as u64, at(time).nsec as u32);
        }
        if let Some(time) = set.mtime {
            body.valid |= fattr::MTIME | if time == TimeSet::Now { fattr::MTIME_NOW } else { 0 };
            (body.mtime, body.mtimensec) = (at(time).sec as u64, at(time).nsec as u32);
        }
        let answer = self.call(cx, Call::new(op::SETATTR, self.nodeid, &body, Room::of::<AttrOut>()))?;
        self.take(&answer)?;
        if set.size.is_some() {
            self.pages.resize(cx, self.size());
        }
        Ok(())
    }
    fn open(&self, cx: &dyn Caller, flags: i32) -> Result<Arc<dyn FileOps>> {
        self.live()?;
        let node = self.me.upgrade().ok_or(Errno::EIO)?;
        let (handle, open_flags) = Handle::open(cx, node, flags)?;
        if self.kind == S_IFDIR {
            return Ok(Arc::new(DirectoryFile(OpenDir::new(handle))));
        }
        Ok(Arc::new(File::new(handle, open_flags)))
    }
    fn as_dir(&self) -> Option<&dyn DirInode> {
        (self.kind == S_IFDIR).then_some(self)
    }
    fn as_link(&self) -> Option<&dyn LinkInode> {
        (self.kind == S_IFLNK).then_some(self)
    }
    fn as_xattrs(&self) -> Option<&dyn XattrInode> {
        Some(self)
    }
    fn as_permission(&self) -> Option<&dyn PermissionInode> {
        Some(self)
    }
    fn as_served(&self) -> Option<&dyn ServedInode> {
        Some(self)
    }
}

impl PermissionInode for Node {
    fn judges(&self, creds: &Credentials, mask: u32) -> Option<Result<()>> {
        if !self.fs.conn.admits(creds) {
            return Some(Err(Errno::EACCES));
        }
        if self.fs.conn.terms.default_permissions {
            return None;
        }
        let runs = mask & MAY_EXEC != 0 && self.kind == S_IFREG;
        let denied = runs && self.known.lock().attr.mode & 0o111 == 0;
        Some(if denied { Err(Errno::EACCES) } else { Ok(()) })
    }
    fn refresh_access(&self, cx: &dyn Caller) -> Result<()> {
        let t = &self.fs.conn.terms;
        if !(t.default_permissions || self.kind == S_IFREG) || self.admitted(cx).is_err() {
            return Ok(());
        }
        self.update(cx)
    }
    fn ask_access(&self, cx: &dyn Caller, mask: u32) -> Result<()> {
        if self.fs.conn.terms.default_permissions {
            return Ok(());
        }
        let body = wire::AccessIn { mask: mask & 7, padding: 0 };
        let call = Call::new(op::ACCESS, self.nodeid, &body, Room::NONE);
        self.optional(cx, call).map_or(Ok(()), |done| done.map(drop))
    }
    fn judges_changes(&self) -> bool {
        !self.fs.conn.terms.default_permissions
    }
}

impl ServedInode for Node {
    fn refresh(&self, cx: &dyn Caller) -> Result<()> {
        self.admitted(cx)?;
        self.update(cx)
    }
    fn statfs(&self, cx: &dyn Caller) -> Result<StatFs> {
        if self.admitted(cx).is_err() {
            return self.fs.statfs();
        }
        let answer = self.call(cx, self.bare(op::STATFS, Room::of::<wire::StatfsOut>()))?;
        let (s, _) = wire::decode::<wire::StatfsOut>(&answer)?;
        Ok(StatFs {
            f_type: fs::MAGIC,
            f_bsize: s.bsize.into(),
            f_blocks: s.blocks,
            f_bfree: s.bfree,
            f_bavail: s.bavail,
            f_files: s.files,
            f_ffree: s.ffree,
            f_namelen: s.namelen.into(),
            f_frsize: s.frsize.into(),
            ..StatFs::default()
        })
    }
}

impl LinkInode for Node {
    fn link_text(&self, _cx: &dyn Caller) -> Option<Vec<u8>> {
        None
    }
    fn readlink(&self, cx: &dyn Caller) -> Result<Vec<u8>> {
        let mut text = self.call(cx, self.bare(op::READLINK, Room::up_to(LINK_MAX - 1)))?;
        let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
        text.truncate(end);
        Ok(text)
    }
}

impl DirInode for Node {
    fn keeps_umask(&self) -> bool {
        self.fs.conn.agreed().flags & init::DONT_MASK != 0
    }
    fn lookup(&self, cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        if self.kind != S_IFDIR {
            return Err(Errno::ENOTDIR);
        }
        self.live()?;
        if let Some(kept) = self.fs.kept(self.nodeid, name) {
            return Ok(kept.ok_or(Errno::ENOENT)?);
        }
        let answer = self.call(cx, self.bare(op::LOOKUP, Room::of::<EntryOut>()).name(name));
        let answer = answer.inspect_err(|_| drop(self.fs.forget_name(self.nodeid, name)))?;
        let (entry, _) = wire::decode::<EntryOut>(&answer)?;
        if entry.nodeid == 0 {
            self.fs.keep(self.nodeid, name, None, &entry);
            return Err(Errno::ENOENT);
        }
        let node = self.fs.node(&entry)?;
        self.fs.keep(self.nodeid, name, Some(node.clone()), &entry);
        Ok(node)
    }
    fn create(
        &self,
        cx: &dyn Caller,
        name: &[u8],
        node: &vfs::NewNode,
        mode: u32,
        _uid: u32,
        _gid: u32,
    ) -> Result<InodeRef> {
        Ok(dir::create(self, cx, name, node, mode)?)
    }
    fn create_open(
        &self,
        cx: &dyn Caller,
        name: &[u8],
        mode: u32,
        flags: i32,
    ) -> Option<Result<(InodeRef, Arc<dyn FileOps>)>> {
        dir::create_open(self, cx, name, mode, flags)
    }
    fn link(&self, cx: &dyn Caller, name: &[u8], target: &InodeRef) -> Result<()> {
        dir::link(self, cx, name, Node::of(target)?)
    }
    fn unlink(&self, cx: &dyn Caller, name: &[u8]) -> Result<()> {
        dir::remove(self, cx, name, op::UNLINK)
    }
    fn rmdir(&self, cx: &dyn Caller, name: &[u8]) -> Result<()> {
        dir::remove(self, cx, name, op::RMDIR)
    }
    fn rename(
        &self,
        cx: &dyn Caller,
        name: &[u8],
        new_dir: &InodeRef,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        dir::rename(self, cx, name, Node::of(new_dir)?, new_name, flags)
    }
}

impl Node {
    /// A request about extended attributes.
    fn xattr_call(&self, cx: &dyn Caller, call: Call) -> Result<Vec<u8>> {
        self.admitted(cx)?;
        self.optional(cx, call).unwrap_or(Err(Errno::EOPNOTSUPP))
    }
}

impl XattrInode for Node {
    fn get_xattr(&self, cx: &dyn Caller, name: &[u8]) -> Result<Vec<u8>> {
        let most = namei::xattr::SIZE_MAX;
        let body = wire::GetxattrIn { size: most as u32, padding: 0 };
        self.xattr_call(cx, Call::new(op::GETXATTR, self.nodeid, &body, Room::up_to(most)).name(name))
    }
    fn set_xattr(&self, cx: &dyn Caller, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
        let body = wire::SetxattrIn { size: value.len() as u32, flags: flags as u32 };
        let call = Call::new(op::SETXATTR, self.nodeid, &body, Room::NONE).name(name).bytes(value);
        self.xattr_call(cx, call)?;
        self.expire();
        Ok(())
    }
    fn list_xattr(&self, cx: &dyn Caller) -> Result<Vec<Vec<u8>>> {
        let most = namei::xattr::LIST_MAX;
        let body = wire::GetxattrIn { size: most as u32, padding: 0 };
        let call = Call::new(op::LISTXATTR, self.nodeid, &body, Room::up_to(most));
        let list = self.xattr_call(cx, call)?;
        let Some((0, names)) = list.split_last() else {
            return if list.is_empty() { Ok(Vec::new()) } else { Err(Errno::EIO) };
        };
        let names: Vec<Vec<u8>> = names.split(|&b| b == 0).map(<[u8]>::to_vec).collect();
        if names.iter().any(Vec::is_empty) { Err(Errno::EIO) } else { Ok(names) }
    }
    fn takes_any_name(&self) -> bool {
        true
    }
    fn chown_drops_capabilities(&self) -> bool {
        true
    }
    fn remove_xattr(&self, cx: &dyn Caller, name: &[u8]) -> Result<()> {
        self.xattr_call(cx, self.bare(op::REMOVEXATTR, Room::NONE).name(name))?;
        self.expire();
        Ok(())
    }
}

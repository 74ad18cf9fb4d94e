//! vfs's traits for nodes: attributes, names, links, extended attributes.
//!
//! Neighbours: `node` has the state; `open_file` has the open files. Locks: see `node`. When two directories change, vfs
//! holds both of their own locks, so nothing here holds two at a time.

use crate::content::Content;
use crate::lower::XattrMap;
use crate::node::{Body, Dir, Node, Xattrs, link_pages, one_xattr_space, xattr_space};
use crate::open_file::{DirFile, File};
use abi::stat::Attr;
use abi::{Errno, Result};
use lock_order::{MutexGuard, rank};
use namei::rename::{EXCHANGE, WHITEOUT};
use rights::Perm;
use std::collections::BTreeMap;
use std::sync::Arc;
use vfs::attach::Attachments;
use vfs::{
    AclInode, Caller, DirInode, DirectoryFile, FileOps, FileSystem, Inode, InodeRef, LinkInode, NewNode,
    SetAttr, TimeSet, XattrInode,
};

/// Bytes of extended attributes of an inode in a file system that has no limit on inodes.
const XATTR_MAX: u64 = 1 << 20;

impl Node {
    fn dir(&self) -> Result<MutexGuard<'_, Dir, { rank::TMPFS_DIR }>> {
        match &self.body {
            Body::Dir(d) => Ok(d.lock()),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// As `dir`, with the parent's lock held.
    fn inner_dir(&self) -> Result<MutexGuard<'_, Dir, { rank::TMPFS_DIR }>> {
        match &self.body {
            Body::Dir(d) => Ok(d.lock_nested()),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// The `Arc` behind an inode of this crate.
    fn arc(inode: &InodeRef) -> Result<Arc<Node>> {
        Node::of(inode).ok_or(Errno::EXDEV)?.this()
    }

    fn this(&self) -> Result<Arc<Node>> {
        self.me.upgrade().ok_or(Errno::ESTALE)
    }

    /// Before the content changes: attributes of the lower inode become the node's own, for [`Node::touch`] to see.
    pub(crate) fn own_xattrs(&self, cx: &dyn Caller) -> Result<()> {
        if self.lower.is_none() { Ok(()) } else { self.xattrs(cx, |_| Ok(())) }
    }

    fn xattrs<R>(&self, cx: &dyn Caller, f: impl FnOnce(&mut XattrMap) -> Result<R>) -> Result<R> {
        let load = match (&self.meta.lock().xattrs, &self.lower) {
            (Xattrs::Lower, Some(l)) => Some(l),
            _ => None,
        };
        let loaded = match load {
            Some(l) => l.xattrs(cx)?,
            None => BTreeMap::new(),
        };
        let mut m = self.meta.lock();
        if matches!(m.xattrs, Xattrs::Lower) {
            // What came from below is there already; it counts, but is not refused.
            self.fs.inodes.recharge(0, xattr_space(&loaded));
            m.xattrs = Xattrs::Own(loaded);
        }
        match &mut m.xattrs {
            Xattrs::Own(x) => f(x),
            Xattrs::Lower => Err(Errno::EIO),
        }
    }

    fn make(&self, node: &NewNode, mode: u32, uid: u32, gid: u32, nlink: u64) -> Result<Arc<Node>> {
        self.fs.charge_inode()?;
        if let NewNode::Symlink(t) = node {
            self.fs.storage.charge(link_pages(t.len())).inspect_err(|_| self.fs.uncharge_inode())?;
        }
        let (body, kind, rdev) = match node {
            NewNode::Regular => (Body::file(Content::empty()), libc::S_IFREG, 0),
            NewNode::Directory => (Body::dir(None, 3), libc::S_IFDIR, 0),
            NewNode::Fifo => (Body::Special, libc::S_IFIFO, 0),
            NewNode::Socket | NewNode::BoundSocket(_) => (Body::Special, libc::S_IFSOCK, 0),
            NewNode::Char(d) => (Body::Special, libc::S_IFCHR, *d),
            NewNode::Block(d) => (Body::Special, libc::S_IFBLK, *d),
            NewNode::Symlink(t) => (Body::link(t.clone()), libc::S_IFLNK, 0),
        };
        Ok(Node::new(self.fs.clone(), body, kind | mode & 0o7777, uid, gid, rdev, nlink))
    }

    /// What takes the old name of something renamed with RENAME_WHITEOUT; EINVAL in an overlay, as overlayfs.
    fn whiteout(&self, cx: &dyn Caller) -> Result<Arc<Node>> {
        if self.fs.kind() == "overlay" {
            return Err(Errno::EINVAL);
        }
        let creds = cx.creds();
        let gid = if self.mode() & 0o2000 != 0 { self.owner().1 } else { creds.fsgid };
        self.make(&NewNode::Char(0), 0, creds.fsuid, gid, 1)
    }

    /// A name of `node` is gone.
    fn dropped(&self, node: &Node) {
        if node.is_dir() {
            if let Body::Dir(d) = &node.body {
                d.lock().dead = true;
            }
            node.meta.lock().nlink = 0;
            self.add_links(-1);
            return;
        }
        node.uncharge_link();
        if node.add_links(-1) == 0 {
            self.fs.unlinked(node);
            self.fs.note_orphan(node);
        }
    }
}

impl Inode for Node {
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }
    fn attr(&self) -> Result<Attr> {
        Ok(self.attributes())
    }
    fn kind(&self) -> u32 {
        self.mode() & libc::S_IFMT
    }
    fn perm(&self) -> Result<Perm> {
        let (uid, gid) = self.owner();
        Ok(Perm { mode: self.mode(), uid, gid })
    }
    fn set_attr(&self, cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        if let Some(size) = set.size {
            let Body::File(c) = &self.body else { return Err(Errno::EINVAL) };
            self.own_xattrs(cx)?;
            c.write().truncate(cx, &self.fs.storage, size)?;
            self.touch();
        }
        if let Some(m) = set.mode {
            let seals = if let Body::File(c) = &self.body { c.read().seals } else { 0 };
            if seals & crate::content::SEAL_EXEC != 0 && (m ^ self.mode()) & 0o111 != 0 {
                return Err(Errno::EPERM);
            }
            self.chmod(m)?;
        }
        self.set_owner(set.uid, set.gid);
        self.set_times(set)
    }
    fn open(&self, cx: &dyn Caller, _flags: i32) -> Result<Arc<dyn FileOps>> {
        match &self.body {
            Body::File(c) => {
                if let Some(l) = c.read().lower() {
                    l.probe(cx)?;
                }
                Ok(Arc::new(File::new(self.this()?)))
            }
            Body::Dir(_) => Ok(Arc::new(DirectoryFile(DirFile::new(self.this()?)))),
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
}

impl DirInode for Node {
    fn lookup(&self, cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        Ok(self.dir()?.find(cx, &self.fs, name)?)
    }
    fn looks_ahead(&self) -> bool {
        self.fs.looks_ahead()
    }
    fn look_ahead(&self, path: &[u8]) {
        if let Ok(dir) = self.dir()
            && let Some(lower) = dir.asked()
        {
            lower.look_ahead(path);
        }
    }
    fn looked(&self) {
        if let Ok(dir) = self.dir()
            && let Some(lower) = dir.asked()
        {
            lower.looked();
        }
    }
    fn create(
        &self,
        cx: &dyn Caller,
        name: &[u8],
        node: &NewNode,
        mode: u32,
        uid: u32,
        gid: u32,
    ) -> Result<InodeRef> {
        let mut d = self.dir()?;
        if d.dead {
            return Err(Errno::ENOENT);
        }
        match d.find(cx, &self.fs, name) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        let is_dir = *node == NewNode::Directory;
        let new = self.make(node, mode, uid, gid, if is_dir { 2 } else { 1 })?;
        d.put(name, new.clone());
        drop(d);
        if is_dir {
            self.add_links(1);
        }
        self.touch();
        Ok(new)
    }
    fn create_unnamed(&self, _cx: &dyn Caller, mode: u32, uid: u32, gid: u32) -> Result<InodeRef> {
        if self.dir()?.dead {
            return Err(Errno::ENOENT);
        }
        Ok(self.make(&NewNode::Regular, mode, uid, gid, 0)?)
    }
    fn link(&self, cx: &dyn Caller, name: &[u8], target: &InodeRef) -> Result<()> {
        let t = Node::arc(target)?;
        if !Arc::ptr_eq(&t.fs, &self.fs) {
            return Err(Errno::EXDEV);
        }
        let mut d = self.dir()?;
        if d.dead {
            return Err(Errno::ENOENT);
        }
        match d.find(cx, &self.fs, name) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        t.charge_link()?;
        t.add_links(1);
        d.put(name, t);
        drop(d);
        self.touch();
        Ok(())
    }
    fn unlink(&self, cx: &dyn Caller, name: &[u8]) -> Result<()> {
        let mut d = self.dir()?;
        let n = d.find(cx, &self.fs, name)?;
        if n.is_dir() {
            return Err(Errno::EISDIR);
        }
        d.remove(name);
        drop(d);
        self.dropped(&n);
        self.touch();
        Ok(())
    }
    fn rmdir(&self, cx: &dyn Caller, name: &[u8]) -> Result<()> {
        let mut d = self.dir()?;
        let n = d.find(cx, &self.fs, name)?;
        if !n.inner_dir()?.is_empty(cx)? {
            return Err(Errno::ENOTEMPTY);
        }
        d.remove(name);
        drop(d);
        self.dropped(&n);
        self.touch();
        Ok(())
    }
    fn rename(
        &self,
        cx: &dyn Caller,
        name: &[u8],
        new_dir: &InodeRef,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        let to = Node::arc(new_dir)?;
        if !Arc::ptr_eq(&to.fs, &self.fs) {
            return Err(Errno::EXDEV);
        }
        let same = std::ptr::eq(self, &*to);
        let src = self.dir()?.find(cx, &self.fs, name)?;
        let dst = match to.dir()?.find(cx, &self.fs, new_name) {
            Ok(n) => Some(n),
            Err(Errno::ENOENT) => None,
            Err(e) => return Err(e),
        };
        if to.dir()?.dead {
            return Err(Errno::ENOENT);
        }
        if flags & EXCHANGE != 0 {
            let dst = dst.ok_or(Errno::ENOENT)?;
            self.dir()?.replace(name, dst.clone());
            to.dir()?.replace(new_name, src.clone());
            if !same && src.is_dir() != dst.is_dir() {
                let n = if src.is_dir() { 1 } else { -1 };
                self.add_links(-n);
                to.add_links(n);
            }
        } else {
            let whiteout = if flags & WHITEOUT != 0 { Some(self.whiteout(cx)?) } else { None };
            if let Some(d) = &dst {
                if d.is_dir() && !d.dir()?.is_empty(cx)? {
                    return Err(Errno::ENOTEMPTY);
                }
                to.dir()?.remove(new_name);
                to.dropped(d);
            }
            // Both names change while vfs holds both directories, so no other thread sees the state in between.
            to.dir()?.put(new_name, src.clone());
            match whiteout {
                Some(whiteout) => self.dir()?.replace(name, whiteout),
                None => self.dir()?.remove(name),
            }
            if !same && src.is_dir() {
                self.add_links(-1);
                to.add_links(1);
            }
        }
        src.touch_ctime();
        self.touch();
        to.touch();
        Ok(())
    }
}

impl LinkInode for Node {
    fn readlink(&self, cx: &dyn Caller) -> Result<Vec<u8>> {
        let Body::Link(l) = &self.body else { return Err(Errno::EINVAL) };
        if let Some(t) = l.get() {
            return Ok(t.clone());
        }
        let t = self.lower.as_ref().ok_or(Errno::EIO)?.readlink(cx)?;
        Ok(l.get_or_init(|| t).clone())
    }
    fn followed(&self) {
        if self.lower.is_some() {
            return;
        }
        let now = hostsys::fs::now();
        let mut m = self.meta.lock();
        if namei::atime::is_old(m.atime, m.mtime, m.ctime, now) {
            m.atime = now;
        }
    }
}

impl XattrInode for Node {
    fn as_acls(&self) -> Option<&dyn AclInode> {
        Some(self)
    }
    fn get_xattr(&self, cx: &dyn Caller, name: &[u8]) -> Result<Vec<u8>> {
        supported(name)?;
        self.xattrs(cx, |x| x.get(name).cloned().ok_or(Errno::ENODATA))
    }
    fn set_xattr(&self, cx: &dyn Caller, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
        supported(name)?;
        self.xattrs(cx, |x| {
            let there = x.contains_key(name);
            if flags & libc::XATTR_CREATE != 0 && there {
                return Err(Errno::EEXIST);
            }
            if flags & libc::XATTR_REPLACE != 0 && !there {
                return Err(Errno::ENODATA);
            }
            let old = x.get(name).map_or(0, |v| one_xattr_space(name, v));
            let new = one_xattr_space(name, value);
            // Where nothing limits inodes, an inode has its own limit.
            if self.fs.inodes.limited() {
                self.fs.inodes.charge(new)?;
                self.fs.inodes.uncharge(old);
            } else if xattr_space(x) - old + new > XATTR_MAX {
                return Err(Errno::ENOSPC);
            }
            x.insert(name.to_vec(), value.to_vec());
            Ok(())
        })?;
        self.touch_ctime();
        Ok(())
    }
    fn list_xattr(&self, cx: &dyn Caller) -> Result<Vec<Vec<u8>>> {
        let mut names = self.acl_names()?;
        self.xattrs(cx, |x| {
            names.extend(x.keys().cloned());
            Ok(names)
        })
    }
    fn remove_xattr(&self, cx: &dyn Caller, name: &[u8]) -> Result<()> {
        supported(name)?;
        self.xattrs(cx, |x| {
            let old = x.remove(name).ok_or(Errno::ENODATA)?;
            self.fs.inodes.uncharge(one_xattr_space(name, &old));
            Ok(())
        })?;
        self.touch_ctime();
        Ok(())
    }
}

impl Node {
    fn set_times(&self, set: &SetAttr) -> Result<()> {
        let now = hostsys::fs::now();
        let value = |t: TimeSet| match t {
            TimeSet::Now => now,
            TimeSet::At(t) => t,
        };
        self.touch_ctime();
        let mut m = self.meta.lock();
        if let Some(t) = set.atime {
            m.atime = value(t);
        }
        if let Some(t) = set.mtime {
            m.mtime = value(t);
        }
        m.ctime = now;
        Ok(())
    }
}

/// Access control lists are kept apart; there are no others of the system.
fn supported(name: &[u8]) -> Result<()> {
    if name.starts_with(b"system.") { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
}

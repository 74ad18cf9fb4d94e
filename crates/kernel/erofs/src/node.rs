//! Inodes of an image, and open files of it.

use crate::fs::{ErofsFs, Loaded, Reading};
use crate::image::Inode as OnDisk;
use abi::stat::{Attr, S_IFDIR, S_IFLNK, S_IFREG, makedev};
use abi::time::Timespec;
use abi::{Errno, Result};
use files::page_cache::{PageCache, Reader};
use rights::acl::{Acl, AclKind};
use std::any::Any;
use std::sync::{Arc, Weak};
use vfs::attach::Attachments;
use vfs::{
    AclInode, Caller, DirEntry, DirInode, DirSink, DirectoryFile, DirectoryOps, FileOps, FileSystem, Inode,
    InodeRef, LinkInode, MapOps, MapRequest, Mapping, OpenFile, SeekOps, SetAttr, StorageOps, XattrInode,
};

/// Offset of the first entry that is not `.` or `..`: positions of the image come after it.
const FIRST: u64 = 2;

/// Bytes that are copied at a time for a mapping.
const PIECE: usize = 256 << 10;

/// An inode.
pub(crate) struct Node {
    me: Weak<Node>,
    pub fs: Arc<ErofsFs>,
    pub inode: OnDisk,
    acls: [Option<Arc<Acl>>; 2],
    attachments: Attachments,
    pages: PageCache,
}

impl Node {
    pub fn new(fs: Arc<ErofsFs>, loaded: Loaded) -> Arc<Node> {
        Arc::new_cyclic(|me| Node {
            me: me.clone(),
            fs,
            inode: loaded.inode,
            acls: loaded.acls,
            attachments: Attachments::default(),
            pages: PageCache::default(),
        })
    }

    fn is(&self, kind: u32) -> bool {
        self.inode.mode & libc::S_IFMT == kind
    }

    /// Reads bytes of it.
    pub fn read(&self, cx: &dyn Caller, buf: &mut [u8], off: u64) -> Result<usize> {
        self.fs.sb.read_data(&Reading(&self.fs.image, cx), &self.inode, buf, off)
    }

    /// Whether an attribute is shown.
    fn shows(&self, name: &[u8]) -> bool {
        let acl = AclKind::of_xattr(name).is_some();
        (self.fs.options.acl || !acl) && (self.fs.options.user_xattr || !name.starts_with(b"user."))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.fs.gone(self);
    }
}

/// A device number from its form in 32 bits.
fn device(raw: u32) -> u64 {
    makedev((raw & 0xf_ff00) >> 8, raw & 0xff | raw >> 12 & 0xf_ff00)
}

impl Inode for Node {
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }
    fn attr(&self) -> Result<Attr> {
        let i = &self.inode;
        let time = Timespec { sec: i.time.0, nsec: i.time.1.into() };
        let block = 1u64 << self.fs.sb.block_bits;
        Ok(Attr {
            dev: self.fs.dev,
            ino: i.nid,
            mode: i.mode,
            nlink: i.nlink.into(),
            uid: i.uid,
            gid: i.gid,
            rdev: device(i.rdev),
            size: i.size,
            blksize: block as u32,
            blocks: i.size.next_multiple_of(block) >> 9,
            atime: time,
            mtime: time,
            ctime: time,
            btime: None,
        })
    }
    fn kind(&self) -> u32 {
        self.inode.mode & libc::S_IFMT
    }
    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }
    fn set_attr(&self, _cx: &dyn Caller, _set: &SetAttr) -> Result<()> {
        Err(Errno::EROFS)
    }
    fn open(&self, _cx: &dyn Caller, _flags: i32) -> Result<Arc<dyn FileOps>> {
        let node = self.me.upgrade().ok_or(Errno::EIO)?;
        match self.kind() {
            S_IFDIR => Ok(Arc::new(DirectoryFile(OpenDir(node)))),
            S_IFREG => Ok(Arc::new(File(node))),
            _ => Err(Errno::ENXIO),
        }
    }
    fn as_dir(&self) -> Option<&dyn DirInode> {
        self.is(S_IFDIR).then_some(self)
    }
    fn as_link(&self) -> Option<&dyn LinkInode> {
        self.is(S_IFLNK).then_some(self)
    }
    fn as_xattrs(&self) -> Option<&dyn XattrInode> {
        Some(self)
    }
}

/// Nothing can be changed, as the instance is read-only.
impl DirInode for Node {
    fn lookup(&self, cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        if !self.is(S_IFDIR) {
            return Err(Errno::ENOTDIR);
        }
        let nid = self.fs.sb.find(&Reading(&self.fs.image, cx), &self.inode, name)?;
        Ok(self.fs.node(cx, nid)?)
    }
}

impl LinkInode for Node {
    fn readlink(&self, cx: &dyn Caller) -> Result<Vec<u8>> {
        self.fs.sb.link(&Reading(&self.fs.image, cx), &self.inode)
    }
}

impl XattrInode for Node {
    fn as_acls(&self) -> Option<&dyn AclInode> {
        self.fs.options.acl.then_some(self)
    }
    fn get_xattr(&self, cx: &dyn Caller, name: &[u8]) -> Result<Vec<u8>> {
        if !self.shows(name) {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut found = None;
        self.fs.sb.xattrs(&Reading(&self.fs.image, cx), &self.inode, &mut |own, value| {
            if own == name {
                found = Some(value.to_vec());
            }
            found.is_none()
        })?;
        found.ok_or(Errno::ENODATA)
    }
    fn set_xattr(&self, _cx: &dyn Caller, _name: &[u8], _value: &[u8], _flags: i32) -> Result<()> {
        Err(Errno::EROFS)
    }
    fn list_xattr(&self, cx: &dyn Caller) -> Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        self.fs.sb.xattrs(&Reading(&self.fs.image, cx), &self.inode, &mut |name, _| {
            if self.shows(&name) {
                all.push(name);
            }
            true
        })?;
        Ok(all)
    }
    fn remove_xattr(&self, _cx: &dyn Caller, _name: &[u8]) -> Result<()> {
        Err(Errno::EROFS)
    }
}

impl AclInode for Node {
    fn acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        Ok(self.acls[usize::from(kind == AclKind::Default)].clone())
    }
    fn set_acl(&self, _: &dyn Caller, _: AclKind, _: Option<Arc<Acl>>, _: Option<u32>) -> Result<()> {
        Err(Errno::EROFS)
    }
}

/// An open regular file.
pub(crate) struct File(pub Arc<Node>);

impl FileOps for File {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        Some(self)
    }
    fn as_storage(&self) -> Option<&dyn StorageOps> {
        Some(self)
    }
    fn as_map(&self) -> Option<&dyn MapOps> {
        Some(self)
    }
    fn read(&self, cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], off: u64) -> Result<usize> {
        self.0.read(cx, buf, off)
    }
}

impl SeekOps for File {
    fn size(&self, _file: &OpenFile) -> Result<u64> {
        Ok(self.0.inode.size)
    }
    /// All of a file is data, holes too, as on Linux.
    fn seek_special(&self, _cx: &dyn Caller, _file: &OpenFile, off: i64, whence: i32) -> Result<u64> {
        let off = u64::try_from(off).ok().filter(|&off| off < self.0.inode.size).ok_or(Errno::ENXIO)?;
        Ok(if whence == libc::SEEK_HOLE { self.0.inode.size } else { off })
    }
}

impl StorageOps for File {
    /// Nothing is ever written. EINVAL, as on Linux.
    fn sync(&self, _cx: &dyn Caller, _file: &OpenFile, _data_only: bool) -> Result<()> {
        Err(Errno::EINVAL)
    }
    fn direct(&self) -> bool {
        true
    }
}

impl MapOps for File {
    /// ENODEV for a shared mapping that may be written. ENOMEM when what is mapped of the file system takes 2 GiB.
    fn map(&self, cx: &dyn Caller, _file: &OpenFile, req: &MapRequest) -> Result<Mapping> {
        let node = &self.0;
        let reader = Reader { most: PIECE, unit: PIECE as u64, read: &|buf, at| node.read(cx, buf, at) };
        let no_room = |e| if e == Errno::ENOSPC { Errno::ENOMEM } else { e };
        node.pages.map(cx, || node.fs.mapped().root(), || node.attr(), req, &reader).map_err(no_room)
    }
}

/// An open directory.
struct OpenDir(Arc<Node>);

impl DirectoryOps for OpenDir {
    fn read_dir(&self, cx: &dyn Caller, _file: &OpenFile, pos: u64, sink: &mut dyn DirSink) -> Result<u64> {
        let Node { fs, inode, .. } = &*self.0;
        let from = Reading(&fs.image, cx);
        let at = pos.saturating_sub(FIRST);
        let next = fs.sb.list(&from, inode, at, &mut |next, entry| {
            let entry = DirEntry { ino: entry.nid, kind: entry.kind, name: entry.name };
            sink.entry(next.saturating_add(FIRST), &entry)
        })?;
        Ok(next.saturating_add(FIRST))
    }
}

//! Groups as directories: the file system, its inodes, and what mkdir(2) and rmdir(2) do.

use crate::files::FILES;
use crate::node::{CgroupFs, Node, root_of};
use crate::open::{DirOps, FileOf};
use abi::stat::{Attr, StatFs};
use abi::{Errno, Result};
use cgroup::{Cgroup, Owner};
use lock_order::Mutex;
use nsproxy::CgroupNamespace;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use task::Kernel;
use vfs::attach::Attachments;
use vfs::{Caller, DirInode, DirectoryFile, FileOps, FileSystem, Inode, InodeRef, NewNode, SetAttr};

/// CGROUP2_SUPER_MAGIC.
const MAGIC: i64 = 0x6367_7270;

/// The groups from the root of a cgroup namespace on, read and written.
pub fn tree(kernel: &Arc<Kernel>, ns: &CgroupNamespace) -> Arc<dyn FileSystem> {
    let shown = || ns.shown.lock().as_ref().and_then(Weak::upgrade);
    if let Some(there) = shown() {
        return there;
    }
    let fs: Arc<dyn FileSystem> = Arc::new_cyclic(|me: &Weak<CgroupFs>| CgroupFs {
        dev: kernel.vfs.resources.device_numbers.alloc(),
        kernel: kernel.clone(),
        root: ns.root.clone(),
        me: me.clone(),
        nodes: Mutex::default(),
        snapshots: kernfs::Snapshots::default(),
    });
    *ns.shown.lock() = Some(Arc::downgrade(&fs));
    fs
}

/// The group of this directory.
pub fn group_of(inode: &InodeRef) -> Option<Arc<Cgroup>> {
    let node: &Node = inode.as_any().downcast_ref()?;
    node.file.is_none().then(|| node.group.clone())
}

impl FileSystem for CgroupFs {
    fn kind(&self) -> &'static str {
        "cgroup2"
    }
    fn root(&self) -> InodeRef {
        match self.node(&self.root, None) {
            Ok(node) => node,
            Err(_) => unreachable!("the caller holds the file system"),
        }
    }
    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs { f_type: MAGIC, f_bsize: 4096, f_namelen: 255, f_frsize: 4096, ..StatFs::default() })
    }
    fn revalidate(&self) -> bool {
        true
    }
    fn options(&self) -> String {
        "nsdelegate".into()
    }
    fn shown_root(&self, cx: &dyn Caller, root: &InodeRef) -> Option<Vec<u8>> {
        Some(group_of(root)?.path_from(&*root_of(cx)?))
    }
}

impl Inode for Node {
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }
    fn kind(&self) -> u32 {
        if self.file.is_none() { libc::S_IFDIR } else { libc::S_IFREG }
    }
    fn attr(&self) -> Result<Attr> {
        let Owner { mode, uid, gid, times: [atime, mtime, ctime] } = self.owner();
        let nlink = match self.file {
            _ if self.group.is_removed() => 0,
            None => 2 + self.group.count_children() as u64,
            Some(_) => 1,
        };
        let (dev, ino, mode) = (self.fs.dev, self.ino(), self.kind() | mode);
        Ok(Attr { dev, ino, mode, nlink, uid, gid, blksize: 4096, atime, mtime, ctime, ..Attr::default() })
    }
    fn set_attr(&self, _cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().into();
        let mut attr = self.attr()?;
        set.apply(&mut attr, now);
        let times = [attr.atime, attr.mtime, attr.ctime];
        let owner = Owner { mode: attr.mode & 0o7777, uid: attr.uid, gid: attr.gid, times };
        self.group.set_owner(self.file.map_or("", |file| file.name), owner);
        Ok(())
    }
    fn open(&self, cx: &dyn Caller, _flags: i32) -> Result<Arc<dyn FileOps>> {
        let me = self.fs.node(&self.group, self.file)?;
        let Some(file) = self.file else { return Ok(Arc::new(DirectoryFile(DirOps(me)))) };
        self.group.check_alive()?;
        Ok(Arc::new(FileOf::new(cx, me, file)))
    }
    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }
    fn as_dir(&self) -> Option<&dyn DirInode> {
        self.file.is_none().then_some(self as &dyn DirInode)
    }
}

impl DirInode for Node {
    fn lookup(&self, _cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        if self.file.is_some() {
            return Err(Errno::ENOTDIR);
        }
        if self.group.is_removed() {
            return Err(Errno::ENOENT);
        }
        if let Some(file) = FILES.iter().find(|f| f.name.as_bytes() == name && f.is_in(&self.group)) {
            return Ok(self.fs.node(&self.group, Some(file))?);
        }
        let child = self.group.child(name).ok_or(Errno::ENOENT)?;
        Ok(self.fs.node(&child, None)?)
    }
    fn create(
        &self,
        _cx: &dyn Caller,
        name: &[u8],
        node: &NewNode,
        mode: u32,
        uid: u32,
        gid: u32,
    ) -> Result<InodeRef> {
        match node {
            NewNode::Directory => {}
            NewNode::Regular => return Err(Errno::EACCES),
            _ => return Err(Errno::EPERM),
        }
        let group = self.group.mkdir(name, (uid, gid), mode & 0o7777)?;
        Ok(self.fs.node(&group, None)?)
    }
    fn rmdir(&self, _cx: &dyn Caller, name: &[u8]) -> Result<()> {
        self.group.rmdir(name)
    }
}

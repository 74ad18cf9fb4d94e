//! Groups as directories.
//!
//! `CgroupFs::nodes` remembers every inode that is in use, so that a name leads to the same inode each time. Objects
//! that are attached to the inodes of a group, such as watches, are attached to the group, so all mounts show the same.
//! Lock: a leaf, and no inode is dropped under it.

use crate::files::{FILES, File};
use crate::open::{DirOps, FileOf};
use abi::stat::{Attr, StatFs};
use abi::{Errno, Result};
use cgroup::{Cgroup, Owner};
use nsproxy::CgroupNamespace;
use ranked::Mutex;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use task::Kernel;
use vfs::attach::Attachments;
use vfs::{Caller, DirInode, FileOps, FileSystem, Inode, InodeRef, NewNode, SetAttr};

/// CGROUP2_SUPER_MAGIC.
const MAGIC: i64 = 0x6367_7270;
/// Inode numbers of a group's files follow its own.
const FILES_EACH: u64 = 64;

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

/// The file system of a namespace.
pub(crate) struct CgroupFs {
    pub kernel: Arc<Kernel>,
    root: Arc<Cgroup>,
    dev: u64,
    me: Weak<CgroupFs>,
    /// By inode number.
    nodes: Mutex<HashMap<u64, Weak<Node>>>,
    pub snapshots: kernfs::Snapshots,
}

impl CgroupFs {
    fn node(&self, group: &Arc<Cgroup>, file: Option<&'static File>) -> Result<Arc<Node>> {
        let fs = self.me.upgrade().ok_or(Errno::EIO)?;
        let attachments = match file {
            None => group.attachments(),
            Some(file) => file.notice.map_or_else(Arc::default, |notice| notice(group).attachments()),
        };
        let new = Arc::new(Node { fs, group: group.clone(), file, attachments });
        let ino = new.ino();
        let mut nodes = self.nodes.lock();
        let old = nodes.get(&ino).and_then(Weak::upgrade);
        if old.is_none() {
            nodes.insert(ino, Arc::downgrade(&new));
        }
        drop(nodes);
        Ok(old.unwrap_or(new))
    }
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
}

/// A group's directory, or one of its files.
pub(crate) struct Node {
    pub fs: Arc<CgroupFs>,
    pub group: Arc<Cgroup>,
    pub file: Option<&'static File>,
    attachments: Arc<Attachments>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let ino = self.ino();
        let mut nodes = self.fs.nodes.lock();
        if nodes.get(&ino).is_some_and(|w| w.strong_count() == 0) {
            nodes.remove(&ino);
        }
    }
}

/// The inode number of a group's file, or of its directory.
pub(crate) fn ino(group: &Cgroup, file: Option<&'static File>) -> u64 {
    let place = file.and_then(|file| FILES.iter().position(|f| std::ptr::eq(f, file)));
    group.id() * FILES_EACH + place.map_or(0, |i| i as u64 + 1)
}

impl Node {
    fn ino(&self) -> u64 {
        ino(&self.group, self.file)
    }

    fn owner(&self) -> Owner {
        match self.file {
            None => self.group.owner("", 0o755),
            Some(file) => self.group.owner(file.name, file.mode()),
        }
    }
}

impl Inode for Node {
    fn as_any(&self) -> &dyn Any {
        self
    }
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
    fn open(&self, cx: &dyn Caller, _flags: i32) -> Result<Arc<dyn FileOps>> {
        let me = self.fs.node(&self.group, self.file)?;
        let Some(file) = self.file else { return Ok(Arc::new(DirOps(me))) };
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

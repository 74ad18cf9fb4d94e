//! The inodes of groups: what a directory and a file stand for, and the table of them.
//!
//! `CgroupFs::nodes` remembers every inode in use, so that a name leads to the same inode each time.
//! What hangs on the inodes of a group, watches for instance, hangs on the group: all mounts show the same. Lock: a
//! leaf, and no inode is dropped under it. A checkpoint keeps nothing: groups are the cgroup crate's.

use crate::files::{FILES, File};
use abi::{Errno, Result};
use cgroup::{Cgroup, Owner};
use lock_order::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use task::Kernel;
use vfs::Caller;
use vfs::attach::Attachments;

/// Inode numbers of a group's files follow its own.
const FILES_EACH: u64 = 64;

/// The file system of a namespace.
pub(crate) struct CgroupFs {
    pub kernel: Arc<Kernel>,
    pub root: Arc<Cgroup>,
    pub dev: u64,
    pub me: Weak<CgroupFs>,
    /// By inode number.
    pub nodes: Mutex<HashMap<u64, Weak<Node>>>,
    pub snapshots: kernfs::Snapshots,
}

impl CgroupFs {
    pub fn node(&self, group: &Arc<Cgroup>, file: Option<&'static File>) -> Result<Arc<Node>> {
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

/// A group's directory, or one of its files.
pub(crate) struct Node {
    pub fs: Arc<CgroupFs>,
    pub group: Arc<Cgroup>,
    pub file: Option<&'static File>,
    pub attachments: Arc<Attachments>,
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
    pub fn ino(&self) -> u64 {
        ino(&self.group, self.file)
    }

    pub fn owner(&self) -> Owner {
        match self.file {
            None => self.group.owner("", 0o755),
            Some(file) => self.group.owner(file.name, file.mode()),
        }
    }
}

/// The root of the caller's cgroup namespace; `None` for the kernel itself.
pub(crate) fn root_of(cx: &dyn Caller) -> Option<Arc<Cgroup>> {
    cx.cgroup_root()?.downcast().ok()
}

//! pidfs: the inode that all pidfds of one process have, and those of one thread. It tells processes apart for good, since
//! its number is not used again, and it keeps the attributes and locks that were put on it.
//!
//! The process or thread owns its inode, and so do its open pidfds; the inode holds neither.

use crate::kernel::Kernel;
use crate::pidfd_target::{InodeState, PidFd};
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use abi::stat::Attr;
use abi::{Errno, Result};
use caller::quota::{Charge, Kind};
use lock_order::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use vfs::attach::Attachments;
use vfs::inode::{FileSystem, Inode, InternalFs, InternalInode, SetAttr, XattrInode};
use vfs::{Caller, FileOps, InodeRef};

/// Bytes of names and values that one process may have.
const MOST: usize = 128 << 10;
/// Bytes that an attribute takes besides its name and value.
const ENTRY: usize = 64;
/// The attributes that there are: those that root sets.
const TRUSTED: &[u8] = b"trusted.";

/// The value of an attribute, and its part of what all processes may have.
struct Value {
    bytes: Vec<u8>,
    _charge: Charge,
}

struct PidInode {
    base: InternalInode,
    group: Weak<ThreadGroup>,
    thread: Option<(i32, Weak<Task>)>,
    /// None before the first one is set or removed: until then every name has an empty value.
    xattrs: Mutex<Option<BTreeMap<Vec<u8>, Value>>>,
}

impl PidInode {
    fn new(fd: &PidFd, ino: u64) -> PidInode {
        PidInode {
            base: InternalInode::new(ino, InternalFs::Pid, 0o700, 0, 0),
            group: Arc::downgrade(&fd.group),
            // Opened again, a descriptor is one of the process, unless there is a thread only.
            thread: fd.thread.clone().filter(|(tid, _)| *tid != fd.group.tgid),
            xattrs: Mutex::default(),
        }
    }
}

impl Inode for PidInode {
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.base.fs()
    }
    fn attr(&self) -> Result<Attr> {
        self.base.attr()
    }
    fn set_attr(&self, cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        self.base.set_attr(cx, set)
    }
    fn open(&self, _cx: &dyn Caller, _flags: i32) -> Result<Arc<dyn FileOps>> {
        let group = self.group.upgrade().ok_or(Errno::ESRCH)?;
        Ok(Arc::new(PidFd { group, thread: self.thread.clone() }))
    }
    fn as_xattrs(&self) -> Option<&dyn XattrInode> {
        Some(self)
    }
    fn attachments(&self) -> Option<&Attachments> {
        self.base.attachments()
    }
}

impl XattrInode for PidInode {
    fn get_xattr(&self, _cx: &dyn Caller, name: &[u8]) -> Result<Vec<u8>> {
        named(name)?;
        match &*self.xattrs.lock() {
            Some(all) => all.get(name).map(|value| value.bytes.clone()).ok_or(Errno::ENODATA),
            None => Ok(Vec::new()),
        }
    }
    fn set_xattr(&self, cx: &dyn Caller, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
        named(name)?;
        let bytes = (ENTRY + name.len() + value.len()) as u64;
        let account = cx.quotas().account(cx.creds().euid);
        let charge = account.charge(Kind::PidfdAttributes, bytes).ok_or(Errno::ENOSPC)?;
        let mut xattrs = self.xattrs.lock();
        let all = xattrs.get_or_insert_default();
        let there = all.get(name);
        if there.is_some() && flags & libc::XATTR_CREATE != 0 {
            return Err(Errno::EEXIST);
        }
        if there.is_none() && flags & libc::XATTR_REPLACE != 0 {
            return Err(Errno::ENODATA);
        }
        let others: usize =
            all.iter().filter(|(n, _)| *n != name).map(|(n, v)| n.len() + v.bytes.len()).sum();
        if others + name.len() + value.len() > MOST {
            return Err(Errno::ENOSPC);
        }
        let old = all.insert(name.to_vec(), Value { bytes: value.to_vec(), _charge: charge });
        drop(xattrs);
        drop(old);
        Ok(())
    }
    fn list_xattr(&self, _cx: &dyn Caller) -> Result<Vec<Vec<u8>>> {
        Ok(self.xattrs.lock().iter().flat_map(BTreeMap::keys).cloned().collect())
    }
    fn is_hidden_regular(&self) -> bool {
        true
    }
    fn remove_xattr(&self, _cx: &dyn Caller, name: &[u8]) -> Result<()> {
        named(name)?;
        let old = self.xattrs.lock().get_or_insert_default().remove(name);
        old.map(drop).ok_or(Errno::ENODATA)
    }
}

fn named(name: &[u8]) -> Result<()> {
    if name.starts_with(TRUSTED) && name.len() > TRUSTED.len() { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

/// The inode of a pidfd's process or thread, made with `ino` where there is none yet.
fn inode_with(fd: &PidFd, ino: impl FnOnce() -> u64) -> InodeRef {
    let make = || -> InodeRef { Arc::new(PidInode::new(fd, ino())) };
    match fd.thread.as_ref().filter(|(tid, _)| *tid != fd.group.tgid) {
        None => fd.group.pidfs.get_or_init(make).clone(),
        Some((_, task)) => match task.upgrade() {
            Some(task) => task.pidfs.get_or_init(make).clone(),
            // A thread that has gone has none that others could know.
            None => make(),
        },
    }
}

/// The inode of a pidfd.
pub(crate) fn inode(fd: &PidFd) -> InodeRef {
    inode_with(fd, || fd.group.kernel.vfs.resources.next_ino())
}

/// The number that an inode of a pidfd has as a file handle; `None` for other inodes.
pub(crate) fn number(inode: &InodeRef) -> Option<u64> {
    inode.as_any().downcast_ref::<PidInode>()?;
    Some(inode.attr().ok()?.ino)
}

/// The process, or the thread of one, with pidfds of this number, until it has been waited for.
pub(crate) fn find(kernel: &Kernel, ino: u64) -> Option<(Arc<ThreadGroup>, Option<Arc<Task>>)> {
    let is = |inode: &OnceLock<InodeRef>| inode.get().and_then(number) == Some(ino);
    let t = kernel.tree.lock();
    if let Some(node) = t.nodes().find(|node| is(&node.group.pidfs)) {
        return Some((node.group.clone(), None));
    }
    let task = t.tasks().find(|task| is(&task.pidfs))?;
    Some((task.group.clone(), Some(task.clone())))
}

/// As plain data.
pub(crate) fn saved(cx: &dyn Caller, inode: &InodeRef) -> InodeState {
    let ino = inode.attr().map_or(0, |attr| attr.ino);
    let Some(xattrs) = inode.as_xattrs() else { return (ino, Vec::new()) };
    let names = xattrs.list_xattr(cx).unwrap_or_default();
    let with_value = |name: Vec<u8>| xattrs.get_xattr(cx, &name).ok().map(|value| (name, value));
    (ino, names.into_iter().filter_map(with_value).collect())
}

/// The inode of a pidfd that comes from a checkpoint.
pub(crate) fn restored(cx: &dyn Caller, fd: &PidFd, (ino, attributes): &InodeState) -> InodeRef {
    let inode = inode_with(fd, || *ino);
    if let Some(xattrs) = inode.as_xattrs() {
        for (name, value) in attributes {
            // Of one that was saved, nothing is refused.
            let _ = xattrs.set_xattr(cx, name, value, 0);
        }
    }
    inode
}

//! Inodes made from tables.
//!
//! `KernFs::nodes` remembers every inode that is in use, so that a name leads to the same inode each time; the file
//! layer takes another inode for another file. Lock rank: leaf, and no inode is dropped under it.

use crate::changes::Changes;
use crate::entry::{At, Child, Entry, Target, What};
use crate::proc::Proc;
use crate::snapshot::Snapshots;
use abi::stat::StatFs;
use abi::time::Timespec;
use abi::{Errno, Result};
use caller::UserMemory;
use lock_order::Mutex;
use mm::Mm;
use pid::PidNamespace;
use rights::Perm;
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use task::Kernel;
use vfs::attach::Attachments;
use vfs::{Caller, FileSystem, InodeRef};

/// What one type of file system does in its own way.
pub trait FsType: Send + Sync {
    /// Its name in /proc/filesystems.
    fn name(&self) -> &'static str;
    /// Its number in statfs(2).
    fn magic(&self) -> i64;
    /// Its root directory.
    fn root(&self) -> &'static Entry;
    /// st_blksize.
    fn block_size(&self) -> u32 {
        1024
    }
    /// st_size of a text file.
    fn text_size(&self) -> u64 {
        0
    }
    /// Why nothing can be made in it.
    fn no_create(&self) -> Errno {
        Errno::EPERM
    }
    /// A file that seeks by its st_size: made by something else than seq_file(5)'s means on Linux.
    fn has_size(&self, _node: &Node) -> bool {
        true
    }
    /// A write of no bytes reaches the file, which may refuse it.
    fn takes_empty_writes(&self, _node: &Node) -> bool {
        false
    }
    /// The directory of a process, which pidfd_send_signal(2) takes.
    fn is_process_dir(&self, _entry: &'static Entry) -> bool {
        false
    }
    /// Permission bits of a magic link that has mode 0 in its table.
    fn magic_mode(&self, _at: &At) -> u32 {
        0
    }
    /// Whether `cx` may open a text file of a process. Gives the memory that the file tells of as long as it is open;
    /// `None` for files that tell of the memory at each read.
    fn check_open(&self, _at: &At, _entry: &Entry, _cx: &dyn Caller) -> Result<Option<Weak<Mm>>> {
        Ok(None)
    }
    /// Whether more may write to a file than its mode says: [`FsType::may_write`] is asked then.
    fn judges_writers(&self, _node: &Node) -> bool {
        false
    }
    /// Whether `cx` may write to such a file, whatever its mode.
    fn may_write(&self, _at: &At, _cx: &dyn Caller) -> bool {
        false
    }
    /// Whether a file always says the same although Linux's does not, which the report of `debug --coverage` tells.
    fn is_constant(&self, _node: &Node) -> bool {
        false
    }
    /// What write(2) answers for a file that takes no text; `None` for one that cannot be opened for writing at all.
    fn write_error(&self, _node: &Node) -> Option<Errno> {
        None
    }
    /// ioctl(2) of an open text file. ENOTTY for unknown requests.
    fn ioctl(
        &self,
        _at: &At,
        _entry: &'static Entry,
        _mem: &mut dyn UserMemory,
        _request: (u32, u64),
    ) -> Result<u64> {
        Err(Errno::ENOTTY)
    }
    /// Of a file that tells of changes: what poll(2) waits for.
    fn watch(&self, _node: &Node, _cx: &dyn Caller) -> Option<Box<dyn Changes>> {
        None
    }
}

/// An instance of a file system.
pub struct KernFs {
    /// The kernel it tells of.
    pub kernel: Arc<Kernel>,
    /// The PID namespace that it shows processes of.
    pub pids: Arc<PidNamespace>,
    pub(crate) fs_type: &'static dyn FsType,
    pub(crate) dev: u64,
    pub(crate) me: Weak<KernFs>,
    pub(crate) nodes: Mutex<HashMap<u64, Weak<Node>>>,
    /// What open files hold.
    pub(crate) snapshots: Snapshots,
}

/// The instance that an inode is of.
pub fn instance(inode: &InodeRef) -> Option<Arc<KernFs>> {
    let node: &Node = inode.as_any().downcast_ref()?;
    Some(node.fs.clone())
}

impl KernFs {
    /// An instance of this type.
    pub fn new(kernel: Arc<Kernel>, pids: Arc<PidNamespace>, fs_type: &'static dyn FsType) -> Arc<KernFs> {
        Arc::new_cyclic(|me| KernFs {
            dev: kernel.vfs.resources.device_numbers.alloc(),
            kernel,
            pids,
            fs_type,
            me: me.clone(),
            nodes: Mutex::default(),
            snapshots: Snapshots::default(),
        })
    }

    /// The inode with this key, made now if none is in use.
    pub(crate) fn node(
        &self,
        key: u64,
        entry: &'static Entry,
        proc: Option<Arc<Proc>>,
        n: i64,
    ) -> Result<Arc<Node>> {
        let fs = self.me.upgrade().ok_or(Errno::EIO)?;
        let born = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().into();
        let new = Arc::new(Node { fs, key, entry, proc, n, born, attachments: Attachments::default() });
        let (node, _other) = {
            let mut t = self.nodes.lock();
            match t.get(&key).and_then(Weak::upgrade) {
                Some(old) if old.same(&new) => (old, Some(new)),
                // A process id that has been used again.
                old => {
                    t.insert(key, Arc::downgrade(&new));
                    (new, old)
                }
            }
        };
        Ok(node)
    }
}

impl FileSystem for KernFs {
    fn kind(&self) -> &'static str {
        self.fs_type.name()
    }
    fn root(&self) -> InodeRef {
        match self.node(ROOT_KEY, self.fs_type.root(), None, 0) {
            Ok(n) => n,
            Err(_) => unreachable!("the caller holds the file system"),
        }
    }
    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs {
            f_type: self.fs_type.magic(),
            f_bsize: 4096,
            f_namelen: 255,
            f_frsize: 4096,
            ..StatFs::default()
        })
    }
    fn revalidate(&self) -> bool {
        true
    }
}

const ROOT_KEY: u64 = 1 << KEY_SHIFT;
const KEY_SHIFT: u32 = 20;

/// An inode.
pub struct Node {
    pub(crate) fs: Arc<KernFs>,
    pub(crate) key: u64,
    pub(crate) entry: &'static Entry,
    pub(crate) proc: Option<Arc<Proc>>,
    pub(crate) n: i64,
    pub(crate) born: Timespec,
    pub(crate) attachments: Attachments,
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut t = self.fs.nodes.lock();
        if t.get(&self.key).is_some_and(|w| w.strong_count() == 0) {
            t.remove(&self.key);
        }
    }
}

impl Node {
    fn same(&self, o: &Node) -> bool {
        std::ptr::eq(self.entry, o.entry)
            && self.n == o.n
            && match (&self.proc, &o.proc) {
                (None, None) => true,
                (Some(a), Some(b)) => a.same(b),
                _ => false,
            }
    }

    /// Its table entry.
    pub fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// See [`FsType::has_size`].
    pub fn has_size(&self) -> bool {
        self.fs.fs_type.has_size(self)
    }

    /// See [`FsType::takes_empty_writes`].
    pub fn takes_empty_writes(&self) -> bool {
        self.fs.fs_type.takes_empty_writes(self)
    }

    /// It belongs to a process.
    pub fn is_of_process(&self) -> bool {
        self.proc.is_some()
    }

    /// See [`FsType::write_error`].
    pub(crate) fn write_error(&self) -> Errno {
        self.fs.fs_type.write_error(self).unwrap_or(Errno::EINVAL)
    }

    pub(crate) fn watch(&self, cx: &dyn Caller) -> Option<Box<dyn Changes>> {
        self.fs.fs_type.watch(self, cx)
    }

    /// The texts that open files hold.
    pub(crate) fn snapshots(&self) -> &Snapshots {
        &self.fs.snapshots
    }

    /// The process of this directory.
    pub fn process(&self) -> Option<Arc<task::ThreadGroup>> {
        let own = self.fs.fs_type.is_process_dir(self.entry);
        self.proc.as_ref().filter(|p| own && p.thread.is_none()).map(|p| p.group.clone())
    }

    /// The context for its functions.
    pub fn at<'a>(&'a self, cx: Option<&'a dyn Caller>) -> At<'a> {
        At {
            fs: &self.fs,
            proc: self.proc.as_ref(),
            n: self.n,
            cx,
            opener: None,
            bound: None,
            taken: Cell::new(None),
        }
    }

    pub(crate) fn ino(&self) -> u64 {
        self.key >> KEY_SHIFT
    }

    pub(crate) fn file_type(&self) -> u32 {
        match self.entry.what {
            What::Dir(..) => libc::S_IFDIR,
            What::Text(..) | What::Special(_) => libc::S_IFREG,
            What::Link(_) | What::Magic(_) => libc::S_IFLNK,
        }
    }

    /// Key of a child, which depends on nothing but its place.
    fn child_key(&self, entry: &'static Entry, proc: Option<&Arc<Proc>>, n: i64) -> u64 {
        let mut h = DefaultHasher::new();
        (self.key, entry.name, n, proc.map(|p| (p.id(), p.is_thread()))).hash(&mut h);
        h.finish().max(ROOT_KEY << 1)
    }

    pub(crate) fn child(&self, c: Child) -> Result<Arc<Node>> {
        let proc = c.proc.or_else(|| self.proc.clone());
        self.fs.node(self.child_key(c.entry, proc.as_ref(), c.n), c.entry, proc, c.n)
    }

    /// Inode number and DT_ type of a child without making it.
    pub(crate) fn child_ino(&self, c: &Child) -> (u64, u8) {
        let proc = c.proc.as_ref().or(self.proc.as_ref());
        let kind = match c.entry.what {
            What::Dir(..) => libc::DT_DIR,
            What::Text(..) | What::Special(_) => libc::DT_REG,
            What::Link(_) | What::Magic(_) => libc::DT_LNK,
        };
        (self.child_key(c.entry, proc, c.n) >> KEY_SHIFT, kind)
    }

    /// A directory's own files see the number of the directory.
    pub(crate) fn table_child(&self, e: &'static Entry) -> Child {
        Child { entry: e, proc: None, n: self.n }
    }

    pub(crate) fn real_perm(&self) -> Perm {
        let at = self.at(None);
        let mode = match (&self.entry.what, self.entry.mode) {
            (What::Magic(_), 0) => self.fs.fs_type.magic_mode(&at),
            (_, m) => m,
        };
        let (uid, gid) = match &self.proc {
            Some(p) => p.owner(mode == 0o555 && matches!(self.entry.what, What::Dir(..))),
            None => (0, 0),
        };
        Perm { mode: self.file_type() | mode, uid, gid }
    }

    /// Descriptor directories are open to their own process whatever its credentials became.
    pub(crate) fn check_own(&self, cx: &dyn Caller, mask: u32) -> Result<()> {
        let Some(p) = self.proc.as_ref().filter(|_| self.is_own_dir()) else { return Ok(()) };
        if p.group.tgid == cx.pid() {
            return Ok(());
        }
        rights::mode::allowed(&cx.creds(), &self.real_perm(), mask)
    }

    pub(crate) fn is_own_dir(&self) -> bool {
        self.entry.mode == 0o500 && matches!(self.entry.what, What::Dir(..))
    }

    pub(crate) fn target(&self, cx: &dyn Caller) -> Option<Result<Target>> {
        let What::Magic(to) = self.entry.what else { return None };
        let at = self.at(Some(cx));
        let go = || {
            at.proc()?.may_access(cx)?;
            to(&at)
        };
        Some(go())
    }
}

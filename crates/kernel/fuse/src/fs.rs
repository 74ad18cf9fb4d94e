//! A mounted FUSE file system: its nodes, the names that the daemon lets the kernel keep, and the options that its
//! mount shows.
//!
//! A node is known as long as it is in use or a name of it is kept. Afterwards the daemon receives the number of
//! look-ups that are forgotten. Names are kept in one table of bounded size, as long as the daemon said, rather than in
//! nodes: a daemon that gives a directory out as its own child would otherwise make a cycle. Locks: all leaves; nodes
//! are dropped outside of them.

use crate::conn::Connection;
use crate::node::Node;
use crate::wire::{self, EntryOut, RawAttr};
use abi::stat::{Attr, StatFs};
use abi::{Errno, NAME_MAX, Result};
use ktime::Ktime;
use lock_order::{Mutex, rank};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tmpfs::{MemFiles, TmpFs};
use vfs::{FileSystem, Inode, InodeRef};

/// FUSE_SUPER_MAGIC.
pub(crate) const MAGIC: i64 = 0x6573_5546;
/// Names that are kept of one file system.
const NAMES: usize = 2048;
/// Nodes of one file system that are known at a time.
const NODES: usize = 65_536;
/// Longest time that something is kept; a daemon may say longer ones.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// Bytes of memory that mapped files of one file system take.
const MAPPED: u64 = 2 << 30;

/// What a name leads to.
struct CachedName {
    /// `None` for a name that is not there.
    node: Option<Arc<Node>>,
    until: Ktime,
}

/// Cached names by directory and name.
type Names = HashMap<(u64, Box<[u8]>), CachedName>;

/// A file system.
pub(crate) struct FuseFs {
    pub conn: Arc<Connection>,
    pub dev: u64,
    me: Weak<FuseFs>,
    root_mode: u32,
    nodes: Mutex<HashMap<u64, Weak<Node>>>,
    names: Mutex<Names>,
    renames: Mutex<(), { rank::RENAME }>,
    subtype: Option<String>,
    options: String,
    memory: Arc<MemFiles>,
    /// Holds what is mapped.
    mapped: OnceLock<Arc<dyn FileSystem>>,
}

impl FuseFs {
    pub fn new(
        conn: &Arc<Connection>,
        dev: u64,
        root_mode: u32,
        subtype: Option<String>,
        options: String,
        memory: &Arc<MemFiles>,
    ) -> Arc<FuseFs> {
        Arc::new_cyclic(|me| FuseFs {
            conn: conn.clone(),
            dev,
            me: me.clone(),
            root_mode,
            nodes: Mutex::default(),
            names: Mutex::default(),
            renames: Mutex::default(),
            subtype,
            options,
            memory: memory.clone(),
            mapped: OnceLock::new(),
        })
    }

    /// When something that is valid for so long ends; `None` when it has ended.
    pub fn until(&self, sec: u64, nsec: u32) -> Option<Ktime> {
        let ns = wire::valid_ns(sec, nsec);
        (ns != 0).then(|| self.now().plus(Duration::from_nanos(ns).min(LONGEST)))
    }

    /// The moment now, on the clock of [`FuseFs::until`].
    pub fn now(&self) -> Ktime {
        self.conn.terms.clock.now()
    }

    /// Where mapped files have their bytes.
    pub fn mapped(&self) -> &Arc<dyn FileSystem> {
        self.mapped.get_or_init(|| {
            let options = tmpfs::Options { size: Some(MAPPED), mode: 0o700, ..tmpfs::Options::default() };
            TmpFs::new(&self.memory, options)
        })
    }

    /// Attributes of a daemon as the kernel has them. EIO for those that no inode can have.
    pub fn attr(&self, raw: &RawAttr) -> Result<Attr> {
        raw.check()?;
        let ns = &self.conn.terms.user_ns;
        Ok(Attr {
            dev: self.dev,
            ino: raw.ino,
            mode: raw.mode & (libc::S_IFMT | 0o7777),
            nlink: raw.nlink.into(),
            uid: ns.user(raw.uid).unwrap_or(u32::MAX),
            gid: ns.group(raw.gid).unwrap_or(u32::MAX),
            rdev: wire::device(raw.rdev),
            size: raw.size,
            blksize: if raw.blksize.is_power_of_two() { raw.blksize } else { wire::PAGE },
            blocks: raw.blocks,
            atime: RawAttr::time(raw.atime, raw.atimensec),
            mtime: RawAttr::time(raw.mtime, raw.mtimensec),
            ctime: RawAttr::time(raw.ctime, raw.ctimensec),
            btime: None,
        })
    }

    /// The node of an entry that the daemon gave, which counts as one look-up. EIO for an entry that cannot be; what the daemon
    /// counts for it is given back.
    pub fn node(&self, entry: &EntryOut) -> Result<Arc<Node>> {
        let made = self.attr(&entry.attr).and_then(|attr| match entry.nodeid {
            0 | wire::ROOT => Err(Errno::EIO),
            _ => Ok(attr),
        });
        let attr = made.inspect_err(|_| self.conn.forget(entry.nodeid, 1))?;
        let fresh = self.until(entry.attr_valid, entry.attr_valid_nsec);
        let known = self.nodes.lock().get(&entry.nodeid).and_then(Weak::upgrade);
        if let Some(node) = known {
            if node.is(entry.generation, attr.file_type()) {
                node.looked_up(attr, fresh);
                return Ok(node);
            }
            // Another object has its number now.
            node.bad.store(true, Ordering::Relaxed);
        }
        let me = self.me.upgrade().ok_or(Errno::ENOTCONN)?;
        let node = Node::new(me, entry.nodeid, entry.generation, attr, fresh);
        // Declared before the lock is taken: a node that goes takes the lock itself.
        let raced;
        let mut nodes = self.nodes.lock();
        raced = nodes.get(&entry.nodeid).and_then(Weak::upgrade);
        let same = raced.clone().filter(|other| other.is(entry.generation, node.kind()));
        let Some(other) = same else {
            if raced.is_none() && nodes.len() >= NODES {
                return Err(Errno::ENOMEM);
            }
            if let Some(other) = &raced {
                other.bad.store(true, Ordering::Relaxed);
            }
            nodes.insert(entry.nodeid, Arc::downgrade(&node));
            return Ok(node);
        };
        drop(nodes);
        // The look-up counts for the one that came first.
        node.uncount();
        other.looked_up(attr, fresh);
        Ok(other)
    }

    /// The node of this number, if it is known.
    pub fn find(&self, nodeid: u64) -> Option<Arc<Node>> {
        self.nodes.lock().get(&nodeid).and_then(Weak::upgrade)
    }

    /// A node goes.
    pub fn gone(&self, node: &Node) {
        let mut nodes = self.nodes.lock();
        if nodes.get(&node.nodeid).is_some_and(|known| std::ptr::eq(known.as_ptr(), node)) {
            nodes.remove(&node.nodeid);
        }
    }

    /// What a kept name leads to; `None` when the daemon has to be asked.
    pub fn kept(&self, dir: u64, name: &[u8]) -> Option<Option<Arc<Node>>> {
        let names = self.names.lock();
        let kept = names.get(&(dir, Box::from(name)))?;
        let alive = kept.until > self.now()
            && kept.node.as_ref().is_none_or(|node| !node.bad.load(Ordering::Relaxed));
        alive.then(|| kept.node.clone())
    }

    /// Keeps a name as long as the daemon said, unless it is longer than any name that can be looked up.
    pub fn keep(&self, dir: u64, name: &[u8], node: Option<Arc<Node>>, entry: &EntryOut) {
        let until = self.until(entry.entry_valid, entry.entry_valid_nsec).filter(|_| name.len() <= NAME_MAX);
        let Some(until) = until else {
            self.forget_name(dir, name);
            return;
        };
        let mut gone = Vec::new();
        let mut names = self.names.lock();
        if names.len() >= NAMES {
            let now = self.now();
            gone.extend(names.extract_if(|_, kept| kept.until <= now).map(|(_, kept)| kept));
            // Whatever comes first: a name that goes is only asked for again.
            let some: Vec<_> =
                names.keys().take(names.len().saturating_sub(NAMES - NAMES / 8)).cloned().collect();
            gone.extend(some.iter().filter_map(|key| names.remove(key)));
        }
        gone.extend(names.insert((dir, Box::from(name)), CachedName { node, until }));
        drop(names);
        drop(gone);
    }

    /// Keeps a name no longer; gives the node that it led to.
    pub fn forget_name(&self, dir: u64, name: &[u8]) -> Option<Arc<Node>> {
        let gone = self.names.lock().remove(&(dir, Box::from(name)));
        gone.and_then(|kept| kept.node)
    }

    /// Lets go of all names.
    fn forget_names(&self) {
        let all = std::mem::take(&mut *self.names.lock());
        drop(all);
    }
}

impl FileSystem for FuseFs {
    fn kind(&self) -> &'static str {
        "fuse"
    }
    fn content_is_elsewhere(&self) -> bool {
        true
    }
    fn subtype(&self) -> Option<&str> {
        self.subtype.as_deref()
    }
    fn root(&self) -> InodeRef {
        if let Some(root) = self.find(wire::ROOT) {
            return root;
        }
        let ns = &self.conn.terms.user_ns;
        let attr = Attr {
            dev: self.dev,
            ino: wire::ROOT,
            mode: self.root_mode,
            nlink: 1,
            uid: ns.user(0).unwrap_or(u32::MAX),
            gid: ns.group(0).unwrap_or(u32::MAX),
            blksize: wire::PAGE,
            ..Attr::default()
        };
        let me = self.me.upgrade().unwrap_or_else(|| unreachable!("somebody calls it"));
        let root = Node::new(me, wire::ROOT, 0, attr, None);
        self.nodes.lock().insert(wire::ROOT, Arc::downgrade(&root));
        root
    }
    /// What can be said without the daemon; [`vfs::Inode::statfs`] asks it.
    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs { f_type: MAGIC, ..StatFs::default() })
    }
    fn revalidate(&self) -> bool {
        true
    }
    fn rename_lock(&self) -> Option<&Mutex<(), { rank::RENAME }>> {
        Some(&self.renames)
    }
    fn give_up_requests(&self) {
        self.conn.abort();
    }
    fn unmounted(&self) {
        self.conn.abort();
        self.forget_names();
    }
    fn trim(&self) {
        self.forget_names();
    }
    fn options(&self) -> String {
        self.options.clone()
    }
}

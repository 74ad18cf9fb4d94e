//! A tmpfs instance: limits, inode numbers, the root.
//!
//! Key type: [`TmpFs`], which implements `vfs::FileSystem` for tmpfs, devtmpfs, ramfs and views of layers.
//! Neighbours: `storage` and `limit` count what the files take; `node` has the inodes, which refer to their instance;
//! `lower` has the traits of the layers.
//! Locks: `options` (rank `TMPFS_CONTENT`); `root` and `orphans` are leaves.
//! A checkpoint keeps the flavour, the options and the tree from the root.

use crate::filestore::FileStore;
use crate::limit::Limit;
use crate::lower::{Layers, View};
use crate::memfile::MemFiles;
use crate::node::{Body, Node};
use crate::options::Options;
use crate::storage::Storage;
use abi::stat::StatFs;
use abi::{Errno, Result};
use lock_order::{Mutex, rank};
use rights::Credentials;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::{FileSystem, InodeRef};

const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;
/// Numbers of inodes made in an overlay, far from those that come from the lower file system.
const UPPER_INO: u64 = 1 << 40;

/// What an inode counts for, in bytes; extended attributes share the limit (nr_inodes).
pub(crate) const INODE_SPACE: u64 = 1024;

fn space_of(inodes: Option<u64>) -> Option<u64> {
    inodes.map(|n| n.saturating_mul(INODE_SPACE))
}

/// What an instance is.
enum Flavour {
    Tmpfs,
    Devtmpfs,
    Ramfs,
    /// A view of other trees.
    Over(Arc<dyn Layers>),
}

/// An instance.
pub struct TmpFs {
    pub(crate) dev: u64,
    pub(crate) storage: Storage,
    flavour: Flavour,
    options: Mutex<Options, { rank::TMPFS_CONTENT }>,
    pub(crate) next_ino: AtomicU64,
    /// Bytes that inodes and extended attributes count for.
    pub(crate) inodes: Limit,
    root: Mutex<Option<Arc<Node>>>,
    /// Files without a name that may be in use, and may have their content below.
    pub(crate) orphans: Mutex<Vec<Weak<Node>>>,
}

impl TmpFs {
    /// A tmpfs with these options.
    pub fn new(memory: &Arc<MemFiles>, options: Options) -> Arc<TmpFs> {
        let fs = TmpFs::bare(memory, None, options.clone(), Flavour::Tmpfs, 1);
        fs.inodes.recharge(0, INODE_SPACE);
        let root = Node::new(
            fs.clone(),
            Body::dir(None, 3),
            options.mode | 0o040000,
            options.uid,
            options.gid,
            0,
            2,
        );
        *fs.root.lock() = Some(root);
        fs
    }

    /// A ramfs: without limits; of the options only `mode` counts. EINVAL for a mode that is none.
    pub fn ramfs(memory: &Arc<MemFiles>, creds: &Credentials, text: &[u8]) -> Result<Arc<TmpFs>> {
        let mut options = Options { size: None, inodes: None, mode: 0o755, ..Options::default() };
        for mode in text.split(|&b| b == b',').filter_map(|w| w.strip_prefix(b"mode=")) {
            let mode = std::str::from_utf8(mode).ok().and_then(|m| u32::from_str_radix(m, 8).ok());
            options.mode = mode.ok_or(Errno::EINVAL)? & 0o7777;
        }
        if options.mode != 0o755 {
            options.text = format!("mode={:o}", options.mode);
        }
        let mode = options.mode | 0o040000;
        let fs = TmpFs::bare(memory, None, options, Flavour::Ramfs, 1);
        let root = Node::new(fs.clone(), Body::dir(None, 3), mode, creds.fsuid, creds.fsgid, 0, 2);
        *fs.root.lock() = Some(root);
        Ok(fs)
    }

    /// A devtmpfs: the same under another name, mode 755.
    pub fn devtmpfs(memory: &Arc<MemFiles>) -> Arc<TmpFs> {
        let options = Options { mode: 0o755, ..Options::default() };
        let fs = TmpFs::bare(memory, None, options, Flavour::Devtmpfs, 1);
        let root = Node::new(fs.clone(), Body::dir(None, 3), 0o040755, 0, 0, 0, 2);
        *fs.root.lock() = Some(root);
        fs
    }

    /// A file system that starts as a view of the layers' root and keeps all changes in memory, or data in `store`. Without
    /// a size in `options` they may take what the store's file system has.
    pub fn over(
        memory: &Arc<MemFiles>,
        store: Option<Arc<FileStore>>,
        layers: Arc<dyn Layers>,
        root: View,
        mut options: Options,
    ) -> Result<Arc<TmpFs>> {
        if !root.attr.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        if let (None, Some(store)) = (options.size, &store) {
            options.size = Some(store.capacity()?);
        }
        let fs = TmpFs::bare(memory, store, options, Flavour::Over(layers), UPPER_INO);
        let root = Node::view(fs.clone(), root);
        *fs.root.lock() = Some(root);
        Ok(fs)
    }

    fn bare(
        memory: &Arc<MemFiles>,
        store: Option<Arc<FileStore>>,
        options: Options,
        flavour: Flavour,
        first_ino: u64,
    ) -> Arc<TmpFs> {
        Arc::new(TmpFs {
            dev: memory.device_numbers.alloc(),
            storage: Storage::new(memory, store, options.size.map(|s| s / 4096)),
            flavour,
            inodes: Limit::new(space_of(options.inodes)),
            options: Mutex::new(options),
            next_ino: AtomicU64::new(first_ino),
            root: Mutex::new(None),
            orphans: Mutex::default(),
        })
    }

    pub(crate) fn new_ino(&self) -> u64 {
        self.next_ino.fetch_add(1, Ordering::Relaxed)
    }

    /// Numbers below `next` were given out.
    pub(crate) fn raise_ino(&self, next: u64) {
        self.next_ino.fetch_max(next.min(i64::MAX as u64), Ordering::Relaxed);
    }

    /// Charges one inode; ENOSPC.
    pub(crate) fn charge_inode(&self) -> Result<()> {
        self.inodes.charge(INODE_SPACE)
    }

    pub(crate) fn uncharge_inode(&self) {
        self.inodes.uncharge(INODE_SPACE);
    }
}

impl TmpFs {
    /// See [`vfs::DirInode::looks_ahead`].
    pub(crate) fn looks_ahead(&self) -> bool {
        matches!(&self.flavour, Flavour::Over(layers) if layers.looks_ahead())
    }

    /// A view of layers.
    pub(crate) fn has_layers(&self) -> bool {
        matches!(self.flavour, Flavour::Over(_))
    }

    /// A node with several names in the layers differs from them.
    pub(crate) fn changed(&self, node: &Node) {
        if let (Flavour::Over(layers), Some(node)) = (&self.flavour, node.me.upgrade()) {
            layers.changed(node);
        }
    }

    /// The last name of a node is gone; its content may still be below while it is open.
    pub(crate) fn note_orphan(&self, node: &Node) {
        let below = || matches!(&node.body, Body::File(content) if content.read().lower().is_some());
        if !self.has_layers() || !below() {
            return;
        }
        let mut list = self.orphans.lock();
        if list.len() == list.capacity() {
            list.retain(|orphan| orphan.strong_count() != 0);
        }
        list.push(node.me.clone());
    }

    /// The last name of a node is gone.
    pub(crate) fn unlinked(&self, node: &Node) {
        if let Flavour::Over(layers) = &self.flavour {
            layers.unlinked(node);
        }
    }
}

impl FileSystem for TmpFs {
    fn is_of_host(&self) -> bool {
        matches!(self.flavour, Flavour::Over(_))
    }
    fn is_layer(&self) -> bool {
        true
    }
    fn opens_by_handle(&self) -> bool {
        !matches!(self.flavour, Flavour::Ramfs)
    }
    fn kind(&self) -> &'static str {
        match &self.flavour {
            Flavour::Tmpfs => "tmpfs",
            Flavour::Devtmpfs => "devtmpfs",
            Flavour::Ramfs => "ramfs",
            Flavour::Over(layers) => layers.kind(),
        }
    }
    fn root(&self) -> InodeRef {
        match &*self.root.lock() {
            Some(r) => r.clone(),
            // Unmounted for good: no walk can begin here any more.
            None => Arc::new(vfs::inode::InternalInode::new(0, vfs::inode::InternalFs::Anon, 0o040000, 0, 0)),
        }
    }
    fn statfs(&self) -> Result<StatFs> {
        if matches!(self.flavour, Flavour::Ramfs) {
            let f_type = RAMFS_MAGIC;
            return Ok(StatFs { f_type, f_bsize: 4096, f_namelen: 255, f_frsize: 4096, ..StatFs::default() });
        }
        self.storage.settle();
        let (total, used) = (self.storage.pages.max().unwrap_or(0), self.storage.pages.used());
        let inodes = self.inodes.used().div_ceil(INODE_SPACE);
        let files = self.inodes.max().map_or(total.max(inodes), |space| space / INODE_SPACE);
        Ok(StatFs {
            f_type: match &self.flavour {
                Flavour::Over(layers) => layers.magic(),
                Flavour::Ramfs => RAMFS_MAGIC,
                Flavour::Tmpfs | Flavour::Devtmpfs => TMPFS_MAGIC,
            },
            f_bsize: 4096,
            f_blocks: total,
            f_bfree: total.saturating_sub(used),
            f_bavail: total.saturating_sub(used),
            f_files: files,
            f_ffree: files.saturating_sub(inodes),
            f_namelen: 255,
            f_frsize: 4096,
            ..StatFs::default()
        })
    }
    fn unmounted(&self) {
        let root = self.root.lock().take();
        drop(root);
        if let Flavour::Over(layers) = &self.flavour {
            layers.unmounted();
        }
    }
    fn trim(&self) {
        let root = self.root.lock().clone();
        if let (Some(root), Flavour::Over(_)) = (root, &self.flavour) {
            trim(root);
        }
    }
    fn remount(&self, text: &[u8]) -> Result<()> {
        if matches!(self.flavour, Flavour::Ramfs) {
            return Ok(());
        }
        let mut o = self.options.lock();
        let mut new = o.clone();
        new.update(text)?;
        self.storage.settle();
        let lower = |old: Option<u64>, new: Option<u64>, used: u64| match (old, new) {
            // What was without a limit has not been counted.
            (None, Some(_)) => Err(Errno::EINVAL),
            (Some(old), Some(new)) if new != old && new < used => Err(Errno::EINVAL),
            _ => Ok(()),
        };
        lower(o.size, new.size, self.storage.pages.used().saturating_mul(4096))?;
        lower(o.inodes, new.inodes, self.inodes.used().div_ceil(INODE_SPACE))?;
        self.storage.pages.set_max(new.size.map(|s| s / 4096));
        self.inodes.set_max(space_of(new.inodes));
        *o = new;
        Ok(())
    }
    fn options(&self) -> String {
        self.options.lock().text.clone()
    }
}

/// Drops nodes below `root` that are not in use and that are still as the layers have them.
fn trim(root: Arc<Node>) {
    let mut todo = vec![root];
    let mut order = Vec::new();
    // Of files with several names: under how many they are known.
    let mut names = HashMap::new();
    while let Some(n) = todo.pop() {
        if let Some(d) = n.names() {
            for n in d.lock().nodes() {
                if n.is_dir() {
                    todo.push(n.clone());
                } else if n.shared_below {
                    *names.entry(n.ino).or_insert(0) += 1;
                }
            }
            order.push(n);
        }
    }
    // Children come after their parents, so going backwards forgets leaves first.
    while let Some(n) = order.pop() {
        if let Some(d) = n.names() {
            d.lock().forget_clean(&names);
        }
    }
}

//! A tmpfs instance: limits, inode numbers, the root.

use crate::filestore::FileStore;
use crate::lower::{Layers, View};
use crate::memfile::{MemFile, MemFiles};
use crate::node::{Body, Node};
use crate::options::Options;
use abi::stat::StatFs;
use abi::{Errno, Result};
use lock_order::{Mutex, rank};
use rights::Credentials;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::{FileSystem, InodeRef};

const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;
/// Numbers of inodes made in an overlay, far from those that come from the lower file system.
const UPPER_INO: u64 = 1 << 40;

/// What an inode counts for, in bytes; extended attributes share the limit (nr_inodes).
const INODE_SPACE: u64 = 1024;

fn space_of(inodes: Option<u64>) -> u64 {
    inodes.map_or(u64::MAX, |n| n.saturating_mul(INODE_SPACE))
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
    /// Where content that is mapped lives.
    pub(crate) memory: Arc<MemFiles>,
    /// Where all other content lives; the heap without.
    pub(crate) store: Option<Arc<FileStore>>,
    flavour: Flavour,
    options: Mutex<Options, { rank::TMPFS_CONTENT }>,
    next_ino: AtomicU64,
    /// Pages of data in use.
    pages: AtomicU64,
    max_pages: AtomicU64,
    /// Bytes that inodes and extended attributes count for.
    space: AtomicU64,
    max_space: AtomicU64,
    /// Memory files with an estimated charge.
    inexact: Mutex<Vec<Weak<MemFile>>, { rank::TMPFS_INEXACT }>,
    root: Mutex<Option<Arc<Node>>>,
    /// Files without a name that may be in use, and may have their content below.
    pub(crate) orphans: Mutex<Vec<Weak<Node>>>,
}

impl TmpFs {
    /// A tmpfs with these options.
    pub fn new(memory: &Arc<MemFiles>, options: Options) -> Arc<TmpFs> {
        let fs = TmpFs::bare(memory, None, options.clone(), Flavour::Tmpfs, 1);
        fs.space.store(INODE_SPACE, Ordering::Relaxed);
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
            memory: memory.clone(),
            store,
            flavour,
            max_pages: AtomicU64::new(options.size.map_or(u64::MAX, |s| s / 4096)),
            max_space: AtomicU64::new(space_of(options.inodes)),
            options: Mutex::new(options),
            next_ino: AtomicU64::new(first_ino),
            pages: AtomicU64::new(0),
            space: AtomicU64::new(0),
            inexact: Mutex::default(),
            root: Mutex::new(None),
            orphans: Mutex::default(),
        })
    }

    pub(crate) fn new_ino(&self) -> u64 {
        self.next_ino.fetch_add(1, Ordering::Relaxed)
    }

    /// Charges one inode; ENOSPC.
    pub(crate) fn charge_inode(&self) -> Result<()> {
        self.charge_space(INODE_SPACE)
    }

    pub(crate) fn uncharge_inode(&self) {
        self.uncharge_space(INODE_SPACE);
    }

    /// Charges bytes of what inodes and their extended attributes take; ENOSPC.
    pub(crate) fn charge_space(&self, bytes: u64) -> Result<()> {
        let max = self.max_space.load(Ordering::Relaxed);
        let add = |n: u64| n.checked_add(bytes).filter(|&n| n <= max);
        self.space
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .map(drop)
            .map_err(|_| Errno::ENOSPC)
    }

    pub(crate) fn uncharge_space(&self, bytes: u64) {
        let sub = |n: u64| Some(n.saturating_sub(bytes));
        let _ = self.space.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sub);
    }

    /// Counts bytes without asking for room.
    pub(crate) fn recharge_space(&self, old: u64, new: u64) {
        let f = |n: u64| Some(n.saturating_add(new).saturating_sub(old));
        let _ = self.space.fetch_update(Ordering::Relaxed, Ordering::Relaxed, f);
    }

    /// Whether there is a limit on inodes.
    pub(crate) fn inodes_limited(&self) -> bool {
        self.max_space.load(Ordering::Relaxed) != u64::MAX
    }

    /// Whether there is a limit on pages.
    pub(crate) fn limited(&self) -> bool {
        self.max_pages.load(Ordering::Relaxed) != u64::MAX
    }

    /// Charges pages of data; ENOSPC.
    pub(crate) fn charge(&self, pages: u64) -> Result<()> {
        if pages == 0 || self.try_charge(pages).is_ok() {
            return Ok(());
        }
        self.settle();
        self.try_charge(pages)
    }

    fn try_charge(&self, pages: u64) -> Result<()> {
        let max = self.max_pages.load(Ordering::Relaxed);
        let add = |n: u64| n.checked_add(pages).filter(|&n| n <= max);
        self.pages
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .map(drop)
            .map_err(|_| Errno::ENOSPC)
    }

    /// Pages that may still be charged.
    pub(crate) fn room(&self) -> u64 {
        self.max_pages.load(Ordering::Relaxed).saturating_sub(self.pages.load(Ordering::Relaxed))
    }

    /// More is charged than the limit allows.
    pub(crate) fn exceeded(&self) -> bool {
        self.pages.load(Ordering::Relaxed) > self.max_pages.load(Ordering::Relaxed)
    }

    /// ENOSPC when a request is for more pages than the whole instance may have.
    pub(crate) fn could_hold(&self, pages: u64) -> Result<()> {
        if pages > self.max_pages.load(Ordering::Relaxed) { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// ENOSPC when `pages` may not be charged any more, whatever is measured.
    pub(crate) fn ensure_room(&self, pages: u64) -> Result<()> {
        if self.room() < pages {
            self.settle();
        }
        if self.room() < pages { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Puts a memory file on the list of those with an estimated charge.
    pub(crate) fn to_measure(&self, file: &Arc<MemFile>) {
        if !self.limited() {
            return;
        }
        let mut list = self.inexact.lock();
        if list.len() == list.capacity() {
            list.retain(|w| w.strong_count() != 0);
        }
        list.push(Arc::downgrade(file));
    }

    /// Measures all memory files with an estimated charge.
    pub(crate) fn settle(&self) {
        if !self.limited() {
            return;
        }
        self.inexact.lock().retain(|w| w.upgrade().is_some_and(|m| m.settle(self)));
    }

    /// Replaces a charge after the fact (content in a host file, measured).
    pub(crate) fn recharge(&self, old: u64, new: u64) {
        let f = |n: u64| Some((n + new).saturating_sub(old));
        let _ = self.pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, f);
    }
}

impl TmpFs {
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
        self.settle();
        let (max, used) = (self.max_pages.load(Ordering::Relaxed), self.pages.load(Ordering::Relaxed));
        let total = if max == u64::MAX { 0 } else { max };
        let (space, used_space) =
            (self.max_space.load(Ordering::Relaxed), self.space.load(Ordering::Relaxed));
        let inodes = used_space.div_ceil(INODE_SPACE);
        let files = if space == u64::MAX { total.max(inodes) } else { space / INODE_SPACE };
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
            crate::lower::trim(root);
        }
    }
    fn remount(&self, text: &[u8]) -> Result<()> {
        if matches!(self.flavour, Flavour::Ramfs) {
            return Ok(());
        }
        let mut o = self.options.lock();
        let mut new = o.clone();
        new.update(text)?;
        self.settle();
        let lower = |old: Option<u64>, new: Option<u64>, used: u64| match (old, new) {
            // What was without a limit has not been counted.
            (None, Some(_)) => Err(Errno::EINVAL),
            (Some(old), Some(new)) if new != old && new < used => Err(Errno::EINVAL),
            _ => Ok(()),
        };
        lower(o.size, new.size, self.pages.load(Ordering::Relaxed).saturating_mul(4096))?;
        lower(o.inodes, new.inodes, self.space.load(Ordering::Relaxed).div_ceil(INODE_SPACE))?;
        self.max_pages.store(new.size.map_or(u64::MAX, |s| s / 4096), Ordering::Relaxed);
        self.max_space.store(space_of(new.inodes), Ordering::Relaxed);
        *o = new;
        Ok(())
    }
    fn options(&self) -> String {
        self.options.lock().text.clone()
    }
}

//! Mappings of files of the image that are read often, so that a read of them makes no host call.
//!
//! Only files of exclusive trees are mapped. Their size does not change, and a mapping shows the host's page cache, as
//! a read does. A mapping costs more than some reads, so it is made for a file that has been read more than once. It
//! counts as our memory, so there are few mappings, and idle ones are removed ([`Views::release_idle`]).
//!
//! Locks: the list, a node's own; both are leaves, and none is held while the other is taken.

use super::Node;
use crate::fs::Mode;
use abi::stat::S_IFREG;
use hostsys::memfd::CopyArea;
use hostsys::view::FileView;
use lock_order::{Mutex, RwLock};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// A file is mapped when it has been read this many times, and more bytes have been read than it has.
const READS: u32 = 8;
/// Largest file that is mapped.
const MAX_FILE: u64 = 16 << 20;
/// All mappings together.
const MAX_BYTES: usize = 32 << 20;
/// How many there may be.
const MAX_COUNT: usize = 128;
/// So many reads: the file cannot be mapped.
const NEVER: u32 = 1 << 31;

/// Nodes of a kernel with a mapping, and its length; the last one was mapped last.
#[derive(Default)]
pub(crate) struct Views(Mutex<Vec<(Weak<Node>, usize)>>);

/// The mapping of a node, and what speaks for having one.
#[derive(Default)]
pub(crate) struct View {
    reads: AtomicU32,
    bytes: AtomicU64,
    /// Since [`Views::release_idle`] looked last.
    used: AtomicBool,
    map: RwLock<Option<FileView>>,
}

impl View {
    /// Fills `buf` from offset `off` on; `None` when there is no mapping.
    pub fn read(&self, node: &Node, off: u64, buf: &mut [u8]) -> Option<usize> {
        self.with(node, off, buf.len(), |v, at, n| buf.get_mut(..n).is_some_and(|buf| v.read(at, buf)))
    }

    /// As [`View::read`] of at most `len` bytes, to the start of `to`.
    pub fn read_to(&self, node: &Node, off: u64, len: usize, to: &CopyArea<'_>) -> Option<usize> {
        self.with(node, off, len, |v, at, n| v.read_to(at, n, to))
    }

    /// Has `copy` take bytes out of the mapping: from where on, and how many.
    fn with(
        &self,
        node: &Node,
        off: u64,
        len: usize,
        copy: impl FnOnce(&FileView, usize, usize) -> bool,
    ) -> Option<usize> {
        let map = self.map.read();
        let Some(v) = &*map else {
            drop(map);
            self.count(node, len);
            return None;
        };
        let at = usize::try_from(off).ok().filter(|at| *at < v.size())?;
        let n = len.min(v.size() - at);
        if copy(v, at, n) {
            if !self.used.load(Relaxed) {
                self.used.store(true, Relaxed);
            }
            return Some(n);
        }
        // The file was cut short behind our back, or the disk failed: a read says which.
        drop(map);
        self.reads.store(NEVER, Relaxed);
        *self.map.write() = None;
        None
    }

    /// Counts a read; maps the file when it is time.
    fn count(&self, node: &Node, len: usize) {
        if node.fs.mode != Mode::Exclusive || self.reads.load(Relaxed) >= NEVER {
            return;
        }
        let reads = self.reads.fetch_add(1, Relaxed) + 1;
        let bytes = self.bytes.fetch_add(len as u64, Relaxed).saturating_add(len as u64);
        let size = node.known().size;
        if reads >= READS && bytes > size && !self.map(node, size) {
            self.reads.store(NEVER, Relaxed);
        }
    }

    fn map(&self, node: &Node, size: u64) -> bool {
        if node.kind != S_IFREG || !(1..=MAX_FILE).contains(&size) {
            return false;
        }
        let Ok(new) = node.read_fd().and_then(|fd| FileView::new(&*fd, size)) else { return false };
        let len = new.size();
        self.used.store(true, Relaxed);
        *self.map.write() = Some(new);
        node.fs.home.views.make_room(node, len);
        true
    }

    /// Unmaps; a mapping must be earned again.
    fn forget(&self) {
        self.reads.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
        let old = self.map.write().take();
        drop(old);
    }
}

impl Views {
    /// Notes a new mapping of `node`; the oldest ones that are too many go.
    fn make_room(&self, node: &Node, len: usize) {
        let mut gone = Vec::new();
        let mut views = self.0.lock();
        views.retain(|(n, _)| n.strong_count() != 0 && !n.ptr_eq(&node.me));
        views.push((node.me.clone(), len));
        let mut bytes: usize = views.iter().map(|(_, len)| len).sum();
        while bytes > MAX_BYTES || views.len() > MAX_COUNT {
            let (old, len) = views.remove(0);
            bytes -= len;
            gone.push(old);
        }
        drop(views);
        for node in gone.iter().filter_map(Weak::upgrade) {
            node.view.forget();
        }
    }

    /// Unmaps the files that have not been read since it was called last. True when some are still mapped.
    pub fn release_idle(&self) -> bool {
        // Nodes are dropped without the lock.
        let mut seen = Vec::new();
        let mut views = self.0.lock();
        views.retain(|(node, _)| {
            let Some(node) = node.upgrade() else { return false };
            let used = node.view.used.swap(false, Relaxed);
            seen.push((node, used));
            used
        });
        let some = !views.is_empty();
        drop(views);
        seen.iter().filter(|(_, used)| !used).for_each(|(node, _)| node.view.forget());
        some
    }
}

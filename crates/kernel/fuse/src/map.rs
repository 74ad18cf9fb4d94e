//! Files that are mapped.
//!
//! Guest memory is the host's, so a mapping needs a file of the host: the bytes of a mapped file are kept in a file in
//! memory, which is filled when mmap(2) asks, and again for a new mapping when the daemon says that the file has
//! changed. write(2) and ftruncate(2) change both. Stores to a mapping are not reported, so shared mappings that may be
//! written do not exist (ENODEV).
//!
//! Lock: what is loaded, a leaf; not held while the daemon is asked.

use crate::file::File;
use crate::node::Node;
use abi::time::Timespec;
use abi::{Errno, PAGE_SIZE, Result};
use lock_order::Mutex;
use std::sync::Arc;
use vfs::{Caller, Inode, InodeRef, Internal, MapRequest, Mapping, OpenFile, SetAttr};

/// Bytes that are asked for at a time, at most.
const PIECE: usize = 512 << 10;

/// What the bytes were loaded from.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Version {
    mtime: Timespec,
    size: u64,
}

/// What is there.
#[derive(Default)]
struct Loaded {
    version: Version,
    /// Ranges of bytes, in order.
    ranges: Vec<(u64, u64)>,
}

/// The bytes of a node that is mapped.
pub(crate) struct Pages {
    inode: InodeRef,
    write: Arc<OpenFile>,
    read: Arc<OpenFile>,
    loaded: Mutex<Loaded>,
}

impl Loaded {
    /// The parts of a range that are missing.
    fn missing(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut at = start;
        let mut missing = Vec::new();
        for &(from, to) in &self.ranges {
            if to <= at || from >= end {
                continue;
            }
            if from > at {
                missing.push((at, from));
            }
            at = at.max(to);
        }
        if at < end {
            missing.push((at, end));
        }
        missing
    }

    fn add(&mut self, start: u64, end: u64) {
        let touching = |&(from, to): &(u64, u64)| from <= end && to >= start;
        let (mut start, mut end) = (start, end);
        for (from, to) in self.ranges.extract_if(.., |range| touching(range)) {
            (start, end) = (start.min(from), end.max(to));
        }
        let at = self.ranges.partition_point(|range| range.0 < start);
        self.ranges.insert(at, (start, end));
    }
}

impl Pages {
    fn new(node: &Node, cx: &Internal) -> Result<Arc<Pages>> {
        let root = node.fs.mapped().root();
        let inode = root.dir()?.create_unnamed(cx, 0o600, 0, 0)?;
        let open = |flags: i32| {
            Ok::<_, Errno>(OpenFile::new(None, Some(inode.clone()), inode.open(cx, flags)?, flags))
        };
        let (write, read) = (open(libc::O_RDWR)?, open(libc::O_RDONLY)?);
        Ok(Arc::new(Pages { inode, write, read, loaded: Mutex::default() }))
    }

    fn resize(&self, cx: &Internal, size: u64) -> Result<()> {
        self.inode.set_attr(cx, &SetAttr { size: Some(size), ..SetAttr::default() })
    }

    /// Reads what is missing of a range.
    fn load(&self, file: &File, cx: &dyn Caller, start: u64, end: u64) -> Result<()> {
        let inside = Internal::new(cx.vfs());
        let attr = file.node.attr()?;
        let version = Version { mtime: attr.mtime, size: attr.size };
        let changed = {
            let mut loaded = self.loaded.lock();
            let changed = loaded.version != version;
            if changed {
                *loaded = Loaded { version, ranges: Vec::new() };
            }
            changed
        };
        if changed {
            self.resize(&inside, attr.size)?;
        }
        let end = end.min(attr.size);
        let missing = self.loaded.lock().missing(start, end.max(start));
        let mut buf = Vec::new();
        // One request at a time, so that an error of the daemon is not taken for the end of the file.
        let most = file.most_read().min(PIECE);
        for (from, to) in missing {
            let mut at = from;
            while at < to {
                if cx.is_killed() {
                    return Err(Errno::EINTR);
                }
                let want = usize::try_from(to - at).map_or(most, |left| left.min(most));
                buf.resize(want, 0);
                let n = file.fetch(cx, libc::O_RDONLY, &mut buf[..want], at)?;
                if n > 0 {
                    self.write.ops.write(&inside, &self.write, &buf[..n], at)?;
                }
                // What a daemon does not give of a file that is long enough is zeros.
                let end = if n < want { to } else { at + n as u64 };
                let mut loaded = self.loaded.lock();
                if loaded.version == version {
                    loaded.add(at, end);
                }
                at = end;
            }
        }
        Ok(())
    }
}

impl Node {
    fn pages(&self) -> Option<Arc<Pages>> {
        self.pages.lock().clone()
    }

    /// New mappings have to read everything again.
    pub fn forget_pages(&self) {
        if let Some(pages) = self.pages() {
            *pages.loaded.lock() = Loaded::default();
        }
    }

    /// Something was written to the file: mappings show it.
    pub fn write_pages(&self, cx: &dyn Caller, at: u64, bytes: &[u8]) {
        let Some(pages) = self.pages() else { return };
        let inside = Internal::new(cx.vfs());
        if pages.write.ops.write(&inside, &pages.write, bytes, at).is_err() {
            self.forget_pages();
        }
    }

    /// The file has another size.
    pub fn resize_pages(&self, cx: &dyn Caller) {
        let Some(pages) = self.pages() else { return };
        if pages.resize(&Internal::new(cx.vfs()), self.size()).is_err() {
            self.forget_pages();
        }
    }
}

/// mmap(2).
pub(crate) fn map(file: &File, cx: &dyn Caller, open: &OpenFile, req: &MapRequest) -> Result<Mapping> {
    let written = req.shared && req.prot & libc::PROT_WRITE != 0;
    if written || req.shared && file.is_direct(open.flags()) {
        return Err(Errno::ENODEV);
    }
    file.node.update(cx)?;
    let known = file.node.pages();
    let inside = Internal::new(cx.vfs());
    let pages = match known {
        Some(pages) => pages,
        None => {
            let new = Pages::new(&file.node, &inside)?;
            let mut slot = file.node.pages.lock();
            // What is not needed goes after the lock.
            slot.get_or_insert_with(|| new.clone()).clone()
        }
    };
    let end = req.offset.checked_add(req.len).ok_or(Errno::EOVERFLOW)?;
    let end = end.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::EOVERFLOW)?;
    pages.load(file, cx, req.offset, end)?;
    pages.read.ops.map(&inside, &pages.read, &MapRequest { shared: false, ..*req })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_are_missing() {
        let mut loaded = Loaded::default();
        assert_eq!(loaded.missing(0, 10), [(0, 10)]);
        loaded.add(2, 4);
        loaded.add(6, 8);
        assert_eq!(loaded.missing(0, 10), [(0, 2), (4, 6), (8, 10)]);
        assert_eq!(loaded.missing(3, 7), [(4, 6)]);
        loaded.add(4, 6);
        assert_eq!(loaded.ranges, [(2, 8)]);
        assert_eq!(loaded.missing(2, 8), []);
        assert_eq!(loaded.missing(5, 5), []);
    }
}

//! The bytes of a mapped file that the kernel serves itself, from a daemon or an image.
//!
//! Guest memory is the host's, so a mapping needs a file of the host. The bytes of a mapped file are kept in a file in memory.
//! mmap(2) fills the range that it maps, again when the file has changed since. The file system reports writes and new sizes.
//! Stores to a mapping are not seen, so shared mappings that may be written do not exist (ENODEV).
//!
//! Key type: [`PageCache`], one for each inode. Neighbours: the file system reads the bytes; tmpfs has the file in memory.
//! Locks: leaves, not held while bytes are read. Two threads may read a range twice. A checkpoint keeps nothing: the bytes are
//! the file system's.

use abi::stat::Attr;
use abi::time::Timespec;
use abi::{Errno, Result};
use lock_order::Mutex;
use std::sync::Arc;
use vfs::{Caller, InodeRef, Internal, MapRequest, Mapping, OpenFile, SetAttr};

/// How a file system reads bytes of a file. A short count means that the rest of the request is zeros.
pub struct Reader<'a> {
    /// Bytes of one request at most.
    pub most: usize,
    /// Ranges begin and end at multiples of this, where the file does not end before.
    pub unit: u64,
    /// Reads at an offset.
    pub read: &'a dyn Fn(&mut [u8], u64) -> Result<usize>,
}

/// The bytes of an inode that may be mapped: nothing until it is.
#[derive(Default)]
pub struct PageCache(Mutex<Option<Arc<Pages>>>);

impl PageCache {
    /// Maps a range of a file with these attributes. The bytes are kept in the file system in memory with this root. ENODEV
    /// for a shared mapping that may be written.
    pub fn map(
        &self,
        cx: &dyn Caller,
        root: impl FnOnce() -> InodeRef,
        attr: impl FnOnce() -> Result<Attr>,
        req: &MapRequest,
        reader: &Reader<'_>,
    ) -> Result<Mapping> {
        if req.shared && req.prot & libc::PROT_WRITE != 0 {
            return Err(Errno::ENODEV);
        }
        let attr = attr()?;
        let inside = Internal::new(cx.vfs());
        let pages = match self.pages() {
            Some(pages) => pages,
            None => {
                let new = Pages::new(&root(), &inside)?;
                let mut slot = self.0.lock();
                // What is not needed goes after the lock.
                slot.get_or_insert_with(|| new.clone()).clone()
            }
        };
        let end = req.offset.checked_add(req.len).ok_or(Errno::EOVERFLOW)?;
        let end = end.checked_next_multiple_of(reader.unit).ok_or(Errno::EOVERFLOW)?;
        pages.load(cx, &attr, (req.offset / reader.unit * reader.unit, end), reader)?;
        pages.read.ops.map(&inside, &pages.read, &MapRequest { shared: false, ..*req })
    }

    /// New mappings have to read everything again.
    pub fn forget(&self) {
        if let Some(pages) = self.pages() {
            pages.forget();
        }
    }

    /// Something was written to the file: mappings show it.
    pub fn write(&self, cx: &dyn Caller, at: u64, bytes: &[u8]) {
        let Some(pages) = self.pages() else { return };
        if pages.write(&Internal::new(cx.vfs()), at, bytes).is_err() {
            pages.forget();
        }
    }

    /// The file has another size.
    pub fn resize(&self, cx: &dyn Caller, size: u64) {
        let Some(pages) = self.pages() else { return };
        if pages.resize(&Internal::new(cx.vfs()), size).is_err() {
            pages.forget();
        }
    }

    fn pages(&self) -> Option<Arc<Pages>> {
        self.0.lock().clone()
    }
}

/// What the bytes were read from.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Version {
    mtime: Timespec,
    size: u64,
}

/// The bytes that are there.
#[derive(Default)]
struct Ranges {
    version: Version,
    /// First and last offset, in order.
    ranges: Vec<(u64, u64)>,
}

impl Ranges {
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

/// A file in memory with bytes of a mapped file.
struct Pages {
    inode: InodeRef,
    write: Arc<OpenFile>,
    read: Arc<OpenFile>,
    ranges: Mutex<Ranges>,
}

impl Pages {
    fn new(root: &InodeRef, cx: &Internal) -> Result<Arc<Pages>> {
        let inode = root.dir()?.create_unnamed(cx, 0o600, 0, 0)?;
        let open = |flags: i32| {
            Ok::<_, Errno>(OpenFile::new(None, Some(inode.clone()), inode.open(cx, flags)?, flags))
        };
        let (write, read) = (open(libc::O_RDWR)?, open(libc::O_RDONLY)?);
        Ok(Arc::new(Pages { inode, write, read, ranges: Mutex::default() }))
    }

    fn resize(&self, cx: &Internal, size: u64) -> Result<()> {
        self.inode.set_attr(cx, &SetAttr { size: Some(size), ..SetAttr::default() })
    }

    fn write(&self, cx: &Internal, at: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write.ops.write(cx, &self.write, &bytes[done..], at + done as u64)? {
                0 => return Err(Errno::EIO),
                n => done += n,
            }
        }
        Ok(())
    }

    fn forget(&self) {
        *self.ranges.lock() = Ranges::default();
    }

    /// Reads what is missing of a range of a file with these attributes.
    fn load(
        &self,
        cx: &dyn Caller,
        attr: &Attr,
        (start, end): (u64, u64),
        reader: &Reader<'_>,
    ) -> Result<()> {
        let inside = Internal::new(cx.vfs());
        let version = Version { mtime: attr.mtime, size: attr.size };
        let changed = {
            let mut ranges = self.ranges.lock();
            let changed = ranges.version != version;
            if changed {
                *ranges = Ranges { version, ranges: Vec::new() };
            }
            changed
        };
        if changed {
            self.resize(&inside, attr.size)?;
        }
        let end = end.min(attr.size);
        let missing = self.ranges.lock().missing(start, end.max(start));
        let mut buf = Vec::new();
        for (from, to) in missing {
            let mut at = from;
            while at < to {
                if cx.is_killed() {
                    return Err(Errno::EINTR);
                }
                let want = usize::try_from(to - at).map_or(reader.most, |left| left.min(reader.most));
                buf.resize(want, 0);
                let n = (reader.read)(&mut buf[..want], at)?;
                self.write(&inside, at, &buf[..n])?;
                let end = if n < want { to } else { at + n as u64 };
                let mut ranges = self.ranges.lock();
                if ranges.version == version {
                    ranges.add(at, end);
                }
                at = end;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_are_missing() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.missing(0, 10), [(0, 10)]);
        ranges.add(2, 4);
        ranges.add(6, 8);
        assert_eq!(ranges.missing(0, 10), [(0, 2), (4, 6), (8, 10)]);
        assert_eq!(ranges.missing(3, 7), [(4, 6)]);
        ranges.add(4, 6);
        assert_eq!(ranges.ranges, [(2, 8)]);
        assert_eq!(ranges.missing(2, 8), []);
        assert_eq!(ranges.missing(5, 5), []);
    }
}

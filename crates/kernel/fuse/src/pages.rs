//! The bytes of files that are mapped.
//!
//! Guest memory is the host's, so a mapping needs a file of the host: the bytes of a mapped file are kept in a file in
//! memory, which is filled when mmap(2) asks, and again for a new mapping when the daemon says that the file has
//! changed. write(2) and ftruncate(2) change both. Stores to a mapping are not reported, so shared mappings that may be
//! written do not exist (ENODEV).
//!
//! Key type: [`Pages`]. Neighbours: a node keeps its pages; an open file fills them for mmap(2).
//! Lock: what is loaded, a leaf; not held while the daemon is asked. A checkpoint keeps nothing: the bytes are the daemon's.

use abi::stat::Attr;
use abi::time::Timespec;
use abi::{Errno, Result};
use lock_order::Mutex;
use std::sync::Arc;
use vfs::{Caller, InodeRef, Internal, MapRequest, Mapping, OpenFile, SetAttr};

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
    /// Empty, in a new file of the file system with this root.
    pub fn new(root: &InodeRef, cx: &Internal) -> Result<Arc<Pages>> {
        let inode = root.dir()?.create_unnamed(cx, 0o600, 0, 0)?;
        let open = |flags: i32| {
            Ok::<_, Errno>(OpenFile::new(None, Some(inode.clone()), inode.open(cx, flags)?, flags))
        };
        let (write, read) = (open(libc::O_RDWR)?, open(libc::O_RDONLY)?);
        Ok(Arc::new(Pages { inode, write, read, loaded: Mutex::default() }))
    }

    /// The file has another size.
    pub fn resize(&self, cx: &Internal, size: u64) -> Result<()> {
        self.inode.set_attr(cx, &SetAttr { size: Some(size), ..SetAttr::default() })
    }

    /// Something was written to the file.
    pub fn write(&self, cx: &Internal, at: u64, bytes: &[u8]) -> Result<()> {
        self.write.ops.write(cx, &self.write, bytes, at).map(drop)
    }

    /// All of it has to be read again.
    pub fn forget(&self) {
        *self.loaded.lock() = Loaded::default();
    }

    /// Reads what is missing of a range of a file with these attributes. `fetch` asks the daemon for at most `most` bytes.
    pub fn load(
        &self,
        cx: &dyn Caller,
        attr: &Attr,
        (start, end): (u64, u64),
        most: usize,
        fetch: &dyn Fn(&mut [u8], u64) -> Result<usize>,
    ) -> Result<()> {
        let inside = Internal::new(cx.vfs());
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
        let most = most.min(PIECE);
        for (from, to) in missing {
            let mut at = from;
            while at < to {
                if cx.is_killed() {
                    return Err(Errno::EINTR);
                }
                let want = usize::try_from(to - at).map_or(most, |left| left.min(most));
                buf.resize(want, 0);
                let n = fetch(&mut buf[..want], at)?;
                if n > 0 {
                    self.write(&inside, at, &buf[..n])?;
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

    /// A private mapping of what is there.
    pub fn map(&self, cx: &Internal, req: &MapRequest) -> Result<Mapping> {
        self.read.ops.map(cx, &self.read, &MapRequest { shared: false, ..*req })
    }
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

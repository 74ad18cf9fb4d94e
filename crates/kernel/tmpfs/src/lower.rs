//! What lies behind an overlay's nodes: inodes of a read-only file system.

use crate::content::Content;
use crate::fs::TmpFs;
use crate::node::{Body, Node};
use abi::{Errno, Result};
use hostsys::memfd::CopyArea;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use vfs::dentry::{S_IFDIR, S_IFLNK, S_IFREG};
use vfs::{Caller, DirEntry, DirSink, InodeRef, MapRequest, Mapping, OpenFile};

/// Offsets of a merged directory's own entries start here, behind those of the lower listing.
const MERGED_FIRST: u64 = 1 << 32;

/// The node for a lower inode. Several lower names of one inode give one node.
pub(crate) fn node(fs: &Arc<TmpFs>, lower: InodeRef) -> Result<Arc<Node>> {
    let a = lower.attr()?;
    let shared = a.nlink > 1 && !a.is_dir();
    if shared && let Some(n) = fs.lower_links.lock().get(&(a.dev, a.ino)) {
        return Ok(n.clone());
    }
    let body = match a.file_type() {
        S_IFDIR => Body::dir(Some(lower.clone()), MERGED_FIRST),
        S_IFREG => Body::file(Content::of_lower(LowerFile::new(lower.clone(), a.blocks), a.size)),
        S_IFLNK => Body::Link(OnceLock::new()),
        _ => Body::Special,
    };
    let n = Node::of_lower(fs.clone(), body, lower, &a);
    if shared {
        let mut links = fs.lower_links.lock();
        if let Some(other) = links.get(&(a.dev, a.ino)) {
            return Ok(other.clone());
        }
        links.insert((a.dev, a.ino), n.clone());
    }
    Ok(n)
}

/// Forgets nodes below `root` that nobody uses and that are still as the lower file system has them.
pub(crate) fn trim(root: Arc<Node>) {
    let mut todo = vec![root];
    let mut order = Vec::new();
    while let Some(n) = todo.pop() {
        if let Body::Dir(d) = &n.body {
            todo.extend(d.lock().nodes().filter(|n| n.is_dir()).cloned());
            order.push(n);
        }
    }
    // Children come after their parents, so going backwards forgets leaves first.
    while let Some(n) = order.pop() {
        if let Body::Dir(d) = &n.body {
            d.lock().forget_clean();
        }
    }
}

/// A lower regular file, opened for reading when first needed.
pub(crate) struct LowerFile {
    inode: InodeRef,
    blocks: u64,
    file: OnceLock<Arc<OpenFile>>,
}

impl LowerFile {
    fn new(inode: InodeRef, blocks: u64) -> LowerFile {
        LowerFile { inode, blocks, file: OnceLock::new() }
    }

    /// 512-byte blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    fn open(&self, cx: &dyn Caller) -> Result<&Arc<OpenFile>> {
        if let Some(f) = self.file.get() {
            return Ok(f);
        }
        let ops = self.inode.open(cx, libc::O_RDONLY)?;
        let f = OpenFile::new(None, Some(self.inode.clone()), ops, libc::O_RDONLY);
        Ok(self.file.get_or_init(|| f))
    }

    /// Opens now, so that a failure shows in open(2).
    pub fn probe(&self, cx: &dyn Caller) -> Result<()> {
        self.open(cx).map(drop)
    }

    pub fn read(&self, cx: &dyn Caller, buf: &mut [u8], off: u64) -> Result<usize> {
        let f = self.open(cx)?;
        f.ops.read(cx, f, buf, off)
    }

    pub fn read_to(&self, cx: &dyn Caller, to: &CopyArea<'_>, len: usize, off: u64) -> Option<Result<usize>> {
        match self.open(cx) {
            Ok(f) => f.ops.read_to(cx, f, to, len, off),
            Err(e) => Some(Err(e)),
        }
    }

    pub fn seek(&self, off: u64, data: bool) -> Result<u64> {
        let f = self.file.get().ok_or(Errno::EIO)?;
        let whence = if data { libc::SEEK_DATA } else { libc::SEEK_HOLE };
        f.ops.as_seek().ok_or(Errno::EINVAL)?.seek_special(f, off as i64, whence)
    }

    /// See [`vfs::MapOps::image`]; nothing before it is opened.
    pub fn image(&self) -> Option<(u64, u64)> {
        self.file.get()?.ops.image()
    }

    /// See [`vfs::MapOps::image_fd`].
    pub fn image_fd(&self) -> Option<Arc<OwnedFd>> {
        self.file.get()?.ops.image_fd()
    }

    /// A mapping that cannot write.
    pub fn map(&self, cx: &dyn Caller, req: &MapRequest) -> Result<Mapping> {
        let f = self.open(cx)?;
        f.ops.map(cx, f, req)
    }
}

/// Target of a lower symbolic link.
pub(crate) fn readlink(lower: &InodeRef, cx: &dyn Caller) -> Result<Vec<u8>> {
    lower.readlink(cx)
}

struct Collect(Vec<DirEntry>);

impl DirSink for Collect {
    fn entry(&mut self, _next: u64, e: &DirEntry) -> bool {
        self.0.push(e.clone());
        true
    }
}

/// The whole listing of a lower directory.
pub(crate) fn list(cx: &dyn Caller, lower: &InodeRef) -> Result<Arc<[DirEntry]>> {
    let ops = lower.open(cx, libc::O_RDONLY | libc::O_DIRECTORY)?;
    let f = OpenFile::new(None, Some(lower.clone()), ops, libc::O_RDONLY | libc::O_DIRECTORY);
    let mut all = Collect(Vec::new());
    let mut pos = 2;
    loop {
        let before = all.0.len();
        pos = f.ops.read_dir(cx, &f, pos, &mut all)?;
        if all.0.len() == before {
            return Ok(all.0.into());
        }
    }
}

/// All extended attributes of a lower inode.
pub(crate) fn xattrs(
    cx: &dyn Caller,
    lower: &InodeRef,
) -> Result<std::collections::BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut m = std::collections::BTreeMap::new();
    let Some(xattrs) = lower.as_xattrs() else { return Ok(m) };
    let names = match xattrs.list_xattr(cx) {
        Err(Errno::EOPNOTSUPP) => return Ok(m),
        n => n?,
    };
    for n in names {
        // The attributes of a host overlay are not the image's.
        if !n.starts_with(b"trusted.overlay.")
            && let Ok(v) = xattrs.get_xattr(cx, &n)
        {
            m.insert(n, v);
        }
    }
    Ok(m)
}

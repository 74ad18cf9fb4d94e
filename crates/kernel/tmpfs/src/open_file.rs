//! Open files and directories.
//!
//! Key types: [`File`] and [`DirFile`], which hold a node and little else. Reads and writes take the lock of the content;
//! times are noted after it is released. A checkpoint keeps the node and, for a directory, where the pass ends.

use crate::content::{Content, Need, SEAL_FUTURE_WRITE, SEAL_WRITE};
use crate::node::{Body, Node};
use abi::{Errno, Result};
use hostsys::memfd::CopyArea;
use lock_order::{RwLock, rank};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vfs::{
    Caller, DirSink, DirectoryOps, FileOps, InodeRef, Layer, LentFd, MapOps, MapRequest, Mapping, OpenFile,
    SeekOps, StorageOps,
};

/// Large reads of a file on the heap, through one open file, after which it is moved to a file in memory.
const LARGE: u32 = 16;

/// Smallest file that is.
const WORTH: u64 = 128 << 10;

/// An open regular file.
pub(crate) struct File {
    pub node: Arc<Node>,
    large: AtomicU32,
}

impl File {
    pub fn new(node: Arc<Node>) -> File {
        File { node, large: AtomicU32::new(0) }
    }
}

impl File {
    fn content(&self) -> Result<&RwLock<Content, { rank::TMPFS_CONTENT }>> {
        match &self.node.body {
            Body::File(c) => Ok(c),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl File {
    /// A memfd that can still be sealed has no descriptor but one that can be written. So a reader that may not write the
    /// file cannot map it: ENODEV.
    fn may_have_descriptor(&self, cx: &dyn Caller, file: &OpenFile, c: &Content) -> Result<()> {
        if !c.sealable || file.writable() || c.seals & (SEAL_WRITE | SEAL_FUTURE_WRITE) != 0 {
            return Ok(());
        }
        let inode: InodeRef = self.node.clone();
        vfs::access::inode_may(cx, &inode, rights::mode::MAY_WRITE).map_err(|_| Errno::ENODEV)
    }
}

/// relatime after a read.
fn accessed(node: &Node, file: &OpenFile) {
    let now = hostsys::fs::now();
    let mut m = node.meta.lock();
    if namei::atime::wants_atime(file, m.atime, m.mtime, m.ctime, now) {
        m.atime = now;
    }
}

impl FileOps for File {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        Some(self)
    }
    fn as_storage(&self) -> Option<&dyn StorageOps> {
        Some(self)
    }
    fn as_map(&self) -> Option<&dyn MapOps> {
        Some(self)
    }
    fn read(&self, cx: &dyn Caller, file: &OpenFile, buf: &mut [u8], off: u64) -> Result<usize> {
        let n = self.content()?.read().read(cx, buf, off)?;
        accessed(&self.node, file);
        Ok(n)
    }
    fn read_to(
        &self,
        cx: &dyn Caller,
        file: &OpenFile,
        to: &CopyArea<'_>,
        len: usize,
        off: u64,
    ) -> Option<Result<usize>> {
        let done = self.content().ok()?.read().read_to(cx, to, len, off)?;
        if done.is_ok() {
            accessed(&self.node, file);
        }
        Some(done)
    }
    fn write(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8], off: u64) -> Result<usize> {
        self.node.own_xattrs(cx)?;
        let (n, _) = self.content()?.write().write(cx, &self.node.fs.storage, buf, Some(off))?;
        self.node.touch();
        Ok(n)
    }
}

impl SeekOps for File {
    fn append(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8]) -> Result<(usize, u64)> {
        self.node.own_xattrs(cx)?;
        let done = self.content()?.write().write(cx, &self.node.fs.storage, buf, None)?;
        self.node.touch();
        Ok(done)
    }
    fn seek_special(&self, cx: &dyn Caller, _file: &OpenFile, off: i64, whence: i32) -> Result<u64> {
        let off = u64::try_from(off).map_err(|_| Errno::ENXIO)?;
        self.content()?.read().seek(cx, off, whence == libc::SEEK_DATA)
    }
}

impl StorageOps for File {
    fn direct(&self) -> bool {
        true
    }
    fn sync(&self, _cx: &dyn Caller, _file: &OpenFile, _data_only: bool) -> Result<()> {
        Ok(())
    }
    fn allocate(&self, cx: &dyn Caller, _file: &OpenFile, mode: i32, off: u64, len: u64) -> Result<()> {
        self.node.own_xattrs(cx)?;
        self.content()?.write().allocate(cx, &self.node.fs.storage, mode, off, len)?;
        self.node.touch();
        Ok(())
    }
}

impl MapOps for File {
    fn map(&self, cx: &dyn Caller, file: &OpenFile, req: &MapRequest) -> Result<Mapping> {
        let c = self.content()?;
        let writer = req.shared && file.writable();
        accessed(&self.node, file);
        let lower = {
            let c = c.read();
            self.may_have_descriptor(cx, file, &c)?;
            if let Some(m) = c.mem()
                && !writer
            {
                return Ok(Mapping::Host { fd: m.ro()?, offset: req.offset });
            }
            c.lower().filter(|_| !writer).cloned()
        };
        // Without the lock: an image of EROFS keeps what is mapped in a tmpfs of its own.
        if let Some(lower) = lower {
            return lower.map(cx, req);
        }
        let mut c = c.write();
        let sealed = c.seals & (SEAL_WRITE | SEAL_FUTURE_WRITE) != 0;
        if writer && req.prot & libc::PROT_WRITE != 0 && sealed {
            return Err(Errno::EPERM);
        }
        c.own(cx, &self.node.fs.storage, Need::Mapping)?;
        let m = c.mem().ok_or(Errno::EIO)?.clone();
        let fd = if writer && !sealed { m.rw()? } else { m.ro()? };
        drop(c);
        if writer {
            self.node.fs.storage.set_mapped(&m);
            self.node.touch();
        }
        Ok(Mapping::Host { fd, offset: req.offset })
    }
    fn lend(&self, cx: &dyn Caller, file: &OpenFile, off: u64, len: usize) -> Option<LentFd> {
        if !file.readable() || len < LentFd::CACHED {
            return None;
        }
        let content = self.content().ok()?;
        let (found, size) = {
            let c = content.read();
            (c.lend(cx, off, len), c.size())
        };
        let loan = match found {
            Some(loan) => loan,
            None if size < off + len as u64 => return None,
            // One that is read like this again and again is worth a file in memory.
            None if self.large.fetch_add(1, Ordering::Relaxed) == LARGE => {
                let mut c = content.write();
                if c.lower().is_some() || c.size() < WORTH {
                    return None;
                }
                c.own(cx, &self.node.fs.storage, Need::Large).ok()?;
                c.lend(cx, off, len)?
            }
            None => return None,
        };
        accessed(&self.node, file);
        Some(loan)
    }
    fn image(&self) -> Option<(u64, u64)> {
        self.content().ok()?.read().lower()?.image()
    }
    fn layer(&self) -> Option<Layer> {
        if !self.node.fs.has_layers() {
            return None;
        }
        let content = self.content().ok()?.read();
        // What lies below may be an overlay of the host, which has been written to.
        Some(content.lower().map_or(Layer::Upper, |below| below.layer().unwrap_or(Layer::Lower)))
    }
    fn image_fd(&self) -> Option<Arc<std::os::fd::OwnedFd>> {
        self.content().ok()?.read().lower()?.image_fd()
    }
}

/// An open directory.
pub(crate) struct DirFile {
    pub node: Arc<Node>,
    /// Entries made after the start of a pass are not shown in it, so that a pass ends.
    limit: AtomicU64,
}

impl DirFile {
    pub fn new(node: Arc<Node>) -> DirFile {
        DirFile { node, limit: AtomicU64::new(0) }
    }
}

impl StorageOps for DirFile {
    fn sync(&self, _cx: &dyn Caller, _file: &OpenFile, _data_only: bool) -> Result<()> {
        Ok(())
    }
}

impl DirectoryOps for DirFile {
    fn read_dir(&self, cx: &dyn Caller, file: &OpenFile, pos: u64, sink: &mut dyn DirSink) -> Result<u64> {
        let Body::Dir(d) = &self.node.body else { return Err(Errno::ENOTDIR) };
        let next = {
            let mut d = d.lock();
            if pos <= 2 {
                self.limit.store(d.end(), Ordering::Relaxed);
            }
            d.read(cx, pos, self.limit.load(Ordering::Relaxed), sink)?
        };
        accessed(&self.node, file);
        Ok(next)
    }
    fn as_storage(&self) -> Option<&dyn StorageOps> {
        Some(self)
    }
    fn ends(&self) -> bool {
        false
    }
}

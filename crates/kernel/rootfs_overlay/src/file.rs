//! Regular files of the layers.

use abi::{Errno, Result};
use hostsys::memfd::CopyArea;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use tmpfs::lower::LowerFile;
use vfs::{Caller, InodeRef, Layer, LentFd, MapRequest, Mapping, OpenFile};

/// A regular file, opened for reading when first needed.
pub(crate) struct File {
    inode: InodeRef,
    blocks: u64,
    file: OnceLock<Arc<OpenFile>>,
}

impl File {
    /// `blocks` has 512 bytes each.
    pub fn new(inode: InodeRef, blocks: u64) -> File {
        File { inode, blocks, file: OnceLock::new() }
    }

    fn open(&self, cx: &dyn Caller) -> Result<&Arc<OpenFile>> {
        if let Some(f) = self.file.get() {
            return Ok(f);
        }
        let ops = self.inode.open(cx, libc::O_RDONLY)?;
        let f = OpenFile::new(None, Some(self.inode.clone()), ops, libc::O_RDONLY);
        Ok(self.file.get_or_init(|| f))
    }
}

impl LowerFile for File {
    fn blocks(&self) -> u64 {
        self.blocks
    }
    fn probe(&self, cx: &dyn Caller) -> Result<()> {
        self.open(cx).map(drop)
    }
    fn read(&self, cx: &dyn Caller, buf: &mut [u8], off: u64) -> Result<usize> {
        let f = self.open(cx)?;
        f.ops.read(cx, f, buf, off)
    }
    fn read_to(&self, cx: &dyn Caller, to: &CopyArea<'_>, len: usize, off: u64) -> Option<Result<usize>> {
        match self.open(cx) {
            Ok(f) => f.ops.read_to(cx, f, to, len, off),
            Err(e) => Some(Err(e)),
        }
    }
    fn seek(&self, cx: &dyn Caller, off: u64, data: bool) -> Result<u64> {
        let f = self.file.get().ok_or(Errno::EIO)?;
        let whence = if data { libc::SEEK_DATA } else { libc::SEEK_HOLE };
        f.ops.as_seek().ok_or(Errno::EINVAL)?.seek_special(cx, f, off as i64, whence)
    }
    fn map(&self, cx: &dyn Caller, req: &MapRequest) -> Result<Mapping> {
        let f = self.open(cx)?;
        f.ops.map(cx, f, req)
    }
    fn lend(&self, cx: &dyn Caller, off: u64, len: usize) -> Option<LentFd> {
        let f = self.open(cx).ok()?;
        f.ops.lend(cx, f, off, len)
    }
    fn image(&self) -> Option<(u64, u64)> {
        self.file.get()?.ops.image()
    }
    fn layer(&self) -> Option<Layer> {
        self.file.get()?.ops.layer()
    }
    fn image_fd(&self) -> Option<Arc<OwnedFd>> {
        self.file.get()?.ops.image_fd()
    }
}

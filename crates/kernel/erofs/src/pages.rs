//! The bytes of files that are mapped.
//!
//! Guest memory is the host's, so a mapping needs a file of the host: the ranges that are mapped are copied to a file in memory when
//! mmap(2) asks, once, since an image does not change.
//!
//! Lock: which ranges are there, a leaf; not held while the image is read. Two threads may copy a range twice, the same bytes.

use abi::{Errno, Result};
use lock_order::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use vfs::{Caller, InodeRef, Internal, MapRequest, Mapping, OpenFile, SetAttr};

/// Bytes that are copied at a time.
const PIECE: u64 = 256 << 10;

/// The bytes of an inode that is mapped.
pub(crate) struct Pages {
    size: u64,
    write: Arc<OpenFile>,
    read: Arc<OpenFile>,
    /// Numbers of pieces that are there. Each takes memory of the file, which bounds them.
    there: Mutex<BTreeSet<u64>>,
}

impl Pages {
    /// Of a file of `size` bytes, in a new file of the file system with this root.
    pub fn new(root: &InodeRef, size: u64, cx: &Internal) -> Result<Arc<Pages>> {
        let inode = root.dir()?.create_unnamed(cx, 0o600, 0, 0)?;
        inode.set_attr(cx, &SetAttr { size: Some(size), ..SetAttr::default() })?;
        let open = |flags: i32| {
            Ok::<_, Errno>(OpenFile::new(None, Some(inode.clone()), inode.open(cx, flags)?, flags))
        };
        let (write, read) = (open(libc::O_RDWR)?, open(libc::O_RDONLY)?);
        Ok(Arc::new(Pages { size, write, read, there: Mutex::default() }))
    }

    /// Copies what is missing of a range. `read` reads the image's file.
    pub fn load(
        &self,
        cx: &dyn Caller,
        (start, end): (u64, u64),
        read: &dyn Fn(&mut [u8], u64) -> Result<usize>,
    ) -> Result<()> {
        let inside = Internal::new(cx.vfs());
        let mut buf = Vec::new();
        for piece in start / PIECE..end.min(self.size).div_ceil(PIECE) {
            if self.there.lock().contains(&piece) {
                continue;
            }
            if cx.is_killed() {
                return Err(Errno::EINTR);
            }
            buf.resize(PIECE as usize, 0);
            let n = read(&mut buf, piece * PIECE)?;
            let mut done = 0;
            while done < n {
                let at = piece * PIECE + done as u64;
                match self.write.ops.write(&inside, &self.write, &buf[done..n], at)? {
                    0 => return Err(Errno::EIO),
                    wrote => done += wrote,
                }
            }
            self.there.lock().insert(piece);
        }
        Ok(())
    }

    /// A private mapping of what is there.
    pub fn map(&self, cx: &Internal, req: &MapRequest) -> Result<Mapping> {
        self.read.ops.map(cx, &self.read, &MapRequest { shared: false, ..*req })
    }
}

//! Files that are mapped.
//!
//! Guest memory is the host's, so a mapping needs a file of the host: the ranges that are mapped are copied to a file in memory when
//! mmap(2) asks, once, since an image does not change.
//!
//! Lock: which ranges are there, a leaf; not held while the image is read. Two threads may copy a range twice, the same bytes.

use crate::node::Node;
use abi::{Errno, PAGE_SIZE, Result};
use lock_order::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use vfs::{Caller, Internal, MapRequest, Mapping, OpenFile, SetAttr};

/// Bytes that are copied at a time.
const PIECE: u64 = 256 << 10;

/// The bytes of an inode that is mapped.
pub(crate) struct Pages {
    write: Arc<OpenFile>,
    read: Arc<OpenFile>,
    /// Numbers of pieces that are there. Each takes memory of the file, which bounds them.
    there: Mutex<BTreeSet<u64>>,
}

impl Pages {
    fn new(node: &Node, cx: &Internal) -> Result<Arc<Pages>> {
        let root = node.fs.mapped().root();
        let inode = root.dir()?.create_unnamed(cx, 0o600, 0, 0)?;
        inode.set_attr(cx, &SetAttr { size: Some(node.inode.size), ..SetAttr::default() })?;
        let open = |flags: i32| {
            Ok::<_, Errno>(OpenFile::new(None, Some(inode.clone()), inode.open(cx, flags)?, flags))
        };
        let (write, read) = (open(libc::O_RDWR)?, open(libc::O_RDONLY)?);
        Ok(Arc::new(Pages { write, read, there: Mutex::default() }))
    }

    /// Copies what is missing of a range.
    fn load(&self, node: &Node, cx: &dyn Caller, start: u64, end: u64) -> Result<()> {
        let inside = Internal::new(cx.vfs());
        let mut buf = Vec::new();
        for piece in start / PIECE..end.min(node.inode.size).div_ceil(PIECE) {
            if self.there.lock().contains(&piece) {
                continue;
            }
            if cx.is_killed() {
                return Err(Errno::EINTR);
            }
            buf.resize(PIECE as usize, 0);
            let n = node.read(cx, &mut buf, piece * PIECE)?;
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
}

/// mmap(2). ENODEV for a shared mapping that may be written. ENOMEM when what is mapped of the file system takes 2 GiB.
pub(crate) fn map(node: &Node, cx: &dyn Caller, req: &MapRequest) -> Result<Mapping> {
    if req.shared && req.prot & libc::PROT_WRITE != 0 {
        return Err(Errno::ENODEV);
    }
    let inside = Internal::new(cx.vfs());
    let known = node.pages.lock().clone();
    let pages = match known {
        Some(pages) => pages,
        None => {
            let new = Pages::new(node, &inside)?;
            // What is not needed goes after the lock.
            let mut slot = node.pages.lock();
            slot.get_or_insert_with(|| new.clone()).clone()
        }
    };
    let end = req.offset.checked_add(req.len).ok_or(Errno::EOVERFLOW)?;
    let end = end.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::EOVERFLOW)?;
    let no_room = |e| if e == Errno::ENOSPC { Errno::ENOMEM } else { e };
    pages.load(node, cx, req.offset, end).map_err(no_room)?;
    pages.read.ops.map(&inside, &pages.read, &MapRequest { shared: false, ..*req })
}

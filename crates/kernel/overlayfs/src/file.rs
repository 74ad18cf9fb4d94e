//! Open files and directories.
//!
//! An open file has the file below open. A file that was opened for reading before its copy was made reads the copy
//! from then on, by a second open file. Its mappings stay those of the old file (as Linux documents).

use crate::core::Core;
use crate::listing::{self, Listing};
use crate::node::Node;
use abi::{Errno, Result};
use lock_order::Mutex;
use namei::stack;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use vfs::{
    Caller, DirEntry, DirSink, DirectoryOps, FileOps, Internal, Layer, LentFd, MapOps, MapRequest, Mapping,
    OpenFile, SeekOps, StorageOps,
};

/// Flags of open(2) that mean something to the file below.
const KEPT: i32 = libc::O_ACCMODE | libc::O_APPEND | libc::O_DIRECT | libc::O_SYNC | libc::O_NONBLOCK;

/// An open regular file.
pub(crate) struct File {
    node: Arc<Node>,
    flags: i32,
    first: Arc<OpenFile>,
    /// The first one is of a lower layer.
    lower: bool,
    copy: OnceLock<Arc<OpenFile>>,
}

impl File {
    /// After copying up, where that is due.
    pub fn new(cx: &dyn Caller, node: Arc<Node>, flags: i32) -> Result<File> {
        let lower = node.upper.get().is_none();
        let mut flags = flags & KEPT;
        if lower {
            // Reading a lower layer changes nothing in it.
            flags |= libc::O_NOATIME;
        }
        let first = stack::open(&node.core.over(cx), &node.real().inode, flags)?;
        Ok(File { node, flags, first, lower, copy: OnceLock::new() })
    }

    /// The file below to read and write.
    fn real(&self, cx: &dyn Caller) -> Result<&Arc<OpenFile>> {
        if !self.lower || self.node.upper.get().is_none() {
            return Ok(&self.first);
        }
        if let Some(copy) = self.copy.get() {
            return Ok(copy);
        }
        let core = &self.node.core;
        let flags = self.flags & !libc::O_NOATIME;
        let copy = stack::open(&core.over(cx), &self.node.real().inode, flags)?;
        Ok(self.copy.get_or_init(|| copy))
    }

    /// The same where no task asks.
    fn real_anyhow(&self) -> Result<&Arc<OpenFile>> {
        self.real(&Internal::new(&self.node.core.vfs))
    }

    fn map_ops(&self) -> Option<&dyn MapOps> {
        self.first.ops.as_map()
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
        self.map_ops().map(|_| self as &dyn MapOps)
    }
    fn read(&self, cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], off: u64) -> Result<usize> {
        let real = self.real(cx)?;
        real.ops.read(&self.node.core.over(cx), real, buf, off)
    }
    fn write(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8], off: u64) -> Result<usize> {
        let real = self.real(cx)?;
        real.ops.write(&self.node.core.over(cx), real, buf, off)
    }
}

impl SeekOps for File {
    fn append(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8]) -> Result<(usize, u64)> {
        let real = self.real(cx)?;
        real.ops.append(&self.node.core.over(cx), real, buf)
    }
    fn seek_special(&self, cx: &dyn Caller, _file: &OpenFile, off: i64, whence: i32) -> Result<u64> {
        let real = self.real_anyhow()?;
        let over = self.node.core.over(cx);
        real.ops.as_seek().ok_or(Errno::EINVAL)?.seek_special(&over, real, off, whence)
    }
}

impl StorageOps for File {
    fn sync(&self, cx: &dyn Caller, _file: &OpenFile, data_only: bool) -> Result<()> {
        sync(cx, &self.node.core, &self.node, || self.real_anyhow().cloned(), data_only)
    }
    fn allocate(&self, cx: &dyn Caller, _file: &OpenFile, mode: i32, off: u64, len: u64) -> Result<()> {
        let real = self.real(cx)?;
        real.ops.allocate(&self.node.core.over(cx), real, mode, off, len)
    }
    fn direct(&self) -> bool {
        self.first.ops.direct()
    }
}

/// fsync(2): what the upper layer has goes to storage. Lower layers have nothing to be written.
fn sync(
    cx: &dyn Caller,
    core: &Core,
    node: &Node,
    real: impl FnOnce() -> Result<Arc<OpenFile>>,
    data_only: bool,
) -> Result<()> {
    if core.volatile || node.upper.get().is_none() {
        return Ok(());
    }
    let real = real()?;
    real.ops.sync(&core.over(cx), &real, data_only)
}

impl MapOps for File {
    fn map(&self, cx: &dyn Caller, _file: &OpenFile, req: &MapRequest) -> Result<Mapping> {
        self.first.ops.map(&self.node.core.over(cx), &self.first, req)
    }
    fn lend(&self, cx: &dyn Caller, _file: &OpenFile, off: u64, len: usize) -> Option<LentFd> {
        let real = self.real(cx).ok()?;
        real.ops.lend(&self.node.core.over(cx), real, off, len)
    }
    fn lend_to_write(&self, cx: &dyn Caller, _file: &OpenFile, len: usize) -> Option<LentFd> {
        let real = self.real(cx).ok()?;
        real.ops.lend_to_write(&self.node.core.over(cx), real, len)
    }
    fn mapped(&self) {
        if let Some(below) = self.map_ops() {
            below.mapped();
        }
    }
    fn unmapped(&self) {
        if let Some(below) = self.map_ops() {
            below.unmapped();
        }
    }
    fn image(&self) -> Option<(u64, u64)> {
        self.map_ops()?.image()
    }
    fn layer(&self) -> Option<Layer> {
        let copied = !self.lower || self.node.upper.get().is_some();
        Some(if copied { Layer::Upper } else { Layer::Lower })
    }
    fn image_fd(&self) -> Option<Arc<OwnedFd>> {
        self.map_ops()?.image_fd()
    }
}

/// How an open directory is read.
#[derive(Clone)]
enum Way {
    /// It is one directory below, and its offsets are used.
    Plain(Arc<OpenFile>),
    /// By a list of all names; the places in it are the offsets.
    Merged(Arc<Listing>),
}

/// An open directory.
pub(crate) struct OpenDir {
    node: Arc<Node>,
    way: Mutex<Option<Way>>,
}

impl OpenDir {
    /// EACCES where the mounter of the instance may not read it.
    pub fn new(cx: &dyn Caller, node: Arc<Node>) -> Result<OpenDir> {
        let over = node.core.over(cx);
        let real = stack::open(&over, &node.real().inode, libc::O_RDONLY | libc::O_DIRECTORY)?;
        let plain = (!needs_list(&over, &node)).then_some(Way::Plain(real));
        Ok(OpenDir { node, way: Mutex::new(plain) })
    }

    /// How to go on at `pos`: a pass that begins sees what has changed.
    fn way(&self, cx: &dyn Caller, pos: u64) -> Result<Way> {
        let known = self.way.lock().clone();
        if let Some(way) = &known
            && pos > 2
        {
            return Ok(way.clone());
        }
        let over = self.node.core.over(cx);
        let new = match known {
            Some(Way::Plain(real)) if !needs_list(&over, &self.node) => return Ok(Way::Plain(real)),
            _ if needs_list(&over, &self.node) => {
                Way::Merged(listing::of_node(&over, cx.creds().uid, &self.node)?)
            }
            _ => {
                let real = &self.node.real().inode;
                Way::Plain(stack::open(&over, real, libc::O_RDONLY | libc::O_DIRECTORY)?)
            }
        };
        let old = self.way.lock().replace(new.clone());
        drop(old);
        Ok(new)
    }
}

/// Whether one directory below is not the whole answer: the directory is merged, or has copies, which have other
/// numbers.
fn needs_list(over: &dyn Caller, node: &Node) -> bool {
    let impure = || node.upper.get().is_some_and(|upper| node.core.is_impure(over, &upper.inode));
    node.is_merged() || impure()
}

impl StorageOps for OpenDir {
    fn sync(&self, cx: &dyn Caller, _file: &OpenFile, data_only: bool) -> Result<()> {
        let core = &self.node.core;
        let open =
            || stack::open(&core.over(cx), &self.node.real().inode, libc::O_RDONLY | libc::O_DIRECTORY);
        sync(cx, core, &self.node, open, data_only)
    }
}

impl DirectoryOps for OpenDir {
    fn read_dir(&self, cx: &dyn Caller, _file: &OpenFile, pos: u64, sink: &mut dyn DirSink) -> Result<u64> {
        match self.way(cx, pos)? {
            Way::Merged(list) => Ok(list.read(pos, sink)),
            Way::Plain(real) => {
                let over = self.node.core.over(cx);
                let mut at = pos;
                loop {
                    // The file system below is asked first and the names are looked at after: it may hold locks.
                    let (entries, end) = listing::piece(&over, &real, at)?;
                    if entries.is_empty() {
                        return Ok(end);
                    }
                    for (next, e) in entries {
                        if !self.is_hidden(&over, &e)? && !sink.entry(next, &e) {
                            return Ok(at);
                        }
                        at = next;
                    }
                }
            }
        }
    }
    fn as_storage(&self) -> Option<&dyn StorageOps> {
        Some(self)
    }
    fn ends(&self) -> bool {
        false
    }
}

impl OpenDir {
    /// A whiteout is no entry.
    fn is_hidden(&self, over: &dyn Caller, e: &DirEntry) -> Result<bool> {
        if e.kind != libc::DT_CHR {
            return Ok(false);
        }
        match self.node.find(over, &e.name) {
            Ok(_) => Ok(false),
            Err(Errno::ENOENT) => Ok(true),
            Err(e) => Err(e),
        }
    }
}

//! Open files.

use crate::busy::Claim;
use crate::fasync::SignalOwner;
use crate::file_ops::FileOps;
use crate::inode::InodeRef;
use crate::path::Path;
use crate::quota::{Counted, FileCount};
use abi::stat::Attr;
use abi::{Errno, Result};
use ranked::{Mutex, rank};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use wait::Subscription;

/// An identity that no other open file has. A thread takes a good many at once, so that threads that open files do not
/// meet at one counter.
fn new_id() -> u64 {
    const MANY: u64 = 256;
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! { static MINE: Cell<u64> = const { Cell::new(0) } }
    let mut id = MINE.get();
    if id.is_multiple_of(MANY) {
        id = NEXT.fetch_add(1, Ordering::Relaxed) * MANY;
    }
    MINE.set(id + 1);
    id
}

/// An open file description: shared by every descriptor that dup(2) or fork(2) made of it.
pub struct OpenFile {
    /// Where it was opened; `None` for files without a path.
    pub path: Option<Path>,
    /// The inode; `None` for pipes from pipe(2), sockets, anon inodes.
    pub inode: Option<InodeRef>,
    /// The operations.
    pub ops: Arc<dyn FileOps>,
    /// Access mode and status flags as F_GETFL shows them.
    flags: AtomicI32,
    /// File position; held across read and write so that they are atomic (as f_pos_lock).
    pub pos: Mutex<u64, { rank::FILE_POSITION }>,
    /// Identity as owner of flock(2) and open-file-description locks.
    pub id: u64,
    locked: AtomicBool,
    created: AtomicBool,
    /// F_SETOWN and F_SETSIG.
    pub owner: Mutex<SignalOwner, { rank::FILE_OWNER }>,
    /// Set while O_ASYNC sends signals.
    pub(crate) fasync: Mutex<Option<Box<Subscription>>>,
    _claim: Option<Claim>,
    counted: Counted,
}

impl OpenFile {
    /// Wraps the operations of a just-opened file.
    pub fn new(
        path: Option<Path>,
        inode: Option<InodeRef>,
        ops: Arc<dyn FileOps>,
        flags: i32,
    ) -> Arc<OpenFile> {
        OpenFile::claiming(path, inode, ops, flags, None)
    }

    /// As [`OpenFile::new`] with a claim on the inode, held as long as the file is open.
    pub(crate) fn claiming(
        path: Option<Path>,
        inode: Option<InodeRef>,
        ops: Arc<dyn FileOps>,
        flags: i32,
        claim: Option<Claim>,
    ) -> Arc<OpenFile> {
        let keep = !(libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY | libc::O_TRUNC | libc::O_CLOEXEC);
        Arc::new(OpenFile {
            path,
            inode,
            ops,
            flags: AtomicI32::new(flags & keep),
            pos: Mutex::new(0),
            id: new_id(),
            locked: AtomicBool::new(false),
            created: AtomicBool::new(false),
            owner: Mutex::default(),
            fasync: Mutex::default(),
            _claim: claim,
            counted: Counted::default(),
        })
    }

    /// A file without path or inode (pipes, sockets, eventfd, ...).
    pub fn anonymous(ops: Arc<dyn FileOps>, flags: i32) -> Arc<OpenFile> {
        OpenFile::new(None, None, ops, flags)
    }

    /// Counts it among the open files of a sandbox.
    pub(crate) fn count(&self, files: &FileCount) {
        self.counted.count(files);
    }

    /// It is among the open files already.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted.is_counted()
    }

    /// Access mode and status flags.
    pub fn flags(&self) -> i32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Replaces the changeable status flags (F_SETFL).
    pub fn set_status(&self, flags: i32) {
        let change = libc::O_APPEND | libc::O_NONBLOCK | libc::O_ASYNC | libc::O_DIRECT | libc::O_NOATIME;
        let old = self.flags();
        self.flags.store(old & !change | flags & change, Ordering::Relaxed);
    }

    /// Adds flags that F_GETFL shows and that have no meaning for the file layer.
    pub fn show_flags(&self, flags: i32) {
        self.flags.fetch_or(flags, Ordering::Relaxed);
    }

    /// Opened for reading.
    pub fn readable(&self) -> bool {
        self.flags() & libc::O_PATH == 0
            && matches!(self.flags() & libc::O_ACCMODE, libc::O_RDONLY | libc::O_RDWR)
    }

    /// Opened for writing.
    pub fn writable(&self) -> bool {
        self.flags() & libc::O_PATH == 0
            && matches!(self.flags() & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR)
    }

    /// O_NONBLOCK is set.
    pub fn nonblocking(&self) -> bool {
        self.flags() & libc::O_NONBLOCK != 0
    }

    /// Opened with O_PATH.
    pub fn path_only(&self) -> bool {
        self.flags() & libc::O_PATH != 0
    }

    /// Remembers that opening it made the file.
    pub(crate) fn mark_created(&self) {
        self.created.store(true, Ordering::Relaxed);
    }

    /// Opening it made the file (F_CREATED_QUERY).
    pub fn created(&self) -> bool {
        self.created.load(Ordering::Relaxed)
    }

    /// Remembers that locks may be held in its name, to be released with it.
    pub(crate) fn mark_locked(&self) {
        self.locked.store(true, Ordering::Relaxed);
    }

    /// Attributes: the inode's, or the operations' own.
    pub fn attr(&self) -> Result<Attr> {
        match (self.ops.attr(), &self.inode) {
            (Some(a), _) => a,
            (None, Some(i)) => i.attr(),
            (None, None) => Err(Errno::EBADF),
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        crate::notify::on_close(self);
        if self.locked.load(Ordering::Relaxed) {
            crate::locks::file_release(self);
        }
    }
}

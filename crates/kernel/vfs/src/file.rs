//! Open files.
//!
//! Locks: position and owner have ranks, subscriptions are leaves. A checkpoint keeps what [`OpenFileState`] has.

use crate::in_use::InUse;
use crate::inode::InodeRef;
use crate::mount::{Mount, Path, Writing};
use crate::notify::marks::Actor;
use ::caller::quota::{CountedFile, FileCount};
use abi::stat::{Attr, S_IFMT, S_IFREG};
use abi::{Errno, Result};
use lock_order::{Mutex, MutexGuard, rank};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use wait::Subscription;

mod caller;
pub mod claim;
pub mod devices;
mod directory;
mod layer;
mod opener;
pub mod operation;
mod ops;
mod owner;
mod state;
pub use self::caller::{As, Caller, Internal};
pub use claim::Claim;
pub use directory::DirectoryFile;
pub use layer::{FileLayer, Process, ProcessRef, Vfs};
pub use opener::Opener;
pub use ops::{
    DirectoryOps, FileOps, Layer, LentFd, Lingering, LockFile, MapOps, MapRequest, Mapping, PathOnly,
    SeekOps, StorageOps, StreamOps,
};
pub use owner::{F_OWNER_PGRP, F_OWNER_PID, F_OWNER_TID, SignalOwner};
pub use state::{GoneState, ObjectState, OpenFileState, PlaceState};

/// What an open file may not be used for although it is open, by the Landlock domain of its opener.
pub mod denied {
    /// Changing its length.
    pub const TRUNCATE: u8 = 1;
    /// Requests of its driver.
    pub const IOCTL: u8 = 2;
}

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

/// O_ASYNC of an open file.
pub struct Async {
    /// The descriptor through which it was set.
    pub fd: i32,
    /// Turns notifications into signals.
    pub subscription: Subscription,
}

/// An open file description: shared by every descriptor that dup(2) or fork(2) made of it.
pub struct OpenFile {
    /// Dropped first: when the operations go, the object may end, and another one may get its number.
    claim: Option<Claim>,
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
    /// No watch is told of what is done with it (FMODE_NONOTIFY).
    silent: AtomicBool,
    /// The thread that closed a descriptor of it last, while there are watches.
    closer: Mutex<Option<Box<Actor>>>,
    created: AtomicBool,
    /// Uses that are denied, see [`denied`].
    denied: AtomicU8,
    /// F_SETOWN and F_SETSIG.
    pub owner: Mutex<SignalOwner, { rank::FILE_OWNER }>,
    /// Set while O_ASYNC sends signals.
    pub fasync: Mutex<Option<Box<Async>>>,
    /// Set once a socket has had an owner.
    pub urgent: Mutex<Option<Box<Subscription>>>,
    _mount: Option<InUse<Mount>>,
    _writing: Option<Writing>,
    opener: Opener,
    counted: CountedFile,
    /// Dropped with the file: its locks.
    locks: OnceLock<Box<dyn Send + Sync>>,
}

impl OpenFile {
    /// Wraps the operations of a just-opened file.
    pub fn new(
        path: Option<Path>,
        inode: Option<InodeRef>,
        ops: Arc<dyn FileOps>,
        flags: i32,
    ) -> Arc<OpenFile> {
        let mount = path.as_ref().map(|path| InUse::new(path.mount.clone()));
        OpenFile::holding(path, inode, ops, flags, (None, mount), Opener::default())
    }

    /// A file at a place, with a claim on the inode and a use of the mount, which both last as long as it is open.
    pub fn at(
        path: Path,
        inode: InodeRef,
        ops: Arc<dyn FileOps>,
        flags: i32,
        held: (Option<Claim>, InUse<Mount>),
        opener: Opener,
    ) -> Arc<OpenFile> {
        let held = (held.0, Some(held.1));
        OpenFile::holding(Some(path), Some(inode), ops, flags, held, opener)
    }

    fn holding(
        path: Option<Path>,
        inode: Option<InodeRef>,
        ops: Arc<dyn FileOps>,
        flags: i32,
        (claim, mount): (Option<Claim>, Option<InUse<Mount>>),
        opener: Opener,
    ) -> Arc<OpenFile> {
        let writes = flags & libc::O_PATH == 0 && flags & libc::O_ACCMODE != libc::O_RDONLY;
        let writing = path.as_ref().filter(|p| writes && p.kind() == S_IFREG).map(|p| Writing::new(&p.mount));
        let keep = !(libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY | libc::O_TRUNC | libc::O_CLOEXEC);
        Arc::new(OpenFile {
            path,
            inode,
            ops,
            flags: AtomicI32::new(flags & keep),
            pos: Mutex::new(0),
            id: new_id(),
            silent: AtomicBool::new(false),
            closer: Mutex::default(),
            created: AtomicBool::new(false),
            denied: AtomicU8::new(0),
            owner: Mutex::default(),
            fasync: Mutex::default(),
            urgent: Mutex::default(),
            claim,
            _mount: mount,
            _writing: writing,
            opener,
            counted: CountedFile::default(),
            locks: OnceLock::new(),
        })
    }

    /// A file without path or inode (pipes, sockets, eventfd, ...).
    pub fn anonymous(ops: Arc<dyn FileOps>, flags: i32) -> Arc<OpenFile> {
        OpenFile::new(None, None, ops, flags)
    }

    /// Counts it among the open files of a sandbox.
    pub fn count(&self, files: &FileCount) {
        self.counted.count(files);
    }

    /// It is among the open files already.
    pub fn is_counted(&self) -> bool {
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

    /// Denies uses ([`denied`]) from now on.
    pub fn deny(&self, uses: u8) {
        if uses != 0 {
            self.denied.fetch_or(uses, Ordering::Relaxed);
        }
    }

    /// It may not be truncated by this description.
    pub fn denies_truncate(&self) -> bool {
        self.denied.load(Ordering::Relaxed) & denied::TRUNCATE != 0
    }

    /// Requests of its driver are denied by this description.
    pub fn denies_ioctl(&self) -> bool {
        self.denied.load(Ordering::Relaxed) & denied::IOCTL != 0
    }

    /// Remembers that opening it made the file.
    pub fn mark_created(&self) {
        self.created.store(true, Ordering::Relaxed);
    }

    /// Opening it made the file (F_CREATED_QUERY).
    pub fn created(&self) -> bool {
        self.created.load(Ordering::Relaxed)
    }

    /// Hides what is done with it from watches (FMODE_NONOTIFY).
    pub fn silence(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    /// Watches are not told of what is done with it.
    pub fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Notes the thread that closes a descriptor of it.
    pub fn set_closer(&self, thread: Option<Actor>) {
        let old = std::mem::replace(&mut *self.closer.lock(), thread.map(Box::new));
        drop(old);
    }

    /// The thread that closed a descriptor of it last, where watches made that known.
    pub fn closer(&self) -> Option<Actor> {
        self.closer.lock().as_deref().cloned()
    }

    /// Keeps a guard of the locks that are held in its name until the file is closed for good. The first call counts.
    pub fn release_with(&self, locks: impl FnOnce() -> Box<dyn Send + Sync>) {
        self.locks.get_or_init(locks);
    }

    /// Holds the position. EINTR for a caller that is killed first: the holder may wait for a program.
    pub fn hold_position(&self, cx: &dyn Caller) -> Result<MutexGuard<'_, u64, { rank::FILE_POSITION }>> {
        self.pos.lock_unless(|| cx.is_killed()).ok_or(Errno::EINTR)
    }

    /// As [`OpenFile::attr`], after a request to the server of the file system.
    pub fn fresh_attr(&self, cx: &dyn Caller) -> Result<Attr> {
        match (self.ops.attr(), &self.inode) {
            (Some(a), _) => a,
            (None, Some(inode)) => {
                inode.refresh(cx)?;
                self.attr()
            }
            (None, None) => Err(Errno::EBADF),
        }
    }

    /// See [`Inode::refresh`](crate::Inode::refresh).
    pub fn refresh(&self, cx: &dyn Caller) -> Result<()> {
        match (&self.inode, self.ops.attr()) {
            (Some(inode), None) => inode.refresh(cx),
            _ => Ok(()),
        }
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

/// The S_IFMT bits of an open file.
pub fn file_kind(f: &OpenFile) -> u32 {
    match (&f.path, &f.inode) {
        (Some(p), _) => p.kind(),
        (None, Some(i)) => i.kind(),
        (None, None) => f.attr().map_or(0, |a| a.mode & S_IFMT),
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        crate::notify::on_close(self);
    }
}

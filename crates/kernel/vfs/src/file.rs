//! Open files.
//!
//! Locks: position and owner have ranks, subscriptions are leaves. A checkpoint keeps what [`OpenFileState`] has.

use crate::busy::Claim;
use crate::caller::Caller;
use crate::domain::lost;
use crate::fasync::SignalOwner;
use crate::file_ops::FileOps;
use crate::in_use::InUse;
use crate::inode::InodeRef;
use crate::marks::Doer;
use crate::mount::{Mount, Writing};
use crate::path::Path;
use crate::quota::{Counted, FileCount};
use abi::stat::Attr;
use abi::stat::S_IFREG;
use abi::{Errno, Result};
use ranked::{Mutex, MutexGuard, rank};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use wait::Subscription;

mod opener;
mod state;
pub(crate) use opener::Opener;
pub use state::{OpenFileState, PlaceState};

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
    /// Nobody is told of what is done with it (FMODE_NONOTIFY).
    silent: AtomicBool,
    /// Who has closed a descriptor of it last, while somebody listens.
    closer: Mutex<Option<Box<Doer>>>,
    created: AtomicBool,
    /// What it may not be used for, see `domain::lost`.
    lost: AtomicU8,
    /// F_SETOWN and F_SETSIG.
    pub owner: Mutex<SignalOwner, { rank::FILE_OWNER }>,
    /// Set while O_ASYNC sends signals.
    pub(crate) fasync: Mutex<Option<Box<Subscription>>>,
    /// Set once a socket has had an owner.
    pub(crate) urgent: Mutex<Option<Box<Subscription>>>,
    _claim: Option<Claim>,
    _mount: Option<InUse<Mount>>,
    _writing: Option<Writing>,
    opener: Opener,
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
        let mount = path.as_ref().map(|path| InUse::new(path.mount.clone()));
        OpenFile::holding(path, inode, ops, flags, (None, mount), Opener::default())
    }

    /// A file at a place, with a claim on the inode and a use of the mount, which both last as long as it is open.
    pub(crate) fn at(
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
            locked: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            closer: Mutex::default(),
            created: AtomicBool::new(false),
            lost: AtomicU8::new(0),
            owner: Mutex::default(),
            fasync: Mutex::default(),
            urgent: Mutex::default(),
            _claim: claim,
            _mount: mount,
            _writing: writing,
            opener,
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

    /// Remembers what the domain of who opened it does not allow.
    pub(crate) fn lose(&self, what: u8) {
        if what != 0 {
            self.lost.fetch_or(what, Ordering::Relaxed);
        }
    }

    /// It may not be truncated by this description.
    pub(crate) fn lost_truncate(&self) -> bool {
        self.lost.load(Ordering::Relaxed) & lost::TRUNCATE != 0
    }

    /// Requests of its driver are denied by this description.
    pub fn lost_ioctl(&self) -> bool {
        self.lost.load(Ordering::Relaxed) & lost::IOCTL != 0
    }

    /// Remembers that opening it made the file.
    pub(crate) fn mark_created(&self) {
        self.created.store(true, Ordering::Relaxed);
    }

    /// Opening it made the file (F_CREATED_QUERY).
    pub fn created(&self) -> bool {
        self.created.load(Ordering::Relaxed)
    }

    /// What is done with it is no news to anybody.
    pub(crate) fn silence(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    pub(crate) fn set_closer(&self, who: Option<Doer>) {
        let old = std::mem::replace(&mut *self.closer.lock(), who.map(Box::new));
        drop(old);
    }

    pub(crate) fn closer(&self) -> Option<Doer> {
        self.closer.lock().as_deref().cloned()
    }

    /// Remembers that locks may be held in its name, to be released with it.
    pub(crate) fn mark_locked(&self) {
        self.locked.store(true, Ordering::Relaxed);
    }

    /// Holds the position. EINTR for a caller who is killed first: whoever holds it may wait for a program.
    pub fn hold_position(&self, cx: &dyn Caller) -> Result<MutexGuard<'_, u64, { rank::FILE_POSITION }>> {
        self.pos.lock_unless(|| cx.is_killed()).ok_or(Errno::EINTR)
    }

    /// As [`OpenFile::attr`], after who serves the file system was asked.
    pub fn fresh_attr(&self, cx: &dyn Caller) -> Result<Attr> {
        self.refresh(cx)?;
        self.attr()
    }

    /// See [`Inode::refresh`](crate::Inode::refresh).
    pub(crate) fn refresh(&self, cx: &dyn Caller) -> Result<()> {
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

impl Drop for OpenFile {
    fn drop(&mut self) {
        crate::notify::on_close(self);
        if self.locked.load(Ordering::Relaxed) {
            crate::locks::file_release(self);
        }
    }
}

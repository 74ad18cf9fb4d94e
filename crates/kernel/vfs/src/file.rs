//! Open files.

use crate::busy::Claim;
use crate::caller::{Caller, UserMemory};
use crate::fasync::SignalOwner;
use crate::inode::{DirSink, InodeRef};
use crate::path::Path;
use crate::quota::{Counted, FileCount};
use abi::stat::Attr;
use abi::{Errno, Result};
use hostsys::memfd::CopyArea;
use parking_lot::Mutex;
use pid::Pid;
use std::any::Any;
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;
use wait::{Events, Subscription, WaitQueue};

/// What mmap(2) asks of a file.
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// PROT_* bits asked for now.
    pub prot: i32,
    /// MAP_SHARED (or MAP_SHARED_VALIDATE) rather than MAP_PRIVATE.
    pub shared: bool,
    /// Offset in bytes, page aligned.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// What the address space maps for it.
#[derive(Clone, Debug)]
pub enum Mapping {
    /// A host descriptor with exactly the rights the mapping needs, and the offset in it.
    Host {
        /// The descriptor.
        fd: Arc<OwnedFd>,
        /// Offset in bytes.
        offset: u64,
    },
    /// Anonymous memory (/dev/zero).
    Anonymous,
}

/// Operations of an open file. None of them blocks (FIFO open apart): what would block
/// answers EAGAIN and the one loop in `vfs::retry` waits on [`FileOps::wait_queue`].
///
/// `off` is the absolute offset for seekable files. Stream-like files (pipes, sockets,
/// terminals, eventfd...) return false from [`FileOps::seekable`] and ignore it.
pub trait FileOps: Send + Sync + Any {
    /// For code that needs the concrete type (epoll, sockets, pipes, terminals).
    fn as_any(&self) -> &dyn Any;
    /// Reads into `buf`; 0 at end of file.
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, _buf: &mut [u8], _off: u64) -> Result<usize> {
        Err(Errno::EINVAL)
    }
    /// As [`FileOps::read`] of at most `len` bytes, straight to the start of `to`. `None`, and nothing has happened, when the
    /// file cannot do that or when there is not enough room for the result.
    fn read_to(
        &self,
        _cx: &dyn Caller,
        _file: &OpenFile,
        _to: &CopyArea<'_>,
        _len: usize,
        _off: u64,
    ) -> Option<Result<usize>> {
        None
    }
    /// Writes from `buf` at `off`.
    fn write(&self, _cx: &dyn Caller, _file: &OpenFile, _buf: &[u8], _off: u64) -> Result<usize> {
        Err(Errno::EINVAL)
    }
    /// Writes at the end, atomically where files are shared (O_APPEND on seekable files). Returns the
    /// count and the offset behind the last byte.
    fn append(&self, cx: &dyn Caller, file: &OpenFile, buf: &[u8]) -> Result<(usize, u64)> {
        let end = file.attr()?.size;
        let n = self.write(cx, file, buf, end)?;
        Ok((n, end + n as u64))
    }
    /// True for files with a position.
    fn seekable(&self) -> bool {
        false
    }
    /// lseek(2) succeeds and changes nothing (/dev/null).
    fn position_is_fixed(&self) -> bool {
        false
    }
    /// A blocking write goes on until everything is written (streams), rather than ending with the
    /// first piece that was taken (event descriptors).
    fn writes_all(&self) -> bool {
        true
    }
    /// Takes O_DIRECT.
    fn direct(&self) -> bool {
        false
    }
    /// SEEK_END has a meaning.
    fn ends(&self) -> bool {
        true
    }
    /// SEEK_DATA, SEEK_HOLE and file-specific seeking (directories); SET/CUR/END are generic.
    fn seek_special(&self, _file: &OpenFile, _off: i64, _whence: i32) -> Result<u64> {
        Err(Errno::EINVAL)
    }
    /// How long a blocking read or write may wait (SO_RCVTIMEO, SO_SNDTIMEO); `None` for ever.
    fn patience(&self, _write: bool) -> Option<Duration> {
        None
    }
    /// Current readiness. Regular files are always ready.
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        Events::READABLE | Events::WRITABLE
    }
    /// Queue notified when readiness changes; `None` when it never does (epoll_ctl answers EPERM).
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        None
    }
    /// ioctl(2); ENOTTY for unknown requests.
    fn ioctl(
        &self,
        _cx: &dyn Caller,
        _file: &OpenFile,
        _mem: &mut dyn UserMemory,
        _cmd: u32,
        _arg: u64,
    ) -> Result<u64> {
        Err(Errno::ENOTTY)
    }
    /// The process (a `ThreadGroup`) that the directory /proc/PID stands for, which pidfd_send_signal(2) takes too.
    fn process(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
    /// A process that had it mapped has left.
    fn left_mapped(&self, _pid: &Arc<Pid>) {}
    /// What to map; ENODEV when the file cannot be mapped.
    fn map(&self, _cx: &dyn Caller, _file: &OpenFile, _req: &MapRequest) -> Result<Mapping> {
        Err(Errno::ENODEV)
    }
    /// Of a regular file whose bytes nobody changes: the host's device and inode number of it, which are its own as long as somebody
    /// has it open.
    fn image(&self) -> Option<(u64, u64)> {
        None
    }
    /// The host's file if [`FileOps::image`] has an answer, for reading.
    fn image_fd(&self) -> Option<Arc<OwnedFd>> {
        None
    }
    /// Feeds directory entries from offset `pos` on; returns the offset to continue with. `.` and `..`
    /// have the offsets 0 and 1 and come from `vfs::dir`: implementations see `pos >= 2` and hand out
    /// `next` offsets above 2.
    fn read_dir(
        &self,
        _cx: &dyn Caller,
        _file: &OpenFile,
        _pos: u64,
        _sink: &mut dyn DirSink,
    ) -> Result<u64> {
        Err(Errno::ENOTDIR)
    }
    /// fsync(2) / fdatasync(2); EINVAL for files that have no storage.
    fn sync(&self, _file: &OpenFile, _data_only: bool) -> Result<()> {
        Err(Errno::EINVAL)
    }
    /// fallocate(2).
    fn allocate(&self, _cx: &dyn Caller, _file: &OpenFile, _mode: i32, _off: u64, _len: u64) -> Result<()> {
        Err(Errno::ENODEV)
    }
    /// O_ASYNC begins: the queue whose notifications become signals. `None` for files that send none.
    fn fasync(&self, _cx: &dyn Caller, _file: &OpenFile) -> Option<WaitQueue> {
        None
    }
    /// Attributes of a file that has no inode of its own in a file system (pipes, anon inodes, sockets);
    /// `None` uses the inode.
    fn attr(&self) -> Option<Result<Attr>> {
        None
    }
    /// close(2) of one descriptor (POSIX lock release, flush errors). The final release is `Drop`.
    fn flush(&self, _cx: &dyn Caller, _file: &OpenFile) -> Result<()> {
        Ok(())
    }
    /// Extra lines of /proc/PID/fdinfo/N.
    fn fdinfo(&self) -> String {
        String::new()
    }
    /// Name shown by /proc/PID/fd/N for files without a path, e.g. `pipe:[123]`, `anon_inode:[eventfd]`.
    fn link_name(&self) -> Option<String> {
        None
    }
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
    pub pos: Mutex<u64>,
    /// Identity as owner of flock(2) and open-file-description locks.
    pub id: u64,
    locked: AtomicBool,
    created: AtomicBool,
    /// F_SETOWN and F_SETSIG.
    pub owner: Mutex<SignalOwner>,
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

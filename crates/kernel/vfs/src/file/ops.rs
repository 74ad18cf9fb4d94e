//! What an open file can do, split by ability: [`FileOps`] for every file, and a trait for each ability that only some have.
//!
//! A file says which abilities it has by the `as_*` methods. Callers use the methods of `dyn FileOps` of the same names: they
//! give Linux's answer where the ability is missing.

use crate::file::{Caller, OpenFile};
use crate::inode::{DirSink, Hold, InodeRef};
use abi::stat::Attr;
use abi::{Errno, Result};
use caller::UserMemory;
use hostsys::memfd::CopyArea;
use pid::{Pid, PidNamespace};
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait::{Events, WaitQueue};

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

/// What a program's own thread reads a file by, see [`MapOps::lend`].
pub struct LentFd {
    /// The descriptor.
    pub fd: Arc<OwnedFd>,
    /// Dropped when the transfer has been made.
    pub after: Option<Box<dyn Send>>,
}

impl LentFd {
    /// Bytes up to which copying what the kernel has in its memory is cheaper than lending: 8 KiB took 0.9 us by copying and
    /// 1.2 us by the thread itself, 16 KiB 2.2 and 1.4 us.
    pub const CACHED: usize = 16 << 10;
}

/// Operations of every open file. None of them blocks (FIFO open apart): what would block
/// answers EAGAIN and the one loop in `vfs::retry` waits on [`FileOps::wait_queue`].
///
/// `off` is the absolute offset for files with a position ([`SeekOps`]). Stream-like files (pipes, sockets,
/// terminals, eventfd...) have none and ignore it.
pub trait FileOps: Send + Sync + Any {
    /// For code that needs the concrete type (epoll, sockets, pipes, terminals).
    fn as_any(&self) -> &dyn Any;
    /// Files with a position.
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        None
    }
    /// Files with storage behind them.
    fn as_storage(&self) -> Option<&dyn StorageOps> {
        None
    }
    /// Files that can be mapped.
    fn as_map(&self) -> Option<&dyn MapOps> {
        None
    }
    /// Directories.
    fn as_directory(&self) -> Option<&dyn DirectoryOps> {
        None
    }
    /// Streams that differ from a plain one.
    fn as_stream(&self) -> Option<&dyn StreamOps> {
        None
    }
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
    /// Attributes of a file that has no inode of its own in a file system (pipes, anon inodes, sockets);
    /// `None` uses the inode.
    fn attr(&self) -> Option<Result<Attr>> {
        None
    }
    /// Whether splice(2) can read from it, or write to it.
    fn splices(&self, _write: bool) -> bool {
        true
    }
    /// close(2) of one descriptor (POSIX lock release, flush errors). The final release is `Drop`.
    fn flush(&self, _cx: &dyn Caller, _file: &OpenFile) -> Result<()> {
        Ok(())
    }
    /// Watches of its inode are not told of what is done with it, because all openers of the inode share that.
    fn is_silent(&self) -> bool {
        false
    }
    /// Extra lines of /proc/PID/fdinfo/N.
    fn fdinfo(&self) -> String {
        String::new()
    }
    /// The same in an instance of procfs that shows this PID namespace.
    fn fdinfo_in(&self, _ns: &PidNamespace) -> String {
        self.fdinfo()
    }
    /// Name shown by /proc/PID/fd/N for files without a path, e.g. `pipe:[123]`, `anon_inode:[eventfd]`.
    fn link_name(&self) -> Option<String> {
        None
    }
}

/// Files with a position: lseek(2), pread(2), pwrite(2).
pub trait SeekOps: FileOps {
    /// Writes at the end, atomically where files are shared (O_APPEND on seekable files). Returns the
    /// count and the offset behind the last byte.
    fn append(&self, cx: &dyn Caller, file: &OpenFile, buf: &[u8]) -> Result<(usize, u64)> {
        let end = self.size(file)?;
        let n = self.write(cx, file, buf, end)?;
        Ok((n, end + n as u64))
    }
    /// lseek(2) succeeds and changes nothing (/dev/null).
    fn position_is_fixed(&self) -> bool {
        false
    }
    /// For files that do all seeking on their own: where that leads.
    fn seeks_itself(&self, _off: i64, _whence: i32) -> Option<Result<u64>> {
        None
    }
    /// A write of no bytes counts as one, and may be an error.
    fn takes_empty_writes(&self) -> bool {
        false
    }
    /// SEEK_END has a meaning.
    fn ends(&self) -> bool {
        true
    }
    /// Where SEEK_END leads.
    fn size(&self, file: &OpenFile) -> Result<u64> {
        Ok(file.attr()?.size)
    }
    /// SEEK_DATA, SEEK_HOLE and file-specific seeking (directories); SET/CUR/END are generic.
    fn seek_special(&self, _cx: &dyn Caller, _file: &OpenFile, _off: i64, _whence: i32) -> Result<u64> {
        Err(Errno::EINVAL)
    }
}

/// Files with storage behind them.
pub trait StorageOps {
    /// fsync(2) / fdatasync(2).
    fn sync(&self, cx: &dyn Caller, file: &OpenFile, data_only: bool) -> Result<()>;
    /// fallocate(2).
    fn allocate(&self, _cx: &dyn Caller, _file: &OpenFile, _mode: i32, _off: u64, _len: u64) -> Result<()> {
        Err(Errno::ENODEV)
    }
    /// copy_file_range(2) of `len` bytes at `off` to another file, which is open for writing, by the server of both.
    /// `None` where bytes have to be read and written.
    fn copy_range(
        &self,
        _cx: &dyn Caller,
        _from: (&OpenFile, u64),
        _to: (&OpenFile, u64),
        _len: usize,
    ) -> Option<Result<usize>> {
        None
    }
    /// FICLONERANGE: this file, which is open for writing, shares the blocks of another one, `len` bytes from `off` on, from
    /// `at` on.
    fn clone_range(&self, _cx: &dyn Caller, _from: &OpenFile, _off: u64, _len: u64, _at: u64) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    /// A write takes the set-user-ID and set-group-ID bits from the file by itself, so the caller need not look up the mode.
    fn write_drops_set_id(&self) -> bool {
        false
    }
    /// Takes O_DIRECT.
    fn direct(&self) -> bool {
        false
    }
    /// For a file that others outside this kernel can lock: a description of the host's that may hold locks on it, and goes
    /// on doing so after `file` has been closed. `None` for a file of this kernel alone.
    fn lock_file(&self, _file: &OpenFile) -> Result<Option<LockFile>> {
        Ok(None)
    }
    /// A host description of its own for a lock of `file` that a thread waits for. `None` where there is none.
    fn lock_file_anew(&self, _file: &OpenFile) -> Option<LockFile> {
        None
    }
}

/// A description of a host file that holds locks for this kernel.
#[derive(Clone, Debug)]
pub struct LockFile {
    /// The description.
    pub fd: Arc<OwnedFd>,
    /// It is open for reading, which shared ranges need.
    pub readable: bool,
    /// It is open for writing, which exclusive ranges need.
    pub writable: bool,
}

/// A layer of an overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The writable one.
    Upper,
    /// One below, as of an image.
    Lower,
}

/// Files that can be mapped.
pub trait MapOps {
    /// What to map; ENODEV when the file cannot be mapped.
    fn map(&self, cx: &dyn Caller, file: &OpenFile, req: &MapRequest) -> Result<Mapping>;
    /// A regular file that is open for reading, for a large read of `len` bytes at `off` that the program's own thread makes: it
    /// gets a descriptor that can do no more than the open file. `None` when there is none, when the file seems to end before,
    /// or when copying is cheaper.
    fn lend(&self, _cx: &dyn Caller, _file: &OpenFile, _off: u64, _len: usize) -> Option<LentFd> {
        None
    }
    /// The same for a write of `len` bytes to a file that is open for writing.
    fn lend_to_write(&self, _cx: &dyn Caller, _file: &OpenFile, _len: usize) -> Option<LentFd> {
        None
    }
    /// There is one mapping more (`files::MappedFile`). Locks of the address space may be held.
    fn mapped(&self) {}
    /// There is one less.
    fn unmapped(&self) {}
    /// A process that had it mapped has left.
    fn left_mapped(&self, _pid: &Arc<Pid>) {}
    /// For a regular file with bytes that change rarely, if ever: its device and inode number on the host, which are
    /// its own as long as it is open.
    fn image(&self) -> Option<(u64, u64)> {
        None
    }
    /// Of a regular file of an overlay, of ours or of the host: where its content is now. `None` for all others.
    fn layer(&self) -> Option<Layer> {
        None
    }
    /// The host's file if [`MapOps::image`] has an answer, for reading.
    fn image_fd(&self) -> Option<Arc<OwnedFd>> {
        None
    }
}

/// Open directories. [`DirectoryFile`](super::DirectoryFile) makes an open file of one.
pub trait DirectoryOps {
    /// Feeds directory entries from offset `pos` on; returns the offset to continue with. `.` and `..`
    /// have the offsets 0 and 1 and come from `vfs::dir`: implementations see `pos >= 2` and hand out
    /// `next` offsets above 2.
    fn read_dir(&self, cx: &dyn Caller, file: &OpenFile, pos: u64, sink: &mut dyn DirSink) -> Result<u64>;
    /// The file system's own list has `.` and `..`, or has them not: nothing is added. Sinks that do not take them get none.
    fn lists_dots(&self) -> bool {
        false
    }
    /// The process that the directory /proc/PID stands for, which pidfd_send_signal(2) takes too.
    fn process(&self) -> Option<Arc<Pid>> {
        None
    }
    /// Directories with storage behind them.
    fn as_storage(&self) -> Option<&dyn StorageOps> {
        None
    }
    /// SEEK_END has a meaning.
    fn ends(&self) -> bool {
        true
    }
}

/// Streams: pipes, sockets, terminals, event descriptors.
pub trait StreamOps {
    /// How long a blocking read or write may wait (SO_RCVTIMEO, SO_SNDTIMEO); `None` for ever.
    fn patience(&self, _write: bool) -> Option<Duration> {
        None
    }
    /// A blocking write goes on until everything is written, rather than ending with the
    /// first piece that was taken (event descriptors).
    fn writes_all(&self) -> bool {
        true
    }
    /// What one read or write moves belongs together, so splice(2) may not cut it.
    fn moves_messages(&self) -> bool {
        false
    }
    /// The longest record that a write moves (EMSGSIZE for more), for files with reads and writes of one whole record
    /// each.
    fn record(&self) -> Option<usize> {
        None
    }
    /// Bytes that a write would take now, where asking is cheaper than bringing more; `None` when it is not known.
    fn room(&self) -> Option<usize> {
        None
    }
    /// A read of `want` bytes of which only the first `buf.len()` have a place in the program's memory: takes the pieces that
    /// were written as far as they fit whole, so that nothing of one is lost. EFAULT when the first does not fit. `None` for
    /// files without such pieces.
    fn read_whole(
        &self,
        _cx: &dyn Caller,
        _file: &OpenFile,
        _buf: &mut [u8],
        _want: usize,
    ) -> Option<Result<usize>> {
        None
    }
    /// What a close(2) is to wait for when it turns out to be the last; `None` for nothing.
    fn lingering(&self) -> Option<Lingering> {
        None
    }
    /// O_ASYNC begins: the queue with the notifications that become signals. `None` for files that send none.
    fn fasync(&self, _cx: &dyn Caller, _file: &OpenFile) -> Option<WaitQueue> {
        None
    }
}

/// A close(2) that waits (SO_LINGER).
pub struct Lingering {
    /// Notified when `goes_on` may have changed.
    pub queue: WaitQueue,
    /// How long to wait at most.
    pub time: Duration,
    /// Asked after the close: true while there is something to wait for.
    pub goes_on: Box<dyn Fn() -> bool>,
}

impl Lingering {
    /// Waits. A signal ends it as time does: the file is closed.
    pub fn wait(self, cx: &dyn Caller) {
        let over = || (!(self.goes_on)()).then_some(());
        let deadline = Instant::now().checked_add(self.time);
        let _ = cx.waiter().wait_on(&self.queue, Events::ALL, deadline, over);
    }
}

/// The abilities as any file answers for them.
impl dyn FileOps {
    /// True for files with a position.
    pub fn seekable(&self) -> bool {
        self.as_seek().is_some()
    }
    /// See [`SeekOps::append`]; ESPIPE for streams.
    pub fn append(&self, cx: &dyn Caller, file: &OpenFile, buf: &[u8]) -> Result<(usize, u64)> {
        self.as_seek().ok_or(Errno::ESPIPE)?.append(cx, file, buf)
    }
    /// See [`StorageOps::sync`]; EINVAL for files without storage.
    pub fn sync(&self, cx: &dyn Caller, file: &OpenFile, data_only: bool) -> Result<()> {
        self.as_storage().ok_or(Errno::EINVAL)?.sync(cx, file, data_only)
    }
    /// See [`StorageOps::allocate`]; ENODEV for files without storage.
    pub fn allocate(&self, cx: &dyn Caller, file: &OpenFile, mode: i32, off: u64, len: u64) -> Result<()> {
        self.as_storage().ok_or(Errno::ENODEV)?.allocate(cx, file, mode, off, len)
    }
    /// Takes O_DIRECT.
    pub fn direct(&self) -> bool {
        self.as_storage().is_some_and(StorageOps::direct)
    }
    /// See [`MapOps::map`]; ENODEV for files that cannot be mapped.
    pub fn map(&self, cx: &dyn Caller, file: &OpenFile, req: &MapRequest) -> Result<Mapping> {
        self.as_map().ok_or(Errno::ENODEV)?.map(cx, file, req)
    }
    /// See [`MapOps::lend`].
    pub fn lend(&self, cx: &dyn Caller, file: &OpenFile, off: u64, len: usize) -> Option<LentFd> {
        self.as_map()?.lend(cx, file, off, len)
    }
    /// See [`MapOps::lend_to_write`].
    pub fn lend_to_write(&self, cx: &dyn Caller, file: &OpenFile, len: usize) -> Option<LentFd> {
        self.as_map()?.lend_to_write(cx, file, len)
    }
    /// See [`MapOps::image`].
    pub fn image(&self) -> Option<(u64, u64)> {
        self.as_map()?.image()
    }
    /// See [`MapOps::layer`].
    pub fn layer(&self) -> Option<Layer> {
        self.as_map()?.layer()
    }
    /// See [`MapOps::image_fd`].
    pub fn image_fd(&self) -> Option<Arc<OwnedFd>> {
        self.as_map()?.image_fd()
    }
    /// See [`DirectoryOps::read_dir`]; ENOTDIR for other files.
    pub fn read_dir(
        &self,
        cx: &dyn Caller,
        file: &OpenFile,
        pos: u64,
        sink: &mut dyn DirSink,
    ) -> Result<u64> {
        self.as_directory().ok_or(Errno::ENOTDIR)?.read_dir(cx, file, pos, sink)
    }
    /// See [`StreamOps::patience`].
    pub fn patience(&self, write: bool) -> Option<Duration> {
        self.as_stream()?.patience(write)
    }
    /// See [`StreamOps::writes_all`].
    pub fn writes_all(&self) -> bool {
        self.as_stream().is_none_or(StreamOps::writes_all)
    }
    /// See [`StreamOps::lingering`].
    pub fn lingering(&self) -> Option<Lingering> {
        self.as_stream()?.lingering()
    }
    /// See [`StreamOps::fasync`].
    pub fn fasync(&self, cx: &dyn Caller, file: &OpenFile) -> Option<WaitQueue> {
        self.as_stream()?.fasync(cx, file)
    }
}

/// An O_PATH file: a place without operations, and what keeps the object within reach.
#[derive(Default)]
pub struct PathOnly {
    _held: Option<Hold>,
}

impl PathOnly {
    /// Of this object. ESTALE when it is no longer where it was found.
    pub fn of(inode: &InodeRef) -> Result<PathOnly> {
        Ok(PathOnly { _held: inode.hold()? })
    }
}

impl FileOps for PathOnly {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> wait::Events {
        Events(0x20)
    }
}

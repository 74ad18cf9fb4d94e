//! Reading and writing open files: what is the same for every file. One call
//! here is one attempt on one buffer; blocking is `retry`'s, cutting large
//! transfers into pieces is the system call layer's.

use abi::stat::{S_IFDIR, S_IFREG};
use abi::{Errno, Result, Signal};
use hostsys::memfd::CopyArea;
use rights::mode;
use vfs::Caller;
use vfs::file::{LentFd, OpenFile, SeekOps, StorageOps, file_kind};
use vfs::inode::SetAttr;
use vfs::notify::{self, event};

/// Largest transfer of one call (MAX_RW_COUNT).
pub const MAX_RW: usize = 0x7fff_f000;

/// EBADF and EISDIR for reading.
pub fn check_readable(file: &OpenFile) -> Result<()> {
    if !file.readable() {
        return Err(Errno::EBADF);
    }
    check_no_directory(file)
}

/// EISDIR for reading a directory.
pub fn check_no_directory(file: &OpenFile) -> Result<()> {
    if file_kind(file) == S_IFDIR { Err(Errno::EISDIR) } else { Ok(()) }
}

/// Reads at `off` (ignored by streams).
pub fn read_at(cx: &dyn Caller, file: &OpenFile, buf: &mut [u8], off: u64) -> Result<usize> {
    if i64::try_from(off).is_err() && file.ops.seekable() {
        return Err(Errno::EINVAL);
    }
    let n = file.ops.read(cx, file, buf, off)?;
    if n > 0 {
        notify::by_file(cx, file, event::ACCESS);
    }
    Ok(n)
}

/// As [`read_at`] of a stream where only the first part of `want` bytes has a place, see [`vfs::StreamOps::read_whole`].
pub fn read_whole(cx: &dyn Caller, file: &OpenFile, buf: &mut [u8], want: usize) -> Result<usize> {
    match file.ops.as_stream().and_then(|stream| stream.read_whole(cx, file, buf, want)) {
        Some(Ok(n)) if n > 0 => {
            notify::by_file(cx, file, event::ACCESS);
            Ok(n)
        }
        Some(done) => done,
        None => read_at(cx, file, buf, 0),
    }
}

/// As [`read_at`] where the file can put its bytes into `to`, see [`vfs::FileOps::read_to`].
pub fn read_to(
    cx: &dyn Caller,
    file: &OpenFile,
    to: &CopyArea<'_>,
    len: usize,
    off: u64,
) -> Option<Result<usize>> {
    let done = file.ops.read_to(cx, file, to, len, off)?;
    if done.is_ok_and(|n| n > 0) {
        notify::by_file(cx, file, event::ACCESS);
    }
    Some(done)
}

/// The caller's thread reads from the file by itself, see [`vfs::MapOps::lend`].
pub fn reads_by_itself(cx: &dyn Caller, file: &OpenFile) {
    notify::by_file(cx, file, event::ACCESS);
}

/// What the caller's thread writes `len` bytes at `off` by itself with, see [`vfs::MapOps::lend_to_write`]. `None` as
/// well when the write is not a plain one: it would be cut, or appends, or has watchers, which must hear of it after it
/// has been made.
pub fn lend_to_write(cx: &dyn Caller, file: &OpenFile, off: u64, len: usize) -> Option<LentFd> {
    let plain = file_kind(file) == S_IFREG && file.flags() & (libc::O_APPEND | libc::O_SYNC) == 0;
    let inside = off.checked_add(len as u64).is_some_and(|end| end <= cx.rlimit(libc::RLIMIT_FSIZE as i32));
    if !plain || !inside || !notify::is_idle(file) {
        return None;
    }
    let loan = file.ops.lend_to_write(cx, file, len)?;
    strip_set_id(cx, file).ok()?;
    Some(loan)
}

/// Cuts a write at the file size limit and at the end of the space of offsets; raises SIGXFSZ when the limit leaves
/// nothing to be written.
pub fn limit(cx: &dyn Caller, off: u64, len: u64) -> Result<u64> {
    let max = cx.rlimit(libc::RLIMIT_FSIZE as i32);
    if off >= max {
        cx.raise(Signal::SIGXFSZ);
        return Err(Errno::EFBIG);
    }
    if off >= i64::MAX as u64 {
        return Err(Errno::EFBIG);
    }
    Ok(len.min(max.min(i64::MAX as u64) - off))
}

/// Drops set-id bits that must not survive a write.
pub fn strip_set_id(cx: &dyn Caller, file: &OpenFile) -> Result<()> {
    let Some(inode) = &file.inode else { return Ok(()) };
    let perm = inode.perm()?;
    if perm.mode & 0o6000 == 0 {
        return Ok(());
    }
    // Of a file that its group may not execute the host takes the sentry for a member of the group.
    let judged_here = perm.mode & 0o2010 == 0o2000;
    if !judged_here && file.ops.as_storage().is_some_and(StorageOps::write_drops_set_id) {
        return Ok(());
    }
    match mode::after_write(&cx.creds(), &perm) {
        Some(mode) => inode.set_attr(cx, &SetAttr { mode: Some(mode), ..SetAttr::default() }),
        None => Ok(()),
    }
}

/// Writes at `off`, or at the end with O_APPEND. Returns the count and the offset behind it.
pub fn write_at(cx: &dyn Caller, file: &OpenFile, buf: &[u8], off: u64) -> Result<(usize, u64)> {
    write_how(cx, file, buf, off, file.flags() & libc::O_APPEND != 0)
}

/// As [`write_at`], at the end or not whatever the file's flags (RWF_APPEND, RWF_NOAPPEND).
pub fn write_how(
    cx: &dyn Caller,
    file: &OpenFile,
    buf: &[u8],
    off: u64,
    append: bool,
) -> Result<(usize, u64)> {
    let done = write_inner(cx, file, buf, off, append)?;
    if done.0 > 0 {
        notify::by_file(cx, file, event::MODIFY);
        sync_written(cx, file)?;
    }
    Ok(done)
}

/// With O_SYNC or O_DSYNC, what was written has reached the device when a write ends: see open(2).
fn sync_written(cx: &dyn Caller, file: &OpenFile) -> Result<()> {
    let flags = file.flags();
    // O_SYNC has the bit of O_DSYNC, and one more.
    if flags & libc::O_DSYNC == 0 || file_kind(file) != S_IFREG {
        return Ok(());
    }
    match file.ops.sync(cx, file, flags & libc::O_SYNC != libc::O_SYNC) {
        Err(Errno::EINVAL) => Ok(()),
        result => result,
    }
}

fn write_inner(cx: &dyn Caller, file: &OpenFile, buf: &[u8], off: u64, append: bool) -> Result<(usize, u64)> {
    if !file.ops.seekable() {
        return Ok((file.ops.write(cx, file, buf, off)?, off));
    }
    let regular = file_kind(file) == S_IFREG;
    if !regular {
        let n = file.ops.write(cx, file, buf, off)?;
        return Ok((n, off + n as u64));
    }
    if i64::try_from(off).is_err() {
        return Err(Errno::EINVAL);
    }
    if buf.is_empty() && !file.ops.as_seek().is_some_and(SeekOps::takes_empty_writes) {
        return Ok((0, off));
    }
    if append {
        file.refresh(cx)?;
        // Without a limit the size does not matter.
        let limited = cx.rlimit(libc::RLIMIT_FSIZE as i32) != libc::RLIM_INFINITY;
        let end = if limited { file.attr()?.size } else { 0 };
        let n = limit(cx, end, buf.len() as u64)? as usize;
        strip_set_id(cx, file)?;
        return file.ops.append(cx, file, &buf[..n]);
    }
    let n = limit(cx, off, buf.len() as u64)? as usize;
    strip_set_id(cx, file)?;
    let n = file.ops.write(cx, file, &buf[..n], off)?;
    Ok((n, off + n as u64))
}

/// lseek(2).
pub fn seek(cx: &dyn Caller, file: &OpenFile, off: i64, whence: i32) -> Result<u64> {
    if file.path_only() {
        return Err(Errno::EBADF);
    }
    let dir = file_kind(file) == S_IFDIR;
    let ops = file.ops.as_seek().ok_or(Errno::ESPIPE)?;
    if let Some(position) = ops.seeks_itself(off, whence) {
        return position;
    }
    if ops.position_is_fixed() {
        return Ok(0);
    }
    let mut pos = file.hold_position(cx)?;
    let new = match whence {
        libc::SEEK_SET => off,
        libc::SEEK_CUR => i64::try_from(*pos).ok().and_then(|p| p.checked_add(off)).ok_or(Errno::EINVAL)?,
        libc::SEEK_END if !ops.ends() => return Err(Errno::EINVAL),
        libc::SEEK_END => {
            let size = if dir {
                0
            } else {
                file.refresh(cx)?;
                ops.size(file)?
            };
            i64::try_from(size).ok().and_then(|s| s.checked_add(off)).ok_or(Errno::EINVAL)?
        }
        libc::SEEK_DATA | libc::SEEK_HOLE => ops.seek_special(cx, file, off, whence)? as i64,
        _ => return Err(Errno::EINVAL),
    };
    *pos = u64::try_from(new).map_err(|_| Errno::EINVAL)?;
    Ok(*pos)
}

//! read(2), write(2), and their vector and positioned forms.

use crate::arg::{Fd, Ptr};
use crate::files::transfer::{self, How};
use crate::iov::Iov;
use abi::{Errno, Result};
use std::sync::Arc;
use task::{Current, SysErr, SysResult};
use vfs::OpenFile;

const RWF_HIPRI: i32 = 0x01;
const RWF_DSYNC: i32 = 0x02;
const RWF_SYNC: i32 = 0x04;
const RWF_NOWAIT: i32 = 0x08;
const RWF_APPEND: i32 = 0x10;
const RWF_NOAPPEND: i32 = 0x20;
const RWF_KNOWN: i32 = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND | RWF_NOAPPEND;

fn reader(c: &Current, fd: Fd) -> Result<Arc<OpenFile>> {
    let f = c.file(fd.0)?;
    if f.readable() { Ok(f) } else { Err(Errno::EBADF) }
}

fn writer(c: &Current, fd: Fd) -> Result<Arc<OpenFile>> {
    let f = c.file(fd.0)?;
    if f.writable() { Ok(f) } else { Err(Errno::EBADF) }
}

/// The file for a positioned transfer: EINVAL for a negative offset, ESPIPE without positions.
fn positioned(c: &Current, fd: Fd, off: i64) -> Result<(Arc<OpenFile>, How)> {
    let at = u64::try_from(off).map_err(|_| Errno::EINVAL)?;
    let f = c.file(fd.0)?;
    if f.path_only() {
        return Err(Errno::EBADF);
    }
    if !f.ops.seekable() {
        return Err(Errno::ESPIPE);
    }
    Ok((f, How { at: Some(at), ..How::default() }))
}

/// A read that /proc/PID/io counts.
fn reading(c: &mut Current, f: &Arc<OpenFile>, iov: &Iov, how: How) -> SysResult {
    let r = transfer::read(c, f, iov, How { own: true, ..how });
    c.task.io.read(*r.as_ref().unwrap_or(&0));
    r
}

/// A write that /proc/PID/io counts.
fn writing(c: &mut Current, f: &Arc<OpenFile>, iov: &Iov, how: How) -> SysResult {
    let r = transfer::write(c, f, iov, how);
    c.task.io.wrote(*r.as_ref().unwrap_or(&0));
    r
}

pub fn read(c: &mut Current, fd: Fd, buf: Ptr, len: u64) -> SysResult {
    let f = reader(c, fd)?;
    let iov = Iov::one(c, buf.0, len)?;
    reading(c, &f, &iov, How::default())
}

pub fn write(c: &mut Current, fd: Fd, buf: Ptr, len: u64) -> SysResult {
    let f = writer(c, fd)?;
    let iov = Iov::one(c, buf.0, len)?;
    writing(c, &f, &iov, How { own: true, ..How::default() })
}

pub fn pread64(c: &mut Current, fd: Fd, buf: Ptr, len: u64, off: i64) -> SysResult {
    let (f, how) = positioned(c, fd, off)?;
    if !f.readable() {
        return Err(Errno::EBADF.into());
    }
    let iov = Iov::one(c, buf.0, len)?;
    reading(c, &f, &iov, how)
}

pub fn pwrite64(c: &mut Current, fd: Fd, buf: Ptr, len: u64, off: i64) -> SysResult {
    let (f, how) = positioned(c, fd, off)?;
    if !f.writable() {
        return Err(Errno::EBADF.into());
    }
    let iov = Iov::one(c, buf.0, len)?;
    writing(c, &f, &iov, How { own: true, ..how })
}

/// readv and friends after the file was found.
fn read_vec(c: &mut Current, f: &Arc<OpenFile>, at: Ptr, count: u64, how: How) -> SysResult {
    let iov = Iov::read(c, at.0, count)?;
    if !f.readable() {
        return Err(Errno::EBADF.into());
    }
    if iov.len == 0 {
        return Ok(0);
    }
    reading(c, f, &iov, how)
}

fn write_vec(c: &mut Current, f: &Arc<OpenFile>, at: Ptr, count: u64, how: How) -> SysResult {
    let iov = Iov::read(c, at.0, count)?;
    if !f.writable() {
        return Err(Errno::EBADF.into());
    }
    if iov.len == 0 {
        return Ok(0);
    }
    writing(c, f, &iov, how)
}

pub fn readv(c: &mut Current, fd: Fd, iov: Ptr, count: u64) -> SysResult {
    let f = c.file(fd.0)?;
    read_vec(c, &f, iov, count, How::default())
}

pub fn writev(c: &mut Current, fd: Fd, iov: Ptr, count: u64) -> SysResult {
    let f = c.file(fd.0)?;
    write_vec(c, &f, iov, count, How::default())
}

pub fn preadv(c: &mut Current, fd: Fd, iov: Ptr, count: u64, off: i64, _high: u64) -> SysResult {
    let (f, how) = positioned(c, fd, off)?;
    read_vec(c, &f, iov, count, how)
}

pub fn pwritev(c: &mut Current, fd: Fd, iov: Ptr, count: u64, off: i64, _high: u64) -> SysResult {
    let (f, how) = positioned(c, fd, off)?;
    write_vec(c, &f, iov, count, how)
}

/// The file and the way of preadv2 and pwritev2: offset -1 is the position.
fn flagged(c: &Current, fd: Fd, off: i64, flags: i32) -> Result<(Arc<OpenFile>, How), SysErr> {
    let (f, mut how) = match off {
        -1 => (c.file(fd.0)?, How::default()),
        _ => positioned(c, fd, off)?,
    };
    if flags & !RWF_KNOWN != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    how.nowait = flags & RWF_NOWAIT != 0;
    how.append = match flags & (RWF_APPEND | RWF_NOAPPEND) {
        0 => None,
        RWF_APPEND => Some(true),
        RWF_NOAPPEND => Some(false),
        _ => return Err(Errno::EINVAL.into()),
    };
    Ok((f, how))
}

pub fn preadv2(c: &mut Current, fd: Fd, iov: Ptr, count: u64, off: i64, _high: u64, flags: i32) -> SysResult {
    let (f, how) = flagged(c, fd, off, flags)?;
    read_vec(c, &f, iov, count, how)
}

pub fn pwritev2(
    c: &mut Current,
    fd: Fd,
    iov: Ptr,
    count: u64,
    off: i64,
    _high: u64,
    flags: i32,
) -> SysResult {
    let (f, how) = flagged(c, fd, off, flags)?;
    let n = write_vec(c, &f, iov, count, how)?;
    if n > 0 && flags & (RWF_DSYNC | RWF_SYNC) != 0 {
        match f.ops.sync(c, &f, flags & RWF_SYNC == 0) {
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(n)
}

pub fn lseek(c: &mut Current, fd: Fd, off: i64, whence: i32) -> SysResult {
    let f = c.file(fd.0)?;
    if f.path_only() {
        return Err(Errno::EBADF.into());
    }
    if !(libc::SEEK_SET..=libc::SEEK_HOLE).contains(&whence) {
        return Err(Errno::EINVAL.into());
    }
    Ok(files::io::seek(c, &f, off, whence)?)
}

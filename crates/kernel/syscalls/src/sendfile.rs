//! sendfile(2), copy_file_range(2), splice(2), tee(2), vmsplice(2), memfd_create(2).
//!
//! Data goes through a buffer of the sentry. What was taken from a stream and
//! could not be written is never lost: as much is taken as the other side
//! accepted, or the rest is written before the call returns.

use crate::arg::{Fd, Ptr};
use crate::at::real_file;
use crate::iov::{CHUNK, Scratch};
use abi::Errno;
use ipc::pipe::Pipe;
use std::sync::Arc;
use task::{Current, SysResult};
use vfs::dentry::{S_IFDIR, S_IFREG};
use vfs::io::{self, MAX_RW};
use vfs::open::file_kind;
use vfs::retry::{Failure, Outcome, retry};
use vfs::{Caller, OpenFile};
use wait::Events;

const SPLICE_F_NONBLOCK: u32 = 2;

/// One end of a transfer: the file's own position, a given one, or none.
enum Place {
    Stream,
    Own,
    At(u64),
}

impl Place {
    /// From an optional offset pointer; ESPIPE for an offset into a stream.
    fn of(c: &Current, f: &OpenFile, off: Ptr) -> Result<Place, Errno> {
        if !f.ops.seekable() {
            return if off.is_null() { Ok(Place::Stream) } else { Err(Errno::ESPIPE) };
        }
        if off.is_null() {
            return Ok(Place::Own);
        }
        let o: i64 = c.read_value(off.0)?;
        Ok(Place::At(u64::try_from(o).map_err(|_| Errno::EINVAL)?))
    }

    fn now(&self, f: &OpenFile) -> u64 {
        match self {
            Place::Stream => 0,
            Place::Own => *f.pos.lock(),
            Place::At(o) => *o,
        }
    }

    fn advance(&mut self, f: &OpenFile, to: u64) {
        match self {
            Place::Stream => {}
            Place::Own => *f.pos.lock() = to,
            Place::At(o) => *o = to,
        }
    }

    fn store(&self, c: &mut Current, off: Ptr) -> Result<(), Errno> {
        match self {
            Place::At(o) if !off.is_null() => c.write_value(off.0, &(*o as i64)),
            _ => Ok(()),
        }
    }
}

/// Copies up to `len` bytes. Blocks for the first bytes unless `nowait`; once data was taken from a stream,
/// it is written to the end.
fn pump(
    c: &Current,
    (src, from): (&Arc<OpenFile>, &mut Place),
    (dst, to): (&Arc<OpenFile>, &mut Place),
    len: u64,
    nowait: bool,
) -> Outcome<u64> {
    let mut total = 0u64;
    while total < len {
        let want = usize::try_from(len - total).unwrap_or(CHUNK).min(CHUNK);
        let moved = (|| -> Outcome<(usize, usize)> {
            let mut scratch = Scratch::new();
            let buf = scratch.get(want);
            if !src.ops.seekable() && nowait && dst.ops.wait_queue().is_some() {
                // Do not take what cannot be passed on without waiting.
                if !dst.ops.poll(dst).intersects(Events::OUT) {
                    return Err(Errno::EAGAIN.into());
                }
            }
            let pos = from.now(src);
            let n = if nowait {
                io::read_at(c, src, buf, pos)?
            } else {
                retry(c, src, Events::READABLE | Events::RDHUP, None, || io::read_at(c, src, buf, pos))?
            };
            let mut done = 0;
            while done < n {
                let at = to.now(dst);
                let part = &buf[done..n];
                let wrote = if nowait && src.ops.seekable() {
                    io::write_at(c, dst, part, at).map_err(Failure::Errno)
                } else {
                    retry(c, dst, Events::WRITABLE, None, || io::write_at(c, dst, part, at))
                };
                match wrote {
                    Ok((0, _)) => break,
                    Ok((w, end)) => {
                        to.advance(dst, end);
                        done += w;
                    }
                    Err(e) if done == 0 => return Err(e),
                    Err(_) => break,
                }
            }
            from.advance(src, pos + done as u64);
            Ok((n, done))
        })();
        match moved {
            Ok((n, done)) => {
                total += done as u64;
                // A stream gives what it has; only files are read on.
                if n == 0 || done < n || n < want && !src.ops.seekable() || !src.ops.seekable() {
                    return Ok(total);
                }
            }
            Err(_) if total > 0 => return Ok(total),
            Err(e) => return Err(e),
        }
    }
    Ok(total)
}

pub fn sendfile(c: &mut Current, out: Fd, input: Fd, off: Ptr, count: u64) -> SysResult {
    let src = real_file(c, input)?;
    let dst = real_file(c, out)?;
    if !src.readable() || !dst.writable() {
        return Err(Errno::EBADF.into());
    }
    if !matches!(file_kind(&src), S_IFREG) && !src.ops.seekable() && Pipe::of(&src).is_none() {
        return Err(Errno::EINVAL.into());
    }
    if file_kind(&src) == S_IFDIR || dst.flags() & libc::O_APPEND != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut from = Place::of(c, &src, off)?;
    let mut to = if dst.ops.seekable() { Place::Own } else { Place::Stream };
    let n = pump(c, (&src, &mut from), (&dst, &mut to), count.min(MAX_RW as u64), false)?;
    from.store(c, off)?;
    Ok(n)
}

pub fn copy_file_range(
    c: &mut Current,
    input: Fd,
    off_in: Ptr,
    out: Fd,
    off_out: Ptr,
    len: u64,
    flags: u32,
) -> SysResult {
    let src = real_file(c, input)?;
    let dst = real_file(c, out)?;
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    for f in [&src, &dst] {
        match file_kind(f) {
            S_IFREG => {}
            S_IFDIR => return Err(Errno::EISDIR.into()),
            _ => return Err(Errno::EINVAL.into()),
        }
    }
    if !src.readable() || !dst.writable() || dst.flags() & libc::O_APPEND != 0 {
        return Err(Errno::EBADF.into());
    }
    let mut from = Place::of(c, &src, off_in)?;
    let mut to = Place::of(c, &dst, off_out)?;
    let len = len.min(MAX_RW as u64);
    let (a, b) = (from.now(&src), to.now(&dst));
    if a.checked_add(len).is_none() || b.checked_add(len).is_none() {
        return Err(Errno::EOVERFLOW.into());
    }
    let same = match (&src.inode, &dst.inode) {
        (Some(x), Some(y)) => Arc::ptr_eq(x, y),
        _ => false,
    };
    let size = src.attr()?.size;
    let len = len.min(size.saturating_sub(a));
    if same && a < b + len && b < a + len {
        return Err(Errno::EINVAL.into());
    }
    let n = pump(c, (&src, &mut from), (&dst, &mut to), len, false)?;
    from.store(c, off_in)?;
    to.store(c, off_out)?;
    Ok(n)
}

pub fn splice(
    c: &mut Current,
    input: Fd,
    off_in: Ptr,
    out: Fd,
    off_out: Ptr,
    len: u64,
    flags: u32,
) -> SysResult {
    if flags & !15 != 0 {
        return Err(Errno::EINVAL.into());
    }
    if len == 0 {
        return Ok(0);
    }
    let src = real_file(c, input)?;
    let dst = real_file(c, out)?;
    if !src.readable() || !dst.writable() {
        return Err(Errno::EBADF.into());
    }
    let (pin, pout) = (Pipe::of(&src).cloned(), Pipe::of(&dst).cloned());
    match (&pin, &pout) {
        (None, None) => return Err(Errno::EINVAL.into()),
        (Some(a), Some(b)) if Arc::ptr_eq(a, b) => return Err(Errno::EINVAL.into()),
        _ => {}
    }
    if pin.is_some() && !off_in.is_null() || pout.is_some() && !off_out.is_null() {
        return Err(Errno::ESPIPE.into());
    }
    if file_kind(&dst) == S_IFREG && dst.flags() & libc::O_APPEND != 0 {
        return Err(Errno::EINVAL.into());
    }
    if file_kind(&src) == S_IFDIR {
        return Err(Errno::EINVAL.into());
    }
    let mut from = Place::of(c, &src, off_in)?;
    let mut to = Place::of(c, &dst, off_out)?;
    let mut len = len.min(MAX_RW as u64);
    if let (Some(p), true) = (&pout, src.ops.seekable()) {
        // At most what fits into the pipe: files are not read ahead of it.
        len = len.min(p.size() as u64);
    }
    let nowait = flags & SPLICE_F_NONBLOCK != 0;
    let n = pump(c, (&src, &mut from), (&dst, &mut to), len, nowait)?;
    from.store(c, off_in)?;
    to.store(c, off_out)?;
    Ok(n)
}

pub fn tee(c: &mut Current, input: Fd, out: Fd, len: u64, flags: u32) -> SysResult {
    if flags & !15 != 0 {
        return Err(Errno::EINVAL.into());
    }
    if len == 0 {
        return Ok(0);
    }
    let src = real_file(c, input)?;
    let dst = real_file(c, out)?;
    if !src.readable() || !dst.writable() {
        return Err(Errno::EBADF.into());
    }
    let (Some(a), Some(b)) = (Pipe::of(&src).cloned(), Pipe::of(&dst)) else {
        return Err(Errno::EINVAL.into());
    };
    if Arc::ptr_eq(&a, b) {
        return Err(Errno::EINVAL.into());
    }
    let nowait = flags & SPLICE_F_NONBLOCK != 0;
    let want = usize::try_from(len).unwrap_or(CHUNK).min(CHUNK);
    let n = (|| -> Outcome<usize> {
        let mut scratch = Scratch::new();
        let buf = scratch.get(want);
        let n = if nowait { a.peek(buf)? } else { retry(c, &src, Events::READABLE, None, || a.peek(buf))? };
        let data = &buf[..n];
        if n == 0 {
            return Ok(0);
        }
        if nowait {
            return Ok(dst.ops.write(c, &dst, data, 0)?);
        }
        retry(c, &dst, Events::WRITABLE, None, || dst.ops.write(c, &dst, data, 0))
    })()?;
    Ok(n as u64)
}

pub fn vmsplice(c: &mut Current, fd: Fd, iov: Ptr, count: u64, flags: u32) -> SysResult {
    if flags & !15 != 0 {
        return Err(Errno::EINVAL.into());
    }
    let f = real_file(c, fd)?;
    if Pipe::of(&f).is_none() {
        return Err(Errno::EBADF.into());
    }
    if f.writable() {
        crate::read_write::writev(c, fd, iov, count)
    } else {
        crate::read_write::readv(c, fd, iov, count)
    }
}

pub fn memfd_create(c: &mut Current, name: Ptr, flags: u32) -> SysResult {
    const MFD_CLOEXEC: u32 = 1;
    const MFD_NOEXEC_SEAL: u32 = 8;
    const MFD_EXEC: u32 = 16;
    const MFD_HUGETLB: u32 = 4;
    if flags & !(MFD_CLOEXEC | 2 | MFD_NOEXEC_SEAL | MFD_EXEC | MFD_HUGETLB) != 0
        || flags & (MFD_NOEXEC_SEAL | MFD_EXEC) == MFD_NOEXEC_SEAL | MFD_EXEC
    {
        return Err(Errno::EINVAL.into());
    }
    if flags & MFD_HUGETLB != 0 {
        // As a machine without reserved huge pages.
        return Err(Errno::ENOMEM.into());
    }
    let n = c.read_cstr(name.0, 250, Errno::EINVAL)?;
    let f = tmpfs::memfd(c, &n, flags)?;
    Ok(c.fd_table().install(f, flags & MFD_CLOEXEC != 0, c.rlimit(libc::RLIMIT_NOFILE as i32))? as u64)
}

pub fn name_to_handle_at(_c: &mut Current) -> SysResult {
    Err(Errno::EOPNOTSUPP.into())
}

pub fn open_by_handle_at(c: &mut Current) -> SysResult {
    let allowed = c.creds().capable(vfs::Cap::DAC_READ_SEARCH);
    Err(if allowed { Errno::EOPNOTSUPP } else { Errno::EPERM }.into())
}

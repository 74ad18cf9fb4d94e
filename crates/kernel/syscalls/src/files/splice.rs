//! Moving bytes from file to file: sendfile(2), copy_file_range(2), splice(2), tee(2), vmsplice(2).

use crate::arg::{Fd, Ptr};
use crate::files::outgoing::{self, Outgoing};
use crate::files::transfer::{self, How};
use crate::iov::{Iov, Scratch};
use abi::stat::{S_IFDIR, S_IFREG};
use abi::{Errno, Result};
use caller::Failure;
use files::io::{self, MAX_RW};
use ipc::pipe::{Pipe, SLOT};
use policy::Kind;
use socket::SocketFile;
use std::sync::Arc;
use task::{Current, SysErr, SysResult};
use vfs::OpenFile;
use vfs::file::file_kind;
use vfs::notify::{self, event};
use vfs::policing;
use vfs::retry::retry;
use wait::Events;

/// How much moves at once.
const PIECE: usize = 128 << 10;
/// The least that sendfile(2) reads for a stream.
const LEAST: usize = 4096;
const SPLICE_F_NONBLOCK: u32 = 2;
const SPLICE_F_ALL: u32 = 0xf;

/// The offset of one side: in memory, or the file's position.
struct Offset {
    ptr: Ptr,
    at: u64,
}

impl Offset {
    fn read(c: &Current, f: &OpenFile, ptr: Ptr) -> Result<Offset> {
        let at = match ptr.is_null() {
            true => *f.hold_position(c)?,
            false => u64::try_from(c.read_value::<i64>(ptr.0)?).map_err(|_| Errno::EINVAL)?,
        };
        Ok(Offset { ptr, at })
    }

    /// The file's position.
    fn position(c: &Current, f: &OpenFile) -> Result<Offset> {
        Ok(Offset { ptr: Ptr(0), at: *f.hold_position(c)? })
    }

    /// Does a transfer there. One at the file's position holds that: a file of the host then moves the position that
    /// it shares with other programs there.
    fn hold<T>(&self, c: &Current, f: &OpenFile, transfer: impl FnOnce(u64) -> Result<T>) -> Result<T> {
        let _held = match self.ptr.is_null() && f.ops.seekable() {
            true => Some(f.hold_position(c)?),
            false => None,
        };
        transfer(self.at)
    }

    fn store(&self, c: &mut Current, f: &OpenFile) -> Result<()> {
        if self.ptr.is_null() {
            *f.hold_position(c)? = self.at;
            return Ok(());
        }
        c.write_value(self.ptr.0, &(self.at as i64))
    }
}

/// How much of one side moves at once.
fn piece(f: &OpenFile) -> usize {
    let whole = f.ops.as_stream().is_some_and(|stream| stream.moves_messages());
    if whole { transfer::MESSAGE } else { PIECE }
}

/// EINVAL for a range of bytes that leaves the space of offsets.
fn check_span(at: u64, len: u64) -> Result<()> {
    let end = at.checked_add(len).filter(|&end| i64::try_from(end).is_ok());
    end.map(drop).ok_or(Errno::EINVAL)
}

/// Writes all of `buf`, at `off` when the file has positions. Says how much was written, also on failure.
fn write_all(
    c: &Current,
    f: &OpenFile,
    buf: &[u8],
    off: &Offset,
    nowait: bool,
) -> (usize, Result<(), Failure>) {
    if !f.ops.seekable() {
        return outgoing::send_all(c, f, buf, nowait);
    }
    match off.hold(c, f, |at| io::write_at(c, f, buf, at)) {
        Ok((n, _)) => (n, Ok(())),
        Err(e) => (0, Err(e.into())),
    }
}

/// The count after some bytes moved, or the reason why none did.
fn outcome(done: usize, end: Result<(), Failure>) -> Result<usize, SysErr> {
    match end {
        Err(e) if done == 0 => Err(e.into()),
        _ => Ok(done),
    }
}

/// Copies from a file with positions. Moves both offsets by what was copied.
fn pump(
    c: &Current,
    from: (&OpenFile, &mut Offset),
    to: (&OpenFile, &mut Offset),
    len: usize,
) -> Result<usize, SysErr> {
    let mut memory = Outgoing::to(to.0, len);
    let mut done = 0;
    while done < len && !c.is_killed() {
        // A stream that is full says so, or is waited for, whatever it is given.
        let room =
            to.0.ops.as_stream().and_then(|stream| stream.room()).map_or(PIECE, |room| room.max(LEAST));
        let buf = memory.get(memory.most((len - done).min(PIECE).min(room)));
        let n = match from.1.hold(c, from.0, |at| io::read_at(c, from.0, buf, at)) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) => return outcome(done, Err(e.into())),
        };
        let (m, r) = match to.0.ops.seekable() {
            true => write_all(c, to.0, memory.filled(n).0, to.1, false),
            false => memory.write(c, to.0, n, false),
        };
        done += m;
        from.1.at += m as u64;
        to.1.at += m as u64;
        if r.is_err() || m < n {
            return outcome(done, r);
        }
    }
    Ok(done)
}

/// The error of a policy that refuses to read one file and write the other.
fn decide(c: &Current, from: &Arc<OpenFile>, to: &Arc<OpenFile>) -> Result<()> {
    policing::decide_io(c, Kind::FileRead, from)?;
    policing::decide_io(c, Kind::FileWrite, to)
}

pub fn sendfile(c: &mut Current, out: Fd, input: Fd, offset: Ptr, count: u64) -> SysResult {
    let given = !offset.is_null();
    let from = c.file(input.0)?;
    if !from.readable() {
        return Err(Errno::EBADF.into());
    }
    if given && !from.ops.seekable() {
        return Err(Errno::ESPIPE.into());
    }
    let mut off = Offset::read(c, &from, offset)?;
    check_span(off.at, count)?;
    let count = count.min(MAX_RW as u64);
    let to = c.file(out.0)?;
    if !to.writable() {
        return Err(Errno::EBADF.into());
    }
    let mut end = Offset::position(c, &to)?;
    check_span(end.at, count)?;
    if !from.ops.seekable() || file_kind(&from) == S_IFDIR || to.flags() & libc::O_APPEND != 0 {
        return Err(Errno::EINVAL.into());
    }
    decide(c, &from, &to)?;
    vfs::notify::ask_to_read(c, &from)?;
    let n = pump(c, (&from, &mut off), (&to, &mut end), count as usize)?;
    c.task.io.read(n as u64);
    c.task.io.wrote(n as u64);
    off.store(c, &from)?;
    if to.ops.seekable() {
        *to.hold_position(c)? = end.at;
    }
    Ok(n as u64)
}

fn same_file(a: &OpenFile, b: &OpenFile) -> Result<bool> {
    let (a, b) = (a.attr()?, b.attr()?);
    Ok((a.dev, a.ino) == (b.dev, b.ino))
}

/// Whether copy_file_range(2) works from one file to the other: within a file system, and among those of a kind that
/// copies by itself.
fn copies_between(from: &OpenFile, to: &OpenFile) -> Result<bool> {
    const COPIES: [&str; 2] = ["overlay", "fuse"];
    if let (Some(a), Some(b)) = (&from.path, &to.path) {
        let kind = a.mount.fs().kind();
        if Arc::ptr_eq(&a.mount.sb, &b.mount.sb) || kind == b.mount.fs().kind() && COPIES.contains(&kind) {
            return Ok(true);
        }
    }
    // Two volumes can be of one file system of the host.
    Ok(from.attr()?.dev == to.attr()?.dev)
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
    let from = c.file(input.0)?;
    let to = c.file(out.0)?;
    if from.path_only() || to.path_only() {
        return Err(Errno::EBADF.into());
    }
    let mut a = Offset::read(c, &from, off_in)?;
    let mut b = Offset::read(c, &to, off_out)?;
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    let kinds = (file_kind(&from), file_kind(&to));
    if kinds.0 == S_IFDIR || kinds.1 == S_IFDIR {
        return Err(Errno::EISDIR.into());
    }
    if kinds != (S_IFREG, S_IFREG) {
        return Err(Errno::EINVAL.into());
    }
    if !from.readable() || !to.writable() || to.flags() & libc::O_APPEND != 0 {
        return Err(Errno::EBADF.into());
    }
    if !copies_between(&from, &to)? {
        return Err(Errno::EXDEV.into());
    }
    if a.at.checked_add(len).is_none() || b.at.checked_add(len).is_none() {
        return Err(Errno::EOVERFLOW.into());
    }
    decide(c, &from, &to)?;
    // Up to the end of the input; what it reports as empty (proc) has nothing to copy.
    let len = len.min(from.fresh_attr(c)?.size.saturating_sub(a.at));
    let len = io::limit(c, b.at, len)?;
    if same_file(&from, &to)? && a.at < b.at + len && b.at < a.at + len {
        return Err(Errno::EINVAL.into());
    }
    vfs::notify::ask_to_read(c, &from)?;
    let len = usize::try_from(len).unwrap_or(MAX_RW).min(MAX_RW);
    let n = match copy_below(c, (&from, &mut a), (&to, &mut b), len) {
        Some(n) => n?,
        None => pump(c, (&from, &mut a), (&to, &mut b), len)?,
    };
    c.task.io.read(n as u64);
    c.task.io.wrote(n as u64);
    a.store(c, &from)?;
    b.store(c, &to)?;
    Ok(n as u64)
}

/// Has the server of both files copy, where that is possible.
fn copy_below(
    c: &Current,
    from: (&OpenFile, &mut Offset),
    to: (&OpenFile, &mut Offset),
    len: usize,
) -> Option<Result<usize>> {
    let storage = from.0.ops.as_storage().filter(|_| len > 0)?;
    let n = match storage.copy_range(c, (from.0, from.1.at), (to.0, to.1.at), len)? {
        Ok(n) => n,
        Err(e) => return Some(Err(e)),
    };
    from.1.at += n as u64;
    to.1.at += n as u64;
    Some(Ok(n))
}

/// Waits for something in the pipe behind `f` and copies it without taking it; 0 at the end.
fn peek(c: &Current, f: &OpenFile, p: &Pipe, buf: &mut [u8], nowait: bool) -> Result<usize, Failure> {
    if nowait {
        return p.peek(buf).map_err(Failure::Errno);
    }
    retry(c, f, Events::READABLE, || p.peek(buf))
}

/// Waits for room in the pipe behind `f`.
fn room(c: &Current, f: &OpenFile, p: &Pipe, nowait: bool) -> Result<usize, Failure> {
    if nowait {
        return p.room(c).map_err(Failure::Errno);
    }
    retry(c, f, Events::WRITABLE, || p.room(c))
}

/// From pipe to pipe: waits until something can move, then moves what there is and fits.
fn relay(
    c: &Current,
    (from, a): (&OpenFile, &Pipe),
    (to, b): (&OpenFile, &Pipe),
    len: usize,
    keep: bool,
    flags: u32,
) -> Result<usize, SysErr> {
    let nowait = flags & SPLICE_F_NONBLOCK != 0 || from.nonblocking() || to.nonblocking();
    loop {
        // The input first: an empty pipe without writers is the end.
        if peek(c, from, a, &mut [0], nowait)? == 0 {
            return Ok(0);
        }
        room(c, to, b, nowait)?;
        match a.splice(c, b, len, keep) {
            // Another thread was faster.
            Err(Errno::EAGAIN) if !nowait => {}
            done => return Ok(done?),
        }
    }
}

/// From pipe to anything else. Bytes leave the pipe once they are written.
fn drain(
    c: &Current,
    (from, pipe): (&OpenFile, &Pipe),
    (to, off): (&OpenFile, &mut Offset),
    len: usize,
    nowait: bool,
) -> Result<usize, SysErr> {
    let mut scratch = Scratch::new();
    let mut done = 0;
    while done < len {
        let buf = scratch.get((len - done).min(piece(to)));
        let n = match peek(c, from, pipe, buf, nowait || done > 0) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) => return outcome(done, Err(e)),
        };
        let (m, r) = write_all(c, to, &buf[..n], off, false);
        io::read_at(c, from, &mut buf[..m], 0)?;
        done += m;
        off.at += m as u64;
        if r.is_err() || m < n {
            return outcome(done, r);
        }
    }
    Ok(done)
}

/// Gives bytes to a pipe as pages, and waits until all have a place. The first page has `first` bytes at most.
fn put_pages(
    c: &Current,
    (to, pipe): (&OpenFile, &Pipe),
    bytes: &[u8],
    first: usize,
) -> (usize, Result<(), Failure>) {
    let mut done = 0;
    while done < bytes.len() {
        let most = if done == 0 { first } else { SLOT };
        match retry(c, to, Events::WRITABLE, || pipe.take_pages(c, &bytes[done..], most)) {
            Ok(n) => done += n,
            Err(e) => return (done, Err(e)),
        }
        notify::by_file(c, to, event::MODIFY);
    }
    (done, Ok(()))
}

/// From anything to a pipe: one pass, as much as there is room for.
fn fill(
    c: &Current,
    (from, off): (&OpenFile, &mut Offset),
    (to, pipe): (&OpenFile, &Pipe),
    len: usize,
    nowait: bool,
) -> Result<usize, SysErr> {
    let space = room(c, to, pipe, nowait)?;
    if !from.ops.splices(false) {
        return Err(Errno::EINVAL.into());
    }
    let mut scratch = Scratch::new();
    let buf = scratch.get(len.min(space).min(piece(from)));
    let socket = SocketFile::of(from).ok();
    let waits = socket.is_none_or(|s| !nowait || !s.ops.splices_without_waiting());
    let mut pass = || {
        if socket.is_some_and(|s| s.ops.stops_splice()) {
            return if from.nonblocking() { Err(Errno::EAGAIN) } else { Ok(0) };
        }
        off.hold(c, from, |at| io::read_at(c, from, buf, at))
    };
    let n = if waits { retry(c, from, Events::READABLE | Events::PRI, pass)? } else { pass()? };
    // Another thread may have taken the room: the bytes that were read must not be lost.
    let first = if from.ops.seekable() { SLOT - off.at as usize % SLOT } else { SLOT };
    let (m, r) = put_pages(c, (to, pipe), &buf[..n], first);
    off.at += m as u64;
    outcome(m, if n == 0 { Ok(()) } else { r })
}

/// Files that splice(2) knows how to read and write: not those of epoll, timers, events and the like.
fn moves_pages(file: &OpenFile) -> bool {
    const KINDS: [u32; 5] = [S_IFREG, libc::S_IFCHR, libc::S_IFBLK, libc::S_IFIFO, libc::S_IFSOCK];
    KINDS.contains(&file_kind(file))
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
    if len == 0 {
        return Ok(0);
    }
    if flags & !SPLICE_F_ALL != 0 {
        return Err(Errno::EINVAL.into());
    }
    let (from, to) = (c.file(input.0)?, c.file(out.0)?);
    if !from.readable() || !to.writable() {
        return Err(Errno::EBADF.into());
    }
    if !moves_pages(&from) || !moves_pages(&to) || !to.ops.splices(true) {
        return Err(Errno::EINVAL.into());
    }
    decide(c, &from, &to)?;
    let whole = len;
    let len = usize::try_from(len).unwrap_or(MAX_RW).min(MAX_RW);
    let nowait = flags & SPLICE_F_NONBLOCK != 0;
    let (a, b) = (Pipe::of(&from).cloned(), Pipe::of(&to).cloned());
    if a.is_some() && !off_in.is_null() || b.is_some() && !off_out.is_null() {
        return Err(Errno::ESPIPE.into());
    }
    match (a, b) {
        (Some(a), Some(b)) => {
            if Arc::ptr_eq(&a, &b) {
                return Err(Errno::EINVAL.into());
            }
            Ok(relay(c, (&from, &a), (&to, &b), len, false, flags)? as u64)
        }
        (Some(a), None) => {
            if !off_out.is_null() && !to.ops.seekable() || to.flags() & libc::O_APPEND != 0 {
                return Err(Errno::EINVAL.into());
            }
            let mut off = Offset::read(c, &to, off_out)?;
            check_span(off.at, whole)?;
            let n = drain(c, (&from, &a), (&to, &mut off), len, nowait)?;
            if to.ops.seekable() {
                off.store(c, &to)?;
            }
            Ok(n as u64)
        }
        (None, Some(b)) => {
            if !off_in.is_null() && !from.ops.seekable() {
                return Err(Errno::EINVAL.into());
            }
            io::check_readable(&from)?;
            vfs::notify::ask_to_read(c, &from)?;
            let mut off = Offset::read(c, &from, off_in)?;
            check_span(off.at, whole)?;
            let n = fill(c, (&from, &mut off), (&to, &b), len, nowait)?;
            if from.ops.seekable() {
                off.store(c, &from)?;
            }
            Ok(n as u64)
        }
        (None, None) => Err(Errno::EINVAL.into()),
    }
}

pub fn tee(c: &mut Current, input: Fd, out: Fd, len: u64, flags: u32) -> SysResult {
    if flags & !SPLICE_F_ALL != 0 {
        return Err(Errno::EINVAL.into());
    }
    if len == 0 {
        return Ok(0);
    }
    let (from, to) = (c.file(input.0)?, c.file(out.0)?);
    if !from.readable() || !to.writable() {
        return Err(Errno::EBADF.into());
    }
    let (Some(a), Some(b)) = (Pipe::of(&from).cloned(), Pipe::of(&to).cloned()) else {
        return Err(Errno::EINVAL.into());
    };
    if Arc::ptr_eq(&a, &b) {
        return Err(Errno::EINVAL.into());
    }
    let len = usize::try_from(len).unwrap_or(MAX_RW).min(MAX_RW);
    Ok(relay(c, (&from, &a), (&to, &b), len, true, flags)? as u64)
}

/// Gives what lies at `iov` to a pipe, each page of each piece as one of the pipe's own, as far as there is room.
fn give_pages(c: &Current, f: &OpenFile, pipe: &Pipe, iov: &Iov) -> Result<usize> {
    let mut scratch = Scratch::new();
    let mut done = 0;
    for (at, n) in iov.pages() {
        let buf = scratch.get(n);
        let taken = pipe.room(c).and_then(|_| match c.read_some(at, buf) {
            Ok(got) if got == n => pipe.take_pages(c, buf, SLOT),
            _ => Err(Errno::EFAULT),
        });
        match taken {
            Ok(n) => done += n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    notify::by_file(c, f, event::MODIFY);
    c.task.io.wrote(done as u64);
    Ok(done)
}

pub fn vmsplice(c: &mut Current, fd: Fd, iov: Ptr, count: u64, flags: u32) -> SysResult {
    if flags & !SPLICE_F_ALL != 0 {
        return Err(Errno::EINVAL.into());
    }
    let f = c.file(fd.0)?;
    let pipe = Pipe::of(&f).cloned().ok_or(Errno::EBADF)?;
    let iov = Iov::read(c, iov.0, count)?;
    if iov.len == 0 {
        return Ok(0);
    }
    let nowait = flags & SPLICE_F_NONBLOCK != 0;
    if !f.writable() {
        io::check_readable(&f)?;
        return transfer::read(c, &f, &iov, How { nowait, ..How::default() });
    }
    policing::decide_io(c, Kind::FileWrite, &f)?;
    // Waits until something fits, then takes what does: unlike write(2), not everything.
    loop {
        match give_pages(c, &f, &pipe, &iov) {
            Err(Errno::EAGAIN) if !nowait => {}
            done => return Ok(done? as u64),
        }
        retry(c, &f, Events::WRITABLE, || match f.ops.poll(c, &f).intersects(Events::OUT | Events::ERR) {
            true => Ok(()),
            false => Err(Errno::EAGAIN),
        })?;
    }
}

//! Moving bytes between open files and guest memory: what read(2), write(2) and
//! their relatives share.
//!
//! Files with a position are read and written in pieces; a piece that comes out
//! short ends the call. Streams get their data in one piece as far as sensible,
//! and no lock is held while one of them blocks.

use crate::files::outgoing::{BLOCKS, Outgoing, attempt};
use crate::iov::{CHUNK, Iov, Scratch};
use abi::Errno;
use caller::Limits;
use files::io;
use platform::Transfer;
use policy::Kind;
use socket::SocketFile;
use std::sync::Arc;
use task::{Current, SysErr, SysResult};
use vfs::policing;
use vfs::{OpenFile, notify};
use wait::Events;

/// Longest piece handed to a file that should see a write as a whole.
pub const MESSAGE: usize = 1 << 20;

/// Shortest read or write that the guest's thread makes by itself.
const OWN: usize = 4 << 10;

/// Where and how to transfer.
#[derive(Clone, Copy, Default)]
pub struct How {
    /// At this offset, without touching the position.
    pub at: Option<u64>,
    /// Do not wait (RWF_NOWAIT).
    pub nowait: bool,
    /// At the end (`Some(true)`), not at the end (`Some(false)`), or as O_APPEND says.
    pub append: Option<bool>,
    /// The count is the result of the system call and nothing else, so the guest's thread may make a read by itself.
    pub own: bool,
}

/// EINVAL for ranges that leave the space of offsets.
fn check_offset(off: u64, len: usize) -> abi::Result<()> {
    match i64::try_from(off).ok().and_then(|o| o.checked_add(len as i64)) {
        Some(_) => Ok(()),
        None => Err(Errno::EINVAL),
    }
}

/// Reads into `iov`. The file is open for reading.
pub fn read(c: &mut Current, f: &Arc<OpenFile>, iov: &Iov, how: How) -> SysResult {
    io::check_no_directory(f)?;
    policing::decide_io(c, Kind::FileRead, f)?;
    notify::ask_to_read(c, f)?;
    if !f.ops.seekable() {
        return read_stream(c, f, iov, how.nowait);
    }
    if let Some(off) = how.at {
        if read_by_itself(c, f, iov, off, how) {
            return Ok(iov.len as u64);
        }
        return Ok(read_seekable(c, f, iov, off, how, true)? as u64);
    }
    let mut pos = f.hold_position(&c.caller())?;
    if read_by_itself(c, f, iov, *pos, how) {
        *pos += iov.len as u64;
        return Ok(iov.len as u64);
    }
    let n = read_seekable(c, f, iov, *pos, how, false)?;
    *pos += n as u64;
    Ok(n as u64)
}

/// Has the guest's thread make a large read by itself when it resumes, as natively: one copy, by the processor that wants the
/// bytes. The position is the caller's to advance.
fn read_by_itself(c: &mut Current, f: &Arc<OpenFile>, iov: &Iov, off: u64, how: How) -> bool {
    let Some((addr, len)) = iov.single().filter(|(_, len)| how.own && *len >= OWN) else { return false };
    if how.nowait || check_offset(off, len).is_err() || !c.mm.writable(addr, len as u64) {
        return false;
    }
    let Some(loan) = f.ops.lend(c, f, off, len) else { return false };
    let moves = Transfer { write: false, addr, len, offset: off };
    let done = c.transfer_by_itself(f, loan, &moves, how.at.is_none());
    if done {
        io::reads_by_itself(c, f);
    }
    done
}

/// `unlocked`: no thread waits for a lock that the caller holds.
fn read_seekable(
    c: &mut Current,
    f: &OpenFile,
    iov: &Iov,
    off: u64,
    how: How,
    unlocked: bool,
) -> Result<usize, SysErr> {
    check_offset(off, iov.len)?;
    let (mut done, all) = read_direct(c, f, iov, off, unlocked)?;
    if all {
        return Ok(done);
    }
    let mut scratch = Scratch::new();
    loop {
        let want = (iov.len - done).min(CHUNK);
        let buf = scratch.get(want);
        let at = off + done as u64;
        let n = match attempt(c, f, Events::READABLE, how.nowait, || io::read_at(c, f, buf, at)) {
            Ok(n) => n,
            Err(_) if done > 0 => return Ok(done),
            Err(e) => return Err(e.into()),
        };
        let stored = iov.scatter(c, done, &scratch.get(want)[..n]);
        done += stored;
        if stored < n && done == 0 {
            return Err(Errno::EFAULT.into());
        }
        if stored < n || n < want || done == iov.len || c.is_killed() {
            return Ok(done);
        }
    }
}

/// Has the file put its bytes where the guest's thread takes them from, piece by piece, as far as both can do that. Says how
/// many bytes that were, and whether that is all. More than one piece only when `unlocked`: between two of them the guest's
/// thread has a say, and it may say nothing for ever.
fn read_direct(
    c: &mut Current,
    f: &OpenFile,
    iov: &Iov,
    off: u64,
    unlocked: bool,
) -> abi::Result<(usize, bool)> {
    let Some((addr, len)) = iov.single() else { return Ok((0, false)) };
    let mut done = 0;
    loop {
        let at = addr + done as u64;
        let Some(to) = c.ctx.copy_area(at, len - done) else { return Ok((done, false)) };
        let (from, room) = (to.offset(), to.size());
        if !c.mm.writable(at, room as u64) {
            return Ok((done, false));
        }
        // Several pieces pay only if no wake-up is needed for each.
        let want = if room < len - done && !(unlocked && c.ctx.prompt()) { len - done } else { room };
        let n = match io::read_to(c, f, &to, want, off + done as u64) {
            None => return Ok((done, false)),
            Some(Ok(n)) => n,
            Some(Err(e)) if done == 0 => return Err(e),
            Some(Err(_)) => return Ok((done, true)),
        };
        c.ctx.queue_copied(at, from, n);
        if n < room || done + n == len || !unlocked || c.is_killed() {
            return Ok((done + n, true));
        }
        // Where the memory cannot be written after all, the usual way says how far it can.
        if c.ctx.flush().is_err() {
            return Ok((done, false));
        }
        done += n;
    }
}

/// Reads from a socket that gives its bytes as they lie in its queue, so that they are copied once; `None`: not from this one.
fn read_blocks(c: &mut Current, f: &OpenFile, iov: &Iov, nowait: bool) -> Option<SysResult> {
    let socket = SocketFile::of(f).ok().filter(|socket| iov.len >= BLOCKS && socket.ops.gives_blocks())?;
    let lost = !iov.writable(c, 0);
    let op = || match lost && f.ops.poll(c, f).intersects(Events::IN) {
        true => Err(Errno::EFAULT),
        false => socket.take(f, iov.len),
    };
    let blocks = match attempt(c, f, Events::READABLE, nowait, op) {
        Ok(blocks) => blocks,
        Err(e) => return Some(Err(e.into())),
    };
    if !blocks.is_empty() {
        io::reads_by_itself(c, f);
    }
    Some(iov.store(c, &*socket.ops, blocks).map(|n| n as u64).map_err(SysErr::from))
}

fn read_stream(c: &mut Current, f: &OpenFile, iov: &Iov, nowait: bool) -> SysResult {
    if let Some(done) = read_blocks(c, f, iov, nowait) {
        return done;
    }
    let mut scratch = Scratch::new();
    let mut done = 0;
    let record = f.ops.as_stream().and_then(|stream| stream.record());
    loop {
        let want = (iov.len - done).min(record.unwrap_or(MESSAGE));
        let buf = scratch.get(want);
        // Only the first piece may block.
        let once = nowait || done > 0;
        // What is taken from a stream must have a place to go to: it cannot be put back.
        let room = iov.room(c, done, want);
        let op = || match room {
            0 if want > 0 && f.ops.poll(c, f).intersects(Events::IN) => Err(Errno::EFAULT),
            0 => io::read_at(c, f, buf, 0),
            _ if room < want && record.is_none() => io::read_whole(c, f, &mut buf[..room], want),
            _ => io::read_at(c, f, buf, 0),
        };
        let n = match attempt(c, f, Events::READABLE, once, op) {
            Ok(n) => n,
            Err(_) if done > 0 => return Ok(done as u64),
            Err(e) => return Err(e.into()),
        };
        let stored = iov.scatter(c, done, &scratch.get(want)[..n]);
        done += stored;
        if stored < n {
            return if done > 0 { Ok(done as u64) } else { Err(Errno::EFAULT.into()) };
        }
        if n < want || done == iov.len || record.is_some() || c.is_killed() {
            return Ok(done as u64);
        }
    }
}

/// Writes from `iov`. The file is open for writing.
pub fn write(c: &mut Current, f: &Arc<OpenFile>, iov: &Iov, how: How) -> SysResult {
    policing::decide_io(c, Kind::FileWrite, f)?;
    if !f.ops.seekable() {
        return write_stream(c, f, iov, how.nowait);
    }
    if let Some(off) = how.at {
        if write_by_itself(c, f, iov, off, how) {
            return Ok(iov.len as u64);
        }
        return Ok(write_seekable(c, f, iov, off, how)?.0 as u64);
    }
    let mut pos = f.hold_position(&c.caller())?;
    if write_by_itself(c, f, iov, *pos, how) {
        *pos += iov.len as u64;
        return Ok(iov.len as u64);
    }
    let (n, end) = write_seekable(c, f, iov, *pos, how)?;
    if n > 0 {
        *pos = end;
    }
    Ok(n as u64)
}

/// As [`read_by_itself`] for a write.
fn write_by_itself(c: &mut Current, f: &Arc<OpenFile>, iov: &Iov, off: u64, how: How) -> bool {
    let Some((addr, len)) = iov.single().filter(|(_, len)| how.own && *len >= OWN) else {
        return false;
    };
    if how.nowait || how.append.is_some() || check_offset(off, len).is_err() {
        return false;
    }
    let Some(loan) = io::lend_to_write(c, f, off, len) else { return false };
    let moves = Transfer { write: true, addr, len, offset: off };
    c.transfer_by_itself(f, loan, &moves, how.at.is_none())
}

fn write_seekable(c: &Current, f: &OpenFile, iov: &Iov, off: u64, how: How) -> Result<(usize, u64), SysErr> {
    check_offset(off, iov.len)?;
    let append = how.append.unwrap_or(f.flags() & libc::O_APPEND != 0);
    let mut scratch = Scratch::new();
    let (mut done, mut at) = (0, off);
    loop {
        let want = (iov.len - done).min(CHUNK);
        // The limit was met between two pieces: that is a short write, not a second one that fails.
        if done > 0 && at >= c.rlimit(libc::RLIMIT_FSIZE as i32) {
            return Ok((done, at));
        }
        let buf = scratch.get(want);
        let got = iov.gather(c, done, buf);
        if got == 0 && want > 0 {
            return if done > 0 { Ok((done, at)) } else { Err(Errno::EFAULT.into()) };
        }
        let buf = &buf[..got];
        match attempt(c, f, Events::WRITABLE, how.nowait, || io::write_how(c, f, buf, at, append)) {
            Ok((n, end)) => {
                done += n;
                at = end;
                if n < want || done == iov.len || c.is_killed() {
                    return Ok((done, at));
                }
            }
            Err(_) if done > 0 => return Ok((done, at)),
            Err(e) => return Err(e.into()),
        }
    }
}

fn write_stream(c: &Current, f: &OpenFile, iov: &Iov, nowait: bool) -> SysResult {
    let mut room = Outgoing::to(f, iov.len);
    let mut done = 0;
    let record = f.ops.as_stream().and_then(|stream| stream.record());
    if record.is_some_and(|most| iov.len > most) {
        return Err(Errno::EMSGSIZE.into());
    }
    loop {
        let want = room.most((iov.len - done).min(record.unwrap_or(MESSAGE)));
        if iov.gather(c, done, room.get(want)) < want {
            return if done > 0 { Ok(done as u64) } else { Err(Errno::EFAULT.into()) };
        }
        let (n, r) = room.write(c, f, want, nowait);
        done += n;
        match r {
            Err(e) if done == 0 => return Err(e.into()),
            Ok(()) if n == want && done < iov.len && !c.is_killed() => {}
            _ => return Ok(done as u64),
        }
    }
}

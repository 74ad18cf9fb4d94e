//! Open files.

use crate::conn::Call;
use crate::handle::Handle;
use crate::node::shown_flags;
use crate::wire::{self, Room, op};
use abi::{Errno, PAGE_SIZE, Result};
use files::page_cache::Reader;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{Caller, FileOps, Inode, MapOps, MapRequest, Mapping, OpenFile, SeekOps, StorageOps};

/// FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE.
const ALLOCATES: i32 = 1 | 2 | 16;
const KEEP_SIZE: i32 = 1;

/// Bytes that are asked for at a time for a mapping, at most.
const PIECE: usize = 512 << 10;

/// An open regular file.
pub(crate) struct File {
    handle: Handle,
    open_flags: u32,
    /// Position of a file that cannot seek.
    at: AtomicU64,
}

impl File {
    pub fn new(handle: Handle, open_flags: u32) -> File {
        File { handle, open_flags, at: AtomicU64::new(0) }
    }

    fn has(&self, flag: u32) -> bool {
        self.open_flags & flag != 0
    }

    /// Reads and writes go to the daemon as they are, whatever the size of the file seems to be.
    pub fn is_direct(&self, flags: i32) -> bool {
        self.has(wire::OPEN_DIRECT_IO) || flags & libc::O_DIRECT != 0
    }

    fn seeks(&self) -> bool {
        !self.has(wire::OPEN_NONSEEKABLE | wire::OPEN_STREAM)
    }

    /// Bytes of a FUSE_READ at most.
    pub fn most_read(&self) -> usize {
        let conn = &self.handle.node.fs.conn;
        (conn.agreed().max_pages * wire::PAGE).min(conn.terms.max_read) as usize
    }

    /// Reads from the daemon until it gives less than it was asked for.
    pub fn fetch(&self, cx: &dyn Caller, flags: i32, buf: &mut [u8], off: u64) -> Result<usize> {
        let most = self.most_read();
        let mut done = 0;
        while done < buf.len() {
            let want = (buf.len() - done).min(most);
            let body = wire::ReadIn {
                fh: self.handle.fh,
                offset: off + done as u64,
                size: want as u32,
                flags: shown_flags(flags),
                ..wire::ReadIn::default()
            };
            let call = Call::new(op::READ, self.handle.node.nodeid, &body, Room::up_to(want));
            let answer = match self.handle.node.call(cx, call) {
                Err(_) if done > 0 => return Ok(done),
                answer => answer?,
            };
            buf[done..done + answer.len()].copy_from_slice(&answer);
            done += answer.len();
            if answer.len() < want {
                break;
            }
        }
        Ok(done)
    }

    fn store(&self, cx: &dyn Caller, flags: i32, buf: &[u8], off: u64) -> Result<usize> {
        let most = self.handle.node.fs.conn.agreed().max_write as usize;
        let mut done = 0;
        while done < buf.len() {
            let piece = &buf[done..buf.len().min(done + most)];
            let at = off + done as u64;
            let body = wire::WriteIn {
                fh: self.handle.fh,
                offset: at,
                size: piece.len() as u32,
                flags: shown_flags(flags),
                ..wire::WriteIn::default()
            };
            let call = Call::new(op::WRITE, self.handle.node.nodeid, &body, Room::of::<wire::WriteOut>())
                .bytes(piece);
            let written = self.handle.node.call(cx, call).and_then(|answer| {
                let n = wire::decode::<wire::WriteOut>(&answer)?.0.size as usize;
                if n > piece.len() { Err(Errno::EIO) } else { Ok(n) }
            });
            let n = match written {
                Err(_) if done > 0 => return Ok(done),
                written => written?,
            };
            if n > 0 {
                self.handle.node.written(at + n as u64);
                self.handle.node.pages.write(cx, at, &piece[..n]);
            }
            done += n;
            if n < piece.len() {
                break;
            }
        }
        Ok(done)
    }
}

impl FileOps for File {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        self.seeks().then_some(self)
    }
    fn as_storage(&self) -> Option<&dyn StorageOps> {
        Some(self)
    }
    fn as_map(&self) -> Option<&dyn MapOps> {
        Some(self)
    }
    fn read(&self, cx: &dyn Caller, file: &OpenFile, buf: &mut [u8], off: u64) -> Result<usize> {
        self.handle.node.live()?;
        if !self.seeks() {
            let at = if self.has(wire::OPEN_STREAM) { 0 } else { self.at.load(Ordering::Relaxed) };
            let n = self.fetch(cx, file.flags(), buf, at)?;
            self.at.fetch_add(n as u64, Ordering::Relaxed);
            return Ok(n);
        }
        if self.is_direct(file.flags()) {
            return self.fetch(cx, file.flags(), buf, off);
        }
        // Without direct access a file ends where its size says.
        if off.saturating_add(buf.len() as u64) > self.handle.node.size() {
            self.handle.node.update(cx)?;
        }
        let left = self.handle.node.size().saturating_sub(off);
        let want = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        self.fetch(cx, file.flags(), &mut buf[..want], off)
    }
    fn write(&self, cx: &dyn Caller, file: &OpenFile, buf: &[u8], off: u64) -> Result<usize> {
        self.handle.node.live()?;
        if self.seeks() {
            return self.store(cx, file.flags(), buf, off);
        }
        let at = if self.has(wire::OPEN_STREAM) { 0 } else { self.at.load(Ordering::Relaxed) };
        let n = self.store(cx, file.flags(), buf, at)?;
        self.at.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
    fn flush(&self, cx: &dyn Caller, file: &OpenFile) -> Result<()> {
        let conn = &self.handle.node.fs.conn;
        if file.path_only() {
            return Ok(());
        }
        self.handle.node.live()?;
        self.handle.node.tell_times(cx);
        if conn.lacks(op::FLUSH) {
            return Ok(());
        }
        let body = wire::FlushIn { fh: self.handle.fh, ..wire::FlushIn::default() };
        match conn.last_call(cx, Call::new(op::FLUSH, self.handle.node.nodeid, &body, Room::NONE)) {
            Err(Errno::ENOSYS) => {
                conn.set_lacks(op::FLUSH);
                Ok(())
            }
            done => {
                // What the daemon wrote late may have changed the attributes.
                self.handle.node.expire();
                done.map(drop)
            }
        }
    }
}

impl SeekOps for File {
    fn append(&self, cx: &dyn Caller, file: &OpenFile, buf: &[u8]) -> Result<(usize, u64)> {
        let _alone = self.handle.node.appending.lock_unless(|| cx.is_killed()).ok_or(Errno::EINTR)?;
        // Others may have written since the caller looked.
        self.handle.node.update(cx)?;
        let end = self.handle.node.size();
        let n = self.write(cx, file, buf, end)?;
        Ok((n, end + n as u64))
    }
    fn seek_special(&self, cx: &dyn Caller, _file: &OpenFile, off: i64, whence: i32) -> Result<u64> {
        let off = u64::try_from(off).map_err(|_| Errno::ENXIO)?;
        let body = wire::LseekIn { fh: self.handle.fh, offset: off, whence: whence as u32, padding: 0 };
        let call = Call::new(op::LSEEK, self.handle.node.nodeid, &body, Room::of::<wire::LseekOut>());
        if let Some(answer) = self.handle.node.optional(cx, call) {
            let found = wire::decode::<wire::LseekOut>(&answer?)?.0.offset;
            return if i64::try_from(found).is_ok() { Ok(found) } else { Err(Errno::EINVAL) };
        }
        // A daemon that does not know has one piece of data in each file.
        self.handle.node.update(cx)?;
        let size = self.handle.node.size();
        match whence {
            _ if off >= size => Err(Errno::ENXIO),
            libc::SEEK_HOLE => Ok(size),
            _ => Ok(off),
        }
    }
}

impl StorageOps for File {
    fn direct(&self) -> bool {
        true
    }
    fn sync(&self, cx: &dyn Caller, _file: &OpenFile, data_only: bool) -> Result<()> {
        self.handle.node.live()?;
        self.handle.node.tell_times(cx);
        let body = wire::FsyncIn { fh: self.handle.fh, fsync_flags: data_only.into(), padding: 0 };
        let call = Call::new(op::FSYNC, self.handle.node.nodeid, &body, Room::NONE);
        self.handle.node.optional(cx, call).map_or(Ok(()), |done| done.map(drop))
    }
    fn copy_range(
        &self,
        cx: &dyn Caller,
        (_, off): (&OpenFile, u64),
        (to, to_off): (&OpenFile, u64),
        len: usize,
    ) -> Option<Result<usize>> {
        let out: &File = to.ops.as_any().downcast_ref()?;
        if !Arc::ptr_eq(&out.handle.node.fs, &self.handle.node.fs)
            || self.handle.node.fs.conn.lacks(op::COPY_FILE_RANGE)
        {
            return None;
        }
        if let Err(e) = files::io::strip_set_id(cx, to) {
            return Some(Err(e));
        }
        let body = wire::CopyFileRangeIn {
            fh_in: self.handle.fh,
            off_in: off,
            nodeid_out: out.handle.node.nodeid,
            fh_out: out.handle.fh,
            off_out: to_off,
            len: len as u64,
            flags: 0,
        };
        let call =
            Call::new(op::COPY_FILE_RANGE, self.handle.node.nodeid, &body, Room::of::<wire::WriteOut>());
        let copied = match self.handle.node.optional(cx, call)? {
            Err(Errno::EOPNOTSUPP) => return None,
            copied => copied,
        };
        let n = copied.and_then(|answer| match wire::decode::<wire::WriteOut>(&answer)?.0.size as usize {
            n if n > len => Err(Errno::EIO),
            n => Ok(n),
        });
        if let Ok(n) = n {
            out.handle.node.written(to_off + n as u64);
            out.handle.node.pages.forget();
        }
        Some(n)
    }
    fn allocate(&self, cx: &dyn Caller, _file: &OpenFile, mode: i32, off: u64, len: u64) -> Result<()> {
        if mode & !ALLOCATES != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let body =
            wire::FallocateIn { fh: self.handle.fh, offset: off, length: len, mode: mode as u32, padding: 0 };
        let call = Call::new(op::FALLOCATE, self.handle.node.nodeid, &body, Room::NONE);
        self.handle.node.optional(cx, call).unwrap_or(Err(Errno::EOPNOTSUPP))?;
        self.handle.node.pages.forget();
        if mode & KEEP_SIZE == 0 {
            self.handle.node.written(off + len);
        } else {
            self.handle.node.expire();
        }
        Ok(())
    }
}

impl MapOps for File {
    fn map(&self, cx: &dyn Caller, file: &OpenFile, req: &MapRequest) -> Result<Mapping> {
        if req.shared && self.is_direct(file.flags()) {
            return Err(Errno::ENODEV);
        }
        let node = &self.handle.node;
        let attr = || node.update(cx).and_then(|()| node.attr());
        // One request at a time, so that an error of the daemon is not taken for the end of the file.
        let most = self.most_read().min(PIECE);
        let read = |buf: &mut [u8], at: u64| self.fetch(cx, libc::O_RDONLY, buf, at);
        node.pages.map(
            cx,
            || node.fs.mapped().root(),
            attr,
            req,
            &Reader { most, unit: PAGE_SIZE, read: &read },
        )
    }
}

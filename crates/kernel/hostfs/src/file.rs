//! Open regular files.

use crate::fs::Mode;
use crate::node::{Node, Quiet};
use crate::watches::Coherence;
use abi::stat::Attr;
use abi::{Errno, Result};
use hostsys::fs::{self as host, Access};
use hostsys::memfd::CopyArea;
use hosttree::{Changes, Target};
use rights::Cap;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use vfs::{
    Caller, FileOps, Layer, LentFd, LockFile, MapOps, MapRequest, Mapping, OpenFile, SeekOps, StorageOps,
};

/// An open regular file. In an exclusive tree the descriptor comes from the cache on every use.
pub(crate) struct File {
    pub node: Arc<Node>,
    pub fd: Option<Arc<OwnedFd>>,
    /// The descriptor can do no more than the open file: it was not made together with the file.
    exact: bool,
    /// The descriptor can only read.
    reads_only: bool,
    /// Large reads beyond the end, as far as it is known.
    beyond: AtomicU32,
    /// Writes, up to [`QUIET`].
    writes: AtomicU32,
    quiet: OnceLock<Quiet>,
}

/// How many of those there are for each question about the size.
const BEYOND: u32 = 16;

/// After as many writes through one open file, changes of the content are no longer reported: each of our own costs 0.4 us.
const QUIET: u32 = 16;

/// Shortest write that a program's own thread makes while changes of the content are reported.
const OWN_WRITE: usize = 16 << 10;

/// Reads that are not ours to notice may have changed the time of access.
struct Read(Arc<Node>);

impl Drop for Read {
    fn drop(&mut self) {
        self.0.was_read();
    }
}

/// A program's own thread is writing: nothing that is learnt meanwhile may be kept.
struct Written(Arc<Node>);

impl Written {
    fn new(node: &Arc<Node>) -> Written {
        node.begin_writing();
        Written(node.clone())
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        self.0.end_writing();
    }
}

/// The mode to put back when a change of the content has cost a file set-ID bits. `None` where it has got another mode or
/// owner meanwhile.
pub(crate) fn lost_set_id(before: &Attr, now: &Attr) -> Option<u32> {
    let same = (before.uid, before.gid, before.mode & !0o6000) == (now.uid, now.gid, now.mode & !0o6000);
    (same && before.mode & !now.mode & 0o6000 != 0 && now.mode & !before.mode == 0)
        .then_some(before.mode & 0o7777)
}

impl File {
    /// `exact`: the descriptor can do no more than the open file, which is open for `access`.
    pub fn new(node: Arc<Node>, fd: Option<Arc<OwnedFd>>, exact: bool, access: Access) -> File {
        let reads_only = exact && access == Access::Read;
        // The first one asks nothing.
        let (beyond, writes) = (AtomicU32::new(1), AtomicU32::new(0));
        File { node, fd, exact, reads_only, beyond, writes, quiet: OnceLock::new() }
    }

    /// A write up to `end` begins.
    fn begins_write(&self, end: u64) {
        self.node.watch.wrote_to(end);
        if self.writes.load(Ordering::Relaxed) >= QUIET || !self.node.hears_its_writes() {
            return;
        }
        if self.writes.fetch_add(1, Ordering::Relaxed) + 1 == QUIET
            && let Some(fd) = &self.fd
        {
            self.quiet.get_or_init(|| Quiet::new(&self.node, fd.clone()));
        }
    }

    /// A change of the content by this caller leaves set-ID bits as they are. The host takes them away whenever its own caller
    /// lacks CAP_FSETID in its initial user namespace, as the sentry does.
    fn keeps_set_id(&self, cx: &dyn Caller) -> bool {
        self.node.known().mode & 0o6000 != 0 && cx.creds().capable(Cap::FSETID)
    }

    /// Changes the content with `change`.
    fn change<T>(&self, cx: &dyn Caller, change: impl FnOnce(&Arc<OwnedFd>) -> Result<T>) -> Result<T> {
        let keeps = self.keeps_set_id(cx);
        let _changing = self.node.writing();
        let fd = self.fd()?;
        let before = if keeps { host::stat(&*fd).ok() } else { None };
        let done = change(&fd)?;
        if let Some(mode) = before.and_then(|before| lost_set_id(&before, &host::stat(&*fd).ok()?)) {
            let changes = Changes { mode: Some(mode), ..Changes::default() };
            // The content is changed already. A sentry that does not own the file cannot put the bits back.
            let _ = self.node.fs.top.set_attr(Target::Open(&fd), &changes);
        }
        Ok(done)
    }

    fn reaches(&self, end: u64) -> bool {
        FileOps::attr(self).is_some_and(|a| a.is_ok_and(|a| a.size >= end))
    }

    fn fd(&self) -> Result<Arc<OwnedFd>> {
        match &self.fd {
            Some(fd) => Ok(fd.clone()),
            None => self.node.read_fd(),
        }
    }
}

impl Drop for File {
    /// A gofer may close its own reference to what it has opened after this one: then the host reports the end as the gofer's.
    fn drop(&mut self) {
        if !self.reads_only
            && let Some(fd) = self.fd.take()
        {
            let closing = self.node.closing();
            drop((self.quiet.take(), fd));
            drop(closing);
        }
    }
}

impl FileOps for File {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        Some(self)
    }
    fn as_storage(&self) -> Option<&dyn StorageOps> {
        Some(self)
    }
    fn as_map(&self) -> Option<&dyn MapOps> {
        Some(self)
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], off: u64) -> Result<usize> {
        if let Some(n) = self.node.view.read(&self.node, off, buf) {
            return Ok(n);
        }
        // Short at the end of the file, as for the program itself.
        let n = host::pread(&*self.fd()?, buf, off)?;
        self.node.was_read();
        Ok(n)
    }
    fn read_to(
        &self,
        _cx: &dyn Caller,
        _file: &OpenFile,
        to: &CopyArea<'_>,
        len: usize,
        off: u64,
    ) -> Option<Result<usize>> {
        if len > to.size() {
            return None;
        }
        if let Some(n) = self.node.view.read_to(&self.node, off, len, to) {
            return Some(Ok(n));
        }
        let done = self.fd().and_then(|fd| host::pread_area(&*fd, to, len, off));
        self.node.was_read();
        Some(done)
    }
    fn write(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8], off: u64) -> Result<usize> {
        self.change(cx, |fd| {
            self.begins_write(off + buf.len() as u64);
            host::pwrite_full(&**fd, buf, off)
        })
    }
    fn attr(&self) -> Option<Result<Attr>> {
        // The descriptor reaches the file whatever has become of its name.
        let fd = self.fd.as_ref()?;
        self.node.settle_if_kept();
        if let Some(a) = self.node.still(self.node.standing()) {
            return Some(Ok(a));
        }
        Some(self.node.attr_open(fd).map(|a| self.node.refresh(a, None)))
    }
}

impl SeekOps for File {
    fn append(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8]) -> Result<(usize, u64)> {
        self.change(cx, |fd| {
            self.begins_write(0);
            let n = host::append(&**fd, buf)?;
            let size = self.node.attr_open(fd)?.size;
            self.node.watch.wrote_to(size);
            Ok((n, size))
        })
    }
    fn seek_special(&self, _cx: &dyn Caller, _file: &OpenFile, off: i64, whence: i32) -> Result<u64> {
        let off = u64::try_from(off).map_err(|_| Errno::ENXIO)?;
        host::seek_data_hole(&*self.fd()?, off, whence == libc::SEEK_DATA)
    }
}

impl StorageOps for File {
    /// The host's kernel does so for every writer without CAP_FSETID in its initial user namespace.
    fn write_drops_set_id(&self) -> bool {
        true
    }
    fn direct(&self) -> bool {
        true
    }
    fn sync(&self, _cx: &dyn Caller, _file: &OpenFile, data_only: bool) -> Result<()> {
        if self.node.fs.mode == Mode::Exclusive {
            return Ok(());
        }
        host::sync(&*self.fd()?, data_only)
    }
    fn allocate(&self, cx: &dyn Caller, _file: &OpenFile, mode: i32, off: u64, len: u64) -> Result<()> {
        self.change(cx, |fd| host::allocate(&**fd, mode, off, len))
    }
    fn clone_range(&self, cx: &dyn Caller, from: &OpenFile, off: u64, len: u64, at: u64) -> Result<()> {
        let from = from.ops.as_any().downcast_ref::<File>().ok_or(Errno::EXDEV)?.fd()?;
        if self.fd.is_none() {
            return Err(Errno::EROFS);
        }
        self.change(cx, |to| host::clone_range(&**to, at, &*from, off, len))
    }
    fn lock_file(&self, file: &OpenFile) -> Result<Option<LockFile>> {
        let Some(fd) = &self.fd else { return Ok(None) };
        let (readable, writable) = (file.readable(), file.writable());
        // What one program has open for writing only others may want to lock for reading.
        if !readable && let Ok(both) = self.node.open(Access::ReadWrite) {
            return Ok(Some(LockFile { fd: Arc::new(both), readable: true, writable: true }));
        }
        Ok(Some(LockFile { fd: fd.clone(), readable, writable }))
    }
    fn lock_file_anew(&self, file: &OpenFile) -> Option<LockFile> {
        self.fd.as_ref()?;
        let open = |access| self.node.open(access).ok().map(Arc::new);
        let (readable, writable) = (file.readable(), file.writable());
        let both = if writable { open(Access::ReadWrite) } else { None };
        match both {
            Some(fd) => Some(LockFile { fd, readable: true, writable: true }),
            None if readable && writable => None,
            None => {
                let access = if readable { Access::Read } else { Access::Write };
                open(access).map(|fd| LockFile { fd, readable, writable })
            }
        }
    }
}

impl MapOps for File {
    fn map(&self, _cx: &dyn Caller, file: &OpenFile, req: &MapRequest) -> Result<Mapping> {
        if req.shared && file.writable() {
            self.node.watch.set_mapped();
        }
        self.node.was_read();
        Ok(Mapping::Host { fd: self.fd()?, offset: req.offset })
    }
    fn lend(&self, _cx: &dyn Caller, file: &OpenFile, off: u64, len: usize) -> Option<LentFd> {
        let cached = self.node.fs.mode == Mode::Exclusive && len < LentFd::CACHED;
        if !self.exact || !file.readable() || cached {
            return None;
        }
        let end = off + len as u64;
        // Most such reads are the last one of the file. It may have grown, but that is not asked for each time.
        if self.node.known().size.max(self.node.watch.reached()) < end
            && (!self.beyond.fetch_add(1, Ordering::Relaxed).is_multiple_of(BEYOND) || !self.reaches(end))
        {
            return None;
        }
        let after: Option<Box<dyn Send>> =
            if self.node.reads_show() { Some(Box::new(Read(self.node.clone()))) } else { None };
        Some(LentFd { fd: self.fd().ok()?, after })
    }
    fn lend_to_write(&self, cx: &dyn Caller, file: &OpenFile, len: usize) -> Option<LentFd> {
        let exclusive = self.node.fs.mode == Mode::Exclusive;
        if !self.exact || !file.writable() || exclusive || self.keeps_set_id(cx) {
            return None;
        }
        // The watch on the directory would tell of each one as if others had made it.
        let told = self.writes.load(Ordering::Relaxed) < QUIET && self.node.hears_its_writes();
        if told && len < OWN_WRITE {
            return None;
        }
        self.begins_write(0);
        Some(LentFd { fd: self.fd().ok()?, after: Some(Box::new(Written::new(&self.node))) })
    }
    fn image(&self) -> Option<(u64, u64)> {
        let node = &self.node;
        let may = match node.fs.mode {
            Mode::Exclusive => true,
            // Its owner changes such a root rarely, and code that keeps the bytes checks whether they are the same.
            Mode::Shared => {
                node.fs.coherence == Coherence::Lagging && self.reads_only && !node.watch.is_mapped()
            }
        };
        may.then_some(node.key)
    }
    fn layer(&self) -> Option<Layer> {
        // Asked each time: a change makes the host copy the file.
        let made = self.node.fs.layer_made?;
        self.node
            .made_at(&*self.fd().ok()?)
            .map(|copied| if copied < made { Layer::Lower } else { Layer::Upper })
    }
    fn image_fd(&self) -> Option<Arc<OwnedFd>> {
        self.image().and_then(|_| self.fd().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_come_back_to_what_nobody_changed() {
        let file = |mode: u32, uid: u32| Attr { mode: libc::S_IFREG | mode, uid, ..Attr::default() };
        assert_eq!(lost_set_id(&file(0o6755, 0), &file(0o755, 0)), Some(0o6755));
        assert_eq!(lost_set_id(&file(0o2745, 0), &file(0o745, 0)), Some(0o2745));
        assert_eq!(lost_set_id(&file(0o6755, 0), &file(0o2755, 0)), Some(0o6755));
        for now in [file(0o6755, 0), file(0o755, 1), file(0o600, 0), file(0o4600, 0)] {
            assert_eq!(lost_set_id(&file(0o6755, 0), &now), None);
        }
        assert_eq!(lost_set_id(&file(0o4755, 0), &file(0o2755, 0)), None);
    }
}

//! Pipes and FIFOs.
//!
//! A [`Pipe`] is a ring, counts of its readers and writers, and one wait queue. Its [`PipeEnd`]s are what descriptors
//! refer to; the last end to close throws the data away. FIFOs are the same object attached to a named inode (see
//! [`fifo`]). Lock rank: leaf; the wait queue is notified after the lock is released. A checkpoint keeps the ring's
//! content, its size and the ends.

pub mod fifo;
mod ring;

use abi::{Errno, Result, Signal};
use caller::UserMemory;
use caller::quota::{Charge, Limit};
use lock_order::{Mutex, rank};
use rights::Cap;
use ring::Ring;
pub use ring::{RingState, SLOT, SlotState};
use std::any::Any;
use std::sync::Arc;
use vfs::attach::Attachments;
use vfs::inode::{InternalFs, InternalInode};
use vfs::{Caller, FileOps, FileSystem, Inode, InodeRef, OpenFile, SetAttr, StreamOps};
use wait::{Events, WaitQueue};

/// Slots of a new pipe.
const DEFAULT_SLOTS: u64 = 16;

/// Whether the limits of a user on pipes do not hold for the caller.
fn privileged(cx: &dyn Caller) -> bool {
    let creds = cx.creds();
    creds.capable(Cap::SYS_RESOURCE) || creds.capable(Cap::SYS_ADMIN)
}

struct State {
    ring: Ring,
    /// The pages that it may hold.
    pages: Charge,
    readers: usize,
    writers: usize,
    /// How many opens for reading and writing there have been, for FIFO opens that wait.
    reader_opens: u64,
    writer_opens: u64,
}

/// A pipe as plain data, for a checkpoint. Its readers and writers are the ends ([`EndState`]), which are kept
/// with the open files.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PipeState {
    /// What is in it, and its size.
    pub ring: RingState,
    /// How many opens for reading and writing there have been.
    pub opens: (u64, u64),
    /// Inode number in pipefs; `None` for a FIFO.
    pub ino: Option<u64>,
    /// The user that its pages count for.
    #[serde(default)]
    pub user: u32,
}

/// One end of a pipe as plain data; the open file says which pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EndState {
    /// It reads.
    pub reads: bool,
    /// It writes.
    pub writes: bool,
    /// For a reader that opened while there was no writer: the count of writers' opens then.
    pub writers_before: Option<u64>,
}

/// The object between the ends.
pub struct Pipe {
    state: Mutex<State, { rank::IPC_OBJECT }>,
    queue: WaitQueue,
    /// Inode number in pipefs; `None` for FIFOs, which have a path.
    ino: Option<u64>,
    /// The user that its pages count for.
    uid: u32,
}

impl Pipe {
    /// ENFILE when the user, or the sandbox, has too many.
    fn new(cx: &dyn Caller, ino: Option<u64>) -> Result<Arc<Pipe>> {
        Pipe::of_user(cx, cx.creds().uid, ino)
    }

    fn of_user(cx: &dyn Caller, uid: u32, ino: Option<u64>) -> Result<Arc<Pipe>> {
        let quotas = cx.quotas();
        let max = quotas.limit(Limit::PipeMaxSize) / SLOT as u64;
        let most =
            if cx.creds().capable(Cap::SYS_RESOURCE) { DEFAULT_SLOTS } else { DEFAULT_SLOTS.min(max.max(1)) };
        let pages = quotas.account(uid).new_pipe(most, privileged(cx))?;
        Ok(Arc::new(Pipe {
            state: Mutex::new(State {
                ring: Ring::new(pages.count() as usize),
                pages,
                readers: 0,
                writers: 0,
                reader_opens: 0,
                writer_opens: 0,
            }),
            queue: WaitQueue::new(),
            ino,
            uid,
        }))
    }

    /// As plain data.
    pub fn state(&self) -> PipeState {
        let s = self.state.lock();
        PipeState {
            ring: s.ring.state(),
            opens: (s.reader_opens, s.writer_opens),
            ino: self.ino,
            user: self.uid,
        }
    }

    /// Back from plain data, without ends; its pages count for its user. ENFILE when they are too many.
    pub fn restore(cx: &dyn Caller, saved: &PipeState) -> Result<Arc<Pipe>> {
        saved.ring.check()?;
        let pipe = Pipe::of_user(cx, saved.user, saved.ino)?;
        let mut s = pipe.state.lock();
        s.pages.resize_pipe(saved.ring.max as u64, true)?;
        s.ring = Ring::from(&saved.ring);
        (s.reader_opens, s.writer_opens) = saved.opens;
        drop(s);
        Ok(pipe)
    }

    /// An end of a restored pipe. The counts of opens stay as they were.
    pub fn restore_end(self: &Arc<Self>, saved: EndState) -> Arc<PipeEnd> {
        let mut s = self.state.lock();
        s.readers += usize::from(saved.reads);
        s.writers += usize::from(saved.writes);
        drop(s);
        let EndState { reads, writes, writers_before } = saved;
        Arc::new(PipeEnd { pipe: self.clone(), reads, writes, writers_before })
    }

    /// The inode of a restored pipe from pipe(2), which had the attributes `attr`.
    pub fn restore_inode(self: &Arc<Self>, attr: abi::stat::Attr) -> InodeRef {
        let base = InternalInode::restore(InternalFs::Pipe, attr);
        Arc::new(PipeInode { base, pipe: self.clone() })
    }

    /// The pipe behind an open file, if it is one.
    pub fn of(file: &OpenFile) -> Option<&Arc<Pipe>> {
        let end: &PipeEnd = file.ops.as_any().downcast_ref()?;
        Some(&end.pipe)
    }

    /// Size in bytes (F_GETPIPE_SZ).
    pub fn size(&self) -> usize {
        self.state.lock().ring.max() * SLOT
    }

    /// Bytes that a read would find.
    pub fn buffered(&self) -> usize {
        self.state.lock().ring.len()
    }

    /// Changes the size (F_SETPIPE_SZ); returns the one in effect, a power of two pages.
    pub fn set_size(&self, cx: &dyn Caller, bytes: u64) -> Result<usize> {
        if bytes > 1 << 31 {
            return Err(Errno::EINVAL);
        }
        let size = (bytes as usize).max(SLOT).next_power_of_two();
        let mut s = self.state.lock();
        let grows = size > s.ring.max() * SLOT;
        let max = cx.quotas().limit(Limit::PipeMaxSize);
        if grows && size as u64 > max && !cx.creds().capable(Cap::SYS_RESOURCE) {
            return Err(Errno::EPERM);
        }
        let slots = size / SLOT;
        if grows {
            s.pages.resize_pipe(slots as u64, privileged(cx))?;
        }
        if !s.ring.resize(slots) {
            return Err(Errno::EBUSY);
        }
        if !grows {
            s.pages.resize_pipe(slots as u64, true)?;
        }
        drop(s);
        if grows {
            self.queue.notify(Events::WRITABLE);
        }
        Ok(size)
    }

    /// Copies from the front without taking (tee); EAGAIN when empty with writers, 0 without.
    pub fn peek(&self, buf: &mut [u8]) -> Result<usize> {
        let s = self.state.lock();
        if s.ring.is_empty() && s.writers > 0 {
            return Err(Errno::EAGAIN);
        }
        Ok(s.ring.peek(buf))
    }

    /// Moves up to `len` bytes from the pipe to another one, or copies them (`keep`): as much as there is and fits now.
    /// 0 at the end of the input. EAGAIN when nothing moved although more may come; EPIPE and SIGPIPE when the output
    /// has no reader.
    pub fn splice(&self, cx: &dyn Caller, to: &Pipe, len: usize, keep: bool) -> Result<usize> {
        let (mut from, mut out);
        // Both at once, in the order of their addresses: no byte is seen twice.
        if std::ptr::from_ref(self) < std::ptr::from_ref(to) {
            from = self.state.lock();
            out = to.state.lock_nested();
        } else {
            out = to.state.lock();
            from = self.state.lock_nested();
        }
        if out.readers == 0 {
            drop((from, out));
            cx.raise(Signal::SIGPIPE);
            return Err(Errno::EPIPE);
        }
        if from.ring.is_empty() {
            return if from.writers > 0 { Err(Errno::EAGAIN) } else { Ok(0) };
        }
        let was_full = from.ring.is_full();
        let n = from.ring.splice(&mut out.ring, len, keep);
        let room = was_full && !from.ring.is_full();
        drop((from, out));
        if n == 0 {
            return Err(Errno::EAGAIN);
        }
        if room {
            self.queue.notify(Events::WRITABLE);
        }
        to.queue.notify(Events::READABLE);
        Ok(n)
    }

    /// Bytes that a write would take now (splice); EAGAIN when full, EPIPE and SIGPIPE without a reader.
    pub fn room(&self, cx: &dyn Caller) -> Result<usize> {
        let s = self.state.lock();
        let (readers, room) = (s.readers, s.ring.room());
        drop(s);
        if readers == 0 {
            cx.raise(Signal::SIGPIPE);
            return Err(Errno::EPIPE);
        }
        if room == 0 { Err(Errno::EAGAIN) } else { Ok(room) }
    }

    fn read(&self, buf: &mut [u8]) -> Result<usize> {
        let want = buf.len();
        self.read_whole(buf, want)
    }

    /// EFAULT when there are bytes and those of the first slot have no place in `buf`.
    fn read_whole(&self, buf: &mut [u8], want: usize) -> Result<usize> {
        if want == 0 {
            return Ok(0);
        }
        let mut s = self.state.lock();
        if s.ring.is_empty() {
            return if s.writers > 0 { Err(Errno::EAGAIN) } else { Ok(0) };
        }
        let was_full = s.ring.is_full();
        let n = s.ring.pop_whole(buf, want);
        if n == 0 {
            return Err(Errno::EFAULT);
        }
        let room = was_full && !s.ring.is_full();
        drop(s);
        if room {
            self.queue.notify(Events::WRITABLE);
        }
        Ok(n)
    }

    fn write(&self, cx: &dyn Caller, buf: &[u8], packet: bool) -> Result<usize> {
        self.put(cx, buf, |ring| ring.push(buf, packet))
    }

    /// Takes bytes as pages of another file or of a program's memory, as many as fit now: later writes do not share
    /// their slots. The first slot holds `first` bytes at most. EAGAIN when full, EPIPE and SIGPIPE without a reader.
    pub fn take_pages(&self, cx: &dyn Caller, buf: &[u8], first: usize) -> Result<usize> {
        self.put(cx, buf, |ring| ring.push_pages(buf, first))
    }

    fn put(&self, cx: &dyn Caller, buf: &[u8], push: impl FnOnce(&mut Ring) -> usize) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let mut s = self.state.lock();
        if s.readers == 0 {
            drop(s);
            cx.raise(Signal::SIGPIPE);
            return Err(Errno::EPIPE);
        }
        let n = push(&mut s.ring);
        drop(s);
        if n == 0 {
            return Err(Errno::EAGAIN);
        }
        self.queue.notify(Events::READABLE);
        Ok(n)
    }

    /// Adds an end. When the other direction is not open, returns also the count of its opens to wait past (see
    /// [`Pipe::opened_since`]). ENXIO when `needs_reader` and there is none.
    fn end(
        self: &Arc<Self>,
        reads: bool,
        writes: bool,
        needs_reader: bool,
    ) -> Result<(Arc<PipeEnd>, Option<u64>)> {
        let mut s = self.state.lock();
        if needs_reader && s.readers == 0 {
            return Err(Errno::ENXIO);
        }
        let alone = match (reads, writes) {
            (true, false) => (s.writers == 0).then_some(s.writer_opens),
            (false, true) => (s.readers == 0).then_some(s.reader_opens),
            _ => None,
        };
        s.readers += reads as usize;
        s.reader_opens += reads as u64;
        s.writers += writes as usize;
        s.writer_opens += writes as u64;
        drop(s);
        let end = PipeEnd { pipe: self.clone(), reads, writes, writers_before: alone.filter(|_| reads) };
        // A peer may be waiting in open(2) for this.
        self.queue.notify(Events::READABLE | Events::WRITABLE);
        Ok((Arc::new(end), alone))
    }

    /// Whether the direction opposite to a reader's (`reads`) or a writer's was opened since its count was `before`.
    fn opened_since(&self, reads: bool, before: u64) -> bool {
        let s = self.state.lock();
        (if reads { s.writer_opens } else { s.reader_opens }) != before
    }
}

/// One end of a pipe, or both for a FIFO opened for reading and writing.
pub struct PipeEnd {
    pipe: Arc<Pipe>,
    reads: bool,
    writes: bool,
    /// For a reader that opened while there was no writer: the count of writers' opens then. Until that
    /// moves, poll(2) does not say HUP.
    writers_before: Option<u64>,
}

impl PipeEnd {
    /// As plain data.
    pub fn state(&self) -> EndState {
        EndState { reads: self.reads, writes: self.writes, writers_before: self.writers_before }
    }

    /// The pipe.
    pub fn pipe(&self) -> &Arc<Pipe> {
        &self.pipe
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        let mut s = self.pipe.state.lock();
        s.readers -= self.reads as usize;
        s.writers -= self.writes as usize;
        let mut events = Events::NONE;
        if self.writes && s.writers == 0 {
            events |= Events::READABLE | Events::HUP;
        }
        if self.reads && s.readers == 0 {
            events |= Events::WRITABLE | Events::ERR;
        }
        drop(s);
        if !events.is_empty() {
            self.pipe.queue.notify(events);
        }
    }
}

impl FileOps for PipeEnd {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_stream(&self) -> Option<&dyn StreamOps> {
        Some(self)
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        self.pipe.read(buf)
    }
    fn write(&self, cx: &dyn Caller, file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        self.pipe.write(cx, buf, file.flags() & libc::O_DIRECT != 0)
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        let s = self.pipe.state.lock();
        let mut e = Events::NONE;
        if self.reads {
            if !s.ring.is_empty() {
                e |= Events::READABLE;
            }
            if s.writers == 0 && self.writers_before != Some(s.writer_opens) {
                e |= Events::HUP;
            }
        }
        if self.writes {
            if !s.ring.is_full() {
                e |= Events::WRITABLE;
            }
            if s.readers == 0 {
                e |= Events::ERR;
            }
        }
        e
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.pipe.queue.clone())
    }
    fn ioctl(
        &self,
        _cx: &dyn Caller,
        _file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        match cmd as u64 {
            libc::FIONREAD => {
                let n = self.pipe.buffered() as i32;
                mem.write_value(arg, &n)?;
                Ok(0)
            }
            _ => Err(Errno::ENOTTY),
        }
    }
    fn link_name(&self) -> Option<String> {
        self.pipe.ino.map(|i| format!("pipe:[{i}]"))
    }
}

impl StreamOps for PipeEnd {
    fn read_whole(
        &self,
        _cx: &dyn Caller,
        _file: &OpenFile,
        buf: &mut [u8],
        want: usize,
    ) -> Option<Result<usize>> {
        Some(self.pipe.read_whole(buf, want))
    }
    fn fasync(&self, cx: &dyn Caller, _file: &OpenFile) -> Option<WaitQueue> {
        self.wait_queue(cx)
    }
}

/// The inode of a pipe from pipe(2): opening /proc/PID/fd/N gives a new end.
struct PipeInode {
    base: InternalInode,
    pipe: Arc<Pipe>,
}

impl Inode for PipeInode {
    fn fs(&self) -> Arc<dyn FileSystem> {
        Arc::new(InternalFs::Pipe)
    }
    fn attr(&self) -> Result<abi::stat::Attr> {
        self.base.attr()
    }
    fn set_attr(&self, cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        self.base.set_attr(cx, set)
    }
    fn open(&self, _cx: &dyn Caller, flags: i32) -> Result<Arc<dyn FileOps>> {
        fifo::join(&self.pipe, flags).map(|(end, _)| end as Arc<dyn FileOps>)
    }
    fn attachments(&self) -> Option<&Attachments> {
        self.base.attachments()
    }
}

impl Pipe {
    /// pipe2(2): the reading and the writing end. `flags`: O_NONBLOCK, O_DIRECT. ENFILE.
    pub fn pair(cx: &dyn Caller, flags: i32) -> Result<(Arc<OpenFile>, Arc<OpenFile>)> {
        let cred = cx.creds();
        let base = InternalInode::new(
            cx.resources().next_ino(),
            InternalFs::Pipe,
            libc::S_IFIFO | 0o600,
            cred.fsuid,
            cred.fsgid,
        );
        let pipe = Pipe::new(cx, Some(base.ino()))?;
        let inode: Arc<PipeInode> = Arc::new(PipeInode { base, pipe: pipe.clone() });
        let (r, w) = (pipe.end(true, false, false)?.0, pipe.end(false, true, false)?.0);
        let keep = flags & libc::O_NONBLOCK;
        Ok((
            OpenFile::new(None, Some(inode.clone()), r, libc::O_RDONLY | keep),
            OpenFile::new(None, Some(inode), w, libc::O_WRONLY | keep | flags & libc::O_DIRECT),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::testing::TestCaller;

    fn put(f: &OpenFile, cx: &TestCaller, b: &[u8]) -> Result<usize> {
        f.ops.write(cx, f, b, 0)
    }
    fn get(f: &OpenFile, cx: &TestCaller, n: usize) -> Result<Vec<u8>> {
        let mut b = vec![0; n];
        let n = f.ops.read(cx, f, &mut b, 0)?;
        b.truncate(n);
        Ok(b)
    }

    #[test]
    fn ends_and_readiness() {
        let cx = TestCaller::with_caps(0);
        let (r, w) = Pipe::pair(&cx, 0).unwrap();
        assert_eq!(get(&r, &cx, 5), Err(Errno::EAGAIN));
        assert_eq!((r.ops.poll(&cx, &r), w.ops.poll(&cx, &w)), (Events::NONE, Events::WRITABLE));
        assert_eq!(put(&w, &cx, b"hello"), Ok(5));
        assert_eq!(r.ops.poll(&cx, &r), Events::READABLE);
        assert_eq!(get(&r, &cx, 3).unwrap(), b"hel");
        drop(w);
        assert_eq!(r.ops.poll(&cx, &r), Events::READABLE | Events::HUP);
        assert_eq!(get(&r, &cx, 9).unwrap(), b"lo");
        assert_eq!(get(&r, &cx, 9).unwrap(), b"");
        assert_eq!(r.ops.poll(&cx, &r), Events::HUP);
    }

    #[test]
    fn no_reader_means_sigpipe() {
        let cx = TestCaller::with_caps(0);
        let (r, w) = Pipe::pair(&cx, 0).unwrap();
        drop(r);
        assert_eq!(put(&w, &cx, b""), Ok(0));
        assert_eq!(put(&w, &cx, b"x"), Err(Errno::EPIPE));
        assert_eq!(cx.raised(), [Signal::SIGPIPE]);
        assert_eq!(w.ops.poll(&cx, &w), Events::WRITABLE | Events::ERR);
    }

    #[test]
    fn opening_again() {
        let cx = TestCaller::with_caps(0);
        let (r, w) = Pipe::pair(&cx, 0).unwrap();
        let again = r.inode.as_ref().unwrap().open(&cx, libc::O_WRONLY).unwrap();
        drop(w);
        assert_eq!(again.write(&cx, &r, b"x", 0), Ok(1));
        drop(again);
        assert_eq!((get(&r, &cx, 9).unwrap(), get(&r, &cx, 9).unwrap()), (b"x".to_vec(), vec![]));
    }

    #[test]
    fn sizes() {
        let cx = TestCaller::with_caps(0);
        let (r, w) = Pipe::pair(&cx, 0).unwrap();
        let p = Pipe::of(&r).unwrap();
        assert_eq!(p.size(), 65536);
        assert_eq!(put(&w, &cx, &[1; 70000]), Ok(65536));
        assert_eq!(p.set_size(&cx, 4096), Err(Errno::EBUSY));
        assert_eq!(p.set_size(&cx, 70000), Ok(131072));
        assert_eq!(put(&w, &cx, b"x"), Ok(1));
        assert_eq!(p.buffered(), 65537);
        assert_eq!(p.set_size(&cx, 2 << 20), Err(Errno::EPERM));
    }
}

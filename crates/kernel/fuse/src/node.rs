//! Nodes: the objects of a FUSE file system, and the requests about them.
//!
//! Key type: [`Node`]. Neighbours: a node belongs to a file system ([`FuseFs`]), which finds it by its number; `inode`
//! implements vfs's traits, `file` and `dir` are open files.
//! Invariant: the number of look-ups that the daemon counts for a node is given back when the node goes.
//! Locks: `known` is a leaf; `appending` (rank `DIRECTORY`) is held during requests. A checkpoint keeps
//! nothing yet.

use crate::conn::Call;
use crate::fs::FuseFs;
use crate::wire::{self, AttrOut, EntryOut, Room, fattr, init, op};
use abi::stat::Attr;
use abi::time::Timespec;
use abi::{Errno, Result};
use files::PageCache;
use ktime::Ktime;
use lock_order::{Mutex, rank};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use vfs::attach::Attachments;
use vfs::{Caller, InodeRef};
use zerocopy::FromBytes;

/// O_LARGEFILE, which daemons see in the flags of every open file.
const O_LARGEFILE: i32 = 0o100000;

/// The attributes of a node that were received last.
pub(crate) struct AttrCache {
    pub attr: Attr,
    /// Until when; `None` when the daemon has to be asked.
    pub until: Option<Ktime>,
    /// Look-ups that the daemon counts.
    pub lookups: u64,
    /// When it was written, if the daemon leaves times to the kernel and was not told.
    pub written: Option<Timespec>,
}

/// A node.
pub(crate) struct Node {
    pub me: Weak<Node>,
    pub fs: Arc<FuseFs>,
    pub nodeid: u64,
    pub generation: u64,
    pub kind: u32,
    pub known: Mutex<AttrCache>,
    /// The daemon has given its number to something else: it can be used no more.
    pub bad: AtomicBool,
    pub attachments: Attachments,
    pub pages: PageCache,
    /// Held during a write at the end; a thread that waits for it can be killed.
    pub appending: Mutex<(), { rank::DIRECTORY }>,
}

impl Node {
    pub fn new(fs: Arc<FuseFs>, nodeid: u64, generation: u64, attr: Attr, until: Option<Ktime>) -> Arc<Node> {
        Arc::new_cyclic(|me| Node {
            me: me.clone(),
            fs,
            nodeid,
            generation,
            kind: attr.file_type(),
            known: Mutex::new(AttrCache { attr, until, lookups: 1, written: None }),
            bad: AtomicBool::new(false),
            attachments: Attachments::default(),
            pages: PageCache::default(),
            appending: Mutex::default(),
        })
    }

    /// The node among inodes.
    pub fn of(inode: &InodeRef) -> Result<&Node> {
        inode.as_any().downcast_ref().ok_or(Errno::EXDEV)
    }

    /// Whether it is the object of this generation and type.
    pub fn is(&self, generation: u64, kind: u32) -> bool {
        self.generation == generation && self.kind == kind && !self.bad.load(Ordering::Relaxed)
    }

    /// The daemon gave it once more, with attributes.
    pub fn looked_up(&self, attr: Attr, until: Option<Ktime>) {
        let mut known = self.known.lock();
        known.lookups = known.lookups.saturating_add(1);
        (known.attr, known.until) = (attr, until);
    }

    /// Its look-ups count for another one.
    pub fn uncount(&self) {
        self.known.lock().lookups = 0;
    }

    /// EIO for a node that can be used no more.
    pub fn live(&self) -> Result<()> {
        if self.bad.load(Ordering::Relaxed) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// EACCES for callers that the mount does not admit.
    pub fn admitted(&self, cx: &dyn Caller) -> Result<()> {
        if self.fs.conn.admits(&cx.creds()) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Makes a request about it.
    pub fn call(&self, cx: &dyn Caller, call: Call) -> Result<Vec<u8>> {
        self.live()?;
        self.fs.conn.call(cx, call)
    }

    /// A request without a body.
    pub fn bare(&self, opcode: u32, room: Room) -> Call {
        Call::bare(opcode, self.nodeid, room)
    }

    /// The attributes have to be asked for when they are next needed.
    pub fn expire(&self) {
        self.known.lock().until = None;
    }

    /// Size as it is known.
    pub fn size(&self) -> u64 {
        self.known.lock().attr.size
    }

    /// Something was written up to `end`.
    pub fn written(&self, end: u64) {
        let keeps_times = self.fs.conn.agreed().flags & init::WRITEBACK_CACHE != 0;
        let mut known = self.known.lock();
        if keeps_times {
            known.written = Some(hostsys::fs::now());
        }
        known.attr.size = known.attr.size.max(end);
        known.until = None;
    }

    /// One of its names is gone.
    pub fn lost_name(&self) {
        let mut known = self.known.lock();
        known.attr.nlink = known.attr.nlink.saturating_sub(1);
        known.until = None;
    }

    /// Takes attributes from an answer. EIO for those of another type, with which it can be used no more.
    pub fn take(&self, body: &[u8]) -> Result<()> {
        let (out, _) = wire::decode::<AttrOut>(body)?;
        let attr = self.fs.attr(&out.attr).ok().filter(|attr| attr.file_type() == self.kind);
        let Some(attr) = attr else {
            self.bad.store(true, Ordering::Relaxed);
            return Err(Errno::EIO);
        };
        let mut known = self.known.lock();
        (known.attr, known.until) = (attr, self.fs.until(out.attr_valid, out.attr_valid_nsec));
        Ok(())
    }

    /// Tells a daemon that leaves times to the kernel when the file was written.
    pub fn tell_times(&self, cx: &dyn Caller) {
        let Some(time) = self.known.lock().written.take() else { return };
        let body = wire::SetattrIn {
            valid: fattr::MTIME | fattr::CTIME,
            mtime: time.sec as u64,
            mtimensec: time.nsec as u32,
            ctime: time.sec as u64,
            ctimensec: time.nsec as u32,
            ..wire::SetattrIn::default()
        };
        // As for Linux: a daemon that refuses a time does not make the write fail.
        let _ = self.call(cx, Call::new(op::SETATTR, self.nodeid, &body, Room::of::<AttrOut>()));
    }

    /// Asks for attributes unless they are known still.
    pub fn update(&self, cx: &dyn Caller) -> Result<()> {
        self.live()?;
        if self.known.lock().until.is_some_and(|until| until > self.fs.now()) {
            return Ok(());
        }
        self.tell_times(cx);
        let body = wire::GetattrIn { getattr_flags: 0, dummy: 0, fh: 0 };
        let answer = self.call(cx, Call::new(op::GETATTR, self.nodeid, &body, Room::of::<AttrOut>()))?;
        self.take(&answer)
    }

    /// The node of an entry in an answer to a request that makes something of this type.
    pub fn made(&self, name: &[u8], body: &[u8], kind: u32) -> Result<Arc<Node>> {
        let (entry, _) = wire::decode::<EntryOut>(body)?;
        let node = self.fs.node(&entry)?;
        self.expire();
        if node.kind != kind {
            self.fs.forget_name(self.nodeid, name);
            return Err(Errno::EIO);
        }
        self.fs.keep(self.nodeid, name, Some(node.clone()), &entry);
        Ok(node)
    }

    /// As [`Node::call`] for a request that a daemon need not know: `None` for one that does not.
    pub fn optional(&self, cx: &dyn Caller, call: Call) -> Option<Result<Vec<u8>>> {
        let opcode = call.opcode;
        if self.fs.conn.lacks(opcode) {
            return None;
        }
        match self.call(cx, call) {
            Err(Errno::ENOSYS) => {
                self.fs.conn.set_lacks(opcode);
                None
            }
            done => Some(done),
        }
    }
}

/// Flags of open(2) as a daemon sees them.
pub(crate) fn shown_flags(flags: i32) -> u32 {
    let hidden = libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY | libc::O_TRUNC | libc::O_CLOEXEC;
    (flags & !hidden | O_LARGEFILE) as u32
}

impl Drop for Node {
    fn drop(&mut self) {
        self.fs.gone(self);
        self.fs.conn.forget(self.nodeid, self.known.get_mut().lookups);
    }
}

/// A structure of an answer that may have another one behind it.
pub(crate) fn second<T: FromBytes>(body: &[u8]) -> Result<T> {
    let (_, rest) = wire::decode::<EntryOut>(body)?;
    Ok(wire::decode::<T>(rest)?.0)
}

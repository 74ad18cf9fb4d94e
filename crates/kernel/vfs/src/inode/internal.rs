//! The internal file systems of objects that have no name: pipefs, sockfs,
//! pidfs and anon_inodefs. They give pipes, sockets, processes and event
//! descriptors inodes with attributes; nothing can be walked to.
//!
//! Lock rank: leaf. A checkpoint keeps inode number and attributes.

use crate::attach::Attachments;
use crate::file::{Caller, FileOps};
use crate::inode::{FileSystem, Inode, InodeRef, SetAttr, XattrInode};
use abi::stat::{Attr, StatFs, makedev};
use abi::time::Timespec;
use abi::{Errno, Result};
use lock_order::Mutex;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// One of the internal file systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InternalFs {
    /// Pipes.
    Pipe,
    /// Sockets.
    Socket,
    /// Everything else (eventfd, epoll, timerfd, ...): one inode for all.
    Anon,
    /// Process descriptors: one inode for each process or thread.
    Pid,
}

impl InternalFs {
    /// Device number, as on Linux after boot.
    pub const fn dev(self) -> u64 {
        match self {
            InternalFs::Socket => makedev(0, 9),
            InternalFs::Pipe => makedev(0, 15),
            InternalFs::Anon => makedev(0, 16),
            InternalFs::Pid => makedev(0, 8),
        }
    }
}

impl FileSystem for InternalFs {
    fn kind(&self) -> &'static str {
        match self {
            InternalFs::Pipe => "pipefs",
            InternalFs::Socket => "sockfs",
            InternalFs::Anon => "anon_inodefs",
            InternalFs::Pid => "pidfs",
        }
    }
    fn root(&self) -> InodeRef {
        Arc::new(InternalInode::new(1, *self, libc::S_IFDIR | 0o555, 0, 0))
    }
    fn statfs(&self) -> Result<StatFs> {
        let f_type = match self {
            InternalFs::Pipe => 0x5049_5045,
            InternalFs::Socket => 0x534f_434b,
            InternalFs::Anon => 0x0904_1934,
            InternalFs::Pid => 0x5049_4446,
        };
        Ok(StatFs {
            f_type,
            f_bsize: 4096,
            f_namelen: 255,
            f_frsize: 4096,
            f_flags: 0x20,
            ..StatFs::default()
        })
    }
}

/// Current CLOCK_REALTIME.
fn now() -> Timespec {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().into()
}

/// An inode of an internal file system.
pub struct InternalInode {
    fs: InternalFs,
    attr: Mutex<Attr>,
    attachments: Attachments,
    /// Of a socket: what its one extended attribute says.
    protocol: Option<&'static str>,
}

/// The attribute of sockets that names their protocol.
const PROTOCOL_NAME: &[u8] = b"system.sockprotoname";

impl InternalInode {
    /// A new inode with its number (see [`caller::Resources::next_ino`]), type and permission bits `mode`.
    pub fn new(ino: u64, fs: InternalFs, mode: u32, uid: u32, gid: u32) -> InternalInode {
        // sockfs does not keep times.
        let t = if fs == InternalFs::Socket { Timespec::default() } else { now() };
        let attr = Attr {
            dev: fs.dev(),
            ino,
            mode,
            nlink: 1,
            uid,
            gid,
            blksize: 4096,
            atime: t,
            mtime: t,
            ctime: t,
            ..Attr::default()
        };
        InternalInode::restore(fs, attr)
    }

    /// Back from its attributes, which are all that a checkpoint keeps.
    pub fn restore(fs: InternalFs, attr: Attr) -> InternalInode {
        InternalInode { fs, attr: Mutex::new(attr), attachments: Attachments::default(), protocol: None }
    }

    /// The inode of a socket of this protocol.
    #[must_use]
    pub fn of_protocol(self, name: &'static str) -> InternalInode {
        InternalInode { protocol: Some(name), ..self }
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.attr.lock().ino
    }
}

impl Inode for InternalInode {
    fn fs(&self) -> Arc<dyn FileSystem> {
        Arc::new(self.fs)
    }
    fn attr(&self) -> Result<Attr> {
        Ok(*self.attr.lock())
    }
    fn set_attr(&self, _cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        if matches!(self.fs, InternalFs::Anon | InternalFs::Pid) {
            return Err(Errno::EOPNOTSUPP);
        }
        if set.size.is_some() {
            return Err(Errno::EINVAL);
        }
        set.apply(&mut self.attr.lock(), now());
        Ok(())
    }
    fn open(&self, _cx: &dyn Caller, _flags: i32) -> Result<Arc<dyn FileOps>> {
        Err(Errno::ENXIO)
    }
    fn as_xattrs(&self) -> Option<&dyn XattrInode> {
        self.protocol.is_some().then_some(self)
    }
    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }
}

impl XattrInode for InternalInode {
    fn get_xattr(&self, _cx: &dyn Caller, name: &[u8]) -> Result<Vec<u8>> {
        let protocol = self.protocol.filter(|_| name == PROTOCOL_NAME).ok_or(Errno::EOPNOTSUPP)?;
        Ok([protocol.as_bytes(), b"\0"].concat())
    }
    fn set_xattr(&self, _cx: &dyn Caller, _name: &[u8], _value: &[u8], _flags: i32) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    fn list_xattr(&self, _cx: &dyn Caller) -> Result<Vec<Vec<u8>>> {
        Ok(vec![PROTOCOL_NAME.to_vec()])
    }
    fn remove_xattr(&self, _cx: &dyn Caller, _name: &[u8]) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
}

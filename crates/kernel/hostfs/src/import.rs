//! Host descriptors as open files: the standard streams of the first process.
//!
//! The open file description stays shared with the process that gave it to us. Its status flags are left alone, and its
//! position moves as if the guest had it.

use crate::files::HostFiles;
use crate::stream::Stream;
use abi::stat::{Attr, S_IFCHR, S_IFDIR, S_IFIFO, S_IFREG};
use abi::{Errno, Result};
use hostsys::fs as host;
use lock_order::Mutex;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::attach::Attachments;
use vfs::inode::InternalFs;
use vfs::{
    Caller, FileOps, FileSystem, Inode, InodeRef, MapOps, MapRequest, Mapping, OpenFile, OpenFileState,
    SeekOps, SetAttr, StorageOps,
};

/// An imported file as plain data, for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ImportedState {
    /// Its place among the descriptors that the first process started with.
    pub index: usize,
    /// Index of the container.
    #[serde(default)]
    pub container: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits, if they were changed.
    pub mode: Option<u32>,
}

/// What an open file is that was imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportedFile {
    /// The first process started with it.
    First(ImportedState),
    /// Another process did (`exec`).
    Other,
}

impl ImportedFile {
    /// `None` for a file that was not imported.
    pub fn of(file: &OpenFile) -> Option<ImportedFile> {
        let inode: &Imported = file.inode.as_ref()?.as_any().downcast_ref()?;
        let Some((container, index)) = inode.index else { return Some(ImportedFile::Other) };
        let (uid, gid, mode) = *inode.owner.lock();
        Some(ImportedFile::First(ImportedState { index, container, uid, gid, mode }))
    }
}

/// The open file of plain data, with what the descriptor is now: `new`, which was imported at the same place. Access mode
/// and position are those of now.
pub fn restore(saved: &ImportedState, file: &OpenFileState, new: &OpenFile) -> Result<Arc<OpenFile>> {
    let inode = new.inode.as_ref().ok_or(Errno::EBADF)?;
    let imported: &Imported = inode.as_any().downcast_ref().ok_or(Errno::EBADF)?;
    *imported.owner.lock() = (saved.uid, saved.gid, saved.mode.map(|mode| mode & 0o7777));
    let flags = file.flags & !libc::O_ACCMODE | new.flags() & libc::O_ACCMODE;
    let position = *new.pos.lock();
    let file = OpenFileState { flags, position, ..file.clone() };
    OpenFile::restore(&file, None, Some(inode.clone()), new.ops.clone())
}

/// The inode of an imported file. Owner and mode are the guest's own; the host's do not change.
struct Imported {
    /// Device number.
    dev: u64,
    fd: Arc<OwnedFd>,
    ops: Arc<dyn FileOps>,
    flags: i32,
    /// Owner, group and changed mode.
    owner: Mutex<(u32, u32, Option<u32>)>,
    attachments: Attachments,
    /// See [`ImportedState::container`] and [`ImportedState::index`]; `None` for another process's.
    index: Option<(u32, usize)>,
}

impl Inode for Imported {
    fn fs(&self) -> Arc<dyn FileSystem> {
        Arc::new(InternalFs::Anon)
    }
    fn attr(&self) -> Result<Attr> {
        let a = host::stat(&*self.fd)?;
        let (uid, gid, mode) = *self.owner.lock();
        let mode = a.mode & libc::S_IFMT | mode.unwrap_or(a.mode) & 0o7777;
        Ok(Attr { dev: self.dev, uid, gid, mode, ..a })
    }
    fn set_attr(&self, _cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        if let Some(size) = set.size {
            host::truncate(&*self.fd, size)?;
        }
        let mut u = self.owner.lock();
        u.0 = set.uid.unwrap_or(u.0);
        u.1 = set.gid.unwrap_or(u.1);
        u.2 = set.mode.or(u.2);
        Ok(())
    }
    /// Through /proc/self/fd: the same stream again, with no more rights.
    fn open(&self, _cx: &dyn Caller, flags: i32) -> Result<Arc<dyn FileOps>> {
        let (have, want) = (self.flags & libc::O_ACCMODE, flags & libc::O_ACCMODE);
        if have != libc::O_RDWR && have != want {
            return Err(Errno::EACCES);
        }
        Ok(self.ops.clone())
    }
    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }
}

/// A regular file: used at the position that it shares with the host.
///
/// A transfer that goes on where the guest's last one ended uses the host's position, wherever others
/// that share it have moved it meanwhile; any other one is positional or moves it.
struct Regular {
    fd: Arc<OwnedFd>,
    name: String,
    /// Where the guest's last sequential transfer ended, in its own count.
    last: AtomicU64,
}

impl Regular {
    /// Moves the shared position to `off` unless the guest just goes on. False for a positional
    /// transfer (pread, pwrite), which leaves the position alone.
    fn sequential(&self, file: &OpenFile, off: u64) -> Result<bool> {
        // Sequential transfers hold the position's lock.
        if !file.pos.is_locked() {
            return Ok(false);
        }
        if self.last.load(Ordering::Relaxed) != off {
            host::seek_to(&*self.fd, off)?;
        }
        Ok(true)
    }
}

impl FileOps for Regular {
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
    fn read(&self, _cx: &dyn Caller, file: &OpenFile, buf: &mut [u8], off: u64) -> Result<usize> {
        if !self.sequential(file, off)? {
            return host::pread_full(&*self.fd, buf, off);
        }
        let n = host::read(&*self.fd, buf)?;
        self.last.store(off + n as u64, Ordering::Relaxed);
        Ok(n)
    }
    fn write(&self, _cx: &dyn Caller, file: &OpenFile, buf: &[u8], off: u64) -> Result<usize> {
        if !self.sequential(file, off)? {
            return host::pwrite(&*self.fd, buf, off);
        }
        let n = host::write(&*self.fd, buf)?;
        self.last.store(off + n as u64, Ordering::Relaxed);
        Ok(n)
    }
    fn link_name(&self) -> Option<String> {
        Some(self.name.clone())
    }
}

impl SeekOps for Regular {
    fn append(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &[u8]) -> Result<(usize, u64)> {
        let n = host::write(&*self.fd, buf)?;
        Ok((n, host::tell(&*self.fd)?))
    }
}

impl StorageOps for Regular {
    fn sync(&self, _cx: &dyn Caller, _file: &OpenFile, data_only: bool) -> Result<()> {
        host::sync(&*self.fd, data_only)
    }
}

impl MapOps for Regular {
    fn map(&self, _cx: &dyn Caller, _file: &OpenFile, req: &MapRequest) -> Result<Mapping> {
        Ok(Mapping::Host { fd: self.fd.clone(), offset: req.offset })
    }
}

/// Device, inode number, flags and position of a regular file.
type Key = (u64, u64, i32, u64);

/// Takes the descriptors over that one process starts with. Two of them that name the same file at the same position
/// (`2>&1`) become one open file, as they are one outside: what is written through one moves the other's position.
pub struct Importer {
    home: Arc<HostFiles>,
    regular: Vec<(Key, Arc<OpenFile>)>,
    /// The container, and the next place of its first process's descriptors.
    next: Option<(u32, usize)>,
}

impl Importer {
    /// For the descriptors of one process of the kernel that `home` belongs to.
    pub fn new(home: &Arc<HostFiles>) -> Importer {
        Importer { home: home.clone(), regular: Vec::new(), next: None }
    }

    /// The same for a container's first process: a checkpoint knows its descriptors by their order.
    pub fn first(home: &Arc<HostFiles>, container: u32) -> Importer {
        Importer { next: Some((container, 0)), ..Importer::new(home) }
    }

    /// Makes a host descriptor an open file that belongs to `uid` and `gid` in the guest. Regular files,
    /// pipes, sockets, terminals and other character devices; not directories.
    pub fn import(&mut self, fd: OwnedFd, uid: u32, gid: u32) -> Result<Arc<OpenFile>> {
        let index = self.next;
        self.next = index.map(|(container, index)| (container, index + 1));
        let a = host::stat(&fd)?;
        if a.file_type() != S_IFREG {
            return open_file(&self.home, fd, index, uid, gid);
        }
        let key = (a.dev, a.ino, host::status_flags(&fd)?, host::tell(&fd)?);
        if let Some((_, file)) = self.regular.iter().find(|(known, _)| *known == key) {
            return Ok(file.clone());
        }
        let file = open_file(&self.home, fd, index, uid, gid)?;
        self.regular.push((key, file.clone()));
        Ok(file)
    }
}

fn open_file(
    home: &HostFiles,
    fd: OwnedFd,
    index: Option<(u32, usize)>,
    uid: u32,
    gid: u32,
) -> Result<Arc<OpenFile>> {
    let a = host::stat(&fd)?;
    let flags = host::status_flags(&fd)?;
    if flags & libc::O_PATH != 0 {
        return Err(Errno::EBADF);
    }
    let pos = host::tell(&fd).unwrap_or(0);
    let (ops, held): (Arc<dyn FileOps>, Arc<OwnedFd>) = match a.file_type() {
        S_IFDIR => return Err(Errno::EISDIR),
        S_IFREG => {
            let fd = Arc::new(fd);
            (
                Arc::new(Regular {
                    fd: fd.clone(),
                    name: format!("host:[{}]", a.ino),
                    last: AtomicU64::new(pos),
                }),
                fd,
            )
        }
        kind => {
            let name = match kind {
                S_IFIFO => format!("pipe:[{}]", a.ino),
                S_IFCHR => format!("host:[{}]", a.ino),
                _ => format!("socket:[{}]", a.ino),
            };
            let s = Stream::new(home, fd, name)?;
            let fd = s.fd.clone();
            (Arc::new(s), fd)
        }
    };
    let inode = Arc::new(Imported {
        dev: home.imported_dev,
        fd: held,
        ops: ops.clone(),
        flags,
        owner: Mutex::new((uid, gid, None)),
        attachments: Attachments::default(),
        index,
    });
    // Non-blocking for others on the host is not non-blocking for the guest.
    let shown = flags & (libc::O_ACCMODE | libc::O_APPEND) | 0o100000;
    let inode: InodeRef = inode;
    let file = OpenFile::new(None, Some(inode), ops, shown);
    *file.pos.lock() = pos;
    Ok(file)
}

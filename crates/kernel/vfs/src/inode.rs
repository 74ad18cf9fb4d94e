//! What a file system implements: [`FileSystem`] and [`Inode`], and of the traits for abilities those that its objects have.

use crate::attach::Attachments;
use crate::file::{Caller, FileOps};
use abi::stat::{Attr, StatFs};
use abi::time::Timespec;
use abi::{Errno, Result};
use rights::Perm;
use std::any::Any;
use std::sync::Arc;

mod abilities;
mod internal;

pub use abilities::{
    AclInode, Confirming, DirInode, Hold, LinkInode, MagicLink, OutsideName, OutsideSocket, PermissionInode,
    ServedInode, SpecialInode, XattrInode,
};
pub use internal::{InternalFs, InternalInode};

/// A shared inode.
pub type InodeRef = Arc<dyn Inode>;

/// A file system instance (superblock).
pub trait FileSystem: Send + Sync {
    /// Type as in /proc/filesystems, e.g. `"tmpfs"`.
    fn kind(&self) -> &'static str;
    /// Root directory.
    fn root(&self) -> InodeRef;
    /// statfs(2) numbers.
    fn statfs(&self) -> Result<StatFs>;
    /// Flushes to stable storage (sync(2), syncfs(2)); nothing to do in memory.
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    /// True when dentries must be checked against the file system on every use, because
    /// others change it behind our back (bind mounts shared with the host, procfs).
    fn revalidate(&self) -> bool {
        false
    }
    /// Its device files lead to nothing of the machine, so that those of a mount in a user namespace can be opened.
    fn has_safe_devices(&self) -> bool {
        false
    }
    /// Its objects are those of the host, which others change while this kernel does not run: time of birth and inode number
    /// say in a later kernel whether a name still leads to the same object.
    fn is_of_host(&self) -> bool {
        false
    }
    /// For a file system that has its dentries checked: it can check a path of several names at once
    /// ([`Confirming::still_there`]), so its names are worth keeping.
    fn confirms(&self) -> bool {
        false
    }
    /// The last mount of it is gone and its dentries are dropped: let go of cycles.
    fn unmounted(&self) {}
    /// umount(2) with MNT_FORCE: ends requests that wait for a program.
    fn give_up_requests(&self) {}
    /// Memory is wanted back: forget what can be found again.
    fn trim(&self) {}
    /// How many file systems are below it (s_stack_depth).
    fn stack_depth(&self) -> u32 {
        0
    }
    /// A program serves the content of its files, or it is that of other files: it can change while a file is executed, and
    /// without a change of the file's times.
    fn content_is_elsewhere(&self) -> bool {
        false
    }
    /// It may be a layer of a stacked file system.
    fn is_layer(&self) -> bool {
        false
    }
    /// Its objects can be opened by their handles, open_by_handle_at(2): inodes stay the same objects while they are in use, and
    /// creation times tell apart those that have had the same number.
    fn opens_by_handle(&self) -> bool {
        false
    }
    /// The path of the directory or file that a mount shows, where it depends on the caller that reads the mount table.
    fn shown_root(&self, _cx: &dyn Caller, _root: &InodeRef) -> Option<Vec<u8>> {
        None
    }
    /// Nothing in it can ever be changed: the instance is read-only and stays so.
    fn is_fixed(&self) -> bool {
        false
    }
    /// A remount that asks for writing succeeds, and leaves it read-only.
    fn stays_read_only(&self) -> bool {
        false
    }
    /// How many images, each in a file of the next, are read one through the other to read a file of it.
    fn images_below(&self) -> u32 {
        0
    }
    /// The part of the type behind a dot that mount(2) gave and that means nothing here (`fuse.sshfs`).
    fn subtype(&self) -> Option<&str> {
        None
    }
    /// The lock of renames across directories of this instance alone, where a rename may wait for a program.
    fn rename_lock(&self) -> Option<&lock_order::Mutex<(), { lock_order::rank::RENAME }>> {
        None
    }
    /// New options from mount(2) with MS_REMOUNT.
    fn remount(&self, _options: &[u8]) -> Result<()> {
        Ok(())
    }
    /// Its places belong to no mount namespace, and may be bind mounted all the same (nsfs).
    fn binds_from_nowhere(&self) -> bool {
        false
    }
    /// Options as /proc/mounts shows them after `rw`/`ro`, e.g. `size=65536k`.
    fn options(&self) -> String {
        String::new()
    }
}

/// What `create` makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewNode {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// The name of a Unix socket of this type (SOCK_*), which bind(2) makes.
    BoundSocket(i32),
    /// Character device with its number.
    Char(u64),
    /// Block device with its number.
    Block(u64),
    /// Symbolic link to these bytes.
    Symlink(Vec<u8>),
}

/// New value of a time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSet {
    /// Current time.
    Now,
    /// This time.
    At(Timespec),
}

/// Attribute changes; `None` leaves an attribute alone. Permission has been checked by the
/// caller (`vfs`), set-id bits have been dropped where Linux drops them.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permission bits (07777).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// New size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<TimeSet>,
    /// Modification time.
    pub mtime: Option<TimeSet>,
}

impl SetAttr {
    /// Makes the changes, but for the size, in attributes that are kept as they are; it is `now`.
    pub fn apply(&self, attr: &mut Attr, now: Timespec) {
        let time = |time: TimeSet| match time {
            TimeSet::Now => now,
            TimeSet::At(time) => time,
        };
        if let Some(mode) = self.mode {
            attr.mode = attr.mode & libc::S_IFMT | mode & 0o7777;
        }
        attr.uid = self.uid.unwrap_or(attr.uid);
        attr.gid = self.gid.unwrap_or(attr.gid);
        attr.atime = self.atime.map_or(attr.atime, time);
        attr.mtime = self.mtime.map_or(attr.mtime, time);
        attr.ctime = now;
    }
}

/// One directory entry.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// Inode number.
    pub ino: u64,
    /// DT_* type.
    pub kind: u8,
    /// Name.
    pub name: Vec<u8>,
}

/// Receives directory entries. `next` is the offset that continues after this entry.
/// Returns false when full: the entry was not taken.
pub trait DirSink {
    /// Offers one entry.
    fn entry(&mut self, next: u64, e: &DirEntry) -> bool;
    /// Takes `.` and `..` from directories that list them themselves (`DirectoryOps::lists_dots`).
    fn takes_dots(&self) -> bool {
        false
    }
}

/// A file system object: what every object has, and accessors for the abilities that only some have. The methods of
/// `dyn Inode` of the same names as those of an ability give Linux's answer where the ability is missing.
pub trait Inode: Send + Sync + Any {
    /// The instance this belongs to.
    fn fs(&self) -> Arc<dyn FileSystem>;
    /// Current attributes.
    fn attr(&self) -> Result<Attr>;
    /// Type (S_IFMT bits); never changes.
    fn kind(&self) -> u32 {
        self.attr().map_or(0, |a| a.file_type())
    }
    /// What permission checks need, when that is cheaper than all attributes.
    fn perm(&self) -> Result<Perm> {
        let a = self.attr()?;
        Ok(Perm { mode: a.mode, uid: a.uid, gid: a.gid })
    }
    /// Changes attributes.
    fn set_attr(&self, _cx: &dyn Caller, _set: &SetAttr) -> Result<()> {
        Err(Errno::EPERM)
    }
    /// Opens the object. `flags` are open(2)'s; creation, exclusivity and permission
    /// were dealt with. FIFOs may block through the caller's waiter.
    fn open(&self, _cx: &dyn Caller, _flags: i32) -> Result<Arc<dyn FileOps>> {
        Err(Errno::ENXIO)
    }
    /// A per-inode slot where the socket layer keeps the endpoint bound to a socket inode,
    /// the pipe layer its FIFO, the lock layer its records.
    fn attachments(&self) -> Option<&Attachments> {
        None
    }
    /// As a directory.
    fn as_dir(&self) -> Option<&dyn DirInode> {
        None
    }
    /// As a symbolic link.
    fn as_link(&self) -> Option<&dyn LinkInode> {
        None
    }
    /// As one with extended attributes.
    fn as_xattrs(&self) -> Option<&dyn XattrInode> {
        None
    }
    /// As one of a file system that others change.
    fn as_confirming(&self) -> Option<&dyn Confirming> {
        None
    }
    /// As one of a file system with rules of its own about access.
    fn as_permission(&self) -> Option<&dyn PermissionInode> {
        None
    }
    /// As one with attributes that a server keeps.
    fn as_served(&self) -> Option<&dyn ServedInode> {
        None
    }
    /// As one that stands for an object outside its file system.
    fn as_special(&self) -> Option<&dyn SpecialInode> {
        None
    }
}

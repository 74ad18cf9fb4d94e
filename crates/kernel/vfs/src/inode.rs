//! What a file system implements.

use crate::attach::Attachments;
use crate::file::{Caller, FileOps, OpenFile};
use crate::mount::Path;
use abi::stat::{Attr, StatFs};
use abi::time::Timespec;
use abi::{Errno, Result};
use caller::Outcome;
use rights::acl::{Acl, AclKind};
use rights::{Credentials, Perm};
use std::any::Any;
use std::sync::Arc;
use wait::{Events, WaitQueue};

mod internal;

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
    /// It may be a layer of a stacked file system.
    fn is_layer(&self) -> bool {
        false
    }
    /// Its objects can be opened by their handles, open_by_handle_at(2): inodes stay the same objects while they are in use, and
    /// creation times tell apart those that have had the same number.
    fn opens_by_handle(&self) -> bool {
        false
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
}

/// A file system object. Methods on names get one component without slash,
/// never empty, `.` or `..`; permission checks happened before in `vfs`.
/// Defaults answer as Linux does for objects without the operation.
pub trait Inode: Send + Sync + Any {
    /// For file systems that compose others or look inside their own.
    fn as_any(&self) -> &dyn Any;
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
    /// Further demands of the file system besides mode and lists, for a `mask` that these grant. A stacked file system
    /// checks that the mounter has the rights below.
    fn permission(&self, _mask: u32) -> Result<()> {
        Ok(())
    }
    /// Requests the attributes that [`Inode::attr`] returns from the server of the file system, unless they are still
    /// valid. May wait through the caller's waiter; [`Inode::attr`] and [`Inode::perm`] never do.
    fn refresh(&self, _cx: &dyn Caller) -> Result<()> {
        Ok(())
    }
    /// As [`Inode::refresh`], before access to the object is judged.
    fn refresh_access(&self, _cx: &dyn Caller) -> Result<()> {
        Ok(())
    }
    /// The answer of a file system that judges access itself. `None` for all others: mode, lists and capabilities decide.
    fn judges(&self, _creds: &Credentials, _mask: u32) -> Option<Result<()>> {
        None
    }
    /// The server of the file system decides about changes of attributes.
    fn judges_changes(&self) -> bool {
        false
    }
    /// The server of the file system applies the umask of the process that makes an object in it.
    fn keeps_umask(&self) -> bool {
        false
    }
    /// What access(2) and chdir(2) ask besides [`Inode::judges`].
    fn ask_access(&self, _cx: &dyn Caller, _mask: u32) -> Result<()> {
        Ok(())
    }
    /// statfs(2) of this object; as [`FileSystem::statfs`] where no one has to be asked.
    fn statfs(&self, _cx: &dyn Caller) -> Result<StatFs> {
        self.fs().statfs()
    }
    /// Changes attributes.
    fn set_attr(&self, _cx: &dyn Caller, _set: &SetAttr) -> Result<()> {
        Err(Errno::EPERM)
    }
    /// It is about to get another name by a rename that is otherwise allowed. EXDEV for what cannot move.
    fn about_to_move(&self, _cx: &dyn Caller) -> Result<()> {
        Ok(())
    }
    /// Finds an entry; ENOENT when there is none.
    fn lookup(&self, _cx: &dyn Caller, _name: &[u8]) -> Result<InodeRef> {
        Err(Errno::ENOTDIR)
    }
    /// Opens the object. `flags` are open(2)'s; creation, exclusivity and permission
    /// were dealt with. FIFOs may block through the caller's waiter.
    fn open(&self, _cx: &dyn Caller, _flags: i32) -> Result<Arc<dyn FileOps>> {
        Err(Errno::ENXIO)
    }
    /// Opens a FIFO that may be open outside this kernel at its other end. May block through the caller's waiter.
    /// `None` for all others: their pipe is this kernel's.
    fn open_outside(&self, _cx: &dyn Caller, _flags: i32) -> Option<Outcome<Arc<dyn FileOps>>> {
        None
    }
    /// Connects to a socket (SOCK_STREAM, SOCK_SEQPACKET) with its other side outside this kernel; `queue` receives its
    /// readiness. EACCES for a caller that may not. `None` for all others.
    fn connect_outside(
        &self,
        _cx: &dyn Caller,
        _kind: i32,
        _queue: &WaitQueue,
    ) -> Option<Result<Arc<dyn OutsideSocket>>> {
        None
    }
    /// A directory in which there will never be anything, so that a mount hides nothing.
    fn stays_empty(&self) -> bool {
        false
    }
    /// The mount namespace that a file of nsfs keeps alive (the ID of its [`MountSet`](crate::mount::MountSet)).
    fn mount_ns(&self) -> Option<u64> {
        None
    }
    /// Something may be mounted on it.
    fn takes_mounts(&self) -> bool {
        true
    }
    /// A per-inode slot where the socket layer keeps the endpoint bound to a socket inode,
    /// the pipe layer its FIFO, the lock layer its records.
    fn attachments(&self) -> Option<&Attachments> {
        None
    }
    /// As a directory with names that can be changed.
    fn as_dir(&self) -> Option<&dyn DirInode> {
        None
    }
    /// As a symbolic link.
    fn as_link(&self) -> Option<&dyn LinkInode> {
        None
    }
    /// As a magic link.
    fn as_magic_link(&self) -> Option<&dyn MagicLink> {
        None
    }
    /// As one of a file system that others change.
    fn as_confirming(&self) -> Option<&dyn Confirming> {
        None
    }
    /// As one with extended attributes.
    fn as_xattrs(&self) -> Option<&dyn XattrInode> {
        None
    }
    /// As one with access control lists.
    fn as_acls(&self) -> Option<&dyn AclInode> {
        None
    }
}

impl dyn Inode {
    /// As a directory with names that can be changed; EPERM.
    pub fn dir(&self) -> Result<&dyn DirInode> {
        self.as_dir().ok_or(Errno::EPERM)
    }

    /// Target of a symbolic link; EINVAL for others.
    pub fn readlink(&self, cx: &dyn Caller) -> Result<Vec<u8>> {
        self.as_link().ok_or(Errno::EINVAL)?.readlink(cx)
    }

    /// As one with extended attributes; EOPNOTSUPP.
    pub fn xattrs(&self) -> Result<&dyn XattrInode> {
        self.as_xattrs().ok_or(Errno::EOPNOTSUPP)
    }
}

/// A directory with names that can be changed. Defaults answer as Linux does for a file system without the operation.
pub trait DirInode {
    /// Makes an entry owned by (uid, gid) with `mode` permission bits (umask applied); EEXIST when there.
    fn create(
        &self,
        _cx: &dyn Caller,
        _name: &[u8],
        _node: &NewNode,
        _mode: u32,
        _uid: u32,
        _gid: u32,
    ) -> Result<InodeRef> {
        Err(Errno::EPERM)
    }
    /// As [`DirInode::create`] of a regular file that is opened with `flags` in the same step. `None` where making and opening
    /// are two steps.
    fn create_open(
        &self,
        _cx: &dyn Caller,
        _name: &[u8],
        _mode: u32,
        _flags: i32,
    ) -> Option<Result<(InodeRef, Arc<dyn FileOps>)>> {
        None
    }
    /// Makes an unnamed regular file in this directory (O_TMPFILE).
    fn create_unnamed(&self, _cx: &dyn Caller, _mode: u32, _uid: u32, _gid: u32) -> Result<InodeRef> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Hard link to an inode of the same file system.
    fn link(&self, _cx: &dyn Caller, _name: &[u8], _target: &InodeRef) -> Result<()> {
        Err(Errno::EPERM)
    }
    /// Removes an entry that is not a directory.
    fn unlink(&self, _cx: &dyn Caller, _name: &[u8]) -> Result<()> {
        Err(Errno::EPERM)
    }
    /// Removes an empty directory; ENOTEMPTY otherwise.
    fn rmdir(&self, _cx: &dyn Caller, _name: &[u8]) -> Result<()> {
        Err(Errno::EPERM)
    }
    /// Moves `name` to `new_dir`/`new_name` on the same file system. `flags`: RENAME_*.
    fn rename(
        &self,
        _cx: &dyn Caller,
        _name: &[u8],
        _new_dir: &InodeRef,
        _new_name: &[u8],
        _flags: u32,
    ) -> Result<()> {
        Err(Errno::EPERM)
    }
}

/// A symbolic link.
pub trait LinkInode {
    /// Like [`LinkInode::readlink`], for callers that later check that the link has not changed. `None` when the text is not known.
    fn link_text(&self, cx: &dyn Caller) -> Option<Vec<u8>> {
        self.readlink(cx).ok()
    }
    /// Where it leads; EINVAL when it is no link.
    fn readlink(&self, cx: &dyn Caller) -> Result<Vec<u8>>;
    /// It was followed or read through a mount that keeps times of access.
    fn followed(&self) {}
}

/// A link that leads to a place or an open file rather than to a path (/proc/PID/fd/N, exe, cwd, root).
pub trait MagicLink {
    /// The place itself instead of a path to walk.
    fn magic_link(&self, cx: &dyn Caller) -> Option<Result<Path>>;
    /// The open file of a link to one that has no path (pipes, memfd).
    fn magic_file(&self, cx: &dyn Caller) -> Option<Result<Arc<OpenFile>>>;
}

/// An inode of a file system that others change: it can say whether what is known of names still holds.
pub trait Confirming {
    /// Attributes returned by the [`Inode::lookup`] that has just produced this inode; `None` where it does not learn them.
    fn told(&self) -> Option<Attr>;
    /// Whether `path`, names below this directory without `.` or `..`, still leads to `inode`: then its attributes. Links
    /// are not followed.
    fn still_there(&self, path: &[u8], inode: &InodeRef) -> Option<Attr>;
    /// Whether `path`, names below this directory without `.` or `..`, still leads nowhere.
    fn still_absent(&self, path: &[u8]) -> bool;
    /// Takes note of what others have changed, for [`Confirming::epoch`].
    fn settle(&self) {}
    /// Takes note of what others have changed, and of this directory's own owners and mode, which a walk is about to look at.
    /// `settled`: the walk has taken note of what others have changed in this file system already.
    fn recheck(&self, _settled: bool) {}
    /// A number, not 0, that stays the same while other processes change nothing in this directory, neither names nor
    /// the right to search it. `None` when that is not known: then what is kept of its names must be asked for again.
    fn epoch(&self) -> Option<u64> {
        None
    }
    /// Whether the object may have other names than the one that it was found by last. Such a name is asked about each time, as the
    /// file system may want to know by which it is used.
    fn has_other_names(&self) -> bool {
        false
    }
    /// The directory was on the way of a path that had to be asked about.
    fn passed(&self) {}
    /// The caller made or removed one of its names: attributes known of it may not hold any more.
    fn changed(&self) {}
    /// The caller moved it to this name.
    fn renamed(&self, _dir: &InodeRef, _name: &[u8]) {}
}

/// An inode with extended attributes.
pub trait XattrInode {
    /// Value of an extended attribute; ENODATA when absent, EOPNOTSUPP without support.
    fn get_xattr(&self, cx: &dyn Caller, name: &[u8]) -> Result<Vec<u8>>;
    /// Sets one; `flags` XATTR_CREATE or XATTR_REPLACE.
    fn set_xattr(&self, cx: &dyn Caller, name: &[u8], value: &[u8], flags: i32) -> Result<()>;
    /// Names of all.
    fn list_xattr(&self, cx: &dyn Caller) -> Result<Vec<Vec<u8>>>;
    /// The file system takes the capabilities of a program away when its owner changes, as the kernel does with the others.
    fn chown_drops_capabilities(&self) -> bool {
        false
    }
    /// Removes one.
    fn remove_xattr(&self, cx: &dyn Caller, name: &[u8]) -> Result<()>;
}

/// An inode of a file system that keeps access control lists.
pub trait AclInode {
    /// The list of a kind; `None` when the mode says everything.
    fn acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>>;
    /// Sets or removes one. `mode`: the permission bits to set at the same time (07777).
    fn set_acl(&self, cx: &dyn Caller, kind: AclKind, acl: Option<Arc<Acl>>, mode: Option<u32>)
    -> Result<()>;
    /// The file system itself gives new objects what their directory's default list says.
    fn inherits_by_itself(&self) -> bool {
        false
    }
}

/// A connected Unix socket of the host. Nothing here waits: EAGAIN.
pub trait OutsideSocket: Send + Sync {
    /// Sends what there is room for; EPIPE without SIGPIPE.
    fn send(&self, data: &[u8]) -> Result<usize>;
    /// Receives into `buf`: how many bytes are in it, and how many the record has. `peek`: they stay. `record`: not a stream.
    fn recv(&self, buf: &mut [u8], peek: bool, record: bool) -> Result<(usize, usize)>;
    /// shutdown(2).
    fn shutdown(&self, how: i32) -> Result<()>;
    /// Readiness.
    fn poll(&self) -> Events;
    /// FIONREAD.
    fn unread(&self) -> Result<i32>;
    /// User and group ID of the other side.
    fn owner(&self) -> (u32, u32);
}

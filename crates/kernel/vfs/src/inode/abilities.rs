//! The abilities that only some inodes have, a trait each, and what Linux answers for an inode without one.

use super::{Inode, InodeRef, NewNode};
use crate::file::{Caller, FileOps, OpenFile};
use crate::mount::Path;
use crate::notify::OutsideWatch;
use abi::stat::{Attr, StatFs};
use abi::{Errno, Result};
use caller::Outcome;
use rights::Credentials;
use rights::acl::{Acl, AclKind};
use std::any::Any;
use std::sync::Arc;
use wait::{Events, WaitQueue};

/// A directory. Methods on names get one component without slash, never empty, `.` or `..`; permission checks happened before
/// in `namei`. Defaults answer as Linux does for a file system without the operation.
pub trait DirInode {
    /// Finds an entry; ENOENT when there is none.
    fn lookup(&self, cx: &dyn Caller, name: &[u8]) -> Result<InodeRef>;
    /// As [`DirInode::lookup`] on a path that led to an object which had another name by then, or none. Nothing that is known of the
    /// name counts, and the object stays within reach for the rest of the call, whatever becomes of its name.
    fn lookup_anew(&self, cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        self.lookup(cx, name)
    }
    /// Another process answers lookups, so that one question about a whole path is better than one for each name.
    fn looks_ahead(&self) -> bool {
        false
    }
    /// The names of `path`, with `/` between them, are about to be looked up by this thread one after the other, beginning here.
    /// [`DirInode::looked`] comes afterwards.
    fn look_ahead(&self, _path: &[u8]) {}
    /// What was learnt ahead is not used any more.
    fn looked(&self) {}
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
    /// The server of the file system applies the umask of the process that makes an object in it.
    fn keeps_umask(&self) -> bool {
        false
    }
    /// There will never be anything in it, so that a mount hides nothing.
    fn stays_empty(&self) -> bool {
        false
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
    /// As a magic link.
    fn as_magic_link(&self) -> Option<&dyn MagicLink> {
        None
    }
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
    /// Attributes returned by the [`DirInode::lookup`] that has just produced this inode; `None` where it does not learn them.
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
    /// The caller made one of its names: attributes known of it may not hold any more.
    fn changed(&self) {}
    /// The caller removed one of its names, or gave it to another object.
    fn lost_name(&self) {
        self.changed();
    }
    /// Has what others do to the object, or to names in it, reported to its watches (`notify::from_outside`) from now on;
    /// `mask`: IN_*. `None` where that cannot be.
    fn watch_outside(&self, _mask: u32) -> Option<OutsideWatch> {
        None
    }
    /// The caller moved it to this name.
    fn renamed(&self, _dir: &InodeRef, _name: &[u8]) {}
    /// Keeps the object within reach, whatever becomes of its names, as long as the result lives. `None` where that needs nothing.
    /// ESTALE when the object is no longer where it was found.
    fn hold(&self) -> Result<Option<Hold>> {
        Ok(None)
    }
}

/// Keeps an object of a file system that others change ([`Confirming::hold`]).
pub type Hold = Arc<dyn Any + Send + Sync>;

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
    /// The inode is a regular file, and its attributes do not say so (pidfs).
    fn is_hidden_regular(&self) -> bool {
        false
    }
    /// Names outside the name spaces of xattr(7) reach the file system too.
    fn takes_any_name(&self) -> bool {
        false
    }
    /// Removes one.
    fn remove_xattr(&self, cx: &dyn Caller, name: &[u8]) -> Result<()>;
    /// As one with access control lists, which are extended attributes too.
    fn as_acls(&self) -> Option<&dyn AclInode> {
        None
    }
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

/// An inode of a file system with rules of its own about access.
pub trait PermissionInode {
    /// The answer of a file system that judges access itself. `None` for all others: mode, lists and capabilities decide.
    fn judges(&self, _creds: &Credentials, _mask: u32) -> Option<Result<()>> {
        None
    }
    /// Further demands besides mode and lists, for a `mask` that these grant. A stacked file system checks that the mounter has
    /// the rights below.
    fn permission(&self, _mask: u32) -> Result<()> {
        Ok(())
    }
    /// Requests the attributes that decide about access from the server of the file system, unless they are still valid. May
    /// wait through the caller's waiter.
    fn refresh_access(&self, _cx: &dyn Caller) -> Result<()> {
        Ok(())
    }
    /// What access(2) and chdir(2) ask besides [`PermissionInode::judges`].
    fn ask_access(&self, _cx: &dyn Caller, _mask: u32) -> Result<()> {
        Ok(())
    }
    /// The server of the file system decides about changes of attributes.
    fn judges_changes(&self) -> bool {
        false
    }
    /// It is about to get another name by a rename that is otherwise allowed. EXDEV for what cannot move.
    fn about_to_move(&self, _cx: &dyn Caller) -> Result<()> {
        Ok(())
    }
}

/// An inode with attributes that a server keeps.
pub trait ServedInode {
    /// Requests the attributes that [`Inode::attr`] returns from the server, unless they are still valid. May wait through the
    /// caller's waiter; [`Inode::attr`] and [`Inode::perm`] never do.
    fn refresh(&self, cx: &dyn Caller) -> Result<()>;
    /// statfs(2) of this object.
    fn statfs(&self, cx: &dyn Caller) -> Result<StatFs>;
}

/// An inode that stands for an object outside its file system.
pub trait SpecialInode {
    /// The open file without a place that it stands for (/proc/PID/fd/N).
    fn open_file(&self) -> Option<&Arc<OpenFile>> {
        None
    }
    /// The mount namespace that a file of nsfs keeps alive (the ID of its [`MountSet`](crate::mount::MountSet)).
    fn mount_ns(&self) -> Option<u64> {
        None
    }
    /// It may stand for another object the next moment, so nothing is mounted on it.
    fn refuses_mounts(&self) -> bool {
        false
    }
    /// Opens a FIFO that may be open outside this kernel at its other end. May block through the caller's waiter.
    /// `None` for all others: their pipe is this kernel's.
    fn open_outside(&self, _cx: &dyn Caller, _flags: i32) -> Option<Outcome<Arc<dyn FileOps>>> {
        None
    }
    /// Connects to a socket with its other side outside this kernel; `queue` receives its readiness. EACCES for a caller that may not. `None` for all others.
    fn connect_outside(
        &self,
        _cx: &dyn Caller,
        _kind: i32,
        _queue: &WaitQueue,
    ) -> Option<Result<Arc<dyn OutsideSocket>>> {
        None
    }
    /// The host's socket of the name that was made as [`NewNode::BoundSocket`](super::NewNode), once; `queue` receives its
    /// readiness. `None` where programs outside do not reach the name.
    fn named_outside(&self, _queue: &WaitQueue) -> Option<Result<Arc<dyn OutsideName>>> {
        None
    }
}

/// A Unix socket of the host with a name that a program inside bound. Nothing here waits: EAGAIN. It is closed when dropped.
pub trait OutsideName: Send + Sync {
    /// listen(2).
    fn listen(&self, backlog: i32) -> Result<()>;
    /// A connection of a program outside; `queue` receives its readiness.
    fn accept(&self, queue: &WaitQueue) -> Result<Arc<dyn OutsideSocket>>;
    /// Receives a datagram of a program outside; see [`OutsideSocket::recv`].
    fn recv(&self, buf: &mut [u8], peek: bool) -> Result<(usize, usize)>;
    /// Whether a connection or a datagram waits.
    fn waits(&self) -> bool;
    /// shutdown(2).
    fn shutdown(&self, how: i32) -> Result<()>;
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

/// The abilities as any inode answers for them.
impl dyn Inode {
    /// For file systems that look inside their own.
    pub fn as_any(&self) -> &dyn Any {
        self
    }

    /// As a directory with names that can be changed; EPERM.
    pub fn dir(&self) -> Result<&dyn DirInode> {
        self.as_dir().ok_or(Errno::EPERM)
    }

    /// See [`DirInode::lookup`]; ENOTDIR for other objects.
    pub fn lookup(&self, cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        self.as_dir().ok_or(Errno::ENOTDIR)?.lookup(cx, name)
    }

    /// See [`DirInode::lookup_anew`]; ENOTDIR for other objects.
    pub fn lookup_anew(&self, cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        self.as_dir().ok_or(Errno::ENOTDIR)?.lookup_anew(cx, name)
    }

    /// See [`Confirming::hold`].
    pub fn hold(&self) -> Result<Option<Hold>> {
        self.as_confirming().map_or(Ok(None), Confirming::hold)
    }

    /// See [`DirInode::keeps_umask`].
    pub fn keeps_umask(&self) -> bool {
        self.as_dir().is_some_and(DirInode::keeps_umask)
    }

    /// See [`DirInode::stays_empty`].
    pub fn stays_empty(&self) -> bool {
        self.as_dir().is_some_and(DirInode::stays_empty)
    }

    /// Target of a symbolic link; EINVAL for others.
    pub fn readlink(&self, cx: &dyn Caller) -> Result<Vec<u8>> {
        self.as_link().ok_or(Errno::EINVAL)?.readlink(cx)
    }

    /// As a magic link.
    pub fn as_magic_link(&self) -> Option<&dyn MagicLink> {
        self.as_link()?.as_magic_link()
    }

    /// As one with extended attributes; EOPNOTSUPP.
    pub fn xattrs(&self) -> Result<&dyn XattrInode> {
        self.as_xattrs().ok_or(Errno::EOPNOTSUPP)
    }

    /// As one with access control lists.
    pub fn as_acls(&self) -> Option<&dyn AclInode> {
        self.as_xattrs()?.as_acls()
    }

    /// See [`PermissionInode::refresh_access`].
    pub fn refresh_access(&self, cx: &dyn Caller) -> Result<()> {
        self.as_permission().map_or(Ok(()), |rules| rules.refresh_access(cx))
    }

    /// See [`PermissionInode::ask_access`].
    pub fn ask_access(&self, cx: &dyn Caller, mask: u32) -> Result<()> {
        self.as_permission().map_or(Ok(()), |rules| rules.ask_access(cx, mask))
    }

    /// See [`PermissionInode::judges_changes`].
    pub fn judges_changes(&self) -> bool {
        self.as_permission().is_some_and(PermissionInode::judges_changes)
    }

    /// See [`PermissionInode::about_to_move`].
    pub fn about_to_move(&self, cx: &dyn Caller) -> Result<()> {
        self.as_permission().map_or(Ok(()), |rules| rules.about_to_move(cx))
    }

    /// See [`ServedInode::refresh`].
    pub fn refresh(&self, cx: &dyn Caller) -> Result<()> {
        self.as_served().map_or(Ok(()), |served| served.refresh(cx))
    }

    /// statfs(2) of this object: the server's answer, or [`FileSystem::statfs`](super::FileSystem::statfs).
    pub fn statfs(&self, cx: &dyn Caller) -> Result<StatFs> {
        match self.as_served() {
            Some(served) => served.statfs(cx),
            None => self.fs().statfs(),
        }
    }

    /// See [`SpecialInode::open_file`].
    pub fn open_file(&self) -> Option<&Arc<OpenFile>> {
        self.as_special()?.open_file()
    }

    /// See [`SpecialInode::mount_ns`].
    pub fn mount_ns(&self) -> Option<u64> {
        self.as_special()?.mount_ns()
    }

    /// Something may be mounted on it.
    pub fn takes_mounts(&self) -> bool {
        !self.as_special().is_some_and(SpecialInode::refuses_mounts)
    }

    /// See [`SpecialInode::open_outside`].
    pub fn open_outside(&self, cx: &dyn Caller, flags: i32) -> Option<Outcome<Arc<dyn FileOps>>> {
        self.as_special()?.open_outside(cx, flags)
    }

    /// See [`SpecialInode::connect_outside`].
    pub fn connect_outside(
        &self,
        cx: &dyn Caller,
        kind: i32,
        queue: &WaitQueue,
    ) -> Option<Result<Arc<dyn OutsideSocket>>> {
        self.as_special()?.connect_outside(cx, kind, queue)
    }

    /// See [`SpecialInode::named_outside`].
    pub fn named_outside(&self, queue: &WaitQueue) -> Option<Result<Arc<dyn OutsideName>>> {
        self.as_special()?.named_outside(queue)
    }
}

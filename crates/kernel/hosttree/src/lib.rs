//! Directories of the host, as the kernel inside reaches them: one contract ([`Directory`]), and its back ends.
//!
//! [`direct`] makes the calls of the host itself, relative to a descriptor. [`remote`] has a gofer make them. A path is one or several names with `/` between
//! them; no name is empty, `.` or `..`, and no link is followed.
//!
//! What belongs to a file alone (data, sizes, locks, durability) needs no directory: those calls are made on the descriptor
//! that [`Directory::open`] returns, whatever the back end.

#![forbid(unsafe_code)]

pub mod direct;
pub mod remote;

pub use fileproto::{Changes, Kind, Rights, SetTime};

use abi::stat::{Attr, S_IFLNK, StatFs};
use abi::time::Timespec;
use abi::{Errno, Result};
use hostsys::fanotify::Handle;
use hostsys::fs::{Access, ListEntry};
use std::any::Any;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A directory that is kept.
pub type DirectoryRef = Arc<dyn Directory>;

/// An object that a call is about.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// The directory itself.
    This,
    /// What has this name in the directory. ESTALE when it has not this device and inode number.
    Named {
        /// Its name.
        name: &'a [u8],
        /// Device and inode number.
        key: (u64, u64),
    },
    /// An open regular file or directory of the same tree.
    Open(&'a OwnedFd),
    /// What an O_PATH descriptor of the same tree stands for, of any kind. EOPNOTSUPP for extended attributes and marks.
    Place(&'a OwnedFd),
}

/// Attributes of a name, and a descriptor of a regular file.
pub type Looked = (Result<Attr>, Option<OwnedFd>);

/// What gets a new name.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// What has a name in another directory of the same tree.
    Named(&'a dyn Directory, &'a [u8]),
    /// An open file that never had one.
    Open(&'a OwnedFd),
}

/// The changes that give an object with attributes `now` its rights; `None` when it has them. A link has no mode of its own.
pub(crate) fn towards(rights: Rights, now: &Attr) -> Option<Changes> {
    let link = now.file_type() == S_IFLNK;
    let changes = Changes {
        mode: (!link && now.mode & 0o7777 != rights.mode & 0o7777).then_some(rights.mode),
        uid: (now.uid != rights.uid).then_some(rights.uid),
        gid: (now.gid != rights.gid).then_some(rights.gid),
        ..Changes::default()
    };
    (changes != Changes::default()).then_some(changes)
}

/// A directory of a tree of the host.
pub trait Directory: Send + Sync {
    /// For calls with two directories, which must have the same back end.
    fn as_any(&self) -> &dyn Any;

    /// Attributes of the directory itself.
    fn attr(&self) -> Result<Attr>;
    /// statfs(2).
    fn statfs(&self) -> Result<StatFs>;
    /// The type of the file system (f_type of statfs(2)).
    fn file_system(&self) -> Result<i64> {
        self.statfs().map(|statfs| statfs.f_type)
    }
    /// Attributes of what a path leads to.
    fn look(&self, path: &[u8]) -> Result<Attr>;
    /// Attributes of the directory itself and of what each name of a path leads to in turn; the last are of a name that is not there
    /// (ENOENT), or of what is no directory, or of the end. The default is for back ends that answer each question at once.
    fn look_along(&self, _path: &[u8]) -> Option<(Attr, Vec<Result<Attr>>)> {
        None
    }
    /// Attributes of several names at once, and with `places` also descriptors of the regular files, good for attributes only. The
    /// default is for back ends that answer each question at once.
    fn look_at_all(&self, _names: &[&[u8]], _places: bool) -> Option<Vec<Looked>> {
        None
    }
    /// The directory that a path leads to, and what tells it from others ([`hostsys::fs::identity`]).
    fn walk(&self, path: &[u8]) -> Result<(DirectoryRef, Attr)>;
    /// Opens a name without waiting; also what tells the object from others. A symbolic link only with [`Access::Place`].
    fn open(&self, name: &[u8], access: Access) -> Result<(OwnedFd, Attr)>;
    /// The directory itself, open for reading.
    fn open_self(&self) -> Result<OwnedFd>;
    /// Opens the object of a descriptor of the tree, also one by O_PATH, once more, whatever has become of its names. Regular files
    /// only. ESTALE where nothing can do that.
    fn open_again(&self, file: &OwnedFd, access: Access) -> Result<OwnedFd>;
    /// Attributes of an open file of the tree. A back end may not know when it was made.
    fn attr_open(&self, file: &OwnedFd) -> Result<Attr>;
    /// All names but `.` and `..`.
    fn list(&self) -> Result<Vec<ListEntry>>;
    /// The text of a symbolic link, and its attributes at that time where they are known.
    fn read_link(&self, name: &[u8]) -> Result<(Vec<u8>, Option<Attr>)>;
    /// The same by an O_PATH descriptor of the link. ESTALE where that is not possible.
    fn read_link_at(&self, place: &OwnedFd) -> Result<Vec<u8>>;

    /// Makes a regular file, open for reading and writing, and what tells it from others. EEXIST.
    fn create(&self, name: &[u8], rights: Rights) -> Result<(OwnedFd, Attr)>;
    /// The same without a name (O_TMPFILE), with all attributes. EOPNOTSUPP where the file system cannot.
    fn create_unnamed(&self, rights: Rights) -> Result<(OwnedFd, Attr)>;
    /// Makes something else. EEXIST.
    fn make(&self, name: &[u8], kind: Kind<'_>, rights: Rights) -> Result<Attr>;
    /// Gives what has a name since `since` its rights. ESTALE for an older object.
    fn adopt(&self, name: &[u8], since: Timespec, rights: Rights) -> Result<Attr>;
    /// link(2). ENOENT for an open file before Linux 6.10 without CAP_DAC_READ_SEARCH.
    fn link(&self, from: Source<'_>, name: &[u8]) -> Result<()>;
    /// unlink(2), or rmdir(2) with `directory`.
    fn unlink(&self, name: &[u8], directory: bool) -> Result<()>;
    /// renameat2(2) to a name in `to`.
    fn rename(&self, name: &[u8], to: &dyn Directory, new_name: &[u8], flags: u32) -> Result<()>;

    /// Sets attributes. EOPNOTSUPP for the mode of a link; ENOSYS for a mode by [`Target::Place`] before Linux 6.6.
    fn set_attr(&self, target: Target<'_>, changes: &Changes) -> Result<()>;
    /// getxattr(2), of regular files and directories; EOPNOTSUPP for others.
    fn get_xattr(&self, target: Target<'_>, name: &[u8]) -> Result<Vec<u8>>;
    /// listxattr(2), split into names.
    fn list_xattr(&self, target: Target<'_>) -> Result<Vec<Vec<u8>>>;
    /// setxattr(2).
    fn set_xattr(&self, target: Target<'_>, name: &[u8], value: &[u8], flags: i32) -> Result<()>;
    /// removexattr(2).
    fn remove_xattr(&self, target: Target<'_>, name: &[u8]) -> Result<()>;

    /// Has a group of fanotify(7) report the events of `mask` of a regular file or directory, and returns what events call it. Not of
    /// an open file.
    fn mark(&self, target: Target<'_>, group: BorrowedFd<'_>, mask: u64) -> Result<Handle>;
    /// Has a group report them no longer.
    fn unmark(&self, target: Target<'_>, group: BorrowedFd<'_>, mask: u64) -> Result<()>;
    /// Changes that are made through this directory look to such a group as another process's.
    fn is_another_process(&self) -> bool;
}

/// The directory as one of back end `T`. EXDEV for one of another.
pub(crate) fn same<T: 'static>(directory: &dyn Directory) -> Result<&T> {
    directory.as_any().downcast_ref().ok_or(Errno::EXDEV)
}

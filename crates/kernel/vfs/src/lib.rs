//! The objects of the virtual file system: inodes, dentries, mounts and open files, as traits and as the code that is the
//! same for every file system.
//!
//! File systems implement [`Inode`], [`FileSystem`] and [`FileOps`]. The crates above work on these objects: `locks` (record
//! locks, flock, leases), `files` (descriptor tables, reading and writing), `mounts` (namespaces of mounts), `namei` (paths).
//! The calling task is seen only through [`Caller`], a bundle of narrow traits. Readiness goes through `wait::WaitQueue`; the
//! loop that blocks is `caller::retry`.
//!
//! [`inode`], [`dentry`], [`mount`], [`file`] and [`notify`] refer to each other, as Linux's structures of these names do:
//! an inode opens files, a file has a place, a place is a dentry on a mount, and all report to watches.

#![forbid(unsafe_code)]

pub mod access;
pub mod acl;
pub mod attach;
pub mod dentry;
pub mod file;
pub mod in_use;
pub mod inode;
mod known_place;
pub mod mount;
pub mod notify;
pub mod policing;
pub mod retry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use dentry::Dentry;
pub use file::{
    As, Caller, DirectoryFile, DirectoryOps, FileLayer, FileOps, Internal, Layer, LentFd, Lingering,
    LockFile, MapOps, MapRequest, Mapping, OpenFile, OpenFileState, SeekOps, SignalOwner, StorageOps,
    StreamOps, Vfs,
};
pub use in_use::{InUse, Shared, Users};
pub use inode::{
    AclInode, Confirming, DirEntry, DirInode, DirSink, FileSystem, Hold, Inode, InodeRef, InternalFs,
    InternalInode, LinkInode, MagicLink, NewNode, OutsideName, OutsideSocket, PermissionInode, ServedInode,
    SetAttr, SpecialInode, TimeSet, XattrInode,
};
pub use known_place::{Known, KnownPlace};
pub use mount::{Mount, MountFlags, Path, SbFlags, SuperBlock};

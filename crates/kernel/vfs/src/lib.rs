//! The virtual file system: inodes, dentries, mounts, open files, descriptor
//! tables and path resolution, as traits and the code that is the same for
//! every file system.
//!
//! Neighbours: file systems implement [`Inode`], [`FileSystem`] and [`FileOps`];
//! system calls use [`walk`], [`open`], [`FdTable`]; the calling task is seen
//! only through [`Caller`]. Readiness goes through `wait::WaitQueue`; the only
//! loop that blocks is in [`retry`].

#![forbid(unsafe_code)]

pub mod anon;
pub mod attach;
pub mod attr;
mod busy;
pub mod caller;
pub mod cred;
pub mod dentry;
pub mod devices;
pub mod dir;
pub mod fasync;
pub mod fd_table;
pub mod file;
pub mod file_ops;
pub mod fs_context;
pub mod fstypes;
mod host_locks;
pub mod in_use;
pub mod inode;
pub mod internal;
pub mod io;
pub mod leases;
pub mod link;
pub mod locks;
mod mapped;
pub mod mount;
pub mod mount_ns;
pub mod notify;
pub mod open;
mod outside;
pub mod pace;
pub mod path;
pub mod perm;
mod quick;
pub mod quota;
pub mod rename;
pub mod retry;
mod rules;
mod state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timer;
pub mod walk;
pub mod xattr;

pub use caller::{Caller, Internal, NOBODY, SignalSource, UserMemory};
pub use cred::{Cap, Credentials, Creds};
pub use dentry::Dentry;
pub use fasync::{IoSignals, SignalOwner};
pub use fd_table::{FdSlot, FdTable};
pub use file::OpenFile;
pub use file_ops::{
    DirectoryOps, FileOps, LockFile, MapOps, MapRequest, Mapping, SeekOps, StorageOps, StreamOps,
};
pub use fs_context::{FsContext, FsView, View};
pub use in_use::{InUse, Shared, Users};
pub use inode::{
    Confirming, DirEntry, DirInode, DirSink, FileSystem, Inode, InodeRef, LinkInode, MagicLink, NewNode,
    Perm, SetAttr, TimeSet, XattrInode,
};
pub use mapped::MappedFile;
pub use mount::{Mount, MountFlags, SuperBlock};
pub use mount_ns::MountNs;
pub use open::OpenHow;
pub use outside::OutsideSocket;
pub use path::Path;
pub use quota::Quotas;
pub use retry::{Failure, Outcome};
pub use state::Vfs;
pub use walk::{Lookup, Start};

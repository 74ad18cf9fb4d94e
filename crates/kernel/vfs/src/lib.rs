//! The virtual file system: inodes, dentries, mounts, open files, descriptor
//! tables and path resolution, as traits and the code that is the same for
//! every file system.
//!
//! Neighbours: file systems implement [`Inode`], [`FileSystem`] and [`FileOps`];
//! system calls use [`walk`], [`open`], [`FdTable`]; the calling task is seen
//! only through [`Caller`]. Readiness goes through `wait::WaitQueue`; the only
//! loop that blocks is in [`retry`].

#![forbid(unsafe_code)]

pub mod acl;
pub mod anon;
pub mod attach;
pub mod attr;
mod below;
mod busy;
pub mod caller;
pub mod dcache;
pub mod dentry;
pub mod detached;
pub mod devices;
pub mod dir;
pub mod dnotify;
mod domain;
pub mod fasync;
pub mod fd_table;
pub mod file;
pub mod file_ops;
pub mod fs_config;
pub mod fs_context;
pub mod fs_parameters;
pub mod fstypes;
pub mod handles;
mod host_locks;
pub mod in_use;
pub mod inode;
pub mod internal;
pub mod io;
pub mod leases;
pub mod link;
pub mod locks;
mod mapped;
pub mod marks;
pub mod mount;
pub mod mount_ns;
mod mount_points;
pub mod mount_source;
pub mod mount_table;
pub mod notify;
pub mod open;
mod outside;
pub mod pace;
pub mod path;
pub mod peers;
pub mod perm;
mod propagate;
mod quick;
pub mod quota;
pub mod rename;
pub mod retry;
mod rules;
pub mod stack;
mod state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timer;
mod umount;
pub mod walk;
pub mod xattr;

pub use caller::{Caller, Internal, NOBODY, SignalSource, UserMemory};
pub use dentry::Dentry;
pub use domain::rule_object;
pub use fasync::{IoSignals, SignalOwner};
pub use fd_table::{FdSlot, FdTable, FdTableState};
pub use file::{OpenFile, OpenFileState};
pub use file_ops::{
    DirectoryOps, FileOps, Lingering, Loan, LockFile, MapOps, MapRequest, Mapping, SeekOps, StorageOps,
    StreamOps,
};
pub use fs_context::{FsContext, FsView, View};
pub use in_use::{InUse, Shared, Users};
pub use inode::{
    Confirming, DeviceNumbers, DirEntry, DirInode, DirSink, FileSystem, Inode, InodeRef, LinkInode,
    MagicLink, NewNode, SetAttr, TimeSet, XattrInode,
};
pub use mapped::MappedFile;
pub use mount::{Mount, MountFlags, SbFlags, SuperBlock};
pub use mount_ns::MountNs;
pub use open::OpenHow;
pub use outside::OutsideSocket;
pub use path::Path;
pub use quota::Quotas;
pub use retry::{Failure, Outcome};
pub use state::Vfs;
pub use walk::{Lookup, Start};

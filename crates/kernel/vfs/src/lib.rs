//! The virtual file system: inodes, dentries, mounts, open files, descriptor
//! tables and path resolution, as traits and the code that is the same for
//! every file system.
//!
//! Neighbours: file systems implement [`Inode`], [`FileSystem`] and [`FileOps`];
//! system calls use [`walk`], [`open`], [`FdTable`]; the calling task is seen
//! only through [`Caller`]. Readiness goes through `wait::WaitQueue`.

#![forbid(unsafe_code)]

pub mod attach;
pub mod caller;
pub mod cred;
pub mod file;
pub mod inode;
pub mod internal;
pub mod walk;

pub use caller::{Caller, UserMemory};
pub use cred::{Cap, Credentials};
pub use file::{FileOps, MapRequest, Mapping, OpenFile};
pub use inode::{DirEntry, DirSink, FileSystem, Inode, InodeRef, NewNode, SetAttr, TimeSet};

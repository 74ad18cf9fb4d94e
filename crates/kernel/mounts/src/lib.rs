//! Namespaces of mounts, the calls that change them, and each task's view of them. See mount_namespaces(7).
//!
//! [`MountNs`] has the calls; each is one [`change`] under the lock of the kernel's `MountTable` (rank MOUNTS).
//! [`propagate`] passes new mounts on to peers and slaves, [`umount`] takes mounts away. [`FsContext`] is the view of a
//! task: root, working directory, namespace. [`fstypes`] has the types of file systems, [`fs_config`] makes instances of them.
//! Neighbours: `vfs` below, `namei` above.

#![forbid(unsafe_code)]

mod below;
mod change;
pub mod detached;
pub mod fs_config;
pub mod fs_context;
pub mod fs_parameters;
pub mod fstypes;
pub mod mount_ns;
mod propagate;
pub mod restore;
pub mod umount;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use fs_context::{FsContext, FsView, PathCaller, View};
pub use fstypes::FsTypes;
pub use mount_ns::MountNs;

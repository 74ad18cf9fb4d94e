//! Places in the tree of mounts.

use crate::inode::InodeRef;
use std::sync::Arc;

/// A cached name: a node of the tree that the walk follows.
pub struct Dentry {
    /// The object.
    pub inode: InodeRef,
}

/// A mounted file system.
pub struct Mount {}

/// A place: a dentry as seen through a mount.
#[derive(Clone)]
pub struct Path {
    /// The mount.
    pub mount: Arc<Mount>,
    /// The dentry in the mounted file system.
    pub dentry: Arc<Dentry>,
}

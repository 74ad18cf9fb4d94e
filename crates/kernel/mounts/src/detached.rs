//! Trees of mounts that no task has in its namespace: what open_tree(2) with OPEN_TREE_CLONE and fsmount(2) give a
//! descriptor of. Such a tree is an anonymous namespace. It is dissolved when the last descriptor is closed and the
//! tree has not been moved with move_mount(2).

use crate::mount_ns::MountNs;
use abi::{Errno, Result};
use caller::quota::Kind;
use std::any::Any;
use std::sync::Arc;
use vfs::Caller;
use vfs::file::{FileOps, OpenFile, OpenFileState, PathOnly};
use vfs::mount::{Mount, Origin, Path};
use wait::Events;

/// The operations of a descriptor that owns a tree: none, as of any with O_PATH.
struct TreeFile(Arc<MountNs>);

impl FileOps for TreeFile {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn poll(&self, cx: &dyn Caller, file: &OpenFile) -> Events {
        PathOnly::default().poll(cx, file)
    }
}

impl Drop for TreeFile {
    fn drop(&mut self) {
        self.0.dissolve();
    }
}

/// A descriptor of a copy of what is mounted at `from`, with `recursive` of all mounts below as well (OPEN_TREE_CLONE).
/// EINVAL where that cannot be copied, ENOSPC.
pub fn open_copy(cx: &dyn Caller, ns: &MountNs, from: &Path, recursive: bool) -> Result<Arc<OpenFile>> {
    let (top, origin) = ns.copy_detached(from, recursive)?;
    open(cx, ns, top, origin)
}

/// A descriptor of a new mount that is attached nowhere. ENOSPC.
pub fn open_new(cx: &dyn Caller, ns: &MountNs, mount: Arc<Mount>) -> Result<Arc<OpenFile>> {
    open(cx, ns, mount, Origin::Nowhere)
}

/// The tree that a descriptor owns.
pub fn tree_of(file: &OpenFile) -> Option<&Arc<MountNs>> {
    let tree: &TreeFile = file.ops.as_any().downcast_ref()?;
    Some(&tree.0)
}

/// A descriptor of a checkpoint that owns a tree.
pub fn restore(saved: &OpenFileState, ns: &Arc<MountNs>) -> Result<Arc<OpenFile>> {
    let place = ns.root.read().root_path();
    let inode = place.inode().clone();
    OpenFile::restore(saved, Some(place), Some(inode), Arc::new(TreeFile(ns.clone())))
}

fn open(cx: &dyn Caller, ns: &MountNs, top: Arc<Mount>, origin: Origin) -> Result<Arc<OpenFile>> {
    let user = cx.quotas().account(cx.creds().uid);
    let mounts = user.charge(Kind::Mounts, top.tree().len() as u64).ok_or(Errno::ENOSPC)?;
    let place = top.root_path();
    let inode = place.inode().clone();
    let ops = Arc::new(TreeFile(ns.anonymous(top, origin, mounts)));
    Ok(OpenFile::new(Some(place), Some(inode), ops, libc::O_PATH))
}

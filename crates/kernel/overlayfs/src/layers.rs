//! The layers of an instance.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::{Dentry, InodeRef, Mount, Path};

/// A directory of another file system.
pub(crate) struct Layer {
    /// A private mount of it.
    pub mount: Arc<Mount>,
    /// Which of the instance's file systems it is of.
    pub fs: usize,
    /// Empty files may stand for whiteouts in it.
    xwhiteouts: AtomicBool,
}

impl Layer {
    pub fn new(mount: Arc<Mount>, fs: usize) -> Layer {
        Layer { mount, fs, xwhiteouts: AtomicBool::new(false) }
    }

    /// Its top.
    pub fn root(&self) -> &Arc<Dentry> {
        &self.mount.root
    }

    /// A place in it.
    pub fn path(&self, dentry: &Arc<Dentry>) -> Path {
        Path { mount: self.mount.clone(), dentry: dentry.clone() }
    }

    /// Whether a directory was seen that has such files.
    pub fn has_xwhiteouts(&self) -> bool {
        self.xwhiteouts.load(Ordering::Relaxed)
    }

    pub fn set_xwhiteouts(&self) {
        self.xwhiteouts.store(true, Ordering::Relaxed);
    }
}

/// A file system that layers are of.
pub(crate) struct LayerFs {
    /// Its own device number.
    pub dev: u64,
    /// What files show that are in it, where layers are of several file systems.
    pub shown: u64,
}

/// What tells an object of a layer from all others in use.
pub(crate) fn address(inode: &InodeRef) -> usize {
    Arc::as_ptr(inode).cast::<()>().addr()
}

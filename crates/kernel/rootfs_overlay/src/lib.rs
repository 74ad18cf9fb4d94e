//! The overlay of a container's root: read-only layers, and all changes above them, in memory or in one file of the host.
//!
//! The layers are directories of other file systems, merged by the rules of Linux's overlayfs
//! (Documentation/filesystems/overlayfs.rst): a name of an upper layer hides that name in lower ones, two directories are
//! merged, a whiteout removes a name, an opaque directory is not merged.
//!
//! Changes live in a tree of the crate `tmpfs`. Its nodes start as views of the layers ([`tmpfs::lower`]). That gives
//! what a stack of two file systems cannot: directories of the image can be renamed, hard links survive, device and
//! inode numbers do not change when a file is first written, and readers that opened a file before see what is written
//! later. Names and attributes of the layers are kept once they were looked up, so that walking and stat on a warm path
//! make no host call.

#![forbid(unsafe_code)]

mod dir;
mod file;
mod layers;

use abi::{Errno, Result};
use layers::Stack;
use std::sync::Arc;
pub use tmpfs::FileStore;
use tmpfs::{MemFiles, Options, TmpFs};
use vfs::FileSystem;

/// Where what is written goes, and how much may.
#[derive(Default)]
pub struct Upper {
    /// Keeps data; memory without.
    pub store: Option<Arc<FileStore>>,
    /// Bytes of data at most; without, the machine's memory, or what the store's file system has.
    pub size: Option<u64>,
    /// Names in the layers' root that begin with this are not shown: files of stores.
    pub hidden: Option<Vec<u8>>,
}

/// An overlay over `layers`, the uppermost first, which do not change. Mapped content lives in `memory`. EINVAL without
/// layers.
pub fn new(
    memory: &Arc<MemFiles>,
    upper: Upper,
    layers: &[Arc<dyn FileSystem>],
) -> Result<Arc<dyn FileSystem>> {
    let roots: Vec<_> = layers.iter().map(|layer| layer.root()).collect();
    if roots.is_empty() {
        return Err(Errno::EINVAL);
    }
    let stack = Stack::new(&roots, upper.hidden)?;
    let root = stack.root(roots)?;
    let size = match (upper.size, &upper.store) {
        (None, None) => Some(hostsys::fs::total_memory()),
        (size, _) => size,
    };
    let options = Options { size, ..Options::default() };
    Ok(TmpFs::over(memory, upper.store, stack, root, options)?)
}

#[cfg(test)]
mod tests;

//! The overlay of a container's root: read-only layers, and all changes in memory above them.
//!
//! The layers are directories of other file systems, merged by the rules of Linux's overlayfs
//! (Documentation/filesystems/overlayfs.rst): a name of an upper layer hides that name in lower ones, two directories are
//! merged, a whiteout removes a name, an opaque directory is not merged.
//!
//! What is changed lives in a tree of crate `tmpfs`, whose nodes start as views of the layers ([`tmpfs::lower`]). That gives
//! what a stack of two file systems cannot: directories of the image can be renamed, hard links survive, device and inode
//! numbers do not change when a file is first written, and readers that opened a file before see what is written later.
//! Names and attributes of the layers are kept once they were looked up, so that walking and stat on a warm path make no
//! host call.

#![forbid(unsafe_code)]

mod dir;
mod file;
mod layers;

use abi::{Errno, Result};
use layers::Stack;
use std::sync::Arc;
use tmpfs::{MemFiles, Options, TmpFs};
use vfs::FileSystem;

/// An overlay over `layers`, the uppermost first, which nobody changes; what is mapped lives in `memory`. What is written may
/// take as much as the machine's memory. EINVAL without layers.
pub fn new(memory: &Arc<MemFiles>, layers: &[Arc<dyn FileSystem>]) -> Result<Arc<dyn FileSystem>> {
    with_size(memory, layers, hostsys::fs::total_memory())
}

/// As [`new`] with a limit in bytes for what is written.
pub fn with_size(
    memory: &Arc<MemFiles>,
    layers: &[Arc<dyn FileSystem>],
    size: u64,
) -> Result<Arc<dyn FileSystem>> {
    let roots: Vec<_> = layers.iter().map(|layer| layer.root()).collect();
    if roots.is_empty() {
        return Err(Errno::EINVAL);
    }
    let stack = Stack::new(&roots)?;
    let root = stack.view(roots)?;
    let options = Options { size: Some(size), ..Options::default() };
    Ok(TmpFs::over(memory, stack, root, options)?)
}

#[cfg(test)]
mod tests;

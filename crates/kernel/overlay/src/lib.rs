//! The overlay of a container's root: all changes in memory, over a read-only
//! view of the image.
//!
//! The work is tmpfs's (see its crate documentation): a directory here is a
//! tmpfs directory with the image's directory behind it. That gives what a
//! stack of two file systems cannot: directories of the image can be renamed,
//! hard links survive, device and inode numbers do not change when a file is
//! first written, and readers that opened a file before see what is written
//! later. Names and attributes of the image are kept once they were looked up,
//! so that walking and stat on a warm path make no host call.

#![forbid(unsafe_code)]

use abi::Result;
use std::sync::Arc;
use tmpfs::{MemFiles, Options, TmpFs};
use vfs::FileSystem;

/// Magic number of overlayfs in statfs(2).
const OVERLAYFS_SUPER_MAGIC: i64 = 0x794c_7630;

/// An overlay over `lower`, which nobody changes; what is mapped lives in `memory`. What is written may take as much as the machine's memory.
pub fn new(memory: &Arc<MemFiles>, lower: Arc<dyn FileSystem>) -> Result<Arc<dyn FileSystem>> {
    with_size(memory, lower, hostsys::fs::total_memory())
}

/// As [`new`] with a limit in bytes for what is written.
pub fn with_size(
    memory: &Arc<MemFiles>,
    lower: Arc<dyn FileSystem>,
    size: u64,
) -> Result<Arc<dyn FileSystem>> {
    let options = Options { size: Some(size), ..Options::default() };
    Ok(TmpFs::over(memory, "overlay", OVERLAYFS_SUPER_MAGIC, lower.root(), options)?)
}

#[cfg(test)]
mod tests;

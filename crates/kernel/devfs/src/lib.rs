//! The device file system of a container: a tmpfs with the usual nodes, and
//! the drivers of the memory devices (null, zero, full, random, urandom).
//!
//! Terminals (tty, ptmx, pts) are driven by the crate `tty`, registered
//! with the kernel's `vfs::file::devices` as these are.

#![forbid(unsafe_code)]

mod memory;
#[cfg(test)]
mod tests;
mod tree;

pub use memory::register;
use std::sync::Arc;
use tmpfs::MemFiles;
use vfs::{FileSystem, Internal};

/// A devtmpfs with its nodes, made by the kernel itself (`cx`).
pub fn new(cx: &Internal, memory: &Arc<MemFiles>) -> Arc<dyn FileSystem> {
    with_nodes(cx, tmpfs::TmpFs::devtmpfs(memory), true)
}

/// The same nodes in a tmpfs, as container runtimes make /dev. `directories` says whether it has those for other mounts
/// already, as it must when nothing can be made in it.
pub fn on_tmpfs(
    cx: &Internal,
    memory: &Arc<MemFiles>,
    options: tmpfs::Options,
    directories: bool,
) -> Arc<dyn FileSystem> {
    with_nodes(cx, tmpfs::TmpFs::new(memory, options), directories)
}

fn with_nodes(cx: &Internal, fs: Arc<dyn FileSystem>, directories: bool) -> Arc<dyn FileSystem> {
    if let Err(e) = tree::fill(cx, &fs.root(), directories) {
        // Only a limit on inodes can be the reason.
        log::error!("the nodes of /dev: {e}");
    }
    fs
}

//! The device file system of a container: a tmpfs with the usual nodes, and
//! the drivers of the memory devices (null, zero, full, random, urandom).
//!
//! Terminals (tty, ptmx, pts) are driven by the crate `tty`, which registers
//! itself with `vfs::devices` as this one does.

#![forbid(unsafe_code)]

mod memory;
#[cfg(test)]
mod tests;
mod tree;

use std::sync::Arc;
use tmpfs::MemFiles;
use vfs::FileSystem;

/// A devtmpfs with its nodes.
pub fn new(memory: &Arc<MemFiles>) -> Arc<dyn FileSystem> {
    with_nodes(tmpfs::TmpFs::devtmpfs(memory))
}

/// The same nodes in a tmpfs, as container runtimes make /dev.
pub fn on_tmpfs(memory: &Arc<MemFiles>, options: tmpfs::Options) -> Arc<dyn FileSystem> {
    with_nodes(tmpfs::TmpFs::new(memory, options))
}

fn with_nodes(fs: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
    memory::register();
    if let Err(e) = tree::fill(&fs.root()) {
        // Only a limit on inodes can be the reason.
        log::error!("the nodes of /dev: {e}");
    }
    fs
}

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
use vfs::FileSystem;

/// A devtmpfs with its nodes.
pub fn new() -> Arc<dyn FileSystem> {
    memory::register();
    let fs: Arc<dyn FileSystem> = tmpfs::TmpFs::devtmpfs();
    if let Err(e) = tree::fill(&fs.root()) {
        // Only a limit on inodes could be the reason, and there is none.
        log::error!("devtmpfs: {e}");
    }
    fs
}

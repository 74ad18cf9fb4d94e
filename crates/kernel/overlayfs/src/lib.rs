//! overlayfs as mount(2) makes it: directories of other file systems of the sandbox shown as one. See the kernel's
//! Documentation/filesystems/overlayfs.rst. (The root of a container is another overlay: crate `rootfs_overlay`.)
//!
//! An inode here ([`node::Node`]) knows the dentries that it stands for: at most one of the upper layer, and any number
//! of the lower ones, topmost first. Lower layers are never changed. An object is copied up before a change: the copy
//! is made in the work directory with content, rights and attributes, and moved into place in one step ([`copy_up`]). A
//! name that is removed leaves a whiteout where a lower layer has it, and a directory that hides another one is marked
//! opaque.
//!
//! Rights are checked twice: `vfs` checks the caller's on the inode here, and `vfs::As` checks the mounter's on the
//! object below.
//!
//! Locks: `vfs` holds directories of this file system; then a node's `copying`, then everything of the file systems below, see
//! `namei::stack`. All others are leaves. A checkpoint keeps where the layers
//! are ([`OverlayState`]).

#![forbid(unsafe_code)]

mod config;
mod copy_up;
mod core;
mod dir;
mod file;
mod inode;
mod layers;
mod listing;
mod marks;
mod mount;
mod node;
mod rename;
mod state;
#[cfg(test)]
mod tests;
mod xattrs;

pub use config::KNOWN;
pub use mount::mount;
pub use state::{LayerState, OverlayState, restore, state};

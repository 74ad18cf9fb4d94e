//! EROFS: read-only file systems from images in loop devices and files.
//!
//! [`image`](mod@image) knows the format, does no I/O of its own and does not trust the image. The rest is the file
//! system for `vfs`. Bytes are read from the image's file each time. Mapped ranges are copied to memory first
//! ([`files::page_cache`]). An inode is read with its access control lists when its name is looked up, so reading attributes
//! never waits.
//!
//! Neighbours: `vfs`, `loopdev` (where images come from), `tmpfs` (memory of mapped files). Locks: all leaves, and not
//! held while the image is read. vfs holds a directory's lock while a name is looked up. If a FUSE daemon serves the
//! image's file, a look-up waits for the daemon with that lock held, as in the daemon's own directories. A checkpoint
//! keeps nothing.

#![forbid(unsafe_code)]

mod crc;
mod fs;
pub mod image;
mod mount;
mod node;
mod options;
#[cfg(test)]
mod tests;

pub use crate::mount::{KNOWN, in_image, mount};

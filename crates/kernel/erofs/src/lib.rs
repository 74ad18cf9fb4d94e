//! EROFS: read-only file systems from images in loop devices and files.
//!
//! [`image`](mod@image) knows the format, does no I/O of its own and trusts nothing of it; the rest is the file system of
//! `vfs`. Bytes are read from the image's file each time; what is mapped is copied to memory first ([`map`](mod@map)). An inode
//! is read when its name is looked up, with its access control lists, so attributes never wait for anybody.
//!
//! Neighbours: `vfs`, `loopdev` (where images come from), `tmpfs` (memory of mapped files). Locks: all leaves, and not held while
//! the image is read. vfs holds a directory's lock while a name is looked up, so a FUSE daemon that serves an image's file is
//! waited for with it, as with those of its own directories. A checkpoint keeps nothing.

#![forbid(unsafe_code)]

mod crc;
mod fs;
pub mod image;
mod map;
mod mount;
mod node;
#[cfg(test)]
mod tests;

pub use crate::mount::{KNOWN, mount};

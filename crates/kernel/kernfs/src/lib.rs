//! File systems made of tables and text: the common part of procfs, sysfs and cgroupfs.
//!
//! `entry` has the table types (a file is a name, a mode and a function that makes its text), `fs` turns tables into
//! inodes. A file system gives its tables and an [`FsType`].
//!
//! A file's text is made at the first read and again at every read at offset 0. Other reads use that snapshot. An inode
//! stays the same object as long as it is in use, and its number depends only on the object that it shows. No lock is
//! held while text is made.

#![forbid(unsafe_code)]

mod changes;
mod entry;
mod file;
mod fs;
mod inode;
mod proc;
mod resident;
mod snapshot;

pub use changes::Changes;
pub use entry::{
    At, Child, Entry, Names, Open, Read, Target, What, Write, dir, empty, line, link, magic, nothing,
    parse_int, private, text, writable,
};
pub use fs::{FsType, KernFs, Node, instance};
pub use proc::Proc;
pub use resident::{memory_locked, memory_used, resident};
pub use snapshot::{Slot, Snapshots};

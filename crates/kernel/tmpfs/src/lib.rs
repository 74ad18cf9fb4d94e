//! tmpfs: files in memory. See tmpfs(5).
//!
//! A tree may start as a view of read-only layers ([`lower`]): names that a directory does not hold itself are looked
//! for there, and regular files keep their content there until they are first changed. The crate `overlay` provides the
//! layers; a plain tmpfs has none.
//!
//! Neighbours: implements `vfs`'s traits; `hostsys::fs` for memory files.
//! Locks, outermost first: directory (`Node::dir`), content, meta. Under the
//! lock of a directory a lower file system may be called; never the reverse.

#![forbid(unsafe_code)]

mod acls;
mod content;
mod dir;
mod filestore;
mod fs;
mod inode;
pub mod lower;
mod memfd;
mod memfile;
mod node;
mod open_file;
mod options;
#[cfg(test)]
mod tests;
pub mod walk;

pub use filestore::FileStore;
pub use fs::TmpFs;
pub use memfd::{Memfds, add_seals, get_seals};
pub use memfile::MemFiles;
pub use node::Node;
pub use options::{KNOWN, Options};

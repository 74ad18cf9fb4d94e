//! tmpfs: files in memory. See tmpfs(5).
//!
//! A tree may start as a view of read-only layers ([`lower`]): names that a directory does not hold itself are looked
//! for there, and regular files keep their content there until they are first changed. The crate `rootfs_overlay` provides the
//! layers; a plain tmpfs has none.
//!
//! From below: `limit` counts, `memfile` and `filestore` keep bytes, `storage` is both for one instance, `content` is the
//! bytes of one file, `node` is an inode, `fs` an instance, and `inode` and `open_file` implement `vfs`'s traits. `walk`
//! reports what differs from the layers.
//!
//! Neighbours: implements `vfs`'s traits; `hostsys::fs` for memory files.
//! Locks, outermost first: the names of a directory, content, meta. Under the
//! lock of a directory a lower file system may be called; never the reverse.

#![forbid(unsafe_code)]

mod content;
mod filestore;
mod fs;
mod inode;
mod limit;
pub mod lower;
mod lower_file;
mod memfd;
mod memfile;
mod node;
mod open_file;
mod options;
mod saved;
pub mod state;
mod storage;
#[cfg(test)]
mod tests;
pub mod walk;

pub use content::ContentState;
pub use filestore::FileStore;
pub use fs::TmpFs;
pub use memfd::{Memfds, add_seals, get_seals};
pub use memfile::MemFiles;
pub use node::Node;
pub use options::{KNOWN, Options};

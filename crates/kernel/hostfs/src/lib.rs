//! Files of the host: trees behind a directory descriptor that the gofer
//! handed over, and single descriptors such as the standard streams.
//!
//! A tree is either *exclusive* or *shared*. An exclusive tree does not change while we run (the lower layer of an
//! overlay), so names and attributes are looked up once. A shared tree is shared with the host: every use asks again,
//! except in directories that are watched ([`watches`]).
//!
//! Only descriptor-relative calls with single components are made, and links are never followed on the host's side
//! (`hostsys::fs`). Of a host device only the attributes are used. The same holds for a FIFO or socket, unless the tree
//! allows more ([`Outward`]).
//!
//! Locks are leaves; host calls are made without holding them.

#![forbid(unsafe_code)]

mod dir;
mod fd_cache;
mod fifo;
mod file;
mod files;
mod fs;
mod import;
mod inode;
mod node;
mod outside;
mod poller;
mod severed;
mod stream;
#[cfg(test)]
mod tests;
mod unix;
mod warm;
mod watches;

pub use files::HostFiles;
pub use fs::{HostFs, Outward};
pub use import::{ImportedFile, ImportedState, Importer, restore as restore_imported};
pub use poller::{Poller, Watch};
pub use severed::{Severed, SeveredState};
pub use unix::{SocketGofer, TreeSockets};
pub use watches::Coherence;

//! Work on open files that is the same for every file system: descriptor tables ([`fd_table`]), reading, writing and
//! seeking ([`io`]), signals for readiness ([`fasync`]), events of directories ([`dnotify`]), mappings ([`mapped`]),
//! bytes of mapped files that the kernel serves itself ([`page_cache`]).
//!
//! Neighbours: `vfs` and `locks` below, system calls above. A checkpoint keeps [`FdTableState`].

#![forbid(unsafe_code)]

pub mod dnotify;
pub mod fasync;
pub mod fd_table;
pub mod io;
pub mod mapped;
pub mod page_cache;

pub use fasync::IoSignals;
pub use fd_table::{FdSlot, FdTable, FdTableState};
pub use mapped::MappedFile;
pub use page_cache::PageCache;

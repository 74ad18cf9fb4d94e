//! vfs.

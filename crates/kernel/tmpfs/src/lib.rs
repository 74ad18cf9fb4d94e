//! tmpfs.

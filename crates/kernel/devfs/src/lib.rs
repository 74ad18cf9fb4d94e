//! devfs.

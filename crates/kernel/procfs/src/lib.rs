//! procfs.

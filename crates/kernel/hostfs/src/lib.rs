//! hostfs.

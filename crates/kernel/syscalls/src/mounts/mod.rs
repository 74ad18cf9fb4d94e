//! Mounting, and asking what is mounted.

pub(crate) mod fs_config;
pub(crate) mod mount;
pub(crate) mod mount_fd;
pub(crate) mod mount_query;

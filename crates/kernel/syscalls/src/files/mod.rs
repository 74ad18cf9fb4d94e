//! Files: opening, reading and writing, attributes, directories, descriptors.

pub(crate) mod attrs;
pub(crate) mod dirs;
pub(crate) mod fcntl;
pub(crate) mod file_attr;
pub(crate) mod handles;
pub(crate) mod ioctl;
pub(crate) mod open;
pub(crate) mod outgoing;
mod own_handles;
pub(crate) mod pipe;
pub(crate) mod quota;
pub(crate) mod read_write;
pub(crate) mod splice;
pub(crate) mod stat;
pub(crate) mod storage;
pub(crate) mod transfer;
pub(crate) mod xattr;

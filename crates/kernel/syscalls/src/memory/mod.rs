//! Mappings and memory policies.

pub(crate) mod mempolicy;
pub(crate) mod mmap;
pub(crate) mod process_madvise;

//! Mappings and memory policies.

pub(crate) mod mempolicy;
pub(crate) mod mmap;

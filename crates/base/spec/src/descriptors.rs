//! The descriptors passed beside the specification.

/// Index into the list of descriptors.
pub type FdIndex = usize;

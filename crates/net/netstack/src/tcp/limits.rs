//! Limits that several modules of TCP share.

/// The window at the start, in packets (RFC 6928).
pub(super) const INITIAL_WINDOW: u32 = 10;

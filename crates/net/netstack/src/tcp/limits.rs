//! Limits that several modules of TCP share.

/// The window at the start, in packets (RFC 6928).
pub(super) const INITIAL_WINDOW: u32 = 10;

/// Sequence numbers between the ends of what a connection has under way.
pub(super) const SPAN: u32 = 1 << 30;

/// Bytes in all of a saved connection, and its rates.
pub(super) const MOST_BYTES: u64 = 1 << 60;

//! Signals.

pub(crate) mod sigio;
pub(crate) mod signal;

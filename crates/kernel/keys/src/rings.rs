//! The keyrings of one thread, as a record.

use crate::key::Serial;

/// Keyrings that a thread holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rings {
    pub(crate) thread: Option<Serial>,
    pub(crate) process: Option<Serial>,
    pub(crate) session: Option<Serial>,
    pub(crate) destination: i32,
}

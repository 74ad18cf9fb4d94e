//! How a table entry changes: the word that tables and the monitor share. Plain data.

/// How it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is new, or has other values than before.
    Set,
    /// It took the place of another one.
    Replaced,
    /// It is gone.
    Gone,
    /// An interface is in another stack now.
    Moved {
        /// Number of that stack.
        stack: u64,
        /// Its index there.
        index: u32,
    },
}

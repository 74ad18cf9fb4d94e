//! A running sandbox as plain data, and back.
//!
//! What cannot be saved is named, as an [`Obstacle`], before anything is written.

#![forbid(unsafe_code)]

pub mod files;

/// Something that cannot be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// What it is, in words for the user: `descriptor 5 of process 12 (nginx) is an inotify instance`.
    pub what: String,
}

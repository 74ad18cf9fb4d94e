//! A running sandbox as plain data, and back.
//!
//! [`save()`] walks a sandbox that stands still ([`task::Standstill`]), [`restore()`] puts one together in a kernel without
//! processes. What cannot be saved is named, as an [`Obstacle`], before anything is written.

#![forbid(unsafe_code)]

pub mod files;
mod kernel;
pub mod network;
mod restore;
mod save;
mod state;

pub use kernel::KernelState;
pub use restore::{Restoring, restore};
pub use save::{Saving, obstacles_of, save};
pub use state::{ContextOf, Memory, SandboxState};

/// The version of ringfence, as images name it.
const SAVED_BY: &str = env!("CARGO_PKG_VERSION");
/// Longest metadata of an image in bytes.
pub const LONGEST: u64 = 1 << 30;

/// Something that cannot be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// What it is, in words for the user: `descriptor 5 of process 12 (nginx) is an inotify instance`.
    pub what: String,
}

/// The metadata as bytes.
pub fn encode(state: &SandboxState) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    ciborium::into_writer(state, &mut bytes).map_err(|error| format!("metadata: {error}"))?;
    Ok(bytes)
}

/// Metadata out of bytes that may be anything.
pub fn decode(bytes: &[u8]) -> Result<SandboxState, String> {
    ciborium::from_reader(bytes).map_err(|error| format!("the metadata of the image is damaged: {error}"))
}

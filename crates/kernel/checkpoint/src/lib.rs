//! A running sandbox as plain data, and back.
//!
//! [`save()`] walks a sandbox that stands still ([`task::Standstill`]), [`restore()`] puts one together in a kernel without
//! processes. What cannot be saved is named, as an [`Obstacle`], before anything is written.

#![forbid(unsafe_code)]

pub mod files;
mod filesystems;
mod kernel;
pub mod network;
mod restore;
mod save;
mod state;

use image::{About, Reader, Sums, Writer};

pub use kernel::KernelState;
pub use restore::{RestoredContainer, Restoring, restore};
pub use save::{SavedContainer, Saving, obstacles_of, save};
pub use state::{ContainerState, ContextOf, Memory, SandboxState};

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

/// The section of the metadata with the sandbox.
const SANDBOX: &str = "sandbox";

/// The metadata as bytes. `about` says where the sandbox runs, and `sums` are of the file of pages.
pub fn encode(state: &SandboxState, about: &About, sums: Option<&Sums>) -> Result<Vec<u8>, String> {
    let write = || {
        let mut writer = Writer::new(about)?;
        writer.section(SANDBOX, state)?;
        if let Some(sums) = sums {
            writer.sums(sums)?;
        }
        writer.finish()
    };
    write().map_err(|error: image::Error| format!("metadata: {error}"))
}

/// Metadata out of bytes that may be anything: the sandbox, and what belongs to the file of pages. An error says what is
/// wrong with the bytes, or what the sandbox needs and is not `here`.
pub fn decode(bytes: &[u8], here: &About) -> Result<(SandboxState, About, Option<Sums>), String> {
    let reader = Reader::new(bytes).map_err(|error| error.to_string())?;
    let about = reader.about().map_err(|error| error.to_string())?;
    if let Some(obstacle) = about.obstacle(here) {
        return Err(obstacle);
    }
    let state = reader.section(SANDBOX).map_err(|error| error.to_string())?;
    let sums = reader.sums();
    Ok((state, about, sums))
}

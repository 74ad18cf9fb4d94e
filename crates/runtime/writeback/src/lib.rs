//! Lists the changes of a container's overlay, packs them as a layer of an image, or writes them back to the directory
//! below the overlay. All of it happens outside the sandbox.
//!
//! The changes come from the sentry as a stream (crate `changes`) and are not trusted: the stream's reader has checked
//! each record, and nothing here follows a link or leaves the directory that it works on.
//!
//! A write-back, from below: `disk` and `remove` change the directory, `journal` is the list of operations, `proof` the
//! record of a write-back outside its root, `staging` the directory that it is prepared in; `stage` prepares, `apply`
//! carries out, `recover` finishes what was interrupted, and `process` runs it all.
//!
//! Neighbours: `lifecycle` asks the sentry for the stream and starts what works on it.

#![forbid(unsafe_code)]

mod apply;
#[cfg(test)]
mod crashes;
mod disk;
mod filter;
mod journal;
mod layer;
mod list;
mod path;
mod process;
mod proof;
mod recover;
mod remove;
mod skipped;
mod stage;
mod staging;
mod steps;
#[cfg(test)]
mod tests;

pub use layer::{Omissions, pack};
pub use list::{Change, list};
pub use process::{serve, set_up};
pub use proof::{Proof, STAGING};
pub use recover::Repair;

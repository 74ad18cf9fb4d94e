//! The log of a policy's decisions, in a form that shows changes.
//!
//! A log is lines of JSON. Each has a `number`, from 0 on, and in `previous` the SHA-256 of the line before it
//! (without the newline). Then it has one of:
//! - `start`: the first line; which sandbox, which policy;
//! - `decision`: an [`Entry`];
//! - `resumed`: the writer was started again;
//! - `end`: the last line, which the operator's key signs (Ed25519).
//!
//! The chain of digests shows that a line was changed, added or removed; the end, that nothing is missing behind it.
//! Only the signature shows that the chain itself was not made anew, so the key must not be where the log can be
//! changed.
//!
//! [`Writer`] writes to any `io::Write`, one line at a time. [`verify`] reads a log and trusts nothing in it.

#![forbid(unsafe_code)]

mod key;
mod line;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use key::{Key, PublicKey};
pub use line::{DryRun, Entry, Start, text_of};
pub use verify::{Fault, Report, Signature, Tail, verify};
pub use writer::Writer;

/// Longest line of a log, in bytes.
pub const LINE_MAX: usize = 1 << 20;

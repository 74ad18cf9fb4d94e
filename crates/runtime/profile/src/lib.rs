//! A CPU profile of a running sandbox: the sentry's threads and the guest's processes, sampled together from outside.
//!
//! The kernel's CPU clock interrupts every processor some hundred times in a second ([`hostsys::perf`]); what ran there is
//! kept when it belongs to the sandbox ([`world`]): which frames of which files ([`files`], [`unwind`]), counted by stack ([`stacks`]).
//! Once all is counted, frames get their names from the symbol tables of these files ([`elf`]), and the whole is written as folded
//! stacks or as a flame graph ([`svg`]). Nothing happens inside the sandbox, and nothing of it is slower for it while no profile is taken.
//!
//! What comes from the guest is not trusted: names, files and the numbers in them. Everything read is bounded, by size and
//! in sum, and text is cleaned before it is shown.

#![forbid(unsafe_code)]

mod files;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod kallsyms;
mod records;
mod sample;
mod stacks;
mod svg;
mod symbols;
#[cfg(test)]
mod tests;
mod unwind;
mod world;

pub use sample::{Request, take};
pub use stacks::{Kind, Label, Profile};

use std::fmt;
use std::io;

/// Highest frequency of samples.
pub const MAX_FREQUENCY: u32 = 10_000;

/// Why there is no profile.
#[derive(Debug)]
pub enum Error {
    /// The host does not let this user sample.
    Refused,
    /// The host allows fewer samples in a second.
    TooOften,
    /// The host's kernel was built without performance events, or a filter hides them.
    Unsupported,
    /// There is no such sandbox any more.
    Gone,
    /// Something else.
    Io(&'static str, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str(
                "perf_event_open: permission denied; a profile needs root on the host (CAP_PERFMON and CAP_SYS_ADMIN)",
            ),
            Self::TooOften => f.write_str(
                "the host does not allow samples that often; see /proc/sys/kernel/perf_event_max_sample_rate",
            ),
            Self::Unsupported => f.write_str("perf_event_open: the host does not offer it"),
            Self::Gone => f.write_str("container not running"),
            Self::Io(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Error {}

//! A CPU profile of a running sandbox: the sentry's threads and the guest's processes, sampled together from outside.
//!
//! The host kernel's CPU clock interrupts every processor some hundred times in a second ([`hostsys::perf`]). A sample
//! is kept when its process belongs to the sandbox ([`world`]). Its frames are found ([`files`], [`unwind`]) and
//! counted by stack ([`stacks`]). At the end frames get their names from the symbol tables of the files ([`elf`]), and
//! the profile is written as folded stacks or as a flame graph ([`svg`]). Nothing happens inside the sandbox, and
//! profiling costs nothing while no profile is taken.
//!
//! Data of the guest are not trusted: names, files and the numbers in them. All reads are bounded, each and in sum, and
//! text is cleaned before it is shown.

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

pub use files::{missing_symbols, own_build_id, own_functions};
pub use sample::{Request, take};
pub use stacks::{Kind, Label, Profile};

use std::{fmt, io};

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

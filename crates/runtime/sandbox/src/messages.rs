//! What the command line and the sentry say to each other.
//!
//! The command line must expect a sentry that a guest has taken over: what it
//! reads here is used as a number or shown with control characters removed,
//! never more.

use sentry::spec::{StartError, WindowSize};
use serde::{Deserialize, Serialize};

/// From the command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Descriptors; with the first message, before all others, the memfd that
    /// holds the specification. The sandbox starts with the `last` one.
    Descriptors {
        /// No more follow.
        last: bool,
    },
    /// A signal for the container.
    Signal {
        /// Its number.
        signo: i32,
    },
    /// The user's terminal has a new size.
    Resize {
        /// The size.
        size: WindowSize,
    },
}

/// From the sentry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The first process is about to run.
    Started,
    /// It could not be started.
    Failed(StartError),
    /// It has ended, with this wait status.
    Exited {
        /// As wait4(2) reports it.
        status: i32,
    },
}

/// The exit status that stands for a wait status, as shells form it.
pub(crate) fn exit_code(status: i32) -> u8 {
    let code =
        if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
    (code & 0xff) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(exit_code(0), 0);
        assert_eq!(exit_code(3 << 8), 3);
        assert_eq!(exit_code(libc::SIGKILL), 137);
        assert_eq!(exit_code(libc::SIGSEGV | 0x80), 139);
    }
}

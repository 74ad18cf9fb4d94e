//! Errors of a start, and the texts of error numbers in them.

use abi::Errno;
use spec::{StartError, StartErrorKind};

/// An error that is neither a missing program nor one that cannot be executed.
pub(crate) fn other(message: String) -> StartError {
    StartError { kind: StartErrorKind::Other, message }
}

/// strerror(3)'s text in lower case, as Go's runtimes print it.
pub(crate) fn text(e: Errno) -> String {
    let s = std::io::Error::from_raw_os_error(e.raw()).to_string();
    let s = s.split(" (os error").next().unwrap_or_default();
    let mut it = s.chars();
    it.next().map(|f| f.to_lowercase().chain(it).collect()).unwrap_or_default()
}

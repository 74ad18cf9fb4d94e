//! Why a command failed.

use std::fmt;

/// Exit status when the runtime itself fails: outside what programs commonly use, as runsc has it.
const INTERNAL: u8 = 128;

/// A failure: the exit status and one line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: u8,
    message: String,
}

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure with an exit status of its own.
    pub fn with_status(status: u8, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// The failure of a container or process that never ran.
    pub(crate) fn not_started(error: spec::StartError) -> Self {
        let status = u8::try_from(error.exit_status()).unwrap_or(INTERNAL);
        Self::with_status(status, error.message)
    }

    /// The exit status of the command.
    pub fn status(&self) -> u8 {
        self.status
    }

    /// The line for the user.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Errors with a text that is the line for the user.
macro_rules! internal {
    ($($kind:ty),* $(,)?) => {
        $(impl From<$kind> for Error {
            fn from(error: $kind) -> Self {
                Self::with_status(INTERNAL, error.to_string())
            }
        })*
    };
}

internal! {
    &str,
    String,
    std::io::Error,
    rustix::io::Errno,
    serde_json::Error,
    bundle::Error,
    cgroups::Error,
    hooks::Error,
    sandbox::client::Error,
}

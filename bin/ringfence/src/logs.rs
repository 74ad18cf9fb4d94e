//! The log of the command line, and error messages.

use clap::ValueEnum;
use lifecycle::Result;
use sandbox::logging::{self, Format};
use std::io::Write;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text
    Text,
    /// Lines of JSON
    Json,
}

impl From<LogFormat> for Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// Starts the command line's own log.
pub(crate) fn start(log: Option<&Path>, format: LogFormat, debug: bool) -> Result<()> {
    let file = match log {
        Some(path) => Some(logging::append(path)?),
        None => None,
    };
    logging::start(format.into(), file);
    logging::set_level(debug, false);
    Ok(())
}

/// Tells the user why ringfence failed: a line on standard error, and one in the log.
pub(crate) fn tell(log: Option<&Path>, format: LogFormat, message: &str) {
    complain(message);
    let message = &logging::one_line(message);
    if let Some(Ok(mut file)) = log.map(logging::append) {
        let line = match format {
            LogFormat::Json => logging::json_line("error", message),
            LogFormat::Text => format!("E {} {message}\n", logging::timestamp()),
        };
        let _ = file.write_all(line.as_bytes());
    }
}

/// The same for a process that has a log in that form as standard error.
pub(crate) fn complain_as(format: Format, message: &str) {
    match format {
        Format::Text => complain(message),
        Format::Json => {
            let line = logging::json_line("error", &logging::one_line(message));
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}

/// Writes a line to standard error; a failure of that is ignored.
pub(crate) fn complain(message: &str) {
    let _ = writeln!(std::io::stderr(), "ringfence: {}", logging::one_line(message));
}

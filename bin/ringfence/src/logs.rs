//! The log of the command line, and error messages.

use crate::cli::{Global, LogFormat};
use lifecycle::Result;
use sandbox::logging::{self, Format};
use std::io::Write;
use std::path::Path;

/// Starts the command line's own log.
pub(crate) fn start(global: &Global) -> Result<()> {
    let file = match &global.log {
        Some(path) => Some(logging::append(path)?),
        None => None,
    };
    logging::start(global.log_format.into(), file);
    logging::set_level(global.debug, false);
    Ok(())
}

/// Tells the user why ringfence failed: a line on standard error, and one in the log.
pub(crate) fn report(global: &Global, message: &str) {
    tell(global.log.as_deref(), global.log_format, message);
}

/// The same for a command line that could not be read.
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

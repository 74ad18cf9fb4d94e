//! Where the command line and the sandbox log, and how a failure is told.

use crate::Failure;
use crate::cli::{Global, LogFormat};
use sandbox::logging::{self, Format};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Starts the command line's own log.
pub(crate) fn start(global: &Global) -> Result<(), Failure> {
    let file = match &global.log {
        Some(path) => Some(append(path)?),
        None => None,
    };
    logging::start(format(global), file);
    logging::set_level(global.debug, false);
    Ok(())
}

fn format(global: &Global) -> Format {
    match global.log_format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    }
}

fn append(path: &Path) -> Result<File, Failure> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|error| format!("log file {}: {error}", path.display()).into())
}

/// Tells the user why ringfence failed: a line on standard error, and one in the log.
pub(crate) fn report(global: &Global, message: &str) {
    tell(global.log.as_deref(), global.log_format, message);
}

/// The same for a command line that could not be read.
pub(crate) fn tell(log: Option<&Path>, format: LogFormat, message: &str) {
    complain(message);
    let message = &logging::one_line(message);
    if let Some(Ok(mut file)) = log.map(append) {
        let line = match format {
            LogFormat::Json => logging::json_line("error", message),
            LogFormat::Text => format!("E {} {message}\n", logging::timestamp()),
        };
        let _ = file.write_all(line.as_bytes());
    }
}

/// A line on standard error, if somebody takes it.
pub(crate) fn complain(message: &str) {
    let _ = writeln!(std::io::stderr(), "ringfence: {}", logging::one_line(message));
}

/// What the sandbox's processes get as standard error. For a container in the background that is never the
/// caller's, whose other end may wait for everybody to close it.
pub(crate) fn for_sandbox(
    global: &Global,
    id: &str,
    command: &str,
    background: bool,
) -> Result<OwnedFd, Failure> {
    let Some(pattern) = &global.debug_log else {
        if background {
            return Ok(OpenOptions::new().write(true).open("/dev/null")?.into());
        }
        return Ok(rustix::stdio::stderr().as_fd().try_clone_to_owned()?);
    };
    let mut path = pattern.clone();
    if path.ends_with('/') {
        path += "ringfence.log.%TIMESTAMP%.%COMMAND%.txt";
    }
    let stamp: String = logging::timestamp().chars().map(|c| if c == ':' { '-' } else { c }).collect();
    let path = path.replace("%ID%", id).replace("%TIMESTAMP%", &stamp).replace("%COMMAND%", command);
    if let Some(dir) = Path::new(&path).parent() {
        // A missing directory is then the error of the open.
        let _ = std::fs::create_dir_all(dir);
    }
    Ok(append(Path::new(&path))?.into())
}

//! The sandbox's own log: what its processes get as standard error.

use crate::{Result, Settings};
use sandbox::logging::{self, Sink};
use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::path::Path;

/// Opens it: the file of `--debug-log`, or else of `--panic-log`. Without them a container in the foreground logs where
/// the command line does. One in the background does not: the reader of standard error may wait until all copies of it
/// are closed, and a file would grow without end.
pub(crate) fn open(settings: &Settings, id: &str, command: &str, background: bool) -> Result<Sink> {
    let format = settings.debug_log_format;
    let Some(pattern) = settings.debug_log.as_ref().or(settings.panic_log.as_ref()) else {
        let fd = match &settings.log {
            _ if background => OpenOptions::new().write(true).open("/dev/null")?.into(),
            Some(path) => logging::append(path)?.into(),
            None => rustix::stdio::stderr().as_fd().try_clone_to_owned()?,
        };
        return Ok(Sink { fd, format: settings.log_format });
    };
    let path = path(pattern, id, command);
    if let Some(dir) = Path::new(&path).parent() {
        // A missing directory is then the error of the open.
        let _ = std::fs::create_dir_all(dir);
    }
    Ok(Sink { fd: logging::append_no_link(Path::new(&path))?.into(), format })
}

/// The path that a pattern means; a directory gets a name.
fn path(pattern: &str, id: &str, command: &str) -> String {
    let name = if pattern.ends_with('/') { "ringfence.log.%TIMESTAMP%.%COMMAND%.txt" } else { "" };
    fill_in(&format!("{pattern}{name}"), id, command, &logging::timestamp())
}

/// A pattern with `%ID%`, `%TIMESTAMP%` and `%COMMAND%` replaced.
pub(crate) fn fill_in(pattern: &str, id: &str, command: &str, now: &str) -> String {
    let stamp: String = now.chars().map(|c| if c == ':' { '-' } else { c }).collect();
    pattern.replace("%ID%", id).replace("%TIMESTAMP%", &stamp).replace("%COMMAND%", command)
}

#[cfg(test)]
mod tests {
    #[test]
    fn patterns() {
        let path = |pattern| super::path(pattern, "box", "run");
        assert_eq!(path("/l/%ID%-%COMMAND%"), "/l/box-run");
        assert!(path("/l/").starts_with("/l/ringfence.log.2"), "{}", path("/l/"));
        assert_eq!(super::fill_in("%TIMESTAMP%", "box", "run", "10:20:30Z"), "10-20-30Z");
    }
}

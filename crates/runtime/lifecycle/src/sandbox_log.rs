//! The sandbox's own log: what its processes get as standard error.

use crate::{Result, Settings};
use sandbox::logging;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Opens it. For a container in the background that is never the caller's standard error, whose other end may wait for
/// everybody to close it.
pub(crate) fn open(settings: &Settings, id: &str, command: &str, background: bool) -> Result<OwnedFd> {
    let Some(pattern) = &settings.debug_log else {
        if background {
            return Ok(OpenOptions::new().write(true).open("/dev/null")?.into());
        }
        return Ok(rustix::stdio::stderr().as_fd().try_clone_to_owned()?);
    };
    let path = path(pattern, id, command);
    if let Some(dir) = Path::new(&path).parent() {
        // A missing directory is then the error of the open.
        let _ = std::fs::create_dir_all(dir);
    }
    Ok(logging::append_no_link(Path::new(&path))?.into())
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

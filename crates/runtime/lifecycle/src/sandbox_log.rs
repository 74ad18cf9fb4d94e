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
    let path = path(pattern, id, command, &logging::timestamp());
    if let Some(dir) = Path::new(&path).parent() {
        // A missing directory is then the error of the open.
        let _ = std::fs::create_dir_all(dir);
    }
    Ok(logging::append(Path::new(&path))?.into())
}

/// The path that a pattern means: `%ID%`, `%TIMESTAMP%` and `%COMMAND%` are replaced, and a directory gets a name.
fn path(pattern: &str, id: &str, command: &str, now: &str) -> String {
    let name = if pattern.ends_with('/') { "ringfence.log.%TIMESTAMP%.%COMMAND%.txt" } else { "" };
    let stamp: String = now.chars().map(|c| if c == ':' { '-' } else { c }).collect();
    let path = format!("{pattern}{name}");
    path.replace("%ID%", id).replace("%TIMESTAMP%", &stamp).replace("%COMMAND%", command)
}

#[cfg(test)]
mod tests {
    #[test]
    fn patterns() {
        let path = |pattern| super::path(pattern, "box", "run", "10:20:30Z");
        assert_eq!(path("/l/%ID%-%COMMAND%"), "/l/box-run");
        assert_eq!(path("/l/"), "/l/ringfence.log.10-20-30Z.run.txt");
    }
}

//! Errors of control groups. Each message names the controller and the file, and says what to do.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate.
#[derive(Debug)]
pub enum Error {
    /// A limit was asked for, and the host has no such controller.
    NoController {
        /// The controller.
        controller: String,
    },
    /// A limit was asked for, and the container's group could not be made or joined.
    NotJoined {
        /// The controller.
        controller: String,
    },
    /// The configuration asks for what cannot be.
    Config(String),
    /// A file or directory of the control group file system refused.
    File {
        /// The controller, empty for cgroup v2's own files.
        controller: String,
        /// What was to be done: `write 5 to`, `read`, `create`, `remove`.
        action: String,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Processes are still in the group.
    Busy {
        /// The directory.
        path: PathBuf,
        /// Some of the processes.
        pids: Vec<u32>,
    },
    /// The group did not change its freezer state in time.
    Freezer {
        /// The directory.
        path: PathBuf,
        /// The state asked for.
        wanted: &'static str,
        /// The state it is in.
        state: String,
    },
    /// systemd refused, or is not there.
    Systemd(String),
}

impl Error {
    pub(crate) fn file(
        controller: &str,
        action: impl Into<String>,
        path: &Path,
        source: std::io::Error,
    ) -> Self {
        Self::File { controller: controller.into(), action: action.into(), path: path.into(), source }
    }

    /// The kind of an I/O error.
    pub(crate) fn io_kind(&self) -> Option<ErrorKind> {
        match self {
            Self::File { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// Whether this is the host saying that the caller may not.
    pub fn is_permission(&self) -> bool {
        matches!(self.io_kind(), Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem))
    }
}

fn advice(source: &std::io::Error) -> &'static str {
    match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "; run as root, or have the control group delegated to this user"
        }
        ErrorKind::NotFound => "; the host's kernel or the parent group does not offer this setting",
        ErrorKind::InvalidInput => "; the kernel does not accept this value",
        ErrorKind::ResourceBusy => "; it is in use",
        _ => "",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoController { controller } => write!(
                f,
                "cannot set {controller} limit: the host has no {controller} controller; mount it, or leave the limit out"
            ),
            Self::NotJoined { controller } => {
                write!(f, "cannot set {controller} limit: container could not join or create cgroup")
            }
            Self::Config(message) | Self::Systemd(message) => f.write_str(message),
            Self::File { controller, action, path, source } => {
                let name = if controller.is_empty() { "cgroup" } else { controller };
                write!(f, "{name}: {action} {}: {source}{}", path.display(), advice(source))
            }
            Self::Busy { path, pids } => write!(
                f,
                "unable to remove {}: processes {pids:?} are still in it; end them first",
                path.display()
            ),
            Self::Freezer { path, wanted, state } => {
                write!(f, "freezer: {} is {state}, it did not become {wanted} in time", path.display())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } => Some(source),
            _ => None,
        }
    }
}

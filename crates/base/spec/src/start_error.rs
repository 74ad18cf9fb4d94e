//! Why a process could not be started.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a container's first process could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartError {
    /// What kind of failure, which decides the exit status.
    pub kind: StartErrorKind,
    /// One line for the user, without a program name before it.
    pub message: String,
}

/// Kinds of [`StartError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartErrorKind {
    /// The program does not exist: exit status 127. The message is
    /// `exec: "NAME": executable file not found in $PATH`, or, with a slash in
    /// the name, `exec: "NAME": stat NAME: no such file or directory`.
    NotFound,
    /// The program cannot be executed (EACCES, ENOEXEC, a directory): exit status 126.
    /// The message is `exec: "NAME": permission denied` and the like.
    NotExecutable,
    /// Anything else (a mount, the working directory, a resource limit): exit status 128.
    Other,
}

impl StartError {
    /// Exit status of the command line for this failure.
    pub fn exit_status(&self) -> i32 {
        match self.kind {
            StartErrorKind::NotFound => 127,
            StartErrorKind::NotExecutable => 126,
            StartErrorKind::Other => 128,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StartError {}

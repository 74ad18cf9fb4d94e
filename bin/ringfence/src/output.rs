//! Standard output, and files that a flag names.

use lifecycle::{Error, Result};
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a line to standard output.
pub(crate) fn say(line: impl Display) -> Result<()> {
    write(format_args!("{line}\n"))
}

/// Writes text to standard output. That its reader has closed it is no failure (`ringfence list | head -1`): the command ends
/// there, with status 0.
pub(crate) fn write(text: impl Display) -> Result<()> {
    let written = write!(std::io::stdout(), "{text}").and_then(|()| std::io::stdout().flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Error::with_status(0, ""),
        _ => format!("standard output: {error}").into(),
    })
}

/// A file that is left as it was, or not there, until there is something to write.
pub(crate) struct Output<'a> {
    path: &'a Path,
    file: File,
    /// It was not there, and is still empty.
    new: bool,
}

impl<'a> Output<'a> {
    /// Opens the file before there is something to write, so that a wrong path is told at once.
    pub(crate) fn open(path: &'a Path) -> io::Result<Self> {
        Self::with_mode(path, 0o666)
    }

    /// The same for a regular file that the user alone may read, if it is a new one.
    pub(crate) fn private(path: &'a Path) -> io::Result<Self> {
        let output = Self::with_mode(path, 0o600)?;
        match output.file.metadata()?.is_file() {
            true => Ok(output),
            false => Err(io::Error::other("not a regular file")),
        }
    }

    fn with_mode(path: &'a Path, mode: u32) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // A FIFO without a reader is an error and no wait.
        options.write(true).mode(mode).custom_flags(libc::O_NONBLOCK);
        match options.clone().create_new(true).open(path) {
            Ok(file) => Ok(Self { path, file, new: true }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(Self { path, file: options.open(path)?, new: false })
            }
            Err(error) => Err(error),
        }
    }

    /// For one that writes by itself, and then calls [`Output::keep`].
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The file is complete, and stays.
    pub(crate) fn keep(&mut self) {
        self.new = false;
    }

    /// Writes the text, instead of what the file held.
    pub(crate) fn write(&mut self, text: &str) -> io::Result<()> {
        // Pipes and terminals have no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())?;
        self.new = false;
        Ok(())
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if self.new {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

//! The list of `do --diff`: what the command has changed in its root, which is thrown away.

use crate::commands::overlay::line_of;
use lifecycle::{ChangeList, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that the list may take: the command decides how long it is, and the host holds it.
const MOST: usize = 64 << 20;
/// The end of a list that is longer.
const CUT: &[u8] = b"... and more: the list is cut here\n";

/// Where the list goes, and what of it is there.
pub(crate) struct Diff {
    /// Standard error without one.
    file: Option<File>,
    lines: Arc<Mutex<Vec<u8>>>,
}

impl Diff {
    /// Opens the file before the command runs, which may take long.
    pub(crate) fn open(to: &Path) -> Result<Self> {
        let file = match to.as_os_str() == "-" {
            true => None,
            false => Some(File::create(to).map_err(|error| format!("--diff {}: {error}", to.display()))?),
        };
        Ok(Self { file, lines: Arc::default() })
    }

    /// What is told each change.
    pub(crate) fn take(&mut self) -> ChangeList {
        let lines = self.lines.clone();
        Box::new(move |change, path| {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() >= MOST {
                if !lines.ends_with(CUT) {
                    lines.extend(CUT);
                }
                return Ok(());
            }
            writeln!(lines, "{}", line_of(change, path))
        })
    }

    /// Writes the list, once the command has given the terminal back.
    pub(crate) fn finish(self) -> Result<()> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match self.file {
            Some(file) => {
                let mut file = BufWriter::new(file);
                file.write_all(&lines).and_then(|()| file.flush())
            }
            None => std::io::stderr().write_all(&lines),
        };
        written.map_err(|error| format!("--diff: {error}").into())
    }
}

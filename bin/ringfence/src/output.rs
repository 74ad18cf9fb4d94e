//! Standard output.

use lifecycle::Result;
use std::fmt::Display;
use std::io::Write;

/// Writes a line to standard output. A closed pipe is an error, not a panic.
pub(crate) fn say(line: impl Display) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").map_err(|error| format!("standard output: {error}").into())
}

//! `ringfence overlay`: the changes of a container to its root.

use super::list::ListFormat;
use clap::{Args, Subcommand};
use lifecycle::{Error, Result, Settings};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use writeback::{Change, Omissions};

#[derive(Debug, Args)]
pub(crate) struct Overlay {
    #[command(subcommand)]
    command: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List what was added (A), changed (C) and removed (D)
    Diff {
        /// Form of the output
        #[arg(long, short, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
        /// The same as --format json
        #[arg(long)]
        json: bool,
        /// The container's name
        id: String,
    },
    /// Write the changes to the directory below the overlay; for containers made with commit in --overlay2
    Commit {
        /// The container's name
        id: String,
    },
    /// Pack the changes as a layer of an image: a tar archive, with the whiteouts of the OCI image specification
    Export {
        /// The file to write; - for standard output
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
        /// The container's name
        id: String,
    },
}

pub(crate) fn overlay(settings: &Settings, args: &Overlay) -> Result<()> {
    match &args.command {
        What::Diff { id, format, json } => match *json || *format == ListFormat::Json {
            true => diff_as_json(settings, id),
            false => diff(settings, id),
        },
        What::Commit { id } => commit(settings, id),
        What::Export { output, id } => export(settings, id, output),
    }
}

fn diff(settings: &Settings, id: &str) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    lifecycle::overlay_diff(settings, id, &mut |change, path| writeln!(out, "{}", line_of(change, path)))?;
    Ok(out.flush()?)
}

/// A change as a line.
pub(crate) fn line_of(change: Change, path: &[u8]) -> String {
    format!("{} {}", change.letter(), printable(path))
}

/// An array of objects. A path that is no text is there in the form of the table, and `escaped` says so.
fn diff_as_json(settings: &Settings, id: &str) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut first = true;
    lifecycle::overlay_diff(settings, id, &mut |change, path| {
        write!(out, "{}", if std::mem::take(&mut first) { "[" } else { ",\n" })?;
        write!(out, "{}", json_of(change, path))
    })?;
    writeln!(out, "{}", if first { "[]" } else { "]" })?;
    Ok(out.flush()?)
}

fn json_of(change: Change, path: &[u8]) -> serde_json::Value {
    let what = match change {
        Change::Added => "added",
        Change::Changed => "changed",
        Change::Removed => "removed",
    };
    match std::str::from_utf8(path) {
        Ok(path) => serde_json::json!({ "change": what, "path": path }),
        Err(_) => serde_json::json!({ "change": what, "path": printable(path), "escaped": true }),
    }
}

fn commit(settings: &Settings, id: &str) -> Result<()> {
    let left = lifecycle::overlay_commit(settings, id)?;
    if !left.is_empty() {
        log::warn!("left out: {left}");
    }
    Ok(())
}

/// Whether a character has a terminal show others in another order, or nothing at all.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A path as it may be shown on a terminal: as `\xNN` what is no text, control characters, those that change the
/// direction of text, and the backslash itself.
fn printable(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c.is_control() || is_invisible(c) || c == '\\' {
                true => text.extend(c.to_string().bytes().map(|b| format!("\\x{b:02x}"))),
                false => text.push(c),
            }
        }
        text.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
    }
    text
}

fn export(settings: &Settings, id: &str, output: &Path) -> Result<()> {
    let left = if output == Path::new("-") {
        lifecycle::overlay_export(settings, id, &mut BufWriter::new(io::stdout().lock()))?
    } else {
        to_file(settings, id, output)?
    };
    for (count, what) in [
        (left.sockets, "Unix sockets"),
        (left.whiteouts, "names or devices that stand for something else in a layer"),
        (left.xattrs, "extended attributes that are a host's own, or whose names are no text"),
        (left.omitted, "objects or attributes, which lie too deep or are too many"),
    ] {
        if count > 0 {
            log::warn!("left out: {count} {what}");
        }
    }
    Ok(())
}

/// Writes a file that is there when it is whole.
fn to_file(settings: &Settings, id: &str, output: &Path) -> Result<Omissions> {
    let name =
        output.file_name().ok_or_else(|| Error::from("--output: name a file, or - for standard output"))?;
    let mut partial = name.to_os_string();
    partial.push(format!(".{}.part", std::process::id()));
    let partial = output.with_file_name(partial);
    let failed = |error: io::Error| Error::from(format!("{}: {error}", output.display()));
    let mut file = BufWriter::with_capacity(256 << 10, File::create_new(&partial).map_err(failed)?);
    let written = lifecycle::overlay_export(settings, id, &mut file).and_then(|left| {
        file.into_inner().map_err(|error| failed(error.into_error()))?.sync_all().map_err(failed)?;
        fs::rename(&partial, output).map_err(failed)?;
        Ok(left)
    });
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_as_json() {
        let json = |path: &[u8]| json_of(Change::Added, path).to_string();
        assert_eq!(json(b"/a\\\n"), r#"{"change":"added","path":"/a\\\n"}"#);
        assert_eq!(json(b"/\xff"), r#"{"change":"added","escaped":true,"path":"/\\xff"}"#);
    }

    #[test]
    fn paths_do_not_play_with_the_terminal() {
        assert_eq!(printable("/a b/ü".as_bytes()), "/a b/ü");
        assert_eq!(printable(b"/a\\x0a"), "/a\\x5cx0a");
        assert_eq!(printable("/\u{202e}txt".as_bytes()), "/\\xe2\\x80\\xaetxt");
        assert_eq!(printable(b"/\x1b[2J\n\xff\xc2\x9b"), "/\\x1b[2J\\x0a\\xff\\xc2\\x9b");
    }
}

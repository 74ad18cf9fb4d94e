//! `ringfence syscalls`: which system calls the kernel inside has, from the table that dispatches them.

use crate::output::{Output, say};
use clap::{Args, ValueEnum};
use lifecycle::{Error, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use syscalls::Support;

#[derive(Debug, Args)]
pub(crate) struct Syscalls {
    /// Form of the output
    #[arg(long, short = 'o', value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// File for the output [default: standard output]
    #[arg(long, alias = "filename", value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// System whose calls are shown
    #[arg(long, value_enum, default_value_t = Os::All)]
    pub(crate) os: Os,
    /// Architecture whose calls are shown
    #[arg(long, value_enum, default_value_t = Arch::All)]
    pub(crate) arch: Arch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table
    Table,
    /// By system, architecture and number
    Json,
    /// A line for each call, with a header
    Csv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Os {
    /// All that there are
    All,
    /// Linux, the only one
    Linux,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Arch {
    /// All that there are
    All,
    /// x86-64, the only one
    Amd64,
}

/// The names of the only system and architecture.
const OS: &str = "linux";
const ARCH: &str = "amd64";

/// A call as it is shown.
struct Call {
    nr: u32,
    name: &'static str,
    support: &'static str,
    note: &'static str,
}

/// Every call that Linux has, by number.
fn calls() -> Vec<Call> {
    let mut calls: BTreeMap<u32, Call> = BTreeMap::new();
    for (name, nr) in seccomp::all() {
        calls.insert(nr, Call { nr, name, support: "unimplemented", note: "ENOSYS" });
    }
    for row in syscalls::all_rows() {
        let (support, note) = match row.support {
            Support::Full => ("full", ""),
            Support::Partial(note) => ("partial", note),
            Support::Absent(note) => ("error", note),
        };
        calls.insert(row.nr, Call { nr: row.nr, name: row.name, support, note });
    }
    calls.into_values().collect()
}

pub(crate) fn syscalls(args: &Syscalls) -> Result<()> {
    let calls = calls();
    let text = match args.format {
        Format::Table => table(&calls),
        Format::Json => json(&calls)?,
        Format::Csv => csv(&calls)?,
    };
    let Some(path) = &args.out else {
        return say(text.trim_end_matches('\n'));
    };
    let wrong = |error| format!("{}: {error}", path.display());
    Ok(Output::open(path).map_err(wrong)?.write(&text).map_err(wrong)?)
}

fn table(calls: &[Call]) -> String {
    let width = calls.iter().map(|call| call.name.len()).max().unwrap_or_default();
    let mut text = format!("{:<4} {:<width$} {:<13} NOTE\n", "NUM", "NAME", "SUPPORT");
    for Call { nr, name, support, note } in calls {
        let line = format!("{nr:<4} {name:<width$} {support:<13} {note}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn json(calls: &[Call]) -> Result<String> {
    let calls: serde_json::Map<_, _> = calls
        .iter()
        .map(|Call { nr, name, support, note }| {
            let call = serde_json::json!({ "name": name, "num": nr, "support": support, "note": note });
            (nr.to_string(), call)
        })
        .collect();
    Ok(serde_json::to_string_pretty(&serde_json::json!({ OS: { ARCH: { "syscalls": calls } } }))? + "\n")
}

fn csv(calls: &[Call]) -> Result<String> {
    let wrong = |error: csv::Error| Error::from(error.to_string());
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(["OS", "Arch", "Num", "Name", "Support", "Note"]).map_err(wrong)?;
    for Call { nr, name, support, note } in calls {
        out.write_record([OS, ARCH, &nr.to_string(), name, support, note]).map_err(wrong)?;
    }
    let bytes = out.into_inner().map_err(|error| error.to_string())?;
    Ok(String::from_utf8(bytes).map_err(|error| error.to_string())?)
}

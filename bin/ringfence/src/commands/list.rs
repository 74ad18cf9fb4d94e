//! `ringfence list`.

use crate::output::say;
use clap::{Args, ValueEnum};
use lifecycle::{Result, Settings};

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Form of the output
    #[arg(long, short = 'f', value_enum, default_value_t = ListFormat::Table)]
    pub(crate) format: ListFormat,
    /// Only ids
    #[arg(long, short = 'q')]
    pub(crate) quiet: bool,
    /// Only containers that a sandbox belongs to, not those that have joined one
    #[arg(long)]
    pub(crate) sandbox: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    /// A table
    Table,
    /// JSON
    Json,
}

pub(crate) fn list(settings: &Settings, args: &List) -> Result<()> {
    let states = if args.sandbox { lifecycle::list_sandboxes(settings)? } else { lifecycle::list(settings)? };
    if args.quiet {
        return states.iter().try_for_each(|state| say(&state.id));
    }
    if args.format == ListFormat::Json {
        return say(serde_json::to_string(&states)?);
    }
    let row = |cells: [&str; 6]| {
        let [id, pid, status, bundle, created, owner] = cells;
        say(format_args!("{id:<20} {pid:<8} {status:<10} {bundle:<30} {created:<28} {owner}"))
    };
    row(["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"])?;
    for s in &states {
        let (pid, bundle) = (s.pid.to_string(), s.bundle.to_string_lossy());
        row([&s.id, &pid, &s.status.to_string(), &bundle, &s.created, &s.owner])?;
    }
    Ok(())
}

//! `ringfence trace`: sessions that watch what the programs of a sandbox do.

use super::trace_watch::{self, Watch};
use crate::USAGE_ERROR;
use crate::output::{say, write};
use clap::{Args, Subcommand};
use lifecycle::{Error, Result, Settings};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use trace_wire::config::{self, Config};
use trace_wire::points::ContextFields;
use trace_wire::{MessageType, json, packet};

#[derive(Debug, Args)]
pub(crate) struct Trace {
    #[command(subcommand)]
    command: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Begin a session
    Create {
        /// The session, as JSON
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// End a session of the same name
        #[arg(long)]
        force: bool,
        /// The container's name; that of a pod's first container stands for all of them
        id: String,
    },
    /// End a session, once its messages are sent
    Delete {
        /// Its name
        #[arg(long)]
        name: String,
        /// The container's name
        id: String,
    },
    /// List the sessions of a sandbox
    List {
        /// The container's name
        id: String,
    },
    /// List the points and sinks that there are
    Metadata,
    /// Show every process as JSON: what its files in /proc tell
    Procfs {
        /// The container's name
        id: String,
    },
    /// Show what a running sandbox does, line by line
    Watch(Watch),
}

pub(crate) fn trace(settings: &Settings, args: &Trace) -> Result<()> {
    match &args.command {
        What::Create { config, force, id } => {
            lifecycle::trace::create(settings, id, &read(config, "--config")?, *force)?;
            say(format_args!("Trace session created."))
        }
        What::Delete { name, id } => {
            lifecycle::trace::delete(settings, id, name)?;
            say(format_args!("Trace session {name:?} deleted."))
        }
        What::List { id } => list(settings, id),
        What::Metadata => metadata(),
        What::Procfs { id } => {
            let all = lifecycle::trace::processes(settings, id)?;
            say(format_args!("{}", serde_json::to_string_pretty(&all)?))
        }
        What::Watch(watch) => trace_watch::watch(settings, watch),
    }
}

/// Reads a session's configuration.
pub(crate) fn read(path: &Path, flag: &str) -> Result<Config> {
    let failed =
        |error: String| Error::with_status(USAGE_ERROR, format!("{flag} {}: {error}", path.display()));
    let text = super::policy::read_text(path).map_err(|error| failed(error.to_string()))?;
    config::parse(&text, &syscalls::trace_points()).map_err(failed)
}

fn list(settings: &Settings, id: &str) -> Result<()> {
    let sessions = lifecycle::trace::list(settings, id)?;
    let mut out = format!("SESSIONS ({})\n", sessions.len());
    for session in sessions {
        let _ = writeln!(out, "{:?}", session.name);
        if let Some(container) = session.container {
            let _ = writeln!(out, "\tContainer: {container}");
        }
        for sink in session.sinks {
            let connected = if sink.connected { "" } else { ", not connected" };
            let _ = writeln!(
                out,
                "\tSink: {}, sent: {}, dropped: {}{connected}",
                sink.kind, sink.sent, sink.dropped
            );
        }
    }
    write(out)
}

fn metadata() -> Result<()> {
    let points = syscalls::trace_points();
    let context = ContextFields::all().names().join("|");
    let mut out = format!("POINTS ({})\n", points.iter().len());
    for point in points.iter() {
        let optional = point.optional.names().join("|");
        let _ = writeln!(
            out,
            "Name: {}, optional fields: [{optional}], context fields: [{context}], message: {:?}",
            point.name, point.message
        );
    }
    // Points share messages: each is described once.
    let messages: BTreeMap<i32, MessageType> =
        points.iter().map(|point| (point.message as i32, point.message)).collect();
    let _ = writeln!(out, "\nMESSAGES ({})", messages.len());
    let context: Vec<String> =
        json::context_fields().iter().map(|name| format!("context_data.{name}")).collect();
    let _ = writeln!(out, "Name: all, fields: [{}]", context.join("|"));
    for kind in messages.into_values() {
        let fields = packet::descriptor(kind).map(|message| json::fields(&message)).unwrap_or_default();
        let _ = writeln!(out, "Name: {kind:?}, fields: [{}]", fields.join("|"));
    }
    let usual = trace_watch::usual(&points);
    let _ = writeln!(out, "\nWATCHED BY DEFAULT ({})", usual.len());
    usual.iter().for_each(|name| out.extend(["Name: ", name, "\n"]));
    out.push_str("\nSINKS (4)\nName: file\nName: null\nName: policy\nName: remote\n");
    write(out)
}

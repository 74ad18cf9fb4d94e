//! `ringfence trace watch`: the points of a running sandbox as readable lines.

use crate::USAGE_ERROR;
use crate::output::write;
use clap::Args;
use hostsys::signals::SignalFd;
use lifecycle::{Error, Result, Settings, trace};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use trace_sinks::filter::{Filter, check, matches, passes};
use trace_sinks::view::{Told, View};
use trace_wire::MessageType;
use trace_wire::points::{ContextFields, Description, OptionalFields, Points};
use trace_wire::session::Request;

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Points to show, by name; * stands for any part of it [default: what a security engineer looks for first]
    #[arg(long = "point", value_name = "NAME", value_delimiter = ',')]
    points: Vec<String>,
    /// Only messages with such a field: FIELD=PATTERN or FIELD!=PATTERN; * stands for any text, a.b for field b of a
    #[arg(long = "filter", value_name = "FILTER", value_parser = Filter::parse)]
    filters: Vec<Filter>,
    /// Further fields to ask for, which cost more or are secrets: env, envv, binary_sha1, pipe_proc_info
    #[arg(long = "optional", value_name = "FIELD", value_delimiter = ',', value_parser = optional)]
    optional: Vec<OptionalFields>,
    /// Show the messages as JSON, one in a line
    #[arg(long)]
    json: bool,
    /// The container's name
    id: String,
}

/// What is watched if nothing else is asked for.
const USUAL: &[&str] = &[
    "container/start",
    "sentry/execve",
    "sentry/exit_notify_parent",
    "syscall/openat/enter",
    "syscall/open/enter",
    "syscall/creat/enter",
    "syscall/connect/enter",
    "syscall/bind/enter",
    "syscall/listen/enter",
    "syscall/accept/exit",
    "syscall/accept4/exit",
    "syscall/set*id/enter",
    "syscall/chroot/enter",
    "syscall/ptrace/enter",
];

/// Fields that are asked for by name alone.
const ON_DEMAND: OptionalFields = OptionalFields::PIPE_PROC_INFO
    .union(OptionalFields::BINARY_SHA1)
    .union(OptionalFields::ENV)
    .union(OptionalFields::ENVV);

fn optional(name: &str) -> std::result::Result<OptionalFields, String> {
    let all = || OptionalFields::all().names().join(", ");
    OptionalFields::named(name).ok_or_else(|| format!("use one of {}", all()))
}

/// The names of the points that are watched if nothing else is asked for.
pub(crate) fn usual(points: &Points) -> Vec<&str> {
    let is_usual = |name: &str| USUAL.iter().any(|pattern| matches(pattern, name));
    points.iter().map(|point| point.name.as_str()).filter(|name| is_usual(name)).collect()
}

pub(crate) fn watch(settings: &Settings, args: &Watch) -> Result<()> {
    let points = syscalls::trace_points();
    let usual: Vec<String> = USUAL.iter().map(|name| (*name).into()).collect();
    let wanted = if args.points.is_empty() { &usual } else { &args.points };
    let extra = args.optional.iter().fold(OptionalFields::empty(), |all, field| all | *field);
    let requests = resolve(&points, wanted, extra)?;
    let asked = |point: &&Description| requests.iter().any(|one| one.point == point.point.index());
    let messages: Vec<MessageType> = points.iter().filter(asked).map(|point| point.message).collect();
    check(&args.filters, &messages).map_err(|error| {
        let text = format!("--filter: {error}; \"ringfence trace metadata\" lists the fields");
        Error::with_status(USAGE_ERROR, text)
    })?;
    let view = View::new(points, &requests);
    let stop = SignalFd::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT])?;
    let colours = std::io::stdout().is_terminal();
    trace::watch(settings, &args.id, requests, stop.as_fd(), |told| {
        let trace::Told::Packet(packet) = told else { return Ok(true) };
        let passes = |told: Told| passes(&told.fields(), &args.filters);
        if !args.filters.is_empty() && !view.read(packet).is_ok_and(passes) {
            return Ok(true);
        }
        let line = match args.json {
            true => trace_sinks::file::line(packet, &view),
            false => trace_sinks::text::line(packet, &view, colours),
        };
        write(line)?;
        Ok(true)
    })
}

/// The points of these names, where `*` stands for any part.
fn resolve(points: &Points, names: &[String], extra: OptionalFields) -> Result<Vec<Request>> {
    let mut requests: Vec<Request> = Vec::new();
    for name in names {
        let mut found = false;
        for point in points.iter().filter(|point| matches(name, &point.name)) {
            found = true;
            if requests.iter().any(|other| other.point == point.point.index()) {
                continue;
            }
            requests.push(Request {
                point: point.point.index(),
                optional: point.optional.difference(ON_DEMAND.difference(extra)).bits(),
                context: ContextFields::all().bits(),
            });
        }
        if !found {
            let text = format!("there is no point {name:?}; \"ringfence trace metadata\" lists the points");
            return Err(Error::with_status(USAGE_ERROR, text));
        }
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_part() {
        let points = syscalls::trace_points();
        assert!(resolve(&points, &["sentry/*".into()], OptionalFields::empty()).unwrap().len() == 5);
        assert!(resolve(&points, &["nosuch".into()], OptionalFields::empty()).is_err());
    }

    #[test]
    fn the_usual_points_are_there() {
        let usual: Vec<String> = USUAL.iter().map(|name| (*name).into()).collect();
        assert!(resolve(&syscalls::trace_points(), &usual, OptionalFields::ENV).unwrap().len() > USUAL.len());
    }
}

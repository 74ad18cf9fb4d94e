//! `ringfence trace watch`: the points of a running sandbox as readable lines.

use crate::USAGE_ERROR;
use clap::Args;
use hostsys::signals::SignalFd;
use lifecycle::trace::Told;
use lifecycle::{Error, Result, Settings};
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use trace_sinks::filter::{Filter, matches};
use trace_wire::points::{ContextFields, OptionalFields, Points};
use trace_wire::session::Request;

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Points to show, by name; * stands for any part of it [default: what a security engineer looks for first]
    #[arg(long = "point", value_name = "NAME", value_delimiter = ',')]
    points: Vec<String>,
    /// Only messages with such a field: FIELD=PATTERN or FIELD!=PATTERN; * stands for any text, a.b for field b of a
    #[arg(long = "filter", value_name = "FILTER", value_parser = Filter::parse)]
    filters: Vec<Filter>,
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

pub(crate) fn watch(settings: &Settings, args: &Watch) -> Result<()> {
    let points = syscalls::trace_points();
    let usual: Vec<String> = USUAL.iter().map(|name| (*name).into()).collect();
    let wanted = if args.points.is_empty() { &usual } else { &args.points };
    let requests = resolve(&points, wanted)?;
    let stop = SignalFd::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT])?;
    let mut out = std::io::stdout().lock();
    let colours = out.is_terminal();
    lifecycle::trace::watch(settings, &args.id, requests, stop.as_fd(), |told| {
        let Told::Packet(packet) = told else { return Ok(true) };
        if !trace_sinks::filter::passes(packet, &args.filters) {
            return Ok(true);
        }
        let line = match args.json {
            true => trace_sinks::file::line(packet),
            false => trace_sinks::text::line(packet, colours),
        };
        out.write_all(line.as_bytes())?;
        Ok(true)
    })
}

/// The points of these names, where `*` stands for any part.
fn resolve(points: &Points, names: &[String]) -> Result<Vec<Request>> {
    let mut requests: Vec<Request> = Vec::new();
    for name in names {
        let mut found = false;
        for point in points.iter().filter(|point| matches(name, &point.name)) {
            found = true;
            if requests.iter().any(|other| other.point == point.point.index()) {
                continue;
            }
            let costly = OptionalFields::PIPE_PROC_INFO | OptionalFields::BINARY_SHA1;
            requests.push(Request {
                point: point.point.index(),
                optional: point.optional.difference(costly).bits(),
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
        assert!(resolve(&points, &["sentry/*".into()]).unwrap().len() == 5);
        assert!(resolve(&points, &["nosuch".into()]).is_err());
    }

    #[test]
    fn the_usual_points_are_there() {
        let usual: Vec<String> = USUAL.iter().map(|name| (*name).into()).collect();
        assert!(resolve(&syscalls::trace_points(), &usual).unwrap().len() > USUAL.len());
    }
}

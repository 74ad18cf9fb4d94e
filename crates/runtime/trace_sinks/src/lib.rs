//! The side of a trace sink outside the sandbox: connections to consumers, and the file that messages are written to.
//!
//! The kernel inside can open neither sockets nor files. So the command line connects to a consumer ([`remote`]) and
//! hands the socket in. A process that lives as long as the session ([`serve`]) stays: for a `remote` sink it
//! connects again when the consumer has hung up, for a `file` sink it is the consumer ([`file`]), for a policy it
//! writes the log of decisions ([`decisions`]), and another one asks programs outside ([`asking`]).
//!
//! A guest may have taken over the kernel inside, so a packet is bounded, may be garbage, and is only ever written down as
//! JSON.

#![forbid(unsafe_code)]

mod asking;
mod decisions;
pub mod file;
pub mod filter;
mod policy;
pub mod remote;
pub mod text;
pub mod view;

use crate::view::View;

pub use crate::decisions::NewLog;
pub use crate::policy::{Source, read as read_policy};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;
use trace_wire::config::{Config, SinkConfig, SinkKind};
use trace_wire::points::Points;
use trace_wire::session::{Request, Retry, Session, Sink};

/// What a process that attends to a sink is told, in a memfd.
#[derive(Debug, Serialize, Deserialize)]
enum Duty {
    /// Connect again whenever the kernel asks.
    Remote { endpoint: PathBuf },
    /// Write the messages to a file.
    File { path: PathBuf, max_size: u64, max_files: u32, points: Vec<Request> },
    /// Append decisions to the log, and sign its end. Its file comes along, and one that takes the number of those that it
    /// did not take.
    Decisions { log: PathBuf, key: Option<String> },
    /// Ask programs what the kernel wants to know, by the number of the rule.
    Ask { asked: BTreeMap<u32, asking::Asked> },
}

/// How a sink with a consumer of ours waits: for seconds, as the consumer does nothing else.
const OURS: Retry =
    Retry { retries: 400, backoff: Duration::from_micros(50), backoff_max: Duration::from_millis(10) };

/// A process to be started for a sink: the descriptors from 3 on of [`serve`].
pub struct Attendant {
    /// Its end of the socket to the kernel.
    pub socket: OwnedFd,
    /// A memfd with what it is to do.
    pub duty: OwnedFd,
    /// Further ones.
    pub files: Vec<OwnedFd>,
    /// At the end of the sandbox it writes down what there was.
    pub writes: bool,
}

/// A session that was set up outside.
pub struct Opened {
    /// For the kernel.
    pub session: Session,
    /// The descriptors of its sinks, in their order.
    pub fds: Vec<OwnedFd>,
    /// Processes to be started.
    pub attendants: Vec<Attendant>,
    /// Logs that were made for it.
    pub logs: Vec<NewLog>,
}

/// Connects the sinks of a session. `container`: the only one that it is about. `sandbox`: the name of the sandbox.
pub fn open(config: &Config, container: Option<String>, sandbox: &str) -> Result<Opened, String> {
    let session = Session {
        name: config.name.clone(),
        container,
        points: config.points.clone(),
        sinks: Vec::with_capacity(config.sinks.len()),
    };
    let mut opened = Opened { session, fds: Vec::new(), attendants: Vec::new(), logs: Vec::new() };
    for sink in &config.sinks {
        add(&mut opened, sink, sandbox)?;
    }
    Ok(opened)
}

fn add(opened: &mut Opened, sink: &SinkConfig, sandbox: &str) -> Result<(), String> {
    match &sink.kind {
        SinkKind::Null => opened.session.sinks.push(Sink::Null),
        SinkKind::Remote { endpoint, retry } => {
            let connected = match remote::connect(endpoint) {
                Ok(socket) => Some(socket),
                Err(error) if sink.ignore_setup_error => {
                    log::warn!("trace sink {}: {error}; it is tried again", endpoint.display());
                    None
                }
                Err(error) => return Err(format!("trace sink {}: {error}", endpoint.display())),
            };
            let (ours, theirs) = pair()?;
            opened.session.sinks.push(Sink::Socket {
                kind: "remote".into(),
                connected: connected.is_some(),
                reconnects: true,
                retry: *retry,
            });
            opened.fds.extend(connected);
            opened.fds.push(ours);
            attend(opened, theirs, &Duty::Remote { endpoint: endpoint.clone() }, Vec::new())?;
        }
        SinkKind::File { path, max_size, max_files } => {
            match file::check(path) {
                Ok(()) => {}
                Err(error) if sink.ignore_setup_error => {
                    log::warn!("trace sink {}: {error}; the session goes without it", path.display());
                    return Ok(());
                }
                Err(error) => return Err(format!("trace sink {}: {error}", path.display())),
            }
            let (ours, theirs) = pair()?;
            rustix::io::ioctl_fionbio(&ours, true).map_err(|error| error.to_string())?;
            opened.session.sinks.push(Sink::Socket {
                kind: "file".into(),
                connected: true,
                reconnects: false,
                retry: OURS,
            });
            opened.fds.push(ours);
            let points = opened.session.points.clone();
            let duty = Duty::File { path: path.clone(), max_size: *max_size, max_files: *max_files, points };
            attend(opened, theirs, &duty, Vec::new())?;
        }
        SinkKind::Policy { path, log, key } => {
            let source = Source { path: path.clone(), log: log.clone(), key: key.clone() };
            policy::add(opened, &source, sandbox)?;
        }
    }
    Ok(())
}

/// A sink for the caller as consumer, the socket from which it reads packets, and the kernel's end.
pub fn own() -> Result<(Sink, OwnedFd, OwnedFd), String> {
    let (ours, theirs) = pair()?;
    rustix::io::ioctl_fionbio(&theirs, true).map_err(|error| error.to_string())?;
    let sink = Sink::Socket { kind: "watch".into(), connected: true, reconnects: false, retry: OURS };
    Ok((sink, ours, theirs))
}

fn pair() -> Result<(OwnedFd, OwnedFd), String> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|error| format!("no socket for a trace sink: {error}"))
}

fn attend(opened: &mut Opened, socket: OwnedFd, duty: &Duty, files: Vec<OwnedFd>) -> Result<(), String> {
    let text = serde_json::to_vec(duty).map_err(|error| error.to_string())?;
    let writes = matches!(duty, Duty::File { .. } | Duty::Decisions { .. });
    let duty = memfd_create("trace sink", MemfdFlags::CLOEXEC)
        .map_err(io::Error::from)
        .and_then(|memfd| {
            let mut file = File::from(memfd);
            file.write_all(&text)?;
            file.rewind()?;
            Ok(OwnedFd::from(file))
        })
        .map_err(|error| format!("trace sink: {error}"))?;
    opened.attendants.push(Attendant { socket, duty, files, writes });
    Ok(())
}

/// Runs a process that attends to a sink, until the kernel closes its end. `points`: all that there are.
pub fn serve(
    socket: OwnedFd,
    duty: OwnedFd,
    files: impl IntoIterator<Item = OwnedFd>,
    points: Points,
) -> io::Result<()> {
    // Not to be ended together with the command line, from its terminal.
    let _ = rustix::process::setsid();
    // Nor to keep the bundle of a client in use.
    let _ = rustix::process::chdir("/");
    let mut text = String::new();
    File::from(duty).read_to_string(&mut text)?;
    match serde_json::from_str(&text)? {
        Duty::Remote { endpoint } => remote::serve(&socket, &endpoint),
        Duty::File { path, max_size, max_files, points: requests } => {
            file::serve(&socket, path, max_size, max_files, &View::new(points, &requests))
        }
        Duty::Decisions { log, key } => {
            let mut files = files.into_iter();
            let mut next = || files.next().ok_or_else(|| io::Error::other("the log of decisions is missing"));
            decisions::serve(&socket, next()?, next()?, key.as_deref(), &log)
        }
        Duty::Ask { asked } => asking::serve(&socket, &asked),
    }
}

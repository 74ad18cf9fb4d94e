//! Trace sessions of a sandbox: `trace create`, `delete`, `list` and `watch`, and those that begin with the sandbox.

use crate::directory::Container;
use crate::find::connect;
use crate::ps::running;
use crate::record::Record;
use crate::{Error, Result, Settings, policy_record, sandbox_log};
use bundle::{Pod, Prepared};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandbox::client::Client;
use sandbox::launch::start_trace_sink;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use trace_sinks::{Attendant, NewLog, Opened, file::Reader};
use trace_wire::config::{Config, SinkKind};
use trace_wire::session::{Request, Session, Status};

/// How long the end of a sandbox in the foreground waits until the messages of a session are written down.
const WRITTEN: Duration = Duration::from_secs(5);

/// A sandbox that a session is begun in.
pub(crate) struct Found {
    pub(crate) client: Client,
    /// The container that was named.
    pub(crate) container: Container,
    /// The only container that the session is about: one that joined the sandbox of another. The name of the container
    /// that the sandbox began with stands for the whole sandbox.
    pub(crate) only: Option<String>,
    /// The sandbox's name.
    pub(crate) sandbox: String,
}

pub(crate) fn find(settings: &Settings, id: &str) -> Result<Found> {
    let (container, record) = running(settings, id)?;
    if record.is_frozen() {
        return Err("container is paused: resume it first".into());
    }
    let client = connect(&container)?;
    let Record { state, .. } = &record;
    let (only, sandbox) = match record.pod() {
        Pod::Member(sandbox) => (Some(state.id.clone()), sandbox),
        _ => (None, state.id.clone()),
    };
    Ok(Found { client, container, only, sandbox })
}

/// Begins a session. `force`: one of the same name ends.
pub fn create(settings: &Settings, id: &str, config: &Config, force: bool) -> Result<()> {
    let Found { client, only, sandbox, .. } = find(settings, id)?;
    begin(&client, config, only, &sandbox, force)
}

pub(crate) fn begin(
    client: &Client,
    config: &Config,
    only: Option<String>,
    sandbox: &str,
    force: bool,
) -> Result<()> {
    // Before a consumer is disturbed.
    if !force && client.trace_list()?.iter().any(|session| session.name == config.name) {
        let text = format!("there is a trace session {:?} already; --force ends it", config.name);
        return Err(text.into());
    }
    let opened = trace_sinks::open(&filled_in(config, sandbox), only, sandbox).map_err(Error::from)?;
    client.trace_create(&opened.session, &opened.fds, force)?;
    let Opened { attendants, logs, .. } = opened;
    logs.into_iter().for_each(NewLog::keep);
    Attendants { waiting: attendants, writers: Vec::new(), logs: Vec::new() }.start()
}

/// Ends a session, once its messages are sent.
pub fn delete(settings: &Settings, id: &str, name: &str) -> Result<()> {
    Ok(find(settings, id)?.client.trace_delete(name)?)
}

/// The sessions of a sandbox.
pub fn list(settings: &Settings, id: &str) -> Result<Vec<Status>> {
    Ok(find(settings, id)?.client.trace_list()?)
}

/// The processes of a sandbox, or of the container that has joined it, as JSON.
pub fn processes(settings: &Settings, id: &str) -> Result<serde_json::Value> {
    Ok(find(settings, id)?.client.dump_processes()?)
}

/// What a session has to tell.
pub enum Told<'a> {
    /// A packet. It may be garbage.
    Packet(&'a [u8]),
    /// Nothing has come for a while.
    Nothing,
}

/// Tells `each` of the points of a sandbox until it says that it has enough, `stop` is readable or the sandbox ends.
pub fn watch(
    settings: &Settings,
    id: &str,
    points: Vec<Request>,
    stop: BorrowedFd<'_>,
    mut each: impl FnMut(Told<'_>) -> Result<bool>,
) -> Result<()> {
    let Found { client, only: container, .. } = find(settings, id)?;
    let (sink, socket, kernels) = trace_sinks::own().map_err(Error::from)?;
    let name = format!("watch {}", std::process::id());
    let session = Session { name, container, points, sinks: vec![sink] };
    // It ends with this connection, however this process ends.
    client.trace_watch(&session, &kernels)?;
    drop(kernels);
    let mut reader = Reader::new();
    let while_idle = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    loop {
        let mut fds = [PollFd::new(&socket, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        match poll(&mut fds, Some(&while_idle)) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let [packet, stopped] = [0, 1].map(|i: usize| !fds[i].revents().is_empty());
        let goes_on = match packet {
            true => match reader.next(&socket)? {
                Some(packet) => each(Told::Packet(packet))?,
                None => false,
            },
            false => !stopped && each(Told::Nothing)?,
        };
        if !goes_on || (stopped && !packet) {
            return Ok(());
        }
    }
}

/// Processes that attend to the sinks of sessions that a sandbox begins with. Logs that were made for a sandbox that never
/// ran, and that have no decision in them, are removed when this is dropped.
#[derive(Default)]
pub(crate) struct Attendants {
    waiting: Vec<Attendant>,
    /// Those that write something down at the end.
    writers: Vec<hostsys::spawn::Child>,
    logs: Vec<NewLog>,
}

impl Attendants {
    /// Starts them. Best once the sandbox's own processes are on their way, which take longer.
    pub(crate) fn start(&mut self) -> Result<()> {
        for Attendant { socket, duty, files, writes } in self.waiting.drain(..) {
            let child = start_trace_sink(&socket, &duty, &files)?;
            if writes {
                self.writers.push(child);
            }
        }
        Ok(())
    }

    /// The sandbox runs, and its sessions with it.
    pub(crate) fn keep_logs(&mut self) {
        self.logs.drain(..).for_each(NewLog::keep);
    }

    /// Waits until they have written down what there was, after the end of the sandbox.
    pub(crate) fn wait(&self) {
        let until = Instant::now() + WRITTEN;
        for child in &self.writers {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let _ = poll(&mut [PollFd::new(&child.pidfd, PollFlags::IN)], Some(&left));
        }
    }
}

impl Drop for Attendants {
    fn drop(&mut self) {
        // A writer that is still there has the log in use, and so has one that was not started.
        self.waiting.clear();
        if !self.logs.is_empty() {
            self.wait();
        }
    }
}

/// Sets up the sessions that a sandbox is to begin with: their descriptors, and the processes for their sinks, which are to
/// be started. `container`: where `policy reload` finds what was loaded.
pub(crate) fn at_start(
    settings: &Settings,
    prepared: &mut Prepared,
    container: Option<&Container>,
) -> Result<(Vec<OwnedFd>, Attendants)> {
    // Dropped last: its processes end with the sockets.
    let mut attendants = Attendants::default();
    let mut fds = Vec::new();
    let sandbox = prepared.spec.id.clone();
    for config in &settings.trace {
        let config = filled_in(config, &sandbox);
        let opened = trace_sinks::open(&config, None, &sandbox).map_err(Error::from)?;
        prepared.trace(opened.session, opened.fds.len());
        fds.extend(opened.fds);
        attendants.waiting.extend(opened.attendants);
        attendants.logs.extend(opened.logs);
        if let Some(container) = container {
            policy_record::remember(container, &config)?;
        }
    }
    Ok((fds, attendants))
}

/// A session with the name of the sandbox and the time in the paths of its files.
pub(crate) fn filled_in(config: &Config, sandbox: &str) -> Config {
    let mut config = config.clone();
    let now = sandbox::logging::timestamp();
    for sink in &mut config.sinks {
        let (path, what) = match &mut sink.kind {
            SinkKind::Policy { log: Some(log), .. } => (log, "policy"),
            SinkKind::File { path, .. } => (path, "trace"),
            _ => continue,
        };
        let Some(pattern) = path.to_str() else { continue };
        *path = sandbox_log::fill_in(pattern, sandbox, what, &now).into();
    }
    config
}

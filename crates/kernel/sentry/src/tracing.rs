//! Trace sessions as the runtime asks for them: sinks from descriptors, and the start of programs that no system call made.

use crate::errors::other;
use enforce::{Asker, Loaded, Log};
use exec::trace_points::NewProgram;
use policy::Kind;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spec::{ProcessSpec, StartError};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use task::policing::Subject;
use task::trace_points::texts;
use task::{Current, Kernel};
use trace::{Reconnect, Sink, Socket};
use trace_wire::MessageType;
use trace_wire::messages::container::Start;
use trace_wire::points::{OptionalFields, Point};
use trace_wire::session::{Retry, Session, Sink as SinkSpec, SinkStatus, Status};
use vfs::OpenFile;

/// Most sessions of a sandbox, and most sinks of a session.
const MAX_SESSIONS: usize = 64;
const MAX_SINKS: usize = 16;

/// Begins a session. `fds`: those of its sinks, in their order. `force`: one of the same name ends.
pub(crate) fn create(
    kernel: &Kernel,
    session: Session,
    fds: Vec<OwnedFd>,
    force: bool,
) -> Result<(), StartError> {
    if kernel.trace.list().len() >= MAX_SESSIONS || session.sinks.len() > MAX_SINKS {
        let text = format!("at most {MAX_SESSIONS} trace sessions with {MAX_SINKS} sinks each can be there");
        return Err(other(text));
    }
    if let Some(point) = session.points.iter().find(|request| request.point >= Point::COUNT) {
        return Err(other(format!("trace point {} does not exist", point.point)));
    }
    if session.sinks.iter().filter(|sink| matches!(sink, SinkSpec::Policy { .. })).count() > 1 {
        return Err(other("a trace session has at most one policy".into()));
    }
    let mut fds = fds.into_iter();
    let (mut sinks, mut policy) = (Vec::new(), None);
    let Session { name, container, points, sinks: wanted } = session;
    for sink in wanted {
        match sink {
            SinkSpec::Policy { text, log, asks } => {
                policy = Some(load(&name, container.clone(), &text, (log, asks), &mut fds)?);
            }
            sink => sinks.push(open(sink, &mut fds)?),
        }
    }
    if !force && kernel.policies.of(&name).is_some() {
        return Err(other(format!("there is a trace session {name:?} already")));
    }
    kernel
        .trace
        .add(trace::Session { name: name.clone(), container, points, sinks }, force)
        .map_err(other)?;
    match policy {
        Some(policy) => kernel.policies.load(policy),
        None => drop(kernel.policies.unload(&name)),
    }
    put_in_force(kernel);
    kernel.update_reporting();
    Ok(())
}

/// Reads a policy, and opens the ways of its decisions. `fds`: of the log, and of the process that asks.
fn load(
    session: &str,
    container: Option<String>,
    text: &str,
    (log, asks): (bool, bool),
    fds: &mut impl Iterator<Item = OwnedFd>,
) -> Result<Loaded, StartError> {
    let mut take = |wanted: bool| match wanted {
        true => fds.next().map(Some).ok_or_else(|| other("a descriptor of a policy is missing".into())),
        false => Ok(None),
    };
    let no_thread = |error| other(format!("no thread for a policy: {error}"));
    let has_log = log;
    let log = take(has_log)?.map(|fd| Socket {
        kind: "log".into(),
        fd: Some(fd),
        reconnect: None,
        retry: PATIENT,
        last_count: true,
    });
    let log = log.map(Sink::socket).transpose().map_err(no_thread)?;
    let unwritten = take(has_log)?;
    let asker = take(asks)?.map(Asker::new).transpose().map_err(no_thread)?;
    Loaded::new(session, container, text, Log { sink: log, unwritten: unwritten.map(File::from) }, asker)
        .map_err(other)
}

/// The log's process does nothing else than to write decisions down: it is waited for.
const PATIENT: Retry =
    Retry { retries: 400, backoff: Duration::from_micros(50), backoff_max: Duration::from_millis(10) };

/// The sessions that there are.
pub(crate) fn list(kernel: &Kernel) -> Vec<Status> {
    let mut all = kernel.trace.list();
    for session in &mut all {
        if let Some(policy) = kernel.policies.of(&session.name) {
            let log = policy.log().map(Sink::status);
            session.sinks.push(SinkStatus {
                kind: "policy".into(),
                sent: log.as_ref().map_or(0, |log| log.sent),
                dropped: log.as_ref().map_or(0, |log| log.dropped),
                connected: log.is_none_or(|log| log.connected),
                policy: Some(policy.status()),
            });
        }
    }
    all
}

/// Ends all sessions and policies, after the guest's threads have ended.
pub(crate) fn end(kernel: &Kernel) {
    for session in kernel.trace.list() {
        if let Some(policy) = kernel.policies.unload(&session.name) {
            finish(&policy);
        }
    }
    kernel.trace.end();
}

/// Puts a change of the policies in force.
fn put_in_force(kernel: &Kernel) {
    let ruled = |nr: u32| u16::try_from(nr).is_ok_and(|nr| kernel.policies.concerns_call(nr));
    kernel.trace.set_policed(kernel.policies.is_active(), ruled);
}

/// Waits until the decisions of a policy are sent.
fn finish(policy: &Loaded) {
    if let Some(log) = policy.log() {
        log.finish();
    }
}

/// Ends a session, once its messages are sent.
pub(crate) fn delete(kernel: &Kernel, name: &str) -> Result<(), StartError> {
    kernel.trace.remove(name).map_err(other)?;
    if let Some(policy) = kernel.policies.unload(name) {
        finish(&policy);
    }
    put_in_force(kernel);
    kernel.update_reporting();
    Ok(())
}

fn open(sink: SinkSpec, fds: &mut impl Iterator<Item = OwnedFd>) -> Result<Sink, StartError> {
    let (kind, connected, reconnects, retry) = match sink {
        SinkSpec::Null => return Ok(Sink::null()),
        SinkSpec::Socket { kind, connected, reconnects, retry } => (kind, connected, reconnects, retry),
        SinkSpec::Policy { .. } => return Err(other("a policy is no place for messages".into())),
    };
    let mut take = |wanted: bool| match wanted {
        true => fds.next().map(Some).ok_or_else(|| other("a descriptor of a trace sink is missing".into())),
        false => Ok(None),
    };
    let fd = take(connected)?;
    let channel = take(reconnects)?;
    let reconnect =
        channel.map(|channel| Box::new(Connector { channel, asked: false }) as Box<dyn Reconnect>);
    let socket = Socket { kind, fd, reconnect, retry, last_count: false };
    Sink::socket(socket).map_err(|error| other(format!("no thread for a trace sink: {error}")))
}

/// The process outside that connects to a consumer again.
struct Connector {
    channel: OwnedFd,
    /// It has been asked, and has not answered.
    asked: bool,
}

impl Reconnect for Connector {
    fn next(&mut self, time: Duration) -> Option<OwnedFd> {
        if !self.asked {
            self.asked = hostsys::net::send(&self.channel, b"c", 0).is_ok();
        }
        let wait = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let ready = poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], Some(&wait));
        if !self.asked || !matches!(ready, Ok(1)) {
            // Without the process outside this is a pause.
            if ready != Ok(0) {
                std::thread::sleep(time);
            }
            return None;
        }
        self.asked = false;
        let packet = hostsys::one_fd::receive(&self.channel, &mut [0]).ok()?;
        if packet.fd.is_none() {
            std::thread::sleep(time);
        }
        packet.fd
    }
}

/// Tells policies that a container starts; they may end or freeze it for that.
fn police(c: &Current) {
    let subject = || {
        let image = c.mm.image();
        let arguments = procfs::strings(&c.mm, image.args);
        let path = image.exe.as_ref().map(|file| c.policy_subject(file).path);
        Subject { path: path.flatten(), arguments, ..Subject::default() }
    };
    if c.police(Kind::ContainerStart, subject).is_err() {
        c.task.serve_sentence();
    }
}

/// Tells the sessions that want it that a container's first process starts.
pub(crate) fn container_starts(c: &Current, process: &ProcessSpec) {
    let trace = &c.kernel().trace;
    police(c);
    if ![Point::ContainerStart, Point::Execve, Point::Mmap].iter().any(|point| trace.wants(*point)) {
        return;
    }
    let strings = |range| -> Vec<Vec<u8>> {
        let bytes = procfs::strings(&c.mm, range);
        bytes.strip_suffix(&[0]).unwrap_or(&bytes).split(|&b| b == 0).map(<[u8]>::to_vec).collect()
    };
    let image = c.mm.image();
    let env = strings(image.env);
    c.task.emit(Point::ContainerStart, MessageType::MESSAGE_CONTAINER_START, |wish| {
        let mut start = Start::new();
        start.context_data = Some(c.task.trace_context(wish.context)).into();
        start.id = c.task.group.container.name().into();
        start.cwd = process.cwd.clone();
        start.args = texts(&process.args);
        start.terminal = process.terminal;
        if wish.optional.contains(OptionalFields::ENV) {
            start.env = texts(&env);
        }
        start
    });
    if let Some(file) = &image.exe {
        let filename = process.args.first().map_or(&[][..], String::as_bytes);
        let program = NewProgram { file, filename, argv: &strings(image.args), envp: &env };
        let mut files: Vec<Arc<OpenFile>> = Vec::new();
        c.mm.with_map(|map| {
            for mapped in map.iter().filter_map(|area| area.file.as_deref()) {
                if !files.iter().any(|file| Arc::ptr_eq(file, mapped)) {
                    files.push(mapped.clone());
                }
            }
        });
        exec::trace_points::program_runs(c, &program, &files);
    }
}

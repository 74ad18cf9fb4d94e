//! The command line's side of a container that runs already.

use crate::core_pieces;
use crate::launch::{arguments, sealed};
use crate::logging::Format;
use crate::messages::{Event, Request, exit_code};
use crate::{role, terminal};
use channel::{Channel, MAX_FDS};
use hostsys::signals::SignalFd;
use hostsys::spawn::{Groups, Namespaces, Program, spawn};
use metrics::{Figure, Sample};
use overlay_diff::Purpose;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use sentry::MAX_LAYERS;
use spec::{AfterCheckpoint, Interfaces, ProcessInfo, ProcessSpec, Refusal, StartError, Target, WindowSize};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use trace_wire::session::{Session, Status};

/// How long a sentry may take to answer, on however busy a machine, before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a wait looks for signals.
const LOOK: Duration = Duration::from_millis(100);

/// Most refused requests that a sentry may tell of.
const MAX_REFUSALS: usize = 1 << 14;
/// Most processes that a sentry is believed to have.
const MAX_PROCESSES: usize = 1 << 16;

/// Most bytes of names and labels of a container's figures.
const MAX_TEXT: usize = 1 << 20;

/// Longest JSON of all processes, in bytes.
const MAX_DUMP: u64 = 512 << 20;

/// Why a request was not carried out.
#[derive(Debug)]
pub enum Error {
    /// The sentry cannot be reached, or does not speak our language.
    Io(io::Error),
    /// It says why not.
    Refused(StartError),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the sandbox does not answer: {error}"),
            Self::Refused(error) => write!(f, "{error}"),
        }
    }
}

/// A connection to a container's sentry.
pub struct Client {
    channel: Channel,
}

impl Client {
    /// Connects over the socket in a container's state directory.
    pub fn connect(dir: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        let channel = Channel::connect(dir, name)?;
        channel.set_patience(Some(PATIENCE))?;
        Ok(Self { channel })
    }

    /// The same for a sandbox that may be stuck or hostile: connecting takes no longer than `limit`.
    pub fn connect_within(dir: BorrowedFd<'_>, name: &str, limit: Duration) -> io::Result<Self> {
        let channel = Channel::connect_within(dir, name, limit)?;
        channel.set_patience(Some(limit))?;
        Ok(Self { channel })
    }

    /// A connection over a channel that is there.
    #[cfg(feature = "fuzz")]
    pub(crate) fn over(channel: Channel) -> Self {
        Self { channel }
    }

    /// Waits for answers no longer than this from now on.
    pub fn hurry(&self, patience: Duration) -> io::Result<()> {
        self.channel.set_patience(Some(patience))
    }

    fn event(&self) -> Result<Event, Error> {
        match self.channel.recv()? {
            Some((Event::Failed(error), _)) => Err(Error::Refused(crate::shown(error))),
            Some((Event::Refused(message), _)) => {
                let kind = spec::StartErrorKind::Other;
                Err(Error::Refused(crate::shown(StartError { kind, message })))
            }
            Some((event, _)) => Ok(event),
            None => Err(Error::Io(io::Error::new(io::ErrorKind::UnexpectedEof, "the sandbox has ended"))),
        }
    }

    fn request(&self, request: &Request) -> Result<(), Error> {
        self.request_with(request, &[])
    }

    fn request_with(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(), Error> {
        self.channel.send(request, fds)?;
        match self.event()? {
            Event::Done | Event::Started => Ok(()),
            _ => Err(Error::Io(io::Error::new(io::ErrorKind::InvalidData, "unexpected event"))),
        }
    }

    /// Tells a container that is not started yet what there is in its network namespace by now, which is only shown.
    pub fn show_network(&self, interfaces: &Interfaces) -> Result<(), Error> {
        let told = sealed(&serde_json::to_vec(interfaces).map_err(io::Error::from)?)?;
        self.request_with(&Request::Network, &[told.as_fd()])
    }

    /// Lets the container's first process run.
    pub fn start(&self) -> Result<(), Error> {
        self.request(&Request::Start)
    }

    /// Sends a signal.
    pub fn signal(&self, signo: i32, to: Target) -> Result<(), Error> {
        self.request(&Request::Signal { signo, to })
    }

    /// Sends a signal to a container that is frozen: it is received once the container goes on.
    pub fn post_signal(&self, signo: i32, to: Target) -> io::Result<()> {
        self.channel.send(&Request::Signal { signo, to }, &[])
    }

    /// Begins a trace session. `fds`: those of its sinks, in their order. `force`: one of the same name ends.
    pub fn trace_create(&self, session: &Session, fds: &[OwnedFd], force: bool) -> Result<(), Error> {
        self.begin_session(session, fds, &Request::TraceCreate { force, attached: false })
    }

    /// Begins a trace session with one sink, which ends with this connection.
    pub fn trace_watch(&self, session: &Session, sink: &OwnedFd) -> Result<(), Error> {
        let request = Request::TraceCreate { force: false, attached: true };
        self.begin_session(session, std::slice::from_ref(sink), &request)
    }

    fn begin_session(&self, session: &Session, fds: &[OwnedFd], request: &Request) -> Result<(), Error> {
        let told = sealed(&serde_json::to_vec(session).map_err(io::Error::from)?)?;
        let fds: Vec<_> = std::iter::once(told.as_fd()).chain(fds.iter().map(AsFd::as_fd)).collect();
        self.request_with(request, &fds)
    }

    /// Ends a trace session.
    pub fn trace_delete(&self, name: &str) -> Result<(), Error> {
        self.request(&Request::TraceDelete { name: name.into() })
    }

    /// The trace sessions of the sandbox, with names that a terminal can show.
    pub fn trace_list(&self) -> Result<Vec<Status>, Error> {
        self.channel.send(&Request::TraceList, &[])?;
        let Event::TraceSessions { mut list } = self.event()? else {
            return Err(Error::Io(io::Error::new(io::ErrorKind::InvalidData, "unexpected event")));
        };
        for session in &mut list {
            session.name = presentable_text(&session.name);
            session.container = session.container.as_deref().map(presentable_text);
            for sink in &mut session.sinks {
                sink.kind = presentable_text(&sink.kind);
                if let Some(policy) = &mut sink.policy {
                    policy.sha256 = presentable_text(&policy.sha256);
                    let decisions = std::mem::take(&mut policy.decisions).into_iter();
                    policy.decisions =
                        decisions.map(|(action, count)| (presentable_text(&action), count)).collect();
                }
            }
        }
        Ok(list)
    }

    /// The processes as JSON.
    pub fn dump_processes(&self) -> Result<serde_json::Value, Error> {
        let (read, write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        self.channel.send(&Request::TraceProcfs, &[write.as_fd()])?;
        drop(write);
        let mut text = Vec::new();
        io::Read::take(File::from(read), MAX_DUMP).read_to_end(&mut text)?;
        match self.event()? {
            Event::Done => Ok(serde_json::from_slice(&text).map_err(io::Error::from)?),
            _ => Err(Error::Io(io::Error::new(io::ErrorKind::InvalidData, "unexpected event"))),
        }
    }

    /// Stops every process of the container, or lets them go on.
    pub fn freeze(&self, on: bool) -> Result<(), Error> {
        self.request(&Request::Freeze { on })
    }

    /// Has the kernel of a container that the host has frozen stop every process itself; `thaw` has the host let them go on.
    pub fn freeze_thawed<E: From<Error> + From<io::Error>>(
        &self,
        thaw: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        self.channel.send(&Request::Freeze { on: true }, &[])?;
        thaw()?;
        match self.event()? {
            Event::Done => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "unexpected event").into()),
        }
    }

    /// Changes how many tasks the container may have; nothing for no limit.
    pub fn limit_tasks(&self, limit: Option<u32>) -> Result<(), Error> {
        self.request(&Request::LimitTasks { limit })
    }

    /// Has the changes of the root written to the layer below its overlay; says what was left out.
    pub fn write_back(&self) -> Result<String, Error> {
        self.channel.set_patience(None)?;
        self.channel.send(&Request::WriteBack, &[])?;
        let event = self.event();
        self.channel.set_patience(Some(PATIENCE))?;
        match event? {
            Event::WrittenBack { left } => Ok(presentable_text(&left)),
            _ => Err(Error::Io(io::Error::new(io::ErrorKind::InvalidData, "unexpected event"))),
        }
    }

    /// Lets a container that the host has frozen go on once it is thawed, as far as its kernel is concerned.
    pub fn post_unfreeze(&self) -> io::Result<()> {
        self.channel.send(&Request::Freeze { on: false }, &[])
    }

    /// Has the sandbox tell how the root differs from the layers below its overlay, to a pipe. What is returned waits for the
    /// end of that; the records are to be read meanwhile.
    pub fn changes(&self, to: OwnedFd, purpose: Purpose) -> Result<ChangeStream<'_>, Error> {
        self.channel.set_patience(None)?;
        self.channel.send(&Request::Changes { purpose }, &[to.as_fd()])?;
        Ok(ChangeStream(self))
    }

    /// Connects to a port inside. What is written to the first of the two ends arrives there, what comes from there can be read from
    /// the second.
    pub fn forward(self, port: u16) -> Result<(OwnedFd, OwnedFd), Error> {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from);
        let ((from, write), (read, to)) = (pipe()?, pipe()?);
        // The sentry's ends do not block; the others are further open files.
        for end in [&from, &to] {
            let flags = rustix::fs::fcntl_getfl(end).map_err(io::Error::from)?;
            rustix::fs::fcntl_setfl(end, flags | OFlags::NONBLOCK).map_err(io::Error::from)?;
        }
        self.request_with(&Request::Forward { port }, &[from.as_fd(), to.as_fd()])?;
        Ok((write, read))
    }

    /// Changes what the sentry logs.
    pub fn log(&self, debug: bool, strace: bool) -> Result<(), Error> {
        self.request(&Request::Log { debug, strace })
    }

    /// The container's processes.
    pub fn processes(&self) -> Result<Vec<ProcessInfo>, Error> {
        self.channel.send(&Request::Processes, &[])?;
        let mut all = Vec::new();
        loop {
            match self.event()? {
                // A sentry that sends empty lists without an end is not waited for.
                Event::Processes { list, last } if last || !list.is_empty() => {
                    all.extend(list.into_iter().map(presentable));
                    if all.len() > MAX_PROCESSES {
                        return Err(Error::Io(io::Error::new(
                            io::ErrorKind::InvalidData,
                            "too many processes",
                        )));
                    }
                    if last {
                        return Ok(all);
                    }
                }
                _ => return Err(Error::Io(io::Error::new(io::ErrorKind::InvalidData, "unexpected event"))),
            }
        }
    }

    /// The container's figures, and those of the sandbox if the container is its first; TimedOut unless all are there before
    /// the deadline.
    pub fn metrics(&self, deadline: Instant) -> Result<Vec<(&'static Figure, Sample)>, Error> {
        let invalid = |what: &str| Error::Io(io::Error::new(io::ErrorKind::InvalidData, what));
        self.channel.send(&Request::Metrics, &[])?;
        let (mut all, mut text) = (Vec::new(), 0);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Io(io::ErrorKind::TimedOut.into()));
            }
            self.channel.set_patience(Some(left))?;
            match self.event()? {
                // A sentry that sends empty lists without an end is not waited for.
                Event::Metrics { samples, last } if last || !samples.is_empty() => {
                    text += samples.iter().map(Sample::text_len).sum::<usize>();
                    all.extend(samples);
                    if all.len() > metrics::MAX_SAMPLES || text > MAX_TEXT {
                        return Err(invalid("too many figures"));
                    }
                    if last {
                        return Ok(metrics::checked(all));
                    }
                }
                _ => return Err(invalid("unexpected event")),
            }
        }
    }

    /// What programs of the sandbox asked for and did not get.
    pub fn refusals(&self) -> Result<Vec<Refusal>, Error> {
        self.channel.send(&Request::Refusals, &[])?;
        let mut all = Vec::new();
        loop {
            match self.event()? {
                Event::Refusals { list, last } if all.len() + list.len() <= MAX_REFUSALS => {
                    let ends = last || list.is_empty();
                    all.extend(list);
                    if ends {
                        return Ok(all);
                    }
                }
                _ => return Err(Error::Io(io::Error::new(io::ErrorKind::InvalidData, "unexpected event"))),
            }
        }
    }

    /// Writes the core file of a process, which goes on, until `stop` is readable. Gives its threads, and how many further ones
    /// did not stop.
    pub fn guest_core(&self, pid: i32, file: &File, stop: BorrowedFd<'_>) -> Result<(u32, u32), Error> {
        let (read, write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        // A client that does not read must not hold the process inside up.
        rustix::io::ioctl_fionbio(&write, true).map_err(io::Error::from)?;
        self.channel.send(&Request::GuestCore { pid }, &[write.as_fd()])?;
        drop(write);
        let received = core_pieces::receive(&mut File::from(read), file, stop);
        let whole = match received {
            // The sandbox says why there is no more.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
            received => received.map(|()| true)?,
        };
        self.channel.set_patience(Some(PATIENCE))?;
        match self.event()? {
            Event::Cored { threads, missing } if whole => Ok((threads, missing)),
            _ => Err(Error::Io(io::Error::new(io::ErrorKind::InvalidData, "unexpected event"))),
        }
    }

    /// Has the sandbox save itself to two files, one for metadata and one for pages. With `spares` memory is left out
    /// that is marked by MADV_DONTDUMP or MADV_WIPEONFORK.
    pub fn checkpoint(
        &self,
        metadata: BorrowedFd<'_>,
        pages: BorrowedFd<'_>,
        then: AfterCheckpoint,
        spares: bool,
    ) -> Result<(), Error> {
        self.channel.set_patience(None)?;
        let done = self.request_with(&Request::Checkpoint { then, spares }, &[metadata, pages]);
        self.channel.set_patience(Some(PATIENCE))?;
        done
    }

    /// The files of pages that the sandbox was restored from, by their descriptors in the sentry, at most [`MAX_LAYERS`].
    pub fn layers(&self) -> Result<Vec<i32>, Error> {
        self.channel.send(&Request::Layers, &[])?;
        match self.event()? {
            Event::Layers { fds } if fds.len() <= MAX_LAYERS => Ok(fds),
            _ => Err(Error::Io(io::Error::new(io::ErrorKind::InvalidData, "unexpected event"))),
        }
    }

    /// Has the sandbox write the files of an image for a clone that is made at once, and go on. `keeps`: the clone is given the
    /// files of [`layers`](Self::layers), and pages in them are not written.
    pub fn clone_to(
        &self,
        metadata: BorrowedFd<'_>,
        pages: BorrowedFd<'_>,
        keeps: bool,
    ) -> Result<(), Error> {
        self.channel.set_patience(None)?;
        let done = self.request_with(&Request::Clone { keeps }, &[metadata, pages]);
        self.channel.set_patience(Some(PATIENCE))?;
        done
    }

    /// From now on programs can ask for a checkpoint; with `idle` one is due, too, once all programs have waited for a second.
    /// [`Client::await_request`] follows.
    pub fn attend_requests(&self, idle: bool) -> Result<(), Error> {
        self.request(&Request::Attend { idle })
    }

    /// Waits until a checkpoint is due.
    pub fn await_request(&self) -> Result<(), Error> {
        self.await_done()
    }

    /// Waits for the end of the next checkpoint.
    pub fn await_checkpoint(&self) -> Result<(), Error> {
        self.channel.send(&Request::AwaitCheckpoint, &[])?;
        self.await_done()
    }

    fn await_done(&self) -> Result<(), Error> {
        self.channel.set_patience(None)?;
        let done = match self.event() {
            Ok(Event::Done) => Ok(()),
            Ok(_) => Err(Error::Io(io::Error::new(io::ErrorKind::InvalidData, "unexpected event"))),
            Err(error) => Err(error),
        };
        self.channel.set_patience(Some(PATIENCE))?;
        done
    }

    /// Waits for the end of a process; its exit status, as shells form it. `root`: its id is that of the sandbox's first pid
    /// namespace.
    pub fn wait(&self, pid: i32, root: bool) -> Result<u8, Error> {
        self.channel.set_patience(None)?;
        self.channel.send(&Request::Wait { pid, root }, &[])?;
        match self.event()? {
            Event::Exited { status } => Ok(exit_code(status)),
            _ => Err(Error::Io(io::Error::new(io::ErrorKind::InvalidData, "unexpected event"))),
        }
    }

    /// Starts another process with the given descriptors: standard streams and more, or, with a size, a terminal.
    pub fn exec(
        self,
        process: &ProcessSpec,
        files: &[BorrowedFd<'_>],
        terminal: Option<WindowSize>,
    ) -> Result<ExecProcess, Error> {
        let spec = sealed(&serde_json::to_vec(process).map_err(io::Error::from)?)?;
        let fds: Vec<_> = [spec.as_fd()].into_iter().chain(files.iter().copied()).collect();
        if fds.len() > MAX_FDS {
            return Err(Error::Io(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors")));
        }
        self.channel.send(&Request::Exec { terminal }, &fds)?;
        match self.event()? {
            Event::Executed { pid } => {
                self.channel.set_patience(None)?;
                Ok(ExecProcess { channel: self.channel, pid })
            }
            _ => Err(Error::Io(io::Error::new(io::ErrorKind::InvalidData, "unexpected event"))),
        }
    }
}

/// A sandbox that tells changes.
pub struct ChangeStream<'a>(&'a Client);

impl ChangeStream<'_> {
    /// Whether it has told all of them.
    pub fn finish(self) -> Result<(), Error> {
        self.0.channel.set_patience(Some(PATIENCE))?;
        match self.0.event()? {
            Event::Done => Ok(()),
            _ => Err(Error::Io(io::Error::new(io::ErrorKind::InvalidData, "unexpected event"))),
        }
    }
}

/// What the guest can choose may not play with the user's terminal.
fn presentable(mut process: ProcessInfo) -> ProcessInfo {
    process.command = presentable_text(&process.command);
    process.tty = presentable_text(&process.tty);
    process
}

fn presentable_text(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A process that was started in a container; dropping this kills it.
pub struct ExecProcess {
    channel: Channel,
    /// Its id in the container.
    pub pid: i32,
}

impl ExecProcess {
    /// Passes signals and the sizes of `console` on until the process ends; its exit status.
    pub fn wait(&self, signals: &SignalFd, console: Option<BorrowedFd<'_>>) -> io::Result<u8> {
        loop {
            let mut fds = [PollFd::new(signals, PollFlags::IN), PollFd::new(&self.channel, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let ready = [0, 1].map(|i: usize| !fds[i].revents().is_empty());
            if ready[1] {
                match self.channel.recv()? {
                    Some((Event::Exited { status }, _)) => return Ok(exit_code(status)),
                    Some(_) => {}
                    // The container has ended, and everything in it was killed.
                    None => return Ok(128 + libc::SIGKILL as u8),
                }
            }
            if ready[0] {
                while let Some(received) = signals.read()? {
                    let request = match (received.signo, console) {
                        (libc::SIGWINCH, Some(tty)) => Request::Resize { size: terminal::size(tty) },
                        (libc::SIGHUP, Some(_)) => continue,
                        (signo, _) => Request::Signal { signo, to: Target::Foreground },
                    };
                    let _ = self.channel.send(&request, &[]);
                }
            }
        }
    }

    /// Waits for the end of the process, and kills it when the time is over or this process is asked to end; its exit
    /// status.
    pub fn wait_at_most(&self, limit: Option<Duration>) -> io::Result<Option<u8>> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = deadline
                .map_or(LOOK, |deadline| deadline.saturating_duration_since(Instant::now()).min(LOOK));
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let ready = match poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], Some(&left)) {
                Ok(ready) => ready,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            // Looked at even while the sentry talks without an end.
            let over = deadline.is_some_and(|deadline| deadline <= Instant::now());
            let asked = ready == 0 && hostsys::signals::asked_to_end();
            if over || asked {
                let request = Request::Signal { signo: libc::SIGKILL, to: Target::Foreground };
                let _ = self.channel.send(&request, &[]);
                return if over { Ok(None) } else { Err(io::Error::other("interrupted by a signal")) };
            }
            if ready != 0 {
                match self.channel.recv()? {
                    Some((Event::Exited { status }, _)) => return Ok(Some(exit_code(status))),
                    Some(_) => {}
                    None => return Ok(Some(128 + libc::SIGKILL as u8)),
                }
            }
        }
    }

    /// Hands the process over to a process of its own, which takes its signals and ends with its exit
    /// status; that process's id.
    pub fn detach(self, console: Option<BorrowedFd<'_>>) -> io::Result<i32> {
        let exe = openat(CWD, "/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let args = arguments(role::ATTEND, Format::Text);
        let mut fds = vec![null.as_fd(), null.as_fd(), null.as_fd(), self.channel.as_fd()];
        fds.extend(console);
        let (namespaces, groups) = (Namespaces::NONE, Groups::default());
        let program =
            Program { exe: exe.as_fd(), args: &args, env: &[], fds: &fds, namespaces, groups: &groups };
        Ok(spawn(&program, |_, _| Ok(()))?.pid)
    }
}

/// Runs the process that [`ExecProcess::detach`] starts.
pub fn attend(channel: OwnedFd, console: Option<OwnedFd>) -> io::Result<i32> {
    let signals = crate::relay::block_signals()?;
    rustix::process::setsid().ok();
    if let Some(console) = &console {
        // Window changes of the terminal are then told to this process.
        rustix::process::ioctl_tiocsctty(console)?;
    }
    let attended = ExecProcess { channel: Channel::from_fd(channel), pid: 0 };
    if let Some(console) = &console {
        // A change of size before that raised no signal here.
        attended.channel.send(&Request::Resize { size: terminal::size(console) }, &[])?;
    }
    attended.wait(&signals, console.as_ref().map(AsFd::as_fd)).map(i32::from)
}

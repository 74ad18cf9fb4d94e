//! The sentry's side of its connections: one thread for each.
//!
//! A process that can open the control socket may use all of it; the file modes of the state directory decide which
//! can. All input is still checked, because an error of a client must not end the container.

use crate::messages::{Event, Request};
use crate::received;
use channel::Channel;
use overlay_diff::Purpose;
use sentry::{Attending, Executed, Running, Stdio};
use spec::{ProcessSpec, StartError, StartErrorKind, Target};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use trace_wire::session::Session;

/// Most connections at a time; one more is closed at once.
const MAX_CONNECTIONS: usize = 256;
/// Longest specification of a process in bytes.
const MAX_PROCESS: u64 = 8 << 20;
/// Longest description of a network namespace in bytes.
const MAX_NETWORK: u64 = 8 << 20;
/// Longest trace session in bytes.
const MAX_SESSION: u64 = 32 << 20;
/// Refused requests in one message: each is a line.
const REFUSALS_AT_ONCE: usize = 50;
/// Processes in one message.
const PROCESSES_AT_ONCE: usize = 32;
/// Samples in one message.
const SAMPLES_AT_ONCE: usize = 128;

/// Serves the connection that the sandbox was started over, until it is closed.
pub(crate) fn serve_first(
    channel: Arc<Channel>,
    kernel: Arc<dyn Running>,
    requests: Arc<OpenRequests>,
) -> io::Result<()> {
    thread("control", move || serve(&channel, &*kernel, &requests))
}

/// Accepts connections for as long as the sandbox lives.
pub(crate) fn listen(
    listener: OwnedFd,
    kernel: Arc<dyn Running>,
    requests: Arc<OpenRequests>,
) -> io::Result<()> {
    let open = Arc::new(AtomicUsize::new(0));
    thread("control socket", move || {
        loop {
            accept(&listener, &kernel, &open, &requests);
        }
    })
}

/// Takes one connection and serves it in a thread of its own.
pub(crate) fn accept(
    listener: &OwnedFd,
    kernel: &Arc<dyn Running>,
    open: &Arc<AtomicUsize>,
    requests: &Arc<OpenRequests>,
) {
    let channel = match channel::accept(listener.as_fd()) {
        Ok(channel) => channel,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
        Err(error) => {
            log::warn!("control socket: {error}");
            std::thread::sleep(Duration::from_millis(100));
            return;
        }
    };
    if open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
        open.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (kernel, count, requests) = (kernel.clone(), open.clone(), requests.clone());
    let served = thread("connection", move || {
        serve(&channel, &*kernel, &requests);
        count.fetch_sub(1, Ordering::Relaxed);
    });
    if let Err(error) = served {
        open.fetch_sub(1, Ordering::Relaxed);
        log::warn!("connection: {error}");
    }
}

/// How long the end of the sandbox waits for answers.
const SETTLE: Duration = Duration::from_secs(1);

/// Requests of all connections that were received and not answered.
#[derive(Default)]
pub(crate) struct OpenRequests {
    count: Mutex<usize>,
    answered: Condvar,
}

impl OpenRequests {
    /// A panic of another thread leaves the number right.
    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more, until the guard is dropped.
    fn enter(&self) -> OpenRequest<'_> {
        *self.count() += 1;
        OpenRequest(self)
    }

    /// Waits until every request received so far is answered. A program may end before the thread that let it run has
    /// reported that. The client would then take the start for failed.
    pub(crate) fn settle(&self) {
        drop(self.answered.wait_timeout_while(self.count(), SETTLE, |open| *open > 0));
    }
}

/// One open request.
struct OpenRequest<'a>(&'a OpenRequests);

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        let mut open = self.0.count();
        *open -= 1;
        if *open == 0 {
            self.0.answered.notify_all();
        }
    }
}

pub(crate) fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).stack_size(256 << 10).spawn(run).map(drop)
}

/// Answers requests until the other end hangs up or talks nonsense.
pub(crate) fn serve(channel: &Channel, kernel: &dyn Running, requests: &Arc<OpenRequests>) {
    // What the client attends to, until it hangs up.
    let mut attending = None;
    loop {
        let (request, fds) = match channel.recv() {
            Ok(Some(received)) => received,
            Ok(None) => return,
            Err(error) => {
                log::warn!("control: {error}");
                return;
            }
        };
        let open = requests.enter();
        let answer = match request {
            Request::Network => match show_network(kernel, fds) {
                Ok(()) => Event::Done,
                Err(error) => Event::Failed(error),
            },
            Request::Start => match kernel.start() {
                Ok(()) => Event::Started,
                Err(error) => Event::Failed(error),
            },
            Request::Signal { signo, to } => match kernel.signal(signo, to) {
                true => Event::Done,
                false => Event::Refused("no such process".into()),
            },
            Request::Resize { size } => {
                kernel.resize(size);
                Event::Done
            }
            Request::Log { debug, strace } => {
                crate::logging::set_level(debug, strace);
                kernel.trace(strace);
                Event::Done
            }
            Request::TraceCreate { force, attached } => match trace_create(kernel, fds, force) {
                Ok(name) if attached => {
                    drop(open);
                    return attend_session(channel, kernel, &name);
                }
                Ok(_) => Event::Done,
                Err(error) => Event::Failed(error),
            },
            Request::TraceDelete { name } => match kernel.trace_delete(&name) {
                Ok(()) => Event::Done,
                Err(error) => Event::Failed(error),
            },
            Request::TraceProcfs => match one(fds).and_then(|to| kernel.dump_processes(to)) {
                Ok(()) => Event::Done,
                Err(error) => Event::Failed(error),
            },
            Request::GuestCore { pid } => match one(fds).and_then(|to| kernel.guest_core(pid, to)) {
                Ok((threads, missing)) => Event::Cored { threads, missing },
                Err(error) => Event::Failed(error),
            },
            Request::Checkpoint { then, spares } => {
                match two(fds).and_then(|files| kernel.checkpoint(files, then, spares)) {
                    Ok(()) => Event::Done,
                    Err(error) => Event::Failed(error),
                }
            }
            Request::Layers => Event::Layers { fds: kernel.layers() },
            Request::Clone { keeps } => match two(fds).and_then(|files| kernel.clone_to(files, keeps)) {
                Ok(()) => Event::Done,
                Err(error) => Event::Failed(error),
            },
            Request::Attend { idle } => match await_request(channel, kernel, idle) {
                Ok(kept) => {
                    drop(attending.replace(kept));
                    Event::Done
                }
                Err(error) => Event::Failed(error),
            },
            Request::AwaitCheckpoint => match kernel.await_checkpoint(&|| channel.has_hung_up()) {
                Ok(()) => Event::Done,
                Err(error) => Event::Failed(error),
            },
            Request::TraceList => Event::TraceSessions { list: kernel.trace_list() },
            Request::Processes => match send_processes(channel, kernel) {
                Ok(()) => continue,
                Err(_) => return,
            },
            Request::Metrics => match send_metrics(channel, kernel) {
                Ok(()) => continue,
                Err(_) => return,
            },
            Request::Refusals => match send_refusals(channel, kernel) {
                Ok(()) => continue,
                Err(_) => return,
            },
            Request::Exec { terminal } => match exec(kernel, fds, terminal) {
                Ok(process) => {
                    drop(open);
                    return attend(channel, process);
                }
                Err(error) => Event::Failed(error),
            },
            Request::Container => match crate::pod::add(channel, kernel, fds, requests) {
                // The conversation goes on about the new one.
                Ok(container) => {
                    drop(open);
                    return serve(channel, &*container, requests);
                }
                Err(error) => Event::Failed(error),
            },
            Request::Forward { port } => match forward(kernel, fds, port) {
                Ok(pass_on) => {
                    drop(open);
                    // If this is lost, the client learns of the end from the pipes.
                    let _ = channel.send(&Event::Done, &[]);
                    return pass_on();
                }
                Err(error) => Event::Failed(error),
            },
            Request::Wait { pid, root } => match kernel.wait_process(pid, root) {
                Some(status) => Event::Exited { status },
                None => Event::Refused(format!("there is no process {pid}")),
            },
            Request::Freeze { on } => match kernel.freeze(on) {
                // The host has stopped the processes as well, or lets them go on in a moment.
                false if !on => Event::Refused("not paused".into()),
                _ => Event::Done,
            },
            Request::Changes { purpose } => match changes(kernel, fds, purpose) {
                Ok(()) => Event::Done,
                Err(error) => Event::Failed(error),
            },
            Request::WriteBack => match kernel.write_back() {
                Ok(left) => Event::WrittenBack { left },
                Err(error) => Event::Failed(error),
            },
            Request::LimitTasks { limit } => {
                kernel.limit_tasks(limit);
                Event::Done
            }
            Request::Descriptors { .. }
            | Request::Listen
            | Request::NetworkGofer
            | Request::Links
            | Request::Take { .. } => Event::Refused("the sandbox is set up".into()),
        };
        if channel.send(&answer, &[]).is_err() {
            return;
        }
    }
}

fn await_request(
    channel: &Channel,
    kernel: &dyn Running,
    idle: bool,
) -> Result<Box<dyn Attending>, StartError> {
    // If this is lost, the client has gone.
    let attending = || drop(channel.send(&Event::Done, &[]));
    kernel.await_request(idle, &attending, &|| channel.has_hung_up())
}

fn send_processes(channel: &Channel, kernel: &dyn Running) -> io::Result<()> {
    let mut all = kernel.processes();
    for process in &mut all {
        // Command lines are the guest's and have no end.
        if let Some((cut, _)) = process.command.char_indices().nth(512) {
            process.command.truncate(cut);
        }
    }
    let mut rest = all.as_slice();
    loop {
        let (some, others) = rest.split_at(rest.len().min(PROCESSES_AT_ONCE));
        rest = others;
        channel.send(&Event::Processes { list: some.to_vec(), last: rest.is_empty() }, &[])?;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

fn send_metrics(channel: &Channel, kernel: &dyn Running) -> io::Result<()> {
    let all = kernel.metrics();
    let mut rest = all.as_slice();
    loop {
        let (some, others) = rest.split_at(rest.len().min(SAMPLES_AT_ONCE));
        rest = others;
        channel.send(&Event::Metrics { samples: some.to_vec(), last: rest.is_empty() }, &[])?;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

fn send_refusals(channel: &Channel, kernel: &dyn Running) -> io::Result<()> {
    let all = kernel.refusals();
    let mut rest = all.as_slice();
    loop {
        let (some, others) = rest.split_at(rest.len().min(REFUSALS_AT_ONCE));
        rest = others;
        channel.send(&Event::Refusals { list: some.to_vec(), last: rest.is_empty() }, &[])?;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

fn show_network(kernel: &dyn Running, fds: Vec<OwnedFd>) -> Result<(), StartError> {
    let other = |message: String| StartError { kind: StartErrorKind::Other, message };
    let Some(file) = fds.into_iter().next() else { return Err(other("no interfaces".into())) };
    let told = received::parse(file, MAX_NETWORK).map_err(|error| other(format!("interfaces: {error}")))?;
    kernel.show_network(told)
}

fn trace_create(kernel: &dyn Running, fds: Vec<OwnedFd>, force: bool) -> Result<String, StartError> {
    let other = |message: String| StartError { kind: StartErrorKind::Other, message };
    let mut fds = fds.into_iter();
    let Some(file) = fds.next() else { return Err(other("no trace session".into())) };
    let session: Session =
        received::parse(file, MAX_SESSION).map_err(|error| other(format!("trace session: {error}")))?;
    let name = session.name.clone();
    kernel.trace_create(session, fds.collect(), force).map(|()| name)
}

/// The rest of a connection that a trace session ends with.
fn attend_session(channel: &Channel, kernel: &dyn Running, name: &str) {
    if channel.send(&Event::Done, &[]).is_ok() {
        while let Ok(Some(_)) = channel.recv::<Request>() {}
    }
    // Another command may have ended it.
    let _ = kernel.trace_delete(name);
}

fn exec(
    kernel: &dyn Running,
    mut fds: Vec<OwnedFd>,
    terminal: Option<spec::WindowSize>,
) -> Result<Arc<dyn Executed>, StartError> {
    let other = |message: String| StartError { kind: StartErrorKind::Other, message };
    if fds.is_empty() {
        return Err(other("no specification of the process".into()));
    }
    let process: ProcessSpec =
        received::parse(fds.remove(0), MAX_PROCESS).map_err(|error| other(format!("process: {error}")))?;
    if process.args.is_empty() {
        return Err(other("process.args must name a program".into()));
    }
    let stdio = match (terminal, fds.len()) {
        (Some(size), 1) => Stdio::Terminal(fds.remove(0), size),
        (None, 3..) => Stdio::Files(fds),
        _ => return Err(other("wrong number of descriptors".into())),
    };
    kernel.exec(&process, stdio)
}

fn changes(kernel: &dyn Running, fds: Vec<OwnedFd>, purpose: Purpose) -> Result<(), StartError> {
    kernel.changes(one(fds)?, purpose)
}

/// The only descriptor that came along.
fn one(fds: Vec<OwnedFd>) -> Result<OwnedFd, StartError> {
    let [fd] = <[OwnedFd; 1]>::try_from(fds).map_err(|_| StartError {
        kind: StartErrorKind::Other,
        message: "wrong number of descriptors".into(),
    })?;
    Ok(fd)
}

/// The two descriptors that came along.
fn two(fds: Vec<OwnedFd>) -> Result<[OwnedFd; 2], StartError> {
    <[OwnedFd; 2]>::try_from(fds).map_err(|_| StartError {
        kind: StartErrorKind::Other,
        message: "wrong number of descriptors".into(),
    })
}

fn forward(
    kernel: &dyn Running,
    fds: Vec<OwnedFd>,
    port: u16,
) -> Result<Box<dyn FnOnce() + Send>, StartError> {
    let [from, to] = two(fds)?;
    kernel.forward(port, from, to)
}

/// The rest of a connection that started a process: its signals in, its end out.
fn attend(channel: &Channel, process: Arc<dyn Executed>) {
    let over = Arc::new(AtomicBool::new(false));
    let watched = channel.try_clone().and_then(|out| {
        let (process, over) = (process.clone(), over.clone());
        channel.send(&Event::Executed { pid: process.pid() }, &[])?;
        thread("wait", move || {
            let status = process.wait();
            over.store(true, Ordering::SeqCst);
            let _ = out.send(&Event::Exited { status }, &[]);
        })
    });
    if watched.is_ok() {
        while let Ok(Some((request, _))) = channel.recv() {
            match request {
                _ if over.load(Ordering::SeqCst) => {}
                Request::Signal { signo, to: Target::Foreground } => process.signal(signo),
                Request::Resize { size } => process.resize(size),
                _ => break,
            }
        }
    }
    if !over.load(Ordering::SeqCst) {
        process.signal(libc::SIGKILL);
    }
}

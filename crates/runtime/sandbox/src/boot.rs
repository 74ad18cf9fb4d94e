//! The sentry's process: confines itself, then runs the kernel.
//!
//! It starts as pid 2 of its namespaces, with one socket, in a mount namespace of
//! its own. In order: read its own memory map; enter an empty root; take
//! the specification and the descriptors; empty the bounding set; prepare the
//! platform, which forks its zygote while there is one thread; drop capabilities;
//! go under the seccomp filter; start the platform's threads; run.

use crate::control::OpenRequests;
use crate::messages::{Event, exit_code};
use crate::oom::OomScore;
use crate::received::{ContainerFiles, MAX_SPEC, parse, receive, taken};
use crate::{control, filter, terminal};
use channel::Channel;
use confine::{privileges, root};
use hostsys::fanotify::Group;
use hostsys::signals::SignalFd;
use hosttree::DirectoryRef;
use hosttree::direct::Direct;
use hosttree::remote::{Remote, Trust};
use platform::Platform;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use sentry::{HostSide, Running};
use spec::{PlatformName, SandboxSpec, StartError, StartErrorKind};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Descriptors that there is room for from the start: as many as are cached, and those of a program with many open files.
const DESCRIPTORS: u32 = 8192;

/// Free bytes in the heap beyond which it is looked at again soon.
const HEAP_SLACK: usize = 8 << 20;

/// Runs the sentry; `channel` leads to the command line, `figures` to pid 1, which knows what the host counts of the sandbox's
/// processes, `crash` is the file for a report of this process's death. Returns the process's exit status.
pub fn run(channel: OwnedFd, figures: OwnedFd, crash: OwnedFd, build: Option<&str>) -> io::Result<i32> {
    abort_on_panic();
    hostsys::heap::configure();
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    let mappings = mappings.and_then(|text| text.trim().parse().ok());
    let mut score = OomScore::open();
    root::enter_empty()?;
    let channel = Channel::from_fd(channel);
    let Some(ContainerFiles { mut fds, listener, network }) = receive(&channel)? else { return Ok(0) };
    let mut spec: SandboxSpec = parse(fds.remove(0), MAX_SPEC)?;
    crate::logging::set_level(spec.debug, spec.strace);
    crate::crash::report_to(crash, &spec, build);
    log::debug!("starting {} with {} descriptors", spec.id, fds.len());

    raise_descriptor_limit();
    hostsys::process::reserve_descriptors(channel.as_fd(), DESCRIPTORS);
    privileges::bound()?;
    if let Ok(score) = &mut score
        && let Err(error) = score.set_base(spec.process.oom_score_adj)
    {
        log::warn!("oomScoreAdj {} cannot be set: {error}", spec.process.oom_score_adj);
    }
    let (backing, backing_number, weighed) = match memory_files(&spec, &fds) {
        Ok(backing) => backing,
        Err(error) => return failed(&channel, other(format!("files in memory: {error}"))),
    };
    let memory = tmpfs::MemFiles::new(Some(backing));
    let prepared = match PreparedPlatform::new(spec.platform, &maps) {
        Ok(prepared) => prepared,
        Err(message) => return failed(&channel, other(message)),
    };
    let window = match spec.console.and_then(|index| fds.get(index)) {
        Some(console) if listener.is_some() => Window::take(console)?,
        _ => None,
    };
    // Made here, where there may be sockets. Containers that join later have theirs made when it is needed.
    let watcher = filter::shares(&spec).then(Group::new).and_then(Result::ok);
    privileges::keep_only(if spec.through_gofer { CapabilitySet::empty() } else { privileges::FOR_FILES })?;
    privileges::undumpable()?;
    filter::install(&filter::FilterNeeds::of(&spec, listener.is_some(), channel.as_fd(), backing_number))?;
    let platform = match prepared.start() {
        Ok(platform) => platform,
        Err(message) => return failed(&channel, other(message)),
    };

    if spec.pooled && !taken(&channel, &mut spec, &mut fds)? {
        return Ok(0);
    }

    let weigh = |total| score.and_then(|score| score.follow(weighed, total));
    let channel = Arc::new(channel);
    let first = channel.clone();
    let open_requests = Arc::new(OpenRequests::default());
    let requests = open_requests.clone();
    let on_ready = Box::new(move |kernel: Arc<dyn Running>| {
        if let Some(mappings) = mappings {
            kernel.bound_tasks(mappings);
        }
        // The sandbox ends with its command line, so there is no other process to tell.
        let _ = first.send(&Event::Ready, &[]);
        if let Err(error) = weigh(kernel.memory()) {
            log::warn!("files in memory do not count for the host's out-of-memory killer: {error}");
        }
        let window = window.map_or(Ok(()), |window| window.watch(kernel.clone()));
        let listening =
            listener.map_or(Ok(()), |listener| control::listen(listener, kernel.clone(), requests.clone()));
        let heap = keep_heap_small(kernel.clone());
        if let Err(error) =
            window.and(listening).and(heap).and_then(|()| control::serve_first(first, kernel, requests))
        {
            log::error!("control threads: {error}");
            std::process::abort();
        }
    });
    let host = HostSide { platform, memory, figures: Some(figures) };
    match sentry::run(spec, fds, host, network, watcher, on_ready) {
        Ok(status) => {
            open_requests.settle();
            // A container in the background has no command line.
            let _ = channel.send(&Event::Exited { status }, &[]);
            Ok(exit_code(status).into())
        }
        Err(error) => failed(&channel, error),
    }
}

fn failed(channel: &Channel, error: StartError) -> io::Result<i32> {
    let _ = channel.send(&Event::Failed(error.clone()), &[]);
    Ok(error.exit_status())
}

/// Where files in memory get their names, its number if this process opens and removes them by itself, and another descriptor of
/// the same directory.
fn memory_files(spec: &SandboxSpec, fds: &[OwnedFd]) -> io::Result<(DirectoryRef, RawFd, OwnedFd)> {
    let Some(index) = spec.memory_tree else {
        let made = root::private_tmpfs()?;
        let (number, weighed) = (made.as_raw_fd(), made.try_clone()?);
        return Ok((Direct::at(made), number, weighed));
    };
    let channel = fds.get(index).ok_or(io::ErrorKind::NotFound)?.try_clone()?;
    let raw = |e: abi::Errno| io::Error::from_raw_os_error(e.raw());
    let tree = Remote::attach(channel, Trust::Own, "files in memory").map_err(raw)?;
    let itself = tree.open_self().map_err(raw)?;
    Ok((tree, itself.as_raw_fd(), itself))
}

/// Gives free memory and unused mappings of files back from time to time. The thread sleeps in between for as long as nothing was freed.
fn keep_heap_small(kernel: Arc<dyn Running>) -> io::Result<()> {
    let (shortest, longest) = (Duration::from_secs(2), Duration::from_secs(64));
    let run = move || {
        let mut pause = shortest;
        let sleep = |pause| {
            if hostsys::crash::sleep(pause) {
                hostsys::crash::add(&kernel.describe());
                hostsys::crash::complete();
                // The thread that dies ends the process.
                std::thread::sleep(longest);
            }
        };
        sleep(pause);
        hostsys::heap::shrink();
        hostsys::image::forget_start();
        loop {
            sleep(pause);
            let mapped = kernel.release_idle_files();
            let busy = hostsys::heap::trim() > HEAP_SLACK || mapped;
            pause = if busy { shortest } else { (pause * 2).min(longest) };
        }
    };
    std::thread::Builder::new().name("heap".into()).stack_size(64 << 10).spawn(run).map(drop)
}

/// A panic in one thread must not leave the others waiting for it: the sandbox ends.
fn abort_on_panic() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        hook(info);
        hostsys::crash::report_panic(&info.to_string());
        std::process::abort();
    }));
}

/// The sentry holds descriptors for all guest processes together.
fn raise_descriptor_limit() {
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
}

fn other(message: String) -> StartError {
    StartError { kind: StartErrorKind::Other, message }
}

/// A platform that has done what it cannot do once the sentry is confined. Its threads
/// start under the sentry's filter, its guest processes come from before it.
enum PreparedPlatform {
    Systrap(Box<systrap::Prepared>),
    Ptrace(ptrace::Prepared),
}

impl PreparedPlatform {
    fn new(name: PlatformName, maps: &str) -> Result<Self, String> {
        // Threads of the sentry and of guests wake each other all the time; those of other programs are not to run for
        // milliseconds in between.
        hostsys::cpu::short_slices();
        match name {
            PlatformName::Systrap => systrap::Systrap::prepare_with(maps)
                .map(|p| Self::Systrap(Box::new(p)))
                .map_err(|error| error.to_string()),
            PlatformName::Ptrace => {
                ptrace::Ptrace::prepare_with(maps).map(Self::Ptrace).map_err(|error| error.to_string())
            }
        }
    }

    fn start(self) -> Result<Arc<dyn Platform>, String> {
        match self {
            Self::Systrap(prepared) => Ok(prepared.start().map_err(|error| error.to_string())?),
            Self::Ptrace(prepared) => Ok(prepared.start().map_err(|error| error.to_string())?),
        }
    }
}

/// The container's terminal, made this process's controlling terminal: its window changes raise SIGWINCH here.
struct Window {
    tty: OwnedFd,
    signals: SignalFd,
}

impl Window {
    /// `None` for the terminal of another session, which receives its window changes. The zygote must have been forked:
    /// guest processes stay in another session. Blocks the signals for all threads.
    fn take(console: &OwnedFd) -> io::Result<Option<Self>> {
        let tty = console.try_clone()?;
        rustix::process::setsid()?;
        match rustix::process::ioctl_tiocsctty(&tty) {
            Ok(()) => {}
            Err(rustix::io::Errno::PERM) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // SIGHUP comes when the other side of the terminal is closed; the reads tell the same.
        Ok(Some(Self { tty, signals: SignalFd::new(&[libc::SIGWINCH, libc::SIGHUP])? }))
    }

    /// Passes every new size on, from a thread of its own.
    fn watch(self, kernel: Arc<dyn Running>) -> io::Result<()> {
        let run = move || {
            // A change before there was a kernel to tell.
            kernel.resize(terminal::size(&self.tty));
            loop {
                let mut polled = [PollFd::new(&self.signals, PollFlags::IN)];
                let _ = poll(&mut polled, None);
                while let Ok(Some(received)) = self.signals.read() {
                    if received.signo == libc::SIGWINCH {
                        kernel.resize(terminal::size(&self.tty));
                    }
                }
            }
        };
        std::thread::Builder::new().name("window".into()).stack_size(64 << 10).spawn(run).map(drop)
    }
}

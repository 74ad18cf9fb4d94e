//! The sentry's process: confines itself, then runs the kernel.
//!
//! It starts as pid 2 of its namespaces, in init's empty root, with nothing
//! but one socket. In order: take the specification and the descriptors; drop
//! capabilities; start the platform, which forks its zygote while there is one
//! thread; go under the seccomp filter; run.

use crate::filter;
use crate::messages::{Event, Request, exit_code};
use channel::Channel;
use confine::privileges;
use platform::Platform;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use sentry::spec::{PlatformName, Running, SandboxSpec, StartError, StartErrorKind};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What direct access to the container's files takes: to act as any of the container's users.
/// docs/security.md argues each.
pub const CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Most descriptors that a sandbox is started with.
const MAX_DESCRIPTORS: usize = 4096;

/// Runs the sentry; `channel` leads to the command line. Returns the process's exit status.
/// `proc` is the host's /proc, closed before any guest exists.
pub fn run(channel: OwnedFd, proc: OwnedFd) -> io::Result<i32> {
    let maps = own_maps(proc)?;
    let channel = Channel::from_fd(channel);
    let Some((spec, fds)) = receive(&channel)? else { return Ok(0) };
    crate::logging::set_level(spec.debug, spec.strace);
    log::debug!("starting {} with {} descriptors", spec.id, fds.len());

    raise_descriptor_limit();
    privileges::keep_only(CAPABILITIES)?;
    let platform = match start_platform(spec.platform, &maps) {
        Ok(platform) => platform,
        Err(message) => return failed(&channel, StartError { kind: StartErrorKind::Other, message }),
    };
    privileges::undumpable()?;
    filter::install(spec.platform)?;

    let channel = Arc::new(channel);
    let for_control = channel.clone();
    let on_start = Box::new(move |kernel: Arc<dyn Running>| start_control(for_control, kernel));
    match sentry::run(spec, fds, platform, on_start) {
        Ok(status) => {
            channel.send(&Event::Exited { status }, &[])?;
            Ok(exit_code(status).into())
        }
        Err(error) => failed(&channel, error),
    }
}

fn failed(channel: &Channel, error: StartError) -> io::Result<i32> {
    channel.send(&Event::Failed(error.clone()), &[])?;
    Ok(error.exit_status())
}

/// The specification and its descriptors, or `None` when the command line is gone.
fn receive(channel: &Channel) -> io::Result<Option<(SandboxSpec, Vec<OwnedFd>)>> {
    let mut fds: Vec<OwnedFd> = Vec::new();
    loop {
        let Some((request, batch)) = channel.recv()? else { return Ok(None) };
        let Request::Descriptors { last } = request else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "expected descriptors"));
        };
        fds.extend(batch);
        if fds.is_empty() || fds.len() > MAX_DESCRIPTORS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "number of descriptors"));
        }
        if last {
            break;
        }
    }
    let mut file = File::from(fds.remove(0));
    let mut text = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut text)?;
    Ok(Some((serde_json::from_slice(&text)?, fds)))
}

/// The sentry holds descriptors for all guest processes together.
fn raise_descriptor_limit() {
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
}

fn own_maps(proc: OwnedFd) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut text = String::new();
    File::from(rustix::fs::openat(proc, "self/maps", flags, Mode::empty())?).read_to_string(&mut text)?;
    Ok(text)
}

fn start_platform(name: PlatformName, maps: &str) -> Result<Arc<dyn Platform>, String> {
    match name {
        PlatformName::Systrap => {
            let start = || Ok(systrap::Systrap::prepare_with(maps)?.start()? as Arc<dyn Platform>);
            start().map_err(|e: systrap::Error| e.to_string())
        }
        PlatformName::Ptrace => Err("platform ptrace is not part of this build".into()),
    }
}

/// Tells the command line that the container runs, and serves its requests until it hangs up.
fn start_control(channel: Arc<Channel>, kernel: Arc<dyn Running>) {
    let serve = move || {
        if channel.send(&Event::Started, &[]).is_err() {
            return;
        }
        loop {
            match channel.recv() {
                Ok(Some((Request::Signal { signo }, _))) => kernel.signal(signo),
                Ok(Some((Request::Resize { size }, _))) => kernel.resize(size),
                Ok(Some((Request::Descriptors { .. }, _))) | Err(_) => log::warn!("unexpected request"),
                Ok(None) => return,
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("control".into()).spawn(serve) {
        log::error!("control thread: {error}");
    }
}

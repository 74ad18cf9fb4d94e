//! The sentry's side of a further container: taken in over the control socket, it has a socket of its own for what is
//! asked about it, and one that it lives by.

use crate::control::{accept, thread};
use crate::messages::{Event, Request};
use channel::Channel;
use rustix::event::{PollFd, PollFlags, poll};
use sentry::spec::{Running, SandboxSpec, StartError, StartErrorKind};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Most descriptors that a container is made with.
const MAX_DESCRIPTORS: usize = 4096;
/// Longest specification in bytes.
const MAX_SPEC: u64 = 64 << 20;

fn other(message: impl Into<String>) -> StartError {
    StartError { kind: StartErrorKind::Other, message: message.into() }
}

/// Receives the rest of a [`Request::Container`] and makes the container, up to its first process.
pub(crate) fn add(
    channel: &Channel,
    kernel: &dyn Running,
    fds: Vec<OwnedFd>,
) -> Result<Arc<dyn Running>, StartError> {
    let Ok([listener, watch]) = <[OwnedFd; 2]>::try_from(fds) else {
        return Err(other("wrong number of descriptors"));
    };
    let mut fds = receive(channel).map_err(|error| other(format!("container: {error}")))?;
    let spec = read_spec(fds.remove(0)).map_err(|error| other(format!("container: {error}")))?;
    if spec.process.args.is_empty() {
        return Err(other("process.args must name a program"));
    }
    log::debug!("container {} joins with {} descriptors", spec.id, fds.len());
    let container = kernel.add(spec, fds)?;
    match attend(channel, Channel::from_fd(watch), listener, &container) {
        Ok(()) => Ok(container),
        Err(error) => {
            container.end();
            // It is taken apart once its process has gone.
            let ended = container.clone();
            let _ = thread("container end", move || {
                let _ = ended.wait();
            });
            Err(other(format!("container: {error}")))
        }
    }
}

fn receive(channel: &Channel) -> io::Result<Vec<OwnedFd>> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut fds = Vec::new();
    loop {
        let Some((Request::Descriptors { last }, batch)) = channel.recv()? else {
            return Err(invalid("expected descriptors"));
        };
        fds.extend(batch);
        if fds.is_empty() || fds.len() > MAX_DESCRIPTORS {
            return Err(invalid("number of descriptors"));
        }
        if last {
            return Ok(fds);
        }
    }
}

fn read_spec(fd: OwnedFd) -> io::Result<SandboxSpec> {
    let mut file = File::from(fd);
    let mut text = Vec::new();
    file.rewind()?;
    file.take(MAX_SPEC).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Starts the threads that the container has: one tells of its end, one accepts connections and ends the container
/// when the process that stands for it has gone.
fn attend(
    channel: &Channel,
    watch: Channel,
    listener: OwnedFd,
    container: &Arc<dyn Running>,
) -> io::Result<()> {
    let (maker, teller) = (channel.try_clone()?, watch.try_clone()?);
    // Before the threads, which could tell of the end.
    channel.send(&Event::Ready, &[])?;
    let kernel = container.clone();
    thread("container", move || {
        let status = kernel.wait();
        // Its maker stays with a container in the foreground only.
        let _ = maker.send(&Event::Exited { status }, &[]);
        let _ = teller.send(&Event::Exited { status }, &[]);
    })?;
    let kernel = container.clone();
    thread("container socket", move || {
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            let mut fds = [PollFd::new(&watch, PollFlags::IN), PollFd::new(&listener, PollFlags::IN)];
            if let Err(error) = poll(&mut fds, None)
                && error != rustix::io::Errno::INTR
            {
                break;
            }
            let ready = [0, 1].map(|i: usize| !fds[i].revents().is_empty());
            if ready[0] {
                match watch.recv() {
                    Ok(Some((Request::Resize { size }, _))) => kernel.resize(size),
                    _ => break,
                }
            }
            if ready[1] {
                accept(&listener, &kernel, &open);
            }
        }
        kernel.end();
    })
}

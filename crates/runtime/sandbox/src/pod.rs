//! The sentry's side of a further container. It arrives over the control socket. It has a control socket of its own,
//! and a socket that ends the container when it is closed.

use crate::control::{OpenRequests, accept, thread};
use crate::messages::{Event, Request};
use crate::received::{ContainerFiles, MAX_SPEC, parse, receive};
use channel::Channel;
use rustix::event::{PollFd, PollFlags, poll};
use sentry::Running;
use spec::{SandboxSpec, StartError, StartErrorKind};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

fn other(message: impl Into<String>) -> StartError {
    StartError { kind: StartErrorKind::Other, message: message.into() }
}

/// Receives the rest of a [`Request::Container`] and makes the container, up to its first process.
pub(crate) fn add(
    channel: &Channel,
    kernel: &dyn Running,
    fds: Vec<OwnedFd>,
    requests: &Arc<OpenRequests>,
) -> Result<Arc<dyn Running>, StartError> {
    let Ok([listener, watch]) = <[OwnedFd; 2]>::try_from(fds) else {
        return Err(other("wrong number of descriptors"));
    };
    let wrong = |error: io::Error| other(format!("container: {error}"));
    let Some(ContainerFiles { mut fds, listener: None, .. }) = receive(channel).map_err(wrong)? else {
        return Err(other("expected descriptors"));
    };
    let spec: SandboxSpec = parse(fds.remove(0), MAX_SPEC).map_err(wrong)?;
    if spec.process.args.is_empty() {
        return Err(other("process.args must name a program"));
    }
    log::debug!("container {} joins with {} descriptors", spec.id, fds.len());
    let container = kernel.add(spec, fds)?;
    match attend(channel, Channel::from_fd(watch), listener, &container, requests) {
        Ok(()) => Ok(container),
        Err(error) => {
            container.end();
            // It is taken apart once its process has gone.
            let ended = container.clone();
            let _ = thread("container end", move || {
                let _ = ended.wait();
            });
            Err(wrong(error))
        }
    }
}

/// Starts the threads that the container has: one tells of its end, one accepts connections and ends the container
/// when the process that stands for it has gone.
fn attend(
    channel: &Channel,
    watch: Channel,
    listener: OwnedFd,
    container: &Arc<dyn Running>,
    requests: &Arc<OpenRequests>,
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
    let (kernel, requests) = (container.clone(), requests.clone());
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
                accept(&listener, &kernel, &open, &requests);
            }
        }
        kernel.end();
    })
}

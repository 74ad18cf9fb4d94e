//! Descriptors that arrive over a control socket, and their content. Everything is bounded.

use crate::messages::Request;
use channel::Channel;
use sentry::NetworkFiles;
use serde::de::DeserializeOwned;
use spec::{ImageSpec, SandboxSpec};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;

/// Most descriptors that a container is made with.
const MAX_DESCRIPTORS: usize = 4096;
/// Longest specification in bytes.
pub(crate) const MAX_SPEC: u64 = 64 << 20;

/// The descriptors that a container is made with.
pub(crate) struct ContainerFiles {
    /// At least one; the first holds the specification.
    pub(crate) fds: Vec<OwnedFd>,
    /// What [`Request::Listen`] came with.
    pub(crate) listener: Option<OwnedFd>,
    /// What [`Request::NetworkGofer`] and [`Request::Links`] came with.
    pub(crate) network: NetworkFiles,
}

/// Receives them up to the last [`Request::Descriptors`]; `None` when the other end is gone.
pub(crate) fn receive(channel: &Channel) -> io::Result<Option<ContainerFiles>> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut received = ContainerFiles { fds: Vec::new(), listener: None, network: NetworkFiles::default() };
    loop {
        let Some((request, batch)) = channel.recv()? else { return Ok(None) };
        match request {
            Request::Listen => received.listener = batch.into_iter().next(),
            Request::NetworkGofer => received.network.gofer = batch.into_iter().next(),
            Request::Links => received.network.links = batch,
            Request::Descriptors { last } => {
                received.fds.extend(batch);
                if received.fds.is_empty() || received.fds.len() > MAX_DESCRIPTORS {
                    return Err(invalid("number of descriptors"));
                }
                if last {
                    return Ok(Some(received));
                }
            }
            _ => return Err(invalid("expected descriptors")),
        }
    }
}

/// Waits until the sandbox is taken out of its pool, and completes what the container is made with; false when the other end
/// is gone.
pub(crate) fn taken(channel: &Channel, spec: &mut SandboxSpec, fds: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let (id, keep_tcp, batch) = match channel.recv()? {
        Some((Request::Take { id, keep_tcp }, batch)) => (id, keep_tcp, batch),
        Some(_) => return Err(invalid("expected what the sandbox is taken for")),
        None => return Ok(false),
    };
    let first = fds.len();
    spec.id = id;
    spec.stdio = [first, first + 1, first + 2];
    spec.image = match batch.len() {
        3 => None,
        5.. => {
            let layers = batch.len() - 5;
            Some(ImageSpec { metadata: first + 3, pages: first + 4, layers, keep_tcp })
        }
        _ => return Err(invalid("number of descriptors")),
    };
    fds.extend(batch);
    Ok(true)
}

/// Parses what a file holds, of which at most `longest` bytes are read.
pub(crate) fn parse<T: DeserializeOwned>(fd: OwnedFd, longest: u64) -> io::Result<T> {
    let mut file = File::from(fd);
    let mut text = Vec::new();
    file.rewind()?;
    file.take(longest).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

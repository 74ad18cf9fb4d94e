//! The gofer: the process that owns a container's view of the host's files.
//!
//! It runs in namespaces of its own, builds a tree of nothing but the
//! container's directories, moves into it, and hands out one descriptor per
//! directory. From then on it holds no capability, sits under a seccomp filter
//! that lets it wait and end, and ends when its socket is closed.
//!
//! [`serve`] is the gofer's side, [`request`] the side of the process that needs the trees.

#![forbid(unsafe_code)]

mod filter;
mod places;
mod sockets;
mod tree;

use bundle::HostTree;
use channel::{Channel, MAX_FDS};
use confine::privileges;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What is sent to a gofer.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    trees: Vec<HostTree>,
    /// It is to connect to Unix sockets in them, too.
    sockets: bool,
    /// Copies of the trees' mounts follow, in their order.
    cloned: bool,
}

/// Some of the copies that were announced; more follow unless `last`.
#[derive(Debug, Serialize, Deserialize)]
struct Clones {
    last: bool,
}

/// What it may be told after that.
#[derive(Debug, Serialize, Deserialize)]
enum LaterRequest {
    /// To outlive the process that started it. The socket alone decides from then on.
    Detach,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    /// Some of the descriptors, in order; more follow unless `last`.
    Trees { last: bool },
    /// Why there are none.
    Failed(String),
    /// It no longer ends with its parent.
    Detached,
}

/// Has the gofer at the other end live as long as a process holds that end, also after the process that started the
/// gofer has ended.
pub fn detach(channel: &Channel) -> io::Result<()> {
    channel.send(&LaterRequest::Detach, &[])?;
    match channel.recv()? {
        Some((Reply::Detached, _)) => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the gofer ended")),
    }
}

/// Asks the gofer at the other end for descriptors of `trees`, in their order. With `sockets` the last one is a socket on
/// which the gofer connects to Unix sockets in the trees (`netproto::unix`). A gofer with `other_users` than the caller
/// may not be able to reach the trees; it gets them from the caller if that one may copy mounts.
pub fn request(
    channel: &Channel,
    trees: &[HostTree],
    sockets: bool,
    other_users: bool,
) -> io::Result<Vec<OwnedFd>> {
    let clones = if other_users { tree::clone_all(trees).ok() } else { None };
    channel.send(&Request { trees: trees.to_vec(), sockets, cloned: clones.is_some() }, &[])?;
    if let Some(clones) = &clones {
        let clones: Vec<_> = clones.iter().map(AsFd::as_fd).collect();
        send_all(channel, &clones, |last| Clones { last })?;
    }
    let wanted = trees.len() + usize::from(sockets);
    let mut fds = Vec::new();
    loop {
        match channel.recv()? {
            Some((Reply::Trees { last }, batch)) => {
                fds.extend(batch);
                if last && fds.len() == wanted {
                    return Ok(fds);
                }
                if last || fds.len() > wanted {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "wrong number of descriptors"));
                }
            }
            Some((Reply::Failed(message), _)) => return Err(io::Error::other(message)),
            Some((Reply::Detached, _)) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "unexpected answer"));
            }
            None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the gofer ended")),
        }
    }
}

/// Runs the gofer until the other end of `channel` is closed. The process is
/// single-threaded and in user, mount, pid, network, ipc and uts namespaces of its own.
pub fn serve(channel: &Channel) -> io::Result<()> {
    privileges::die_with_parent()?;
    rustix::process::setsid().ok();
    let Some((Request { trees, sockets, cloned }, _)) = channel.recv()? else { return Ok(()) };
    let clones = if cloned { Some(receive_clones(channel)?) } else { None };
    let fds = match tree::build(&trees, clones) {
        Ok(fds) => fds,
        Err(error) => return channel.send(&Reply::Failed(error), &[]),
    };
    let (theirs, ours) =
        if sockets { sockets::pair().map(|(a, b)| (Some(a), Some(b)))? } else { (None, None) };
    confine(sockets)?;
    let all: Vec<_> = fds.iter().chain(&theirs).map(AsFd::as_fd).collect();
    send_all(channel, &all, |last| Reply::Trees { last })?;
    drop(theirs);
    hostsys::heap::shrink();
    hostsys::image::forget_start();
    // The descriptors stay open: with them the mounts stay in this namespace for as long as the container lives.
    let mut ours = ours;
    loop {
        if let Some(end) = &ours {
            let mut waits = [PollFd::new(channel, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
            rustix::io::retry_on_intr(|| poll(&mut waits, None))?;
            if !waits[1].revents().is_empty() {
                // A sentry that is gone, or talks nonsense to a socket, gets no more of them.
                if !sockets::serve(end, &fds).unwrap_or(false) {
                    ours = None;
                }
                continue;
            }
        }
        let Some((LaterRequest::Detach, _)) = channel.recv()? else { return Ok(()) };
        rustix::process::set_parent_process_death_signal(None)?;
        channel.send(&Reply::Detached, &[])?;
    }
}

/// Sends descriptors, as many at a time as a message takes.
fn send_all<T: Serialize>(
    channel: &Channel,
    fds: &[BorrowedFd<'_>],
    message: impl Fn(bool) -> T,
) -> io::Result<()> {
    let mut rest = fds;
    loop {
        let (batch, tail) = rest.split_at(rest.len().min(MAX_FDS));
        rest = tail;
        channel.send(&message(rest.is_empty()), batch)?;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

fn receive_clones(channel: &Channel) -> io::Result<Vec<OwnedFd>> {
    let mut clones = Vec::new();
    loop {
        let Some((Clones { last }, batch)) = channel.recv()? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        clones.extend(batch);
        if last {
            return Ok(clones);
        }
    }
}

fn confine(sockets: bool) -> io::Result<()> {
    privileges::keep_only(CapabilitySet::empty())?;
    privileges::undumpable()?;
    // Dropping capabilities does not undo this, but a change of credentials might have: once more.
    privileges::die_with_parent()?;
    let mut tables = vec![confine::filter::RUST_RUNTIME, filter::RULES];
    if sockets {
        tables.push(sockets::RULES);
    }
    confine::filter::install(&confine::filter::compile(&tables)?)
}

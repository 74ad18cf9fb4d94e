//! Files of the host, for a sentry that opens none by itself (`--directfs=false`).
//!
//! The kernel inside asks for each operation by name (`fileproto`). A [`Connection`] serves one tree, and keeps the
//! directories that the kernel inside has handles of. Each of its channels has a thread, so that a slow operation
//! holds up the requests of its own channel alone. [`Files`] has the first channels of all connections: their threads
//! begin with their first requests, so that a tree that is not used costs two descriptors.
//!
//! The sentry may be an attacker's. Names are single components below a directory that was opened without following
//! links; devices and sockets are never opened; a message that cannot be decoded ends the connection.

mod objects;
mod rules;
mod serve;
#[cfg(test)]
mod tests;

pub(crate) use rules::{CHANGES, RULES};

use crate::again::OwnFiles;
use abi::{Errno, Result};
use fileproto::{Handle, Header, MAX_CHANNELS, MAX_HANDLES, MAX_MESSAGE, Reply, Request, header};
use hostsys::net::{Query, query};
use hostsys::{cpu, many_fds, one_fd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::thread::{CapabilitySets, capabilities, set_capabilities};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;

/// Bytes of the stack of a channel's thread.
const STACK: usize = 256 << 10;
/// The handle of a tree's root.
const ROOT: Handle = 1;
/// Most directories that are kept open in the middle of a listing.
const MAX_LISTINGS: usize = 8;

/// What a connection may do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// FIFOs are opened for reading and writing.
    pub(crate) fifos: bool,
    /// Nothing is changed.
    pub(crate) readonly: bool,
}

/// The connections that wait for their first request.
#[derive(Default)]
pub(crate) struct Files {
    first: Vec<(OwnedFd, Channel)>,
    own: Option<Arc<OwnFiles>>,
}

impl Files {
    /// Without any yet; `own`: by which files are opened once more.
    pub(crate) fn new(own: Option<OwnFiles>) -> Files {
        Files { first: Vec::new(), own: own.map(Arc::new) }
    }

    /// A connection for the tree with this root, an O_PATH descriptor; the sentry's end of its first channel.
    pub(crate) fn start(&mut self, root: &OwnedFd, options: Options) -> io::Result<OwnedFd> {
        // Asked before the rules of the host calls are in force, and before a thread has moved.
        let _ = cpu::all();
        let connection = Arc::new(Connection::new(root.try_clone()?, options, self.own.clone()));
        let channel = Channel::new(&connection).map_err(to_io)?;
        let (theirs, ours) = pair()?;
        self.first.push((ours, channel));
        Ok(theirs)
    }

    /// Starts the threads of connections as their first requests come, until there is something to read on a
    /// descriptor of `others`, or its end; which of them.
    pub(crate) fn run(&mut self, others: &[BorrowedFd<'_>]) -> io::Result<Vec<bool>> {
        loop {
            let ends = others.iter().copied().chain(self.first.iter().map(|(end, _)| end.as_fd()));
            let mut waits: Vec<_> = ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)).collect();
            rustix::io::retry_on_intr(|| poll(&mut waits, None))?;
            let events: Vec<PollFlags> = waits.iter().map(PollFd::revents).collect();
            let (others, first) = events.split_at(others.len());
            for (at, events) in first.iter().enumerate().rev() {
                if events.is_empty() {
                    continue;
                }
                let (end, channel) = self.first.swap_remove(at);
                // One that is closed without a request needs no thread.
                if !events.contains(PollFlags::HUP)
                    && let Err(errno) = serve_in_thread(channel, end)
                {
                    log::warn!("gofer: a tree's files cannot be served: {errno}");
                }
            }
            if others.iter().any(|events| !events.is_empty()) {
                return Ok(others.iter().map(|events| !events.is_empty()).collect());
            }
        }
    }
}

/// The requests of a sentry about one tree.
pub(crate) struct Connection {
    root: Arc<OwnedFd>,
    options: Options,
    own: Option<Arc<OwnFiles>>,
    handles: RwLock<Handles>,
    listings: Mutex<Vec<Listing>>,
    /// The mounts that descriptors for the sentry were opened through.
    mounts: RwLock<BTreeSet<u64>>,
    channels: AtomicUsize,
    /// It has sent garbage.
    ended: AtomicBool,
}

/// The directories that the sentry has handles of.
struct Handles {
    open: BTreeMap<Handle, Arc<OwnedFd>>,
    last: Handle,
}

/// A directory that was listed up to a position.
struct Listing {
    dir: Handle,
    /// The cookie with which the listing goes on.
    next: u64,
    fd: OwnedFd,
}

impl Connection {
    /// For the tree with this root, an O_PATH descriptor.
    pub(crate) fn new(root: OwnedFd, options: Options, own: Option<Arc<OwnFiles>>) -> Connection {
        let mounts = hostsys::fs::identity_on_mount(&root).map(|(_, mount)| mount);
        Connection {
            root: Arc::new(root),
            options,
            own,
            handles: RwLock::new(Handles { open: BTreeMap::new(), last: ROOT }),
            listings: Mutex::default(),
            mounts: RwLock::new(mounts.into_iter().collect()),
            channels: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        }
    }

    /// The reply to a request, and the descriptors that go along with it; `None` ends the connection.
    pub(crate) fn answer(
        self: &Arc<Self>,
        request: &[u8],
        descriptor: Option<OwnedFd>,
    ) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let (Header { sequence, operation, .. }, request) = Request::decode(request)?;
        let (reply, fds) = match self.serve(&request, descriptor) {
            Ok(done) => done,
            Err(errno) => (Reply::Failed(errno.raw()), Vec::new()),
        };
        Some((reply.encode(sequence, operation), fds))
    }

    /// The directory with a handle; EBADF.
    fn dir(&self, handle: Handle) -> Result<Arc<OwnedFd>> {
        if handle == ROOT {
            return Ok(self.root.clone());
        }
        let handles = self.handles.read().unwrap_or_else(PoisonError::into_inner);
        handles.open.get(&handle).cloned().ok_or(Errno::EBADF)
    }

    /// A handle for a directory; EMFILE when there are too many.
    fn keep(&self, dir: OwnedFd) -> Result<Handle> {
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        if handles.open.len() >= MAX_HANDLES {
            return Err(Errno::EMFILE);
        }
        handles.last += 1;
        let handle = handles.last;
        handles.open.insert(handle, Arc::new(dir));
        Ok(handle)
    }

    /// Lets go of directories.
    fn close(&self, closed: &[Handle]) {
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        let open: Vec<_> = closed.iter().filter_map(|handle| handles.open.remove(handle)).collect();
        drop(handles);
        drop(open);
        let mut listings = self.listings();
        let kept = std::mem::take(&mut *listings);
        let (gone, kept) = kept.into_iter().partition::<Vec<_>, _>(|listing| closed.contains(&listing.dir));
        *listings = kept;
        drop(listings);
        drop(gone);
    }

    fn listings(&self) -> MutexGuard<'_, Vec<Listing>> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another channel; the sentry's end.
    fn open_channel(self: &Arc<Self>) -> Result<OwnedFd> {
        let channel = Channel::new(self)?;
        let (theirs, ours) = pair().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
        serve_in_thread(channel, ours)?;
        Ok(theirs)
    }

    /// The sentry talks nonsense: there are no more answers, on any channel.
    fn end(&self, why: &str) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            log::warn!("gofer: {why}; its connection for files is closed");
        }
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        let open = std::mem::take(&mut handles.open);
        drop(handles);
        drop(open);
        let listings = std::mem::take(&mut *self.listings());
        drop(listings);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// One of a connection's channels; there are at most [`MAX_CHANNELS`].
struct Channel(Arc<Connection>);

impl Channel {
    /// EMFILE when there are too many.
    fn new(connection: &Arc<Connection>) -> Result<Channel> {
        let more = |count| (count < MAX_CHANNELS).then_some(count + 1);
        match connection.channels.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(Channel(connection.clone())),
            Err(_) => Err(Errno::EMFILE),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.0.channels.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The sentry's end of a new channel, and the gofer's.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

fn to_io(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.raw())
}

/// Gives the calling thread what serving files takes. The main thread, which makes sockets, has neither.
fn prepare_thread() -> io::Result<()> {
    // The kernel inside says what mode a new object has.
    hostsys::process::unshare_fs().map_err(to_io)?;
    rustix::process::umask(rustix::fs::Mode::empty());
    let own = capabilities(None)?;
    Ok(set_capabilities(None, CapabilitySets { effective: own.permitted, ..own })?)
}

fn serve_in_thread(channel: Channel, socket: OwnedFd) -> Result<()> {
    let thread = thread::Builder::new().name("files".into()).stack_size(STACK);
    let serve = move || {
        // The thread that starts it may have moved.
        cpu::roam();
        if let Err(error) = prepare_thread() {
            log::warn!("gofer: a tree's files cannot be served: {error}");
            return;
        }
        serve_channel(&channel, &socket);
    };
    match thread.spawn(serve) {
        Ok(_) => Ok(()),
        Err(error) => Err(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EAGAIN))),
    }
}

/// Serves the requests of a channel until its other end is closed, or the connection has ended. The thread goes where the sentry's
/// waits: two switches there cost a third of waking another processor.
fn serve_channel(Channel(connection): &Channel, socket: &OwnedFd) {
    let mut buffer = vec![0; MAX_MESSAGE];
    // The last reply had descriptors. The host counts those on their way for each user, and other sandboxes need some.
    let mut has_given = false;
    loop {
        let Ok(packet) = one_fd::receive(socket, &mut buffer) else { return };
        if packet.len == 0 || connection.has_ended() {
            return;
        }
        if has_given && query(socket, Query::Unsent) != Ok(0) {
            return connection.end("the sentry does not take the descriptors that it has asked for");
        }
        let request = buffer.get(..packet.len).unwrap_or_default();
        if packet.is_cut {
            return connection.end("the sentry has sent a request that is too long");
        }
        let header = header(request);
        cpu::move_to(header.and_then(|header| header.processor.checked_sub(1)).map(Into::into));
        let answer = match header {
            // The request would be taken for one without a descriptor.
            Some(Header { sequence, operation, .. }) if packet.fd_is_lost => {
                Some((Reply::Failed(libc::EMFILE).encode(sequence, operation), Vec::new()))
            }
            _ => connection.answer(request, packet.fd),
        };
        let Some((reply, fds)) = answer else {
            return connection.end("the sentry has sent a request that cannot be decoded");
        };
        let given: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        has_given = !given.is_empty();
        let sent = match (many_fds::send(socket, &reply, &given), header) {
            // The user has too many descriptors on their way (unix(7)).
            (Err(Errno::ETOOMANYREFS), Some(Header { sequence, operation, .. })) => {
                one_fd::send(socket, &Reply::Failed(libc::EMFILE).encode(sequence, operation), None)
            }
            (sent, _) => sent,
        };
        if sent.is_err() {
            return;
        }
    }
}

//! Unix sockets of a shared tree with a program outside as the other side (`--host-uds`).
//!
//! The sentry makes no sockets. A container's gofer connects to one below the container's directories, or binds one there,
//! and passes the descriptor. Data then move by calls on it that do not wait. Descriptors that the other side sends are dropped by the
//! host: the buffer for control messages is empty.
//!
//! Lock rank: the gofer's socket is a leaf. One request is on its way at a time, and the gofer waits for nothing before
//! it answers. A checkpoint cannot keep a connection.

use crate::poller::{Poller, Watch};
use abi::{Errno, Result};
use hostsys::{fs as host, net, one_fd};
use lock_order::Mutex;
use netproto::unix::{Act, REPLY, Reply, Request};
use rustix::net::{SendFlags, send};
use spec::HostUds;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vfs::{OutsideName, OutsideSocket};
use wait::{Events, WaitQueue};

/// All that poll(2) tells of a socket.
const POLLED: u32 = 0x2fff;

/// The socket to the gofer of a container.
pub struct SocketGofer(Mutex<OwnedFd>);

impl SocketGofer {
    /// At the other end of `channel`.
    pub fn new(channel: OwnedFd) -> Arc<SocketGofer> {
        Arc::new(SocketGofer(Mutex::new(channel)))
    }

    /// A socket, and the users of the other side of a connection. ECONNREFUSED when the gofer is gone.
    fn make(&self, request: &Request<'_>) -> Result<(OwnedFd, (u32, u32))> {
        let channel = self.0.lock();
        let sent = rustix::io::retry_on_intr(|| send(&*channel, &request.encode(), SendFlags::NOSIGNAL));
        sent.map_err(|_| Errno::ECONNREFUSED)?;
        let mut bytes = [0; REPLY + 1];
        let packet = one_fd::receive(&*channel, &mut bytes).map_err(|_| Errno::ECONNREFUSED)?;
        let reply = bytes.get(..packet.len).and_then(Reply::decode).ok_or(Errno::ECONNREFUSED)?;
        match (reply.errno, packet.fd) {
            (0, Some(fd)) => Ok((fd, reply.owner)),
            (0, None) if packet.fd_is_lost => Err(Errno::ENFILE),
            (0, None) => Err(Errno::ECONNREFUSED),
            (errno, _) => Err(Errno::from_raw(errno)),
        }
    }
}

/// How sockets of one tree are reached.
pub struct TreeSockets {
    /// The process that connects.
    pub gofer: Arc<SocketGofer>,
    /// The tree's number there.
    pub tree: u32,
    /// What can be done.
    pub allowed: HostUds,
}

/// Connects to the socket at `path` below the tree's root. `queue` hears of its readiness from the thread that `poller`
/// returns.
pub(crate) fn connect(
    sockets: &TreeSockets,
    path: &[u8],
    kind: i32,
    poller: impl FnOnce() -> Result<Arc<Poller>>,
    queue: &WaitQueue,
) -> Result<Arc<dyn OutsideSocket>> {
    let (fd, owner) = sockets.gofer.make(&Request { act: Act::Connect, tree: sockets.tree, kind, path })?;
    Ok(Arc::new(Connection::new(fd, owner, &poller()?, queue)?))
}

/// Makes the name at `path` below the tree's root, which leads to the returned socket.
pub(crate) fn bind(sockets: &TreeSockets, path: &[u8], kind: i32) -> Result<OwnedFd> {
    let made = sockets.gofer.make(&Request { act: Act::Bind, tree: sockets.tree, kind, path });
    made.map(|(fd, _)| fd).map_err(|error| match error {
        Errno::EADDRINUSE => Errno::EEXIST,
        error => error,
    })
}

/// The host's socket of a name, until the socket inside takes it.
pub(crate) struct Fresh(pub Mutex<Option<OwnedFd>>);

/// A socket of the host that has a name.
pub(crate) struct Named {
    fd: OwnedFd,
    poller: Arc<Poller>,
    watch: Watch,
}

impl Named {
    pub(crate) fn new(fd: OwnedFd, poller: Arc<Poller>, queue: &WaitQueue) -> Result<Named> {
        let watch = poller.watch(&fd, queue)?;
        Ok(Named { fd, poller, watch })
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.watch.stop(&self.fd);
    }
}

impl OutsideName for Named {
    fn listen(&self, backlog: i32) -> Result<()> {
        net::listen(&self.fd, backlog)
    }
    fn accept(&self, queue: &WaitQueue) -> Result<Arc<dyn OutsideSocket>> {
        let fd = net::accept(&self.fd)?;
        let owner = net::peer_owner(&fd)?;
        Ok(Arc::new(Connection::new(fd, owner, &self.poller, queue)?))
    }
    fn recv(&self, buf: &mut [u8], peek: bool) -> Result<(usize, usize)> {
        receive(&self.fd, buf, peek, true)
    }
    fn waits(&self) -> bool {
        host::poll_now(&self.fd, POLLED) & u32::from(libc::POLLIN.cast_unsigned()) != 0
    }
    fn shutdown(&self, how: i32) -> Result<()> {
        net::shutdown(&self.fd, how)
    }
}

/// Receives into `buf`; see [`OutsideSocket::recv`].
fn receive(fd: &OwnedFd, buf: &mut [u8], peek: bool, record: bool) -> Result<(usize, usize)> {
    let peek = if peek { libc::MSG_PEEK } else { 0 };
    // A record's whole length is wanted in any case.
    let whole = if record { libc::MSG_TRUNC } else { 0 };
    let got = net::receive(fd, buf, &mut [], peek | whole)?;
    Ok((got.len.min(buf.len()), got.len))
}

struct Connection {
    fd: OwnedFd,
    owner: (u32, u32),
    watch: Watch,
}

impl Connection {
    fn new(fd: OwnedFd, owner: (u32, u32), poller: &Arc<Poller>, queue: &WaitQueue) -> Result<Connection> {
        let watch = poller.watch(&fd, queue)?;
        Ok(Connection { fd, owner, watch })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.watch.stop(&self.fd);
    }
}

impl OutsideSocket for Connection {
    fn send(&self, data: &[u8]) -> Result<usize> {
        net::send(&self.fd, data, 0)
    }
    fn recv(&self, buf: &mut [u8], peek: bool, record: bool) -> Result<(usize, usize)> {
        receive(&self.fd, buf, peek, record)
    }
    fn shutdown(&self, how: i32) -> Result<()> {
        net::shutdown(&self.fd, how)
    }
    fn poll(&self) -> Events {
        Events(host::poll_now(&self.fd, POLLED))
    }
    fn unread(&self) -> Result<i32> {
        net::query(&self.fd, net::Query::Unread)
    }
    fn owner(&self) -> (u32, u32) {
        self.owner
    }
}

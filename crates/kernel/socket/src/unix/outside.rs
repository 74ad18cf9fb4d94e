//! Connections to and from programs outside the sandbox.
//!
//! A name that no socket of this kernel has may be a socket of the host (`Inode::connect_outside`). From then on the
//! operations are those of the host's connection. Descriptors and credentials cannot be sent to the other side: that is
//! an error.

use super::UnixSocket;
use super::addr::Addr;
use super::sock::Phase;
use crate::ops::{Names, PeerCred, Received, SendRequest};
use abi::{Errno, Result, Signal};
use std::sync::Arc;
use std::time::Duration;
use vfs::{Caller, OutsideName, OutsideSocket};
use wait::Events;

/// When to try a connection again after the other side had no room for it.
const LATER: Duration = Duration::from_millis(10);

/// A connection, and the name that it was made by.
pub(super) struct Outside {
    pub host: Arc<dyn OutsideSocket>,
    pub name: Addr,
}

impl Outside {
    pub fn peer_cred(&self) -> PeerCred {
        let (uid, gid) = self.host.owner();
        PeerCred::outside(uid, gid)
    }

    pub fn send(&self, cx: &dyn Caller, req: &SendRequest<'_>, record: bool) -> Result<usize> {
        if req.flags & libc::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if req.addr.is_some() && !record {
            return Err(Errno::EISCONN);
        }
        if !req.control.rights.is_empty() || req.control.cred.is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        let sent = self.host.send(req.data);
        if sent == Err(Errno::EPIPE) && req.flags & libc::MSG_NOSIGNAL == 0 {
            cx.raise(Signal::SIGPIPE);
        }
        sent
    }

    pub fn recv(&self, buf: &mut [u8], flags: i32, record: bool) -> Result<Received> {
        if flags & libc::MSG_OOB != 0 {
            return Err(if record { Errno::EOPNOTSUPP } else { Errno::EINVAL });
        }
        Ok(received(self.host.recv(buf, flags & libc::MSG_PEEK != 0, record)?))
    }
}

/// What came: how many bytes are there, and how many the record has.
fn received((len, full): (usize, usize)) -> Received {
    let cut = if full > len { libc::MSG_TRUNC } else { 0 };
    Received { len, full, flags: cut, ..Received::default() }
}

/// A datagram that a program outside has sent to the host's socket with this one's name.
pub(super) fn recv_from(named: &dyn OutsideName, buf: &mut [u8], flags: i32) -> Result<Received> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    named.recv(buf, flags & libc::MSG_PEEK != 0).map(received)
}

/// A connection that a program outside has made to the host's socket with the listener's name.
pub(super) fn accept(listener: &UnixSocket, named: &dyn OutsideName) -> Result<Arc<UnixSocket>> {
    let sock = &listener.sock;
    let new = UnixSocket::new(sock.kind, sock.home.clone(), sock.net);
    let host = named.accept(&new.sock.queue)?;
    let addr = sock.state.lock().addr.clone();
    {
        // No other thread knows this one yet.
        let mut state = new.sock.state.lock();
        state.phase = Phase::Established;
        state.addr = addr;
    }
    new.sock.options.inherit(&sock.options);
    let _ = new.outside.set(Outside { host, name: Addr::Unnamed });
    Ok(new)
}

/// The host's socket of a name, connected. EAGAIN where it has no room; then the socket's queue is notified after a while.
fn reach(
    socket: &UnixSocket,
    cx: &dyn Caller,
    names: &dyn Names,
    addr: &[u8],
    refused: Errno,
) -> Result<(Arc<dyn OutsideSocket>, Addr)> {
    let name = Addr::parse(addr)?;
    let Addr::Path(path) = &name else { return Err(refused) };
    let sock = &socket.sock;
    let inode = names.find(cx, path)?;
    match inode.connect_outside(cx, sock.kind, &sock.queue).ok_or(refused)? {
        Err(Errno::EAGAIN) => {
            try_later(socket, cx);
            Err(Errno::EAGAIN)
        }
        host => Ok((host?, name)),
    }
}

fn try_later(socket: &UnixSocket, cx: &dyn Caller) {
    let queue = socket.sock.queue.clone();
    let again = move || queue.notify(Events::WRITABLE);
    let timer = cx.resources().timers.schedule_after(LATER, again);
    drop(socket.again.lock().replace(timer));
}

/// Sends a datagram to the name of a socket that is not of this kernel; see [`connect`].
pub(super) fn send_to(
    socket: &UnixSocket,
    cx: &dyn Caller,
    names: &dyn Names,
    req: &SendRequest<'_>,
    refused: Errno,
) -> Result<usize> {
    if !req.control.rights.is_empty() || req.control.cred.is_some() {
        return Err(Errno::EOPNOTSUPP);
    }
    let (host, _) = reach(socket, cx, names, req.addr.ok_or(refused)?, refused)?;
    host.send(req.data).inspect_err(|e| {
        if *e == Errno::EAGAIN {
            try_later(socket, cx);
        }
    })
}

/// connect(2) to the name of a socket that is not of this kernel. `refused` is the answer when it is not of the host
/// either.
pub(super) fn connect(
    socket: &UnixSocket,
    cx: &dyn Caller,
    names: &dyn Names,
    addr: &[u8],
    refused: Errno,
) -> Result<()> {
    let sock = &socket.sock;
    let (host, name) = reach(socket, cx, names, addr, refused)?;
    let refused = match sock.state.lock().phase {
        Phase::Established => Some(Errno::EISCONN),
        Phase::Listening => Some(Errno::EINVAL),
        Phase::Closed => None,
    };
    if let Some(refused) = refused {
        return Err(refused);
    }
    // Of two threads that connect at the same time one comes too late.
    socket.outside.set(Outside { host, name }).map_err(|_| Errno::EISCONN)?;
    sock.queue.notify(Events::WRITABLE);
    Ok(())
}

//! AF_UNIX: stream, datagram and seqpacket sockets of one sandbox. See unix(7).
//!
//! A descriptor owns a [`UnixSocket`]; its [`sock::Sock`] stays while peers point at it. A message goes straight to the
//! receiver's queue and is charged to the sender's buffer until it is read. A checkpoint keeps what [`UnixState`] has:
//! names, pairs, queues and options. Connections to programs outside end.

mod addr;
mod connect;
mod list;
mod message;
mod outside;
mod poll;
mod recv;
mod rights;
mod send;
mod sock;
mod state;
mod urgent;

use crate::family::Family;
use crate::net_ns::NetNamespace;
use crate::ops::{
    Connect, Names, PeerCred, Received, SendRequest, SocketInfo, SocketOps, SocketOptions, Transfer,
};
use crate::options::Options;
use abi::{Errno, Result};
pub use addr::Addr;
use caller::UserMemory;
use caller::timer::TimerHandle;
pub(crate) use list::{UnixList, UnixRow};
use lock_order::{Mutex, rank};
use outside::Outside;
pub use sock::Phase;
use sock::{BOTH, Home, RECV, SEND, Sock};
pub use state::{CredState, MessageState, Restored, Saved, UnixSocketState, UnixState};
use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use vfs::{Caller, OpenFile, OutsideName};
use wait::{Events, WaitQueue};

const SIOCATMARK: u64 = 0x8905;

/// The AF_UNIX family of one kernel.
pub struct UnixFamily {
    home: Arc<Home>,
}

impl UnixFamily {
    /// A family of sockets that together queue at most `queue_limit` bytes, their overhead included: the messages are
    /// memory of the sentry. ENOBUFS is the answer to more.
    pub fn new(queue_limit: usize) -> UnixFamily {
        UnixFamily { home: Arc::new(Home::new(queue_limit)) }
    }
}

fn checked(kind: i32, protocol: i32) -> Result<i32> {
    if protocol != 0 && protocol != libc::AF_UNIX {
        return Err(Errno::EPROTONOSUPPORT);
    }
    match kind {
        libc::SOCK_STREAM | libc::SOCK_DGRAM | libc::SOCK_SEQPACKET => Ok(kind),
        libc::SOCK_RAW => Ok(libc::SOCK_DGRAM),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

impl Family for UnixFamily {
    fn as_unix(&self) -> Option<&UnixFamily> {
        Some(self)
    }
    fn create(
        &self,
        cx: &dyn Caller,
        net: &Arc<NetNamespace>,
        kind: i32,
        protocol: i32,
    ) -> Result<Arc<dyn SocketOps>> {
        let new = UnixSocket::new(checked(kind, protocol)?, self.home.clone(), net.inum);
        if let Some(domain) = &cx.creds().landlock {
            let _ = new.sock.domain.set(domain.clone());
        }
        Ok(new)
    }

    fn pair(
        &self,
        cx: &dyn Caller,
        net: &Arc<NetNamespace>,
        kind: i32,
        protocol: i32,
    ) -> Result<[Arc<dyn SocketOps>; 2]> {
        let kind = checked(kind, protocol)?;
        let new = || UnixSocket::new(kind, self.home.clone(), net.inum);
        let (a, b) = (new(), new());
        for (this, other) in [(&a, &b), (&b, &a)] {
            let mut s = this.sock.state.lock();
            s.peer = Some(other.sock.clone());
            s.peer_cred = PeerCred::of(cx);
            if this.sock.connected_kind() {
                s.phase = Phase::Established;
            }
        }
        Ok([a, b])
    }
}

/// A Unix socket as its descriptor owns it.
pub struct UnixSocket {
    sock: Arc<Sock>,
    /// The connection to a program outside.
    outside: OnceLock<Outside>,
    /// The host's socket with this one's name.
    named: OnceLock<Arc<dyn OutsideName>>,
    /// Tries to make one again.
    again: Mutex<Option<TimerHandle>, { rank::TIMER }>,
}

impl UnixSocket {
    fn new(kind: i32, home: Arc<Home>, net: u64) -> Arc<UnixSocket> {
        UnixSocket::of(Sock::new(kind, home, net))
    }

    fn of(sock: Arc<Sock>) -> Arc<UnixSocket> {
        Arc::new(UnixSocket {
            sock,
            outside: OnceLock::new(),
            named: OnceLock::new(),
            again: Mutex::new(None),
        })
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        rights::release_all(self.sock.release(), Vec::new());
        self.sock.home.in_flight.released();
    }
}

impl SocketOps for UnixSocket {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn opened(&self, ino: u64) {
        self.sock.ino.store(ino, Ordering::Relaxed);
    }
    fn closing(&self, file: &OpenFile) {
        self.sock.home.in_flight.closing(file);
    }
    fn poll(&self) -> Events {
        match self.outside.get() {
            Some(outside) => outside.host.poll(),
            None => {
                let waits = self.named.get().is_some_and(|named| named.waits());
                let none = if waits { Events::READABLE } else { Events::NONE };
                poll::poll(&self.sock) | none
            }
        }
    }
    fn wait_queue(&self) -> WaitQueue {
        self.sock.queue.clone()
    }
}

impl Connect for UnixSocket {
    fn bind(&self, cx: &dyn Caller, names: &dyn Names, addr: &[u8]) -> Result<()> {
        if let Some(named) = connect::bind(&self.sock, cx, names, addr)? {
            let _ = self.named.set(named);
        }
        Ok(())
    }
    fn connect(&self, cx: &dyn Caller, names: &dyn Names, addr: &[u8]) -> Result<()> {
        if self.outside.get().is_some() {
            return Err(Errno::EISCONN);
        }
        match connect::connect(&self.sock, cx, names, addr) {
            Err(e @ Errno::ECONNREFUSED) => outside::connect(self, cx, names, addr, e),
            done => done,
        }
    }
    fn listen(&self, cx: &dyn Caller, backlog: i32) -> Result<()> {
        if self.outside.get().is_some() {
            return Err(Errno::EINVAL);
        }
        connect::listen(&self.sock, cx, backlog)?;
        self.named.get().map_or(Ok(()), |named| named.listen(backlog))
    }
    fn accept(&self) -> Result<Arc<dyn SocketOps>> {
        match (connect::accept(&self.sock), self.named.get()) {
            (Err(Errno::EAGAIN), Some(named)) => Ok(outside::accept(self, &**named)?),
            (accepted, _) => Ok(accepted?),
        }
    }
    fn local_addr(&self) -> Vec<u8> {
        self.sock.state.lock().addr.as_deref().unwrap_or(&Addr::Unnamed).bytes()
    }
    fn peer_addr(&self) -> Result<Vec<u8>> {
        if let Some(outside) = self.outside.get() {
            return Ok(outside.name.bytes());
        }
        let peer = self.sock.state.lock().peer.clone().ok_or(Errno::ENOTCONN)?;
        let s = peer.state.lock();
        Ok(s.addr.as_deref().unwrap_or(&Addr::Unnamed).bytes())
    }
    fn shutdown(&self, how: i32) -> Result<()> {
        let bits = match how {
            libc::SHUT_RD => RECV,
            libc::SHUT_WR => SEND,
            libc::SHUT_RDWR => BOTH,
            _ => return Err(Errno::EINVAL),
        };
        if let Some(outside) = self.outside.get() {
            outside.host.shutdown(how)?;
            self.sock.queue.notify(Events::ALL);
            return Ok(());
        }
        if let Some(named) = self.named.get() {
            // Linux has nothing to shut down of a datagram socket without a peer.
            let _ = named.shutdown(how);
        }
        let mut s = self.sock.state.lock();
        s.shut |= bits;
        let peer = s.peer.clone();
        let blocked = std::mem::take(&mut s.blocked);
        drop(s);
        if self.sock.connected_kind()
            && let Some(p) = peer
        {
            let mirrored = (bits & RECV) << 1 | (bits & SEND) >> 1;
            p.state.lock().shut |= mirrored;
            p.queue.notify(Events::ALL);
        }
        Sock::unblock(blocked);
        self.sock.queue.notify(Events::ALL);
        Ok(())
    }
    fn listening(&self) -> bool {
        self.sock.state.lock().phase == Phase::Listening
    }
    fn peer_cred(&self) -> PeerCred {
        match self.outside.get() {
            Some(outside) => outside.peer_cred(),
            None => self.sock.state.lock().peer_cred.clone(),
        }
    }
}

impl Transfer for UnixSocket {
    fn splices_without_waiting(&self) -> bool {
        self.stream()
    }
    fn peeks_at_offset(&self) -> bool {
        self.outside.get().is_none()
    }
    fn send(&self, cx: &dyn Caller, names: &dyn Names, req: &mut SendRequest<'_>) -> Result<usize> {
        let addressed = self.sock.kind == libc::SOCK_DGRAM && req.addr.is_some();
        match self.outside.get() {
            Some(outside) if !addressed => outside.send(cx, req, self.sock.kind != libc::SOCK_STREAM),
            _ => match send::send(&self.sock, cx, names, req) {
                Err(e @ Errno::ECONNREFUSED) if addressed => outside::send_to(self, cx, names, req, e),
                done => done,
            },
        }
    }
    fn send_room(&self) -> Option<usize> {
        let used = self.sock.wmem.load(Ordering::SeqCst);
        let known = self.stream() && self.outside.get().is_none();
        known.then(|| self.sock.options.sndbuf().saturating_sub(used))
    }
    fn recv_whole(&self, cx: &dyn Caller, buf: &mut [u8], want: usize, flags: i32) -> Result<Received> {
        match self.outside.get() {
            Some(_) => self.recv(cx, buf, flags),
            None => recv::recv_whole(&self.sock, buf, want, flags),
        }
    }
    fn recv(&self, _cx: &dyn Caller, buf: &mut [u8], flags: i32) -> Result<Received> {
        match self.outside.get() {
            Some(outside) => outside.recv(buf, flags, self.sock.kind != libc::SOCK_STREAM),
            None => match (recv::recv(&self.sock, buf, flags), self.named.get()) {
                (Err(Errno::EAGAIN), Some(named)) if self.sock.kind == libc::SOCK_DGRAM => {
                    outside::recv_from(&**named, buf, flags)
                }
                (received, _) => received,
            },
        }
    }
}

impl SocketOptions for UnixSocket {
    fn options(&self) -> &Options {
        &self.sock.options
    }
    fn ioctl(&self, _cx: &dyn Caller, mem: &mut dyn UserMemory, cmd: u32, arg: u64) -> Result<u64> {
        let n = match (cmd as u64, self.outside.get()) {
            (libc::FIONREAD, Some(outside)) => outside.host.unread()? as usize,
            (libc::FIONREAD, None) => {
                let s = self.sock.state.lock();
                if s.phase == Phase::Listening {
                    return Err(Errno::EINVAL);
                }
                let lens = s.recv.iter().map(|m| m.unread().len());
                if self.sock.connected_kind() { lens.sum() } else { lens.take(1).sum::<usize>() }
            }
            (SIOCATMARK, outside) if self.sock.kind == libc::SOCK_STREAM => {
                usize::from(outside.is_none() && urgent::at_mark(&self.sock.state.lock()))
            }
            (SIOCATMARK, _) => return Err(Errno::EOPNOTSUPP),
            (libc::TIOCOUTQ, _) if self.listening() => return Err(Errno::EINVAL),
            (libc::TIOCOUTQ, _) => self.sock.wmem.load(Ordering::SeqCst),
            _ => return Err(Errno::ENOTTY),
        };
        mem.write_value(arg, &(n as i32))?;
        Ok(0)
    }
}

impl SocketInfo for UnixSocket {
    fn domain(&self) -> i32 {
        libc::AF_UNIX
    }
    fn kind(&self) -> i32 {
        self.sock.kind
    }
    fn protocol(&self) -> i32 {
        0
    }
    fn take_error(&self) -> Option<Errno> {
        self.sock.state.lock().error.take()
    }
    fn describe(&self) -> Vec<u8> {
        self.sock.state.lock().addr.as_ref().map(|a| a.shown()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;

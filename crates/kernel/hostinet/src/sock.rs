//! A socket of the host: its state, and what the gofer does for it.
//!
//! Key type: [`HostSocket`]. Neighbours: `options`, `send` and `recv` act on it; `socket_ops` implements the traits of the
//! crate `socket`.
//! Lock: the way to the name servers (rank `NAME_SERVICE`), a leaf.

use crate::names::NameService;
use crate::shared::Shared;
use abi::{Errno, Result};
use hostfs::Watch;
use hostsys::{fs, net};
use lock_order::{Mutex, rank};
use netproto::address::from_sockaddr;
use netproto::{Domain, Kind, Request};
use socket::Options;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wait::{Events, WaitQueue};

/// All that poll(2) tells of a socket.
const POLLED: u32 = 0x2fff;

/// An internet socket.
pub(crate) struct HostSocket {
    pub(crate) shared: Arc<Shared>,
    pub(crate) domain: Domain,
    pub(crate) kind: Kind,
    pub(crate) fd: OwnedFd,
    /// Its number at the gofer, which accepted connections lack.
    pub(crate) id: Option<u64>,
    pub(crate) options: Options,
    pub(crate) queue: WaitQueue,
    watch: Watch,
    /// connect(2) was told EINPROGRESS.
    connecting: AtomicBool,
    pub(crate) listening: AtomicBool,
    /// shutdown(2) has ended what a datagram socket receives.
    pub(crate) ended: AtomicBool,
    /// The way to the name servers that the gofer stands for.
    pub(crate) names: Mutex<Option<NameService>, { rank::NAME_SERVICE }>,
}

impl HostSocket {
    pub(crate) fn new(
        shared: Arc<Shared>,
        domain: Domain,
        kind: Kind,
        fd: OwnedFd,
        id: Option<u64>,
    ) -> Result<HostSocket> {
        let queue = WaitQueue::new();
        let watch = shared.poller()?.watch(&fd, &queue)?;
        Ok(HostSocket {
            shared,
            domain,
            kind,
            fd,
            id,
            options: Options::default(),
            queue,
            watch,
            connecting: AtomicBool::new(false),
            listening: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            names: Mutex::new(None),
        })
    }

    /// The number at the gofer. `error` is what a connected socket answers.
    pub(crate) fn id(&self, error: Errno) -> Result<u64> {
        self.id.ok_or(error)
    }

    /// An address that a program gave: EINVAL when it is short, EAFNOSUPPORT for another family.
    pub(crate) fn address(&self, bytes: &[u8]) -> Result<SocketAddr> {
        let family = bytes.first_chunk().map(|b| i32::from(u16::from_ne_bytes(*b))).ok_or(Errno::EINVAL)?;
        let (own, shortest) = match self.domain {
            Domain::V4 => (libc::AF_INET, 16),
            Domain::V6 => (libc::AF_INET6, 24),
        };
        if bytes.len() < shortest {
            return Err(Errno::EINVAL);
        }
        match from_sockaddr(bytes) {
            Some(addr) if family == own => Ok(addr),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    /// The same for connect(2): a dual-stack datagram socket takes an IPv4 address.
    pub(crate) fn peer_address(&self, bytes: &[u8]) -> Result<SocketAddr> {
        let v4 = match from_sockaddr(bytes) {
            Some(SocketAddr::V4(v4)) if self.domain == Domain::V6 && self.kind != Kind::Stream => v4,
            _ => return self.address(bytes),
        };
        let only = net::option(&self.fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)?;
        if only.iter().any(|byte| *byte != 0) {
            return Err(Errno::EAFNOSUPPORT);
        }
        Ok(SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()))
    }

    /// Takes a reply that may say that the gofer stands for `server`; true if it does.
    pub(crate) fn use_names(&self, reply: &netproto::Reply, fd: Option<OwnedFd>) -> Result<bool> {
        if !reply.names {
            return Ok(false);
        }
        let mut names = self.names.lock();
        if let Some(fd) = fd {
            *names = Some(NameService::new(&self.shared, fd, &self.queue)?);
        }
        names.is_some().then_some(true).ok_or(Errno::ENFILE)
    }

    pub(crate) fn ready(&self) -> u32 {
        fs::poll_now(&self.fd, POLLED)
    }

    pub(crate) fn connect_to(&self, addr: SocketAddr) -> Result<()> {
        let again = self.connecting.load(Ordering::Relaxed);
        if again && self.ready() & (Events::OUT.0 | Events::ERR.0 | Events::HUP.0) == 0 {
            return Err(Errno::EALREADY);
        }
        let id = self.id(Errno::EISCONN)?;
        let connected = self.shared.gofer.call(&Request::Connect { id, addr });
        let under_way = matches!(connected, Err(Errno::EINPROGRESS | Errno::EALREADY));
        self.connecting.store(under_way, Ordering::Relaxed);
        let (reply, fd) = connected?;
        let by_name = self.use_names(&reply, fd)?;
        if let Some(names) = &mut *self.names.lock() {
            names.set_peer(by_name.then_some((addr, reply.addr)));
        }
        Ok(())
    }

    pub(crate) fn disconnect(&self) -> Result<()> {
        let id = self.id(Errno::EOPNOTSUPP)?;
        self.shared.gofer.call(&Request::Disconnect { id })?;
        self.connecting.store(false, Ordering::Relaxed);
        if let Some(names) = &mut *self.names.lock() {
            names.set_peer(None);
        }
        Ok(())
    }
}

impl Drop for HostSocket {
    fn drop(&mut self) {
        self.watch.stop(&self.fd);
        if let Some(id) = self.id {
            self.shared.gofer.close(id);
        }
    }
}

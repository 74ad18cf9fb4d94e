//! A socket of the host.

use crate::family::Shared;
use crate::names::NameService;
use crate::{options, recv, send};
use abi::{Errno, Result};
use caller::UserMemory;
use hostfs::Watch;
use hostsys::{fs, net};
use lock_order::{Mutex, rank};
use netproto::address::{from_sockaddr, to_sockaddr};
use netproto::{Domain, Kind, Request};
use socket::Connect;
use socket::SocketInfo;
use socket::SocketOptions;
use socket::Transfer;
use socket::{Names, Options, Received, SendRequest, SocketOps};
use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::Caller;
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
    options: Options,
    queue: WaitQueue,
    watch: Watch,
    /// connect(2) was told EINPROGRESS.
    connecting: AtomicBool,
    listening: AtomicBool,
    /// shutdown(2) has ended what a datagram socket receives.
    ended: AtomicBool,
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
    fn id(&self, error: Errno) -> Result<u64> {
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
    fn peer_address(&self, bytes: &[u8]) -> Result<SocketAddr> {
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

    fn ready(&self) -> u32 {
        fs::poll_now(&self.fd, POLLED)
    }

    fn connect_to(&self, addr: SocketAddr) -> Result<()> {
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

    fn disconnect(&self) -> Result<()> {
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

impl SocketOps for HostSocket {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn poll(&self) -> Events {
        let names = self.names.lock().as_ref().map_or(Events::NONE, NameService::poll);
        Events(self.ready()) | names
    }
    fn wait_queue(&self) -> WaitQueue {
        self.queue.clone()
    }
}

impl Connect for HostSocket {
    fn bind(&self, _cx: &dyn Caller, _names: &dyn Names, addr: &[u8]) -> Result<()> {
        let addr = match addr {
            // Of old, AF_UNSPEC with the unspecified address is AF_INET.
            [0, 0, port @ .., 0, 0, 0, 0, _, _, _, _, _, _, _, _]
                if self.domain == Domain::V4 && port.len() == 2 =>
            {
                SocketAddr::from(([0, 0, 0, 0], u16::from_be_bytes([port[0], port[1]])))
            }
            addr => self.address(addr)?,
        };
        let id = self.id(Errno::EINVAL)?;
        self.shared.gofer.call(&Request::Bind { id, addr }).map(drop)
    }
    fn connect(&self, _cx: &dyn Caller, _names: &dyn Names, addr: &[u8]) -> Result<()> {
        if addr.first_chunk().is_some_and(|b| i32::from(u16::from_ne_bytes(*b)) == libc::AF_UNSPEC) {
            return self.disconnect();
        }
        self.connect_to(self.peer_address(addr)?)
    }
    fn listen(&self, _cx: &dyn Caller, backlog: i32) -> Result<()> {
        let id = self.id(Errno::EINVAL)?;
        self.shared.gofer.call(&Request::Listen { id, backlog })?;
        self.listening.store(true, Ordering::Relaxed);
        Ok(())
    }
    fn accept(&self) -> Result<Arc<dyn SocketOps>> {
        let fd = net::accept(&self.fd)?;
        let accepted = HostSocket::new(self.shared.clone(), self.domain, self.kind, fd, None)?;
        accepted.options.copy(&self.options);
        Ok(Arc::new(accepted))
    }
    fn local_addr(&self) -> Vec<u8> {
        let named = self.names.lock().as_ref().and_then(NameService::local);
        match named {
            Some(addr) => to_sockaddr(&addr),
            None => net::local_addr(&self.fd).unwrap_or_default(),
        }
    }
    fn peer_addr(&self) -> Result<Vec<u8>> {
        let named = self.names.lock().as_ref().and_then(NameService::peer);
        match named {
            Some(addr) => Ok(to_sockaddr(&addr)),
            None => net::peer_addr(&self.fd),
        }
    }
    fn accepted_addr(&self) -> Result<Vec<u8>> {
        // A connection that is over by now has lost its peer; Linux still names the family.
        self.peer_addr()
    }
    fn shutdown(&self, how: i32) -> Result<()> {
        // Without a peer it is an error, and happens.
        if how != libc::SHUT_WR && self.kind != Kind::Stream && (0..=2).contains(&how) {
            self.ended.store(true, Ordering::Relaxed);
            self.queue.notify(Events::ALL);
        }
        net::shutdown(&self.fd, how)?;
        if how != libc::SHUT_WR {
            self.listening.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
    fn listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }
}

impl Transfer for HostSocket {
    fn send(&self, cx: &dyn Caller, _names: &dyn Names, req: &mut SendRequest<'_>) -> Result<usize> {
        send::send(self, cx, req)
    }
    fn recv(&self, _cx: &dyn Caller, buf: &mut [u8], flags: i32) -> Result<Received> {
        recv::recv(self, buf, flags)
    }
    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

impl SocketOptions for HostSocket {
    fn options(&self) -> &Options {
        &self.options
    }
    fn get_common(&self, name: i32) -> Option<Result<Vec<u8>>> {
        options::get_common(self, name)
    }
    fn set_common(&self, _cx: &dyn Caller, name: i32, value: &[u8]) -> Option<Result<()>> {
        options::set_common(self, name, value)
    }
    fn option_changed(&self, name: i32) {
        options::changed(self, &self.options, name);
    }
    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        options::get(self, level, name)
    }
    fn set_option(&self, _cx: &dyn Caller, level: i32, name: i32, value: &[u8]) -> Result<()> {
        options::set(self, level, name, value)
    }
    fn ioctl(&self, _cx: &dyn Caller, mem: &mut dyn UserMemory, cmd: u32, arg: u64) -> Result<u64> {
        let query = net::QUERIES.into_iter().find(|(_, number)| *number == cmd);
        let (query, _) = query.ok_or(Errno::ENOTTY)?;
        // A program may take nothing that it has not asked the length of.
        let named = self.names.lock().as_ref().map_or(0, NameService::unread);
        let value = match query {
            net::Query::Unread if named != 0 => i32::try_from(named).unwrap_or(i32::MAX),
            _ => net::query(&self.fd, query)?,
        };
        mem.copy_out(arg, &value.to_ne_bytes())?;
        Ok(0)
    }
}

impl SocketInfo for HostSocket {
    fn domain(&self) -> i32 {
        match self.domain {
            Domain::V4 => libc::AF_INET,
            Domain::V6 => libc::AF_INET6,
        }
    }
    fn kind(&self) -> i32 {
        if self.kind == Kind::Stream { libc::SOCK_STREAM } else { libc::SOCK_DGRAM }
    }
    fn protocol(&self) -> i32 {
        match (self.kind, self.domain) {
            (Kind::Stream, _) => libc::IPPROTO_TCP,
            (Kind::Datagram, _) => libc::IPPROTO_UDP,
            (Kind::Ping, Domain::V4) => libc::IPPROTO_ICMP,
            (Kind::Ping, Domain::V6) => libc::IPPROTO_ICMPV6,
        }
    }
    fn take_error(&self) -> Option<Errno> {
        let value = net::option(&self.fd, libc::SOL_SOCKET, libc::SO_ERROR).ok()?;
        let errno = i32::from_ne_bytes(*value.first_chunk()?);
        (errno != 0).then(|| Errno::from_raw(errno))
    }
}

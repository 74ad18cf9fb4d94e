//! Datagram sockets: UDP (udp(7)), ping (icmp(7)) and raw (raw(7)) sockets of both families.
//!
//! A socket has two locks: its configuration, which senders take, and its queue, which input and readers take. Neither is held
//! while the other is taken. Checkpoint: [`Inner`] and the queue are plain data beside the notifier and the cached path.

mod groups;
mod input;
mod queue;
mod row;
mod save;
mod send;
pub(crate) mod table;

pub use queue::{Datagram, Origin, QueuedError, TooLarge};
pub use save::DatagramState;
pub use send::SendControl;

use crate::addr::{needs_scope, reaches, unmap};
use crate::buf::Buf;
use crate::device::capture::Filter;
use crate::device::iface::Upper;
use crate::network::layer::Network;
use crate::network::path::{Cast, Path};
use crate::network::route::Key;
use crate::notify::{Events, Notifier};
use crate::options::IpOptions;
use crate::ports::{Binding, is_any, plain};
use abi::Errno;
use groups::Membership;
use ktime::Ktime;
use lock_order::{Mutex, RwLock, rank};
use queue::Queue;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a socket sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// Echo requests and replies of one identifier.
    Ping,
    /// IP packets of one protocol.
    Raw(u8),
    /// UDP-Lite (RFC 3828).
    UdpLite,
}

impl Protocol {
    /// True for UDP and UDP-Lite.
    pub fn is_udp(self) -> bool {
        matches!(self, Protocol::Udp | Protocol::UdpLite)
    }
}

/// The datagram sockets of one stack.
pub(crate) struct Datagrams {
    pub(crate) net: Arc<Network>,
    pub(crate) udp: table::Table<DatagramSocket>,
    pub(crate) udp_lite: table::Table<DatagramSocket>,
    pub(crate) ping: table::Table<DatagramSocket>,
    pub(crate) ping6: table::Table<DatagramSocket>,
    pub(crate) raw: RwLock<Vec<Arc<DatagramSocket>>, { rank::RAW_SOCKETS }>,
}

impl Datagrams {
    /// No sockets.
    pub(crate) fn new(net: &Arc<Network>) -> Datagrams {
        Datagrams {
            net: net.clone(),
            udp: Default::default(),
            udp_lite: Default::default(),
            ping: Default::default(),
            ping6: Default::default(),
            raw: RwLock::default(),
        }
    }
}

/// A datagram socket; see the module.
pub struct DatagramSocket {
    net: Arc<Network>,
    all: Arc<Datagrams>,
    /// Keeps the stack alive, and ends the socket's operations.
    upper: Arc<Upper>,
    /// True for a socket of family AF_INET6.
    v6: AtomicBool,
    protocol: Protocol,
    inner: Mutex<Inner, { rank::SOCKET }>,
    queue: Mutex<Queue, { rank::RECEIVE_QUEUE }>,
    filter: RwLock<Option<Arc<dyn Filter>>, { rank::SOCKET_PROGRAM }>,
    filtered: AtomicBool,
    notify: Notifier,
}

/// The configuration.
struct Inner {
    options: IpOptions,
    binding: Option<Binding>,
    /// bind(2) named the address, so disconnecting does not clear it.
    bound_ip: IpAddr,
    remote: Option<SocketAddr>,
    path: Option<Path>,
    memberships: Vec<Membership>,
    /// Data that waits for the end of a cork, with its destination.
    corked: Option<(Buf, SocketAddr, SendControl)>,
    read_shut: bool,
    write_shut: bool,
    /// bind(2) named the port.
    port_named: bool,
    /// The program of the group that the socket begins when it is bound.
    program: Option<table::Program>,
    closed: bool,
}

/// What [`DatagramSocket::receive`] returns.
#[derive(Debug)]
pub struct Received {
    /// Bytes copied.
    pub copied: usize,
    /// Bytes of the datagram.
    pub full: usize,
    /// The datagram, for addresses and ancillary data.
    pub datagram: Datagram,
}

impl DatagramSocket {
    /// A socket that is not bound. Raw sockets receive from now on.
    pub(crate) fn new(
        all: &Arc<Datagrams>,
        upper: Arc<Upper>,
        v6: bool,
        protocol: Protocol,
        notify: Notifier,
    ) -> Arc<DatagramSocket> {
        let net = &all.net;
        let options = IpOptions::new(&net.sysctls);
        let limit = options.receive_buffer;
        let bound_ip = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        let inner = Inner {
            options,
            binding: None,
            bound_ip,
            remote: None,
            path: None,
            memberships: Vec::new(),
            corked: None,
            read_shut: false,
            write_shut: false,
            port_named: false,
            program: None,
            closed: false,
        };
        let queue = Mutex::new(Queue::new(limit, &net.memory, protocol));
        let socket = DatagramSocket {
            net: net.clone(),
            all: all.clone(),
            upper,
            v6: AtomicBool::new(v6),
            protocol,
            inner: Mutex::new(inner),
            queue,
            filter: RwLock::default(),
            filtered: AtomicBool::new(false),
            notify,
        };
        let socket = Arc::new(socket);
        if matches!(protocol, Protocol::Raw(_)) {
            all.raw.write().push(socket.clone());
        }
        socket
    }

    /// Binds to an address (bind(2)). `privileged` says whether low ports are allowed.
    pub fn bind(self: &Arc<Self>, address: SocketAddr, privileged: bool) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        let ip = self.accepts(&inner, address.ip())?;
        if inner.binding.is_some() && !self.is_raw() {
            return Err(Errno::EINVAL);
        }
        let free =
            inner.options.free_bind || inner.options.transparent || self.net.sysctls.binds_nonlocal(ip);
        let group = ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        if !is_any(ip) && !group && !free && !self.net.is_local(ip) && !self.net.is_broadcast(ip) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if let SocketAddr::V6(v6) = address
            && crate::addr::is_link_local(*v6.ip())
        {
            let scope = if v6.scope_id() != 0 { v6.scope_id() } else { inner.options.device };
            if scope == 0 {
                return Err(Errno::EINVAL);
            }
            inner.options.device = scope;
        }
        let start = self.net.sysctls.unprivileged_port_start.get();
        let low = address.port() != 0 && i64::from(address.port()) < start;
        if self.protocol.is_udp() && low && !privileged {
            return Err(Errno::EACCES);
        }
        if address.port() != 0 || !inner.options.bind_no_port || self.table().is_none() {
            self.take_port(&mut inner, ip, address.port())?;
        }
        inner.bound_ip = ip;
        inner.port_named = address.port() != 0;
        Ok(())
    }

    /// Takes a port, any one for 0. Raw sockets have none.
    fn take_port(self: &Arc<Self>, inner: &mut Inner, ip: IpAddr, port: u16) -> Result<(), Errno> {
        let options = &inner.options;
        let binding = Binding {
            ip,
            port,
            dual: self.is_v6() && !options.v6only && is_any(ip) && ip.is_ipv6(),
            device: options.device,
            reuse_addr: options.reuse_addr,
            reuse_port: options.reuse_port,
            uid: options.uid,
            listening: false,
            by_connect: false,
        };
        let binding = match self.table() {
            Some(table) => {
                let range = self.net.sysctls.port_range();
                let remote = inner.remote.map(plain);
                table.bind(&self.net.keys, range, binding, remote, (self, inner.program.as_ref()))?
            }
            None => binding,
        };
        inner.binding = Some(binding);
        Ok(())
    }

    fn is_raw(&self) -> bool {
        matches!(self.protocol, Protocol::Raw(_))
    }

    fn table(&self) -> Option<&table::Table<DatagramSocket>> {
        match self.protocol {
            Protocol::Udp => Some(&self.all.udp),
            Protocol::UdpLite => Some(&self.all.udp_lite),
            Protocol::Ping if self.is_v6() => Some(&self.all.ping6),
            Protocol::Ping => Some(&self.all.ping),
            Protocol::Raw(_) => None,
        }
    }

    /// An address of this socket's family as the stack counts it; `EAFNOSUPPORT` for others.
    fn accepts(&self, inner: &Inner, ip: IpAddr) -> Result<IpAddr, Errno> {
        match (self.is_v6(), unmap(ip)) {
            (false, IpAddr::V4(v4)) if ip.is_ipv4() => Ok(v4.into()),
            (true, IpAddr::V6(v6)) => Ok(v6.into()),
            (true, IpAddr::V4(_)) if ip.is_ipv6() && inner.options.v6only => Err(Errno::ENETUNREACH),
            (true, IpAddr::V4(v4)) if ip.is_ipv6() && self.protocol.is_udp() => Ok(v4.into()),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    /// Sets the peer (connect(2)): later datagrams go to it, and only its datagrams arrive.
    pub fn connect(self: &Arc<Self>, now: Ktime, address: SocketAddr) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        let mut ip = self.accepts(&inner, address.ip())?;
        reaches(inner.bound_ip, ip)?;
        if is_any(ip) {
            ip = if ip.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        }
        let key = self.key(&inner, ip, scope_id(address));
        if key.oif == 0 && needs_scope(ip) {
            return Err(Errno::EINVAL);
        }
        let path = self.net.route(&key, now)?;
        // The address that the last peer, of IPv4, has left is no source for IPv6.
        if ip.is_ipv6() && inner.remote.is_some_and(|peer| peer.is_ipv4()) {
            return Err(Errno::EAFNOSUPPORT);
        }
        if path.cast == Cast::Broadcast && !inner.options.broadcast {
            return Err(Errno::EACCES);
        }
        let remote = SocketAddr::new(ip, address.port());
        inner.remote = Some(remote);
        match inner.binding {
            Some(mut binding) => {
                if is_any(binding.ip) {
                    binding.ip = path.src;
                }
                inner.binding = Some(binding);
                if let Some(table) = self.table() {
                    table.update(binding.port, self, binding.ip, Some(remote));
                }
            }
            None => self.take_port(&mut inner, path.src, 0)?,
        }
        inner.path = Some(path);
        Ok(())
    }

    /// Forgets the peer (connect(2) with AF_UNSPEC).
    pub fn disconnect(&self) {
        let mut inner = self.inner.lock();
        (inner.remote, inner.path) = (None, None);
        let bound_ip = inner.bound_ip;
        if !inner.port_named
            && let (Some(table), Some(binding)) = (self.table(), inner.binding)
        {
            // The port was not the program's choice.
            inner.binding = None;
            return table.remove(binding.port, self);
        }
        if let Some(binding) = &mut inner.binding {
            binding.ip = bound_ip;
            if let Some(table) = self.table() {
                table.update(binding.port, self, bound_ip, None);
            }
        }
    }

    /// What a route lookup needs.
    fn key(&self, inner: &Inner, dst: IpAddr, scope: u32) -> Key {
        let options = &inner.options;
        let group = dst.is_multicast();
        let named = if options.device != 0 { options.device } else { scope };
        let oif = if named == 0 && group { options.multicast_device } else { named };
        // A socket that is bound to a group or to a broadcast address has no source of its own.
        let plain = |ip: &IpAddr| !is_any(*ip) && !ip.is_multicast() && !self.net.is_broadcast(*ip);
        let bound = Some(inner.binding.map_or(inner.bound_ip, |b| b.ip)).filter(plain);
        let src =
            bound.filter(|ip| ip.is_ipv4() == dst.is_ipv4()).or(options.multicast_source.filter(|_| group));
        Key { dst, src, iif: 0, oif, mark: options.mark, tos: options.tos_for(dst) }
    }

    /// Takes the next datagram (recv(2)), or looks at it when `peek` says so. A caller that would wait gets zero bytes instead when
    /// reading was shut down ([`Events::RDHUP`]).
    pub fn receive(&self, out: &mut [u8], peek: bool) -> Result<Received, Errno> {
        if peek { self.peek(out, None) } else { self.take(out, |queue| queue.pop().map(|got| (got, 0))) }
    }

    /// Looks at the datagram that is `offset` bytes into the queue, from there on (`SO_PEEK_OFF`); without an offset at the first.
    pub fn peek(&self, out: &mut [u8], offset: Option<usize>) -> Result<Received, Errno> {
        self.take(out, |queue| queue.peek(offset))
    }

    /// Copies what `next` finds, less what it says to skip.
    fn take(
        &self,
        out: &mut [u8],
        next: impl FnOnce(&mut Queue) -> Option<(Datagram, usize)>,
    ) -> Result<Received, Errno> {
        let mut queue = self.queue.lock();
        if !queue.has_errors()
            && let Some(error) = queue.error.take()
        {
            return Err(error);
        }
        let found = next(&mut queue);
        drop(queue);
        let (datagram, skip) = found.ok_or(Errno::EAGAIN)?;
        let data = datagram.data.get(skip..).unwrap_or_default();
        let copied = data.len().min(out.len());
        out[..copied].copy_from_slice(&data[..copied]);
        Ok(Received { copied, full: datagram.data.len(), datagram })
    }

    /// Takes the oldest entry of the error queue (`MSG_ERRQUEUE`).
    pub fn receive_error(&self) -> Result<QueuedError, Errno> {
        self.queue.lock().pop_error().ok_or(Errno::EAGAIN)
    }

    /// Takes the pending error (`SO_ERROR`).
    pub fn take_error(&self) -> Option<Errno> {
        self.queue.lock().error.take()
    }

    /// Takes what is known of a datagram that was too large (`IPV6_RECVPATHMTU`).
    pub fn take_too_large(&self) -> Option<TooLarge> {
        self.queue.lock().too_large.take()
    }

    /// Bytes of the next datagram (`SIOCINQ`).
    pub fn next_len(&self) -> usize {
        self.queue.lock().first().map_or(0, |datagram| datagram.data.len())
    }

    /// Bytes in the receive queue with overhead, and datagrams that were dropped.
    pub fn queue_state(&self) -> (usize, u32) {
        let queue = self.queue.lock();
        (queue.bytes(), queue.dropped)
    }

    /// Readiness for poll(2).
    pub fn readiness(&self) -> Events {
        let (read_shut, write_shut) = {
            let inner = self.inner.lock();
            (inner.read_shut, inner.write_shut)
        };
        let queue = self.queue.lock();
        let mut events = Events::OUT;
        events.set(Events::IN, queue.first().is_some() || read_shut);
        events.set(Events::RDHUP, read_shut);
        events.set(Events::ERR, queue.error.is_some() || queue.has_errors());
        events.set(Events::HUP, read_shut && write_shut);
        events
    }

    /// Reads or changes options under the socket's lock. Effects on binding and buffers take place afterwards.
    pub fn configure<R>(self: &Arc<Self>, now: Ktime, f: impl FnOnce(&mut IpOptions) -> R) -> R {
        let mut inner = self.inner.lock();
        let before = inner.options.clone();
        let result = f(&mut inner.options);
        if inner.options != before {
            inner.path = None;
        }
        let limit = inner.options.receive_buffer;
        let uncork = !inner.options.cork && inner.corked.is_some();
        let shares = (inner.options.reuse_addr, inner.options.reuse_port);
        if let (Some(binding), Some(table)) = (&mut inner.binding, self.table())
            && (binding.reuse_addr, binding.reuse_port) != shares
        {
            (binding.reuse_addr, binding.reuse_port) = shares;
            table.share(binding.port, self, shares);
        }
        drop(inner);
        self.queue.lock().limit = limit;
        if uncork {
            let _ = self.flush_cork(now);
        }
        result
    }

    /// Own address (getsockname(2)), as the socket's family shows it.
    pub fn local(&self) -> SocketAddr {
        let inner = self.inner.lock();
        let address = inner.binding.map_or(SocketAddr::new(inner.bound_ip, 0), |binding| binding.address());
        self.shown(address)
    }

    /// The peer's address (getpeername(2)).
    pub fn remote(&self) -> Result<SocketAddr, Errno> {
        let remote = self.inner.lock().remote.ok_or(Errno::ENOTCONN)?;
        Ok(self.shown(remote))
    }

    /// Sets or removes the filter (`SO_ATTACH_FILTER`): it sees packets from the transport header on, those of raw sockets of IPv4 from
    /// the IP header on. Returns whether there was one.
    pub fn set_filter(&self, filter: Option<Arc<dyn Filter>>) -> bool {
        let mut place = self.filter.write();
        self.filtered.store(filter.is_some(), Ordering::Relaxed);
        std::mem::replace(&mut *place, filter).is_some()
    }

    /// Gives the group of sockets that share the port a program that chooses one of them by the payload
    /// (`SO_ATTACH_REUSEPORT_CBPF`), or takes it away (`ENOENT` without one). `EINVAL` without a group.
    pub fn set_group_program(&self, program: Option<Arc<dyn Filter>>) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        let detaches = program.is_none();
        let before = match (inner.binding, self.table()) {
            (Some(binding), Some(table)) if self.protocol.is_udp() => {
                table.set_program(binding.port, self, program).ok_or(Errno::EINVAL)?
            }
            (None, Some(_)) if self.protocol.is_udp() && inner.options.reuse_port => {
                std::mem::replace(&mut inner.program, program)
            }
            _ => return Err(Errno::EINVAL),
        };
        if detaches && before.is_none() { Err(Errno::ENOENT) } else { Ok(()) }
    }

    /// The instructions of the group's program; empty without one, `None` for one that has none.
    pub fn group_program(&self) -> Option<Vec<u8>> {
        let inner = self.inner.lock();
        let program = match (inner.binding, self.table()) {
            (Some(binding), Some(table)) => table.program(binding.port, self),
            _ => inner.program.clone(),
        };
        program.map_or_else(|| Some(Vec::new()), |program| program.instructions().map(<[u8]>::to_vec))
    }

    /// How many bytes of a packet the filter lets through; zero drops it.
    fn admits(&self, packet: &[u8]) -> usize {
        if !self.filtered.load(Ordering::Relaxed) {
            return packet.len();
        }
        let filter = self.filter.read().clone();
        filter.map_or(packet.len(), |filter| filter.accept(packet).min(packet.len()))
    }

    /// Owner and inode.
    pub(crate) fn owner(&self) -> (u32, u64) {
        let inner = self.inner.lock();
        (inner.options.uid, inner.options.inode)
    }

    /// The MTU of the way to the peer (`IP_MTU`).
    pub fn path_mtu(&self) -> Option<u32> {
        let inner = self.inner.lock();
        inner.remote?;
        inner.path.as_ref().map(|path| path.mtu)
    }

    /// An address as this socket's family shows it: IPv6 sockets see IPv4-mapped addresses.
    pub fn shown(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(v4) if self.is_v6() => {
                let ip = if v4.is_unspecified() { Ipv6Addr::UNSPECIFIED } else { v4.to_ipv6_mapped() };
                SocketAddr::new(ip.into(), address.port())
            }
            _ => address,
        }
    }

    /// Closes directions (shutdown(2)).
    pub fn shutdown(&self, read: bool, write: bool) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        inner.read_shut |= read;
        inner.write_shut |= write;
        let connected = inner.remote.is_some();
        drop(inner);
        self.notify.changed(Events::ANY);
        // Without a peer it is an error, and happens all the same.
        if connected { Ok(()) } else { Err(Errno::ENOTCONN) }
    }

    /// Takes the peer away because an administrator asks for it (sock_diag's SOCK_DESTROY); the next operation fails with
    /// `ECONNABORTED`.
    pub fn destroy(&self) {
        self.disconnect();
        self.queue.lock().error = Some(Errno::ECONNABORTED);
        self.notify.changed(Events::ANY);
    }

    /// Ends the socket: the last descriptor is closed.
    pub fn close(&self) {
        let mut inner = self.inner.lock();
        if std::mem::replace(&mut inner.closed, true) {
            return;
        }
        let binding = inner.binding.take();
        let memberships = std::mem::take(&mut inner.memberships);
        inner.corked = None;
        drop(inner);
        memberships.iter().for_each(|membership| self.leave_link(membership));
        match (binding, self.table()) {
            (Some(binding), Some(table)) => table.remove(binding.port, self),
            (_, None) => self.all.raw.write().retain(|other| !std::ptr::eq(&**other, self)),
            _ => {}
        }
        self.queue.lock().close();
        self.notify.changed(Events::ANY);
    }

    /// The network layer of its stack.
    pub fn network(&self) -> &Arc<Network> {
        &self.net
    }

    /// Ends an operation that may have sent packets: processes what they lead to in this stack. No lock may be held.
    fn finish(&self, now: Ktime) {
        self.net.links.inbox.finish(&*self.upper, now);
    }

    /// What the socket speaks.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// True for a socket of family AF_INET6.
    pub fn is_v6(&self) -> bool {
        self.v6.load(Ordering::Relaxed)
    }

    /// Makes a socket of family AF_INET of one that is connected over IPv4 (`IPV6_ADDRFORM`).
    pub fn become_v4(&self) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        let remote = inner.remote.ok_or(Errno::ENOTCONN)?;
        if inner.options.v6only || remote.is_ipv6() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if inner.bound_ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
            inner.bound_ip = Ipv4Addr::UNSPECIFIED.into();
        }
        self.v6.store(false, Ordering::Relaxed);
        Ok(())
    }
}

/// The interface that an address names.
fn scope_id(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

impl fmt::Debug for DatagramSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramSocket").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

//! Opening connections: bind(2), listen(2), accept(2), connect(2).

use super::arrival::Arrival;
use super::conn::{Conn, State};
use super::emit::sizes;
use super::listener::Listener;
use super::pieces::SendFlags;
use super::rx::RxQueue;
use super::socket::{Inner, TcpSocket};
use super::table::Tuple;
use crate::addr::{needs_scope, reaches, unmap};
use crate::chain::Chain;
use crate::network::path::{Cast, Path};
use crate::network::route::Key;
use crate::notify::Notifier;
use crate::ports::{Binding, candidates, is_any};
use crate::wire::seq::Seq;
use crate::wire::tcp::{Cookie, Segment};
use abi::Errno;
use ktime::Ktime;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Bits of `tcp_fastopen`: clients; without a cookie.
const CLIENT: i64 = 1;
const NO_COOKIE: i64 = 4;

impl TcpSocket {
    fn accepts(&self, inner: &Inner, ip: IpAddr) -> Result<IpAddr, Errno> {
        match (self.is_v6(), unmap(ip)) {
            (false, IpAddr::V4(v4)) if ip.is_ipv4() => Ok(v4.into()),
            (true, IpAddr::V6(v6)) => Ok(v6.into()),
            (true, IpAddr::V4(_)) if ip.is_ipv6() && inner.conn.options.ip.v6only => Err(Errno::ENETUNREACH),
            (true, IpAddr::V4(v4)) if ip.is_ipv6() => Ok(v4.into()),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    fn binding(&self, inner: &Inner, ip: IpAddr, port: u16, by_connect: bool) -> Binding {
        let options = &inner.conn.options.ip;
        Binding {
            ip,
            port,
            dual: self.is_v6() && !options.v6only && is_any(ip) && ip.is_ipv6(),
            device: options.device,
            reuse_addr: options.reuse_addr,
            reuse_port: options.reuse_port,
            uid: options.uid,
            listening: false,
            by_connect,
        }
    }

    /// Binds to an address (bind(2)). `privileged` says whether low ports are allowed.
    pub fn bind(&self, address: SocketAddr, privileged: bool) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        let ip = self.accepts(&inner, address.ip())?;
        if inner.binding.is_some() || inner.conn.state != State::Closed {
            return Err(Errno::EINVAL);
        }
        let options = &inner.conn.options.ip;
        let free = options.free_bind || options.transparent || self.stack.net.sysctls.binds_nonlocal(ip);
        if !is_any(ip) && !free && !self.stack.net.is_local(ip) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if let SocketAddr::V6(v6) = address
            && crate::addr::is_link_local(*v6.ip())
        {
            let scope = if v6.scope_id() != 0 { v6.scope_id() } else { options.device };
            if scope == 0 {
                return Err(Errno::EINVAL);
            }
            inner.conn.options.ip.device = scope;
        }
        let start = self.stack.net.sysctls.unprivileged_port_start.get();
        if address.port() != 0 && i64::from(address.port()) < start && !privileged {
            return Err(Errno::EACCES);
        }
        // What an earlier connection left.
        (inner.tuple, inner.old_port) = (None, 0);
        if address.port() == 0 && inner.conn.options.ip.bind_no_port {
            inner.bound = Some(ip);
            return Ok(());
        }
        let binding = self.binding(&inner, ip, address.port(), false);
        let range = self.stack.net.sysctls.port_range();
        let binding = self.stack.tcp.table.bind(
            &self.stack.net.keys,
            range,
            (binding, inner.program.is_some()),
            self.id(),
        )?;
        (inner.binding, inner.named, inner.bound) = (Some(binding), address.port() != 0, Some(ip));
        Ok(())
    }

    /// Listens for connections (listen(2)).
    pub fn listen(&self, backlog: usize) -> Result<(), Errno> {
        let backlog = backlog.min(self.stack.net.sysctls.somaxconn.size());
        let mut inner = self.inner.lock();
        if let Some(listener) = inner.listener.as_mut() {
            listener.backlog = backlog;
            return Ok(());
        }
        if inner.conn.state != State::Closed || inner.connecting {
            return Err(Errno::EINVAL);
        }
        let any: IpAddr =
            if self.is_v6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let own = inner.bound.unwrap_or(any);
        let old = inner.binding.unwrap_or_else(|| self.binding(&inner, own, 0, false));
        let (reuse_addr, reuse_port) = (inner.conn.options.ip.reuse_addr, inner.conn.options.ip.reuse_port);
        let wanted = Binding { listening: true, reuse_addr, reuse_port, ..old };
        let range = self.stack.net.sysctls.port_range();
        let binding = self.stack.tcp.table.bind(
            &self.stack.net.keys,
            range,
            (wanted, inner.program.is_some()),
            self.id(),
        )?;
        inner.binding = Some(binding);
        inner.listener = Some(Box::new(Listener::new(backlog)));
        inner.conn.state = State::Listen;
        if let Some(me) = self.me.upgrade() {
            self.stack.tcp.table.listen(binding, &me, inner.program.take());
        }
        Ok(())
    }

    /// Takes a connection that is ready (accept(2)); its readiness goes to `notify` from now on.
    pub fn accept(&self, notify: Notifier) -> Result<Arc<TcpSocket>, Errno> {
        let mut inner = self.inner.lock();
        let listener = inner.listener.as_mut().ok_or(Errno::EINVAL)?;
        let child = listener.pop().ok_or(Errno::EAGAIN)?;
        drop(inner);
        let _ = child.notify.set(notify);
        Ok(child)
    }

    /// Begins a connection (connect(2)). `EINPROGRESS` says that it is on its way, also when it is complete already, as over loopback: so
    /// does Linux. A second call tells how it ended, once the socket is writable or has an error; `EALREADY` says not yet.
    pub fn connect(&self, now: Ktime, address: SocketAddr) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        let asks = inner.conn.options.fast_open_connect;
        let Some(iss) = self.prepare(&mut inner, now, address, asks)? else { return Ok(()) };
        if asks && inner.conn.syn_data_room() > 0 {
            inner.deferred = Some(iss);
            return Ok(());
        }
        self.run(&mut inner, now, |conn, cx| conn.connect(cx, iss));
        drop(inner);
        self.finish(now);
        Err(Errno::EINPROGRESS)
    }

    /// Begins a connection and sends data with its SYN, if the server gave a cookie before (`MSG_FASTOPEN`): returns how many bytes.
    /// Without a cookie it asks for one, and the data is not taken: `EINPROGRESS`, as for connect.
    pub fn send_fast_open(
        &self,
        now: Ktime,
        address: SocketAddr,
        data: &[u8],
        zerocopy: bool,
    ) -> Result<usize, Errno> {
        if self.stack.net.sysctls.tcp_fastopen.get() & CLIENT == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut inner = self.inner.lock();
        let iss = match inner.deferred {
            Some(iss) => Some(iss),
            None => self.prepare(&mut inner, now, address, true)?,
        };
        let Some(iss) = iss else {
            // Another call began it, and it is complete by now.
            drop(inner);
            return self.send_as(now, data, SendFlags { zerocopy, ..SendFlags::default() });
        };
        let result = self.open_with_data(&mut inner, now, iss, data, zerocopy);
        drop(inner);
        self.finish(now);
        result
    }

    /// Sends the SYN of a prepared connection, with as much data as it may carry.
    pub(super) fn open_with_data(
        &self,
        inner: &mut Inner,
        now: Ktime,
        iss: Seq,
        data: &[u8],
        zerocopy: bool,
    ) -> Result<usize, Errno> {
        inner.deferred = None;
        let most = inner.conn.syn_data_room();
        inner.conn.start_at(iss);
        let taken = inner.conn.keep(data.get(..most).unwrap_or(data).into());
        self.run(inner, now, |conn, cx| conn.connect(cx, iss));
        if zerocopy && taken > 0 {
            inner.conn.note_zerocopy(now);
        }
        if taken > 0 { Ok(taken) } else { Err(Errno::EINPROGRESS) }
    }

    /// True when the next send opens the connection.
    pub fn is_deferred(&self) -> bool {
        self.inner.lock().deferred.is_some()
    }

    /// How a connection that a send began came out (`MSG_FASTOPEN`): `EAGAIN` while it is under way; `more` data waits for it.
    pub fn opened(&self, more: bool) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        match inner.conn.state {
            State::SynSent if inner.deferred.is_none() => {
                inner.conn.write_pending = more;
                Err(Errno::EAGAIN)
            }
            State::SynReceived if inner.connecting => Err(Errno::EAGAIN),
            State::Closed if inner.connecting => {
                inner.connecting = false;
                Err(inner.conn.error.take().unwrap_or(Errno::ECONNABORTED))
            }
            _ => {
                inner.connecting &= inner.deferred.is_some();
                Ok(())
            }
        }
    }

    /// Finds the way to an address and takes a port, all but the SYN; returns the sequence number to begin with, `None` when the
    /// connection is complete. `fast` says that data
    /// may go with the SYN.
    fn prepare(
        &self,
        inner: &mut Inner,
        now: Ktime,
        address: SocketAddr,
        fast: bool,
    ) -> Result<Option<Seq>, Errno> {
        match inner.conn.state {
            State::SynSent if inner.deferred.is_some() => return Err(Errno::EISCONN),
            State::SynSent | State::SynReceived => return Err(Errno::EALREADY),
            State::Closed if inner.connecting => {
                (inner.connecting, inner.tuple) = (false, None);
                return Err(inner.conn.error.take().unwrap_or(Errno::ECONNABORTED));
            }
            State::Closed => {}
            _ if inner.connecting => {
                inner.connecting = false;
                return Ok(None);
            }
            _ => return Err(Errno::EISCONN),
        }
        let mut ip = self.accepts(inner, address.ip())?;
        if is_any(ip) {
            ip = if ip.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        }
        if let Some(bound) = inner.bound {
            reaches(bound, ip)?;
        }
        let options = &inner.conn.options.ip;
        let scope = if let SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 };
        let oif = if options.device != 0 { options.device } else { scope };
        if oif == 0 && !ip.is_multicast() && needs_scope(ip) {
            return Err(Errno::EINVAL);
        }
        let bound = inner.bound.filter(|ip| !is_any(*ip));
        let key = Key { dst: ip, src: bound, iif: 0, oif, mark: options.mark, tos: options.tos_for(ip) };
        let path = self.stack.net.route(&key, now)?;
        if matches!(path.cast, Cast::Broadcast | Cast::Multicast) {
            return Err(Errno::ENETUNREACH);
        }
        let remote = SocketAddr::new(ip, address.port());
        let (local, start) = self.choose_port(inner, path.src, remote, now)?;
        inner.tuple = Some((local, remote));
        (inner.registered, inner.connecting) = (true, true);
        let sizes = sizes(&path);
        inner.path = Some(path);
        let keys = &self.stack.net.keys;
        let iss = start.unwrap_or(Seq(keys.initial_sequence(local, remote, now)));
        let fresh = Conn::new(inner.conn.options.clone(), &self.stack.net.sysctls);
        inner.conn = fresh;
        inner.conn.tx = Chain::of(&self.stack.net.memory, self.stack.net.pool());
        inner.conn.ts_offset = keys.timestamp_offset(local, remote);
        inner.conn.set_path(sizes.0, sizes.1);
        if fast {
            let (known, cookie) = self.stack.tcp.table.known(&(local, remote));
            let free = self.stack.net.sysctls.tcp_fastopen.get() & NO_COOKIE != 0;
            let free = free || inner.conn.options.fast_open_no_cookie;
            let open = &mut inner.conn.fast_open;
            (open.used, open.free, open.known_mss) = (true, free, known.mss);
            open.cookie = cookie.filter(|_| !free);
        }
        let mut queue = RxQueue::of(&self.stack.net.memory, self.stack.net.pool());
        queue.packets_only = TcpSocket::needs_packets(inner);
        *self.rx.queue.lock() = queue;
        inner.conn.state = State::SynSent;
        Ok(Some(iss))
    }

    /// Takes a port for a connection and enters it into the table. Returns the sequence number to start with, if a connection that
    /// waited made room.
    fn choose_port(
        &self,
        inner: &mut Inner,
        ip: IpAddr,
        remote: SocketAddr,
        now: Ktime,
    ) -> Result<(SocketAddr, Option<Seq>), Errno> {
        let table = &self.stack.tcp.table;
        if let Some(binding) = inner.binding {
            let local = SocketAddr::new(ip, binding.port);
            let entered = self.enter((local, remote), now).ok_or(Errno::EADDRNOTAVAIL)?;
            return Ok((local, entered));
        }
        let salt = self.stack.net.keys.hash("port", (ip, remote));
        for port in candidates(&self.stack.net.keys, self.stack.net.sysctls.port_range(), salt) {
            let local = SocketAddr::new(ip, port);
            let wanted = self.binding(inner, ip, port, true);
            if table.take(wanted, self.id(), (wanted.reuse_addr, wanted.reuse_port)).is_none() {
                continue;
            }
            if let Some(entered) = self.enter((local, remote), now) {
                inner.binding = Some(wanted);
                return Ok((local, entered));
            }
            table.release(port, self.id());
        }
        Err(Errno::EADDRNOTAVAIL)
    }

    /// Enters the connection into the table; `None` when one with these addresses is there.
    fn enter(&self, tuple: Tuple, now: Ktime) -> Option<Option<Seq>> {
        let me = self.me.upgrade()?;
        let table = &self.stack.tcp.table;
        if table.insert(tuple, &me) {
            return Some(None);
        }
        let start = table.find(&tuple)?.recycle(now)?;
        table.insert(tuple, &me).then_some(Some(start))
    }

    // The listener is locked while its child is.

    /// A connection of a listener.
    pub(super) fn child(&self, inner: &Inner, tuple: Tuple, path: Path) -> Arc<TcpSocket> {
        let child = TcpSocket::with_options(&self.stack, self.is_v6(), inner.conn.options.clone());
        let mut own = child.inner.lock_nested();
        own.conn.options.ip.inode = 0;
        own.conn.ts_offset = self.stack.net.keys.timestamp_offset(tuple.0, tuple.1);
        let sizes = sizes(&path);
        own.conn.set_path(sizes.0, sizes.1);
        (own.tuple, own.path, own.registered) = (Some(tuple), Some(path), true);
        own.filter = inner.filter.clone();
        child.rx.queue.lock().packets_only = TcpSocket::needs_packets(&own);
        own.binding = inner.binding.map(|binding| Binding { listening: false, ip: tuple.0.ip(), ..binding });
        drop(own);
        child
    }

    pub(super) fn start_child(&self, now: Ktime, syn: &Segment, iss: Seq, ecn: bool) {
        let mut inner = self.inner.lock_nested();
        self.run(&mut inner, now, |conn, cx| conn.accept(cx, syn, iss, ecn));
    }

    pub(super) fn start_fast(&self, arrival: &Arrival<'_>, iss: Seq, offer: Option<Cookie>) {
        let mut inner = self.inner.lock_nested();
        inner.conn.fast_open.cookie = offer;
        self.run(&mut inner, arrival.now, |conn, cx| conn.accept_fast(cx, arrival.seg, iss, arrival.data));
    }

    pub(super) fn sample(&self, rtt: Duration, now: Ktime) {
        self.inner.lock_nested().conn.rtt.sample(rtt, now);
    }
}

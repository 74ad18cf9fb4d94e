//! UDP, ping and raw sockets. See udp(7), icmp(7), raw(7).

use crate::addr;
use crate::control::{self, Stamp};
use crate::names::{SO_DETACH_REUSEPORT_BPF, SO_RCVMARK};
use crate::notify::{Waiters, shown};
use crate::options::{self, Common, extension};
use crate::value::{int, read_int};
use abi::{Errno, Result};
use caller::UserMemory;
use ktime::Ktime;
use netstack::datagram::{DatagramSocket, Protocol, SendControl};
use netstack::{notify, stamps};
use rights::Cap;
use socket::filter::Program;
use socket::{
    Connect, Control, Names, NetNamespace, Options, Received, SendRequest, SocketInfo, SocketOps,
    SocketOptions, Transfer,
};
use std::any::Any;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use vfs::Caller;
use wait::{Events, WaitQueue};

/// A datagram socket as its descriptor owns it.
pub(crate) struct Datagrams {
    socket: Arc<DatagramSocket>,
    net: Arc<NetNamespace>,
    options: Options,
    common: Common,
    stamp: Stamp,
    queue: WaitQueue,
}

impl Datagrams {
    /// A socket that is not bound.
    pub(crate) fn create(
        cx: &dyn Caller,
        net: &Arc<NetNamespace>,
        v6: bool,
        protocol: Protocol,
    ) -> Arc<dyn SocketOps> {
        let (queue, waiters) = Waiters::new();
        let socket = net.stack().datagram_socket(v6, protocol, waiters);
        let owner = (cx.creds().fsuid, cx.creds().fsgid);
        socket.configure(net.now(), |options| (options.uid, options.gid) = owner);
        Arc::new(Datagrams {
            socket,
            net: net.clone(),
            options: Options::default(),
            common: Common::default(),
            stamp: Stamp::default(),
            queue,
        })
    }

    /// The socket, for a checkpoint, and what its descriptor has beside it.
    pub(crate) fn parts(&self) -> (&Arc<DatagramSocket>, &Arc<NetNamespace>, (&Options, &Common), &Stamp) {
        (&self.socket, &self.net, (&self.options, &self.common), &self.stamp)
    }

    /// A restored one; `queue` is what the socket notifies.
    pub(crate) fn restore(
        socket: Arc<DatagramSocket>,
        net: &Arc<NetNamespace>,
        (options, common): (Options, Common),
        at: Option<Ktime>,
        queue: WaitQueue,
    ) -> Arc<dyn SocketOps> {
        let stamp = Stamp::default();
        if let Some(at) = at {
            stamp.note(at);
        }
        Arc::new(Datagrams { socket, net: net.clone(), options, common, stamp, queue })
    }

    fn is_raw(&self) -> bool {
        matches!(self.socket.protocol(), Protocol::Raw(_))
    }

    fn v6_only(&self) -> bool {
        self.socket.configure(self.net.now(), |o| o.v6only)
    }

    /// The address of a connect(2) or a sendto(2); an IPv6 UDP socket takes IPv4 addresses as they are.
    fn peer(&self, addr: &[u8]) -> Result<SocketAddr> {
        let udp = self.socket.protocol().is_udp();
        if self.socket.is_v6() && udp && addr::family(addr)? == libc::AF_INET {
            return addr::v4(addr).map(addr::mapped);
        }
        addr::to_connect(self.socket.is_v6(), addr)
    }

    /// True when a datagram to `to`, or to the peer, goes by IPv6.
    fn over_v6(&self, to: Option<SocketAddr>) -> bool {
        match to.or_else(|| self.socket.remote().ok()).map(|to| to.ip()) {
            Some(IpAddr::V6(ip)) => ip.to_ipv4_mapped().is_none(),
            Some(IpAddr::V4(_)) => false,
            None => self.socket.is_v6(),
        }
    }

    /// Takes or peeks at a datagram; both move the place where the next peek begins.
    fn take(&self, buf: &mut [u8], flags: i32) -> Result<netstack::datagram::Received> {
        let peek = flags & libc::MSG_PEEK != 0;
        let got = match peek {
            true => self.socket.peek(buf, usize::try_from(self.options.peek_off()).ok())?,
            false => self.socket.receive(buf, false)?,
        };
        let moved = if flags & libc::MSG_TRUNC != 0 { got.full } else { got.copied };
        self.options.move_peek_off(moved, peek);
        Ok(got)
    }

    /// MSG_ERRQUEUE: the oldest error, with the packet that it is about.
    fn recv_error(&self, buf: &mut [u8]) -> Result<Received> {
        let e = self.socket.receive_error()?;
        let len = e.data.len().min(buf.len());
        buf[..len].copy_from_slice(&e.data[..len]);
        let cut = if len < e.data.len() { libc::MSG_TRUNC } else { 0 };
        let mut other = vec![control::of_error(self.socket.is_v6(), &e)];
        let reports = || self.socket.configure(self.net.now(), |o| o.timestamping & stamps::SOFTWARE != 0);
        if let Some(at) = e.at.filter(|_| reports()) {
            other.insert(0, control::stamp(self.net.clock(), at));
        }
        Ok(Received {
            len,
            full: len,
            addr: e.at.is_none().then(|| addr::to_bytes(self.socket.shown(e.to))),
            flags: cut | libc::MSG_ERRQUEUE,
            control: Control { other, ..Control::default() },
        })
    }

    /// IPV6_RECVPATHMTU: an empty datagram tells of one that was too large to be sent.
    fn recv_too_large(&self) -> Option<Received> {
        if !self.common.wants.get(libc::IPPROTO_IPV6, libc::IPV6_RECVPATHMTU) {
            return None;
        }
        let found = self.socket.take_too_large()?;
        let to = SocketAddrV6::new(found.to, 0, 0, found.iface);
        let told = control::of_too_large(to, found.mtu);
        Some(Received {
            addr: Some(addr::to_bytes(to.into())),
            control: Control { other: vec![told], ..Control::default() },
            ..Received::default()
        })
    }

    /// The destination that a sender names; `None` is the peer.
    fn destination(&self, addr: Option<&[u8]>) -> Result<Option<SocketAddr>> {
        let Some(addr) = addr else { return Ok(None) };
        if !self.socket.is_v6() {
            let named = addr::v4(addr)?;
            // AF_UNSPEC is taken for AF_INET, as Linux does.
            return match addr::family(addr)? {
                libc::AF_INET | libc::AF_UNSPEC => Ok(Some(named.into())),
                _ => Err(Errno::EAFNOSUPPORT),
            };
        }
        match addr::family(addr)? {
            libc::AF_INET6 | libc::AF_INET => self.peer(addr).map(Some),
            libc::AF_UNSPEC => Ok(None),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.socket.close();
    }
}

impl SocketOps for Datagrams {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn opened(&self, ino: u64) {
        self.socket.configure(self.net.now(), |options| options.inode = ino);
    }
    fn poll(&self) -> Events {
        shown(self.socket.readiness())
    }
    fn wait_queue(&self) -> WaitQueue {
        self.queue.clone()
    }
}

impl Connect for Datagrams {
    fn bind(&self, cx: &dyn Caller, _names: &dyn Names, addr: &[u8]) -> Result<()> {
        let named = addr::to_bind(self.socket.is_v6(), addr)?;
        self.socket.bind(named, cx.creds().ns_capable(self.net.user_ns(), Cap::NET_BIND_SERVICE))
    }
    fn connect(&self, _cx: &dyn Caller, _names: &dyn Names, addr: &[u8]) -> Result<()> {
        if addr::family(addr)? == libc::AF_UNSPEC {
            self.socket.disconnect();
            return Ok(());
        }
        if self.socket.is_v6() && addr::family(addr)? == libc::AF_INET && self.v6_only() {
            return Err(Errno::EAFNOSUPPORT);
        }
        self.socket.connect(self.net.now(), self.peer(addr)?)
    }
    fn listen(&self, _cx: &dyn Caller, _backlog: i32) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    fn accept(&self) -> Result<Arc<dyn SocketOps>> {
        Err(Errno::EOPNOTSUPP)
    }
    fn local_addr(&self) -> Vec<u8> {
        let mut local = self.socket.local();
        // The protocol takes the place of the port.
        if let Protocol::Raw(protocol) = self.socket.protocol() {
            local.set_port(protocol.into());
        }
        addr::to_bytes(local)
    }
    fn peer_addr(&self) -> Result<Vec<u8>> {
        // A peer without a port is none.
        let remote = self.socket.remote()?;
        if remote.port() == 0 { Err(Errno::ENOTCONN) } else { Ok(addr::to_bytes(remote)) }
    }
    fn shutdown(&self, how: i32) -> Result<()> {
        let (read, write) = options::directions(how)?;
        self.socket.shutdown(read, write)
    }
}

impl Transfer for Datagrams {
    fn send(&self, cx: &dyn Caller, _names: &dyn Names, req: &mut SendRequest<'_>) -> Result<usize> {
        // IPv6 tells of datagrams that are too long in the error queue.
        let too_long = req.data.len() > 0xffff;
        if too_long && !self.socket.is_v6() {
            return Err(Errno::EMSGSIZE);
        }
        if req.flags & libc::MSG_OOB != 0 && !self.socket.is_v6() {
            return Err(Errno::EOPNOTSUPP);
        }
        let to = self.destination(req.addr)?;
        if too_long && !self.over_v6(to) {
            return Err(Errno::EMSGSIZE);
        }
        let more = req.flags & libc::MSG_MORE != 0;
        let control = match &req.control.other[..] {
            [] => SendControl { more, ..SendControl::default() },
            said => {
                let privileged = || extension::may_send_options(&self.ip_socket(), cx);
                // IP_FREEBIND is for bind(2) alone, IPV6_FREEBIND for both.
                let over_v6 = self.over_v6(to);
                let foreign =
                    self.socket.configure(self.net.now(), |ip| ip.transparent || over_v6 && ip.free_bind);
                let mut control = control::of_sender(self.net.stack(), (over_v6, foreign), said, privileged)?;
                crate::stamps::of_sender(cx, &self.net, &self.options, said, &mut control)?;
                SendControl { more, ..control }
            }
        };
        self.socket.send(self.net.now(), req.data, to, &control)
    }
    fn recv(&self, _cx: &dyn Caller, buf: &mut [u8], flags: i32) -> Result<Received> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            return self.recv_error(buf);
        }
        if flags & libc::MSG_OOB != 0 && self.is_raw() {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(told) = self.recv_too_large() {
            return Ok(told);
        }
        let got = self.take(buf, flags)?;
        // SIOCGSTAMP reports the last packet that was read without its time.
        if !self.common.wants.time() {
            self.stamp.note(got.datagram.at);
        }
        let cut = if got.copied < got.full { libc::MSG_TRUNC } else { 0 };
        let from = self.socket.shown(got.datagram.from);
        let told = control::of_datagram(&self.common.wants, &self.net, &got.datagram);
        Ok(Received {
            len: got.copied,
            full: got.full,
            addr: Some(addr::to_bytes(from)),
            flags: cut,
            control: Control { other: told, ..Control::default() },
        })
    }
    fn peeks_at_offset(&self) -> bool {
        !self.is_raw()
    }
    fn ended(&self) -> bool {
        self.socket.readiness().contains(notify::Events::RDHUP)
    }
}

impl SocketOptions for Datagrams {
    fn options(&self) -> &Options {
        &self.options
    }
    fn takes_socket_messages(&self) -> bool {
        true
    }
    fn get_common(&self, name: i32) -> Option<Result<Vec<u8>>> {
        if name == libc::SO_MEMINFO {
            let ((received, dropped), options) = (self.socket.queue_state(), &self.options);
            let [receive, send] = [options.rcvbuf(), options.sndbuf()].map(|bytes| bytes as u32);
            let words = [received as u32, receive, 0, send, 0, 0, 0, 0, dropped];
            return Some(Ok(words.iter().flat_map(|word| word.to_ne_bytes()).collect()));
        }
        match name {
            libc::SO_GET_FILTER => Some(Ok(self.socket.filter().unwrap_or_default())),
            SO_RCVMARK => Some(Ok(int(self.common.wants.get(libc::SOL_SOCKET, name) as i32))),
            libc::SO_TIMESTAMPING => {
                Some(Ok(int(self.socket.configure(self.net.now(), |o| o.timestamping) as i32)))
            }
            _ => self.socket.configure(self.net.now(), |o| self.common.get(&self.net, o, name)),
        }
    }
    fn set_common(&self, cx: &dyn Caller, name: i32, value: &[u8]) -> Option<Result<()>> {
        match name {
            libc::SO_ATTACH_FILTER => {
                return Some(Program::new(value).map(|filter| {
                    self.socket.set_filter(Some(Arc::new(filter)));
                }));
            }
            libc::SO_DETACH_FILTER => {
                return Some(if self.socket.set_filter(None) { Ok(()) } else { Err(Errno::ENOENT) });
            }
            libc::SO_ATTACH_REUSEPORT_CBPF => {
                let program = Program::new(value);
                return Some(program.and_then(|one| self.socket.set_group_program(Some(Arc::new(one)))));
            }
            SO_DETACH_REUSEPORT_BPF => {
                return Some(read_int(value).and_then(|_| self.socket.set_group_program(None)));
            }
            SO_RCVMARK => {
                return Some(read_int(value).and_then(|v| {
                    crate::stamps::may_ask_for_marks(cx, &self.net)?;
                    self.common.wants.set(libc::SOL_SOCKET, name, v != 0);
                    Ok(())
                }));
            }
            libc::SO_TIMESTAMPING => {
                return Some(read_int(value).and_then(|v| {
                    let tells = self.socket.configure(self.net.now(), |o| {
                        crate::stamps::set(o, v).map(|()| crate::stamps::tells_arrivals(o))
                    })?;
                    self.common.wants.set(libc::SOL_SOCKET, name, tells);
                    Ok(())
                }));
            }
            _ => {}
        }
        self.socket.configure(self.net.now(), |o| self.common.set(cx, &self.net, o, name, value))
    }
    fn option_changed(&self, name: i32) {
        self.socket.configure(self.net.now(), |options| options::apply(&self.options, options, name));
        options::apply_wants(&self.options, &self.common, name);
    }
    fn get_option_at(
        &self,
        cx: &dyn Caller,
        mem: &mut dyn UserMemory,
        option: (i32, i32),
        value: u64,
        room: usize,
    ) -> Option<Result<Vec<u8>>> {
        options::get_at(&self.ip_socket(), cx, mem, option, value, room)
    }
    fn set_option_at(
        &self,
        cx: &dyn Caller,
        mem: &mut dyn UserMemory,
        option: (i32, i32),
        value: u64,
        len: usize,
    ) -> Option<Result<()>> {
        options::set_at(&self.ip_socket(), cx, mem, option, value, len)
    }
    fn longest_option(&self, level: i32, name: i32) -> usize {
        options::longest(level, name)
    }
    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        options::get(&self.ip_socket(), level, name)
    }
    fn set_option(&self, cx: &dyn Caller, level: i32, name: i32, value: &[u8]) -> Result<()> {
        options::set(&self.ip_socket(), cx, level, name, value)
    }
    fn ioctl(&self, _cx: &dyn Caller, mem: &mut dyn UserMemory, cmd: u32, arg: u64) -> Result<u64> {
        if let Some(answer) = self.stamp.ioctl(self.net.clock(), mem, cmd, arg) {
            return answer;
        }
        let value = match u64::from(cmd) {
            libc::FIONREAD => self.socket.next_len() as i32,
            // Whatever was sent is on its way.
            libc::TIOCOUTQ => 0,
            _ => return Err(Errno::ENOTTY),
        };
        mem.write_value(arg, &value)?;
        Ok(0)
    }
}

impl SocketInfo for Datagrams {
    fn domain(&self) -> i32 {
        if self.socket.is_v6() { libc::AF_INET6 } else { libc::AF_INET }
    }
    fn kind(&self) -> i32 {
        if self.is_raw() { libc::SOCK_RAW } else { libc::SOCK_DGRAM }
    }
    fn protocol(&self) -> i32 {
        match self.socket.protocol() {
            Protocol::Udp => libc::IPPROTO_UDP,
            Protocol::UdpLite => libc::IPPROTO_UDPLITE,
            Protocol::Ping if self.socket.is_v6() => libc::IPPROTO_ICMPV6,
            Protocol::Ping => libc::IPPROTO_ICMP,
            Protocol::Raw(protocol) => protocol.into(),
        }
    }
    fn take_error(&self) -> Option<Errno> {
        self.socket.take_error()
    }
}

impl Datagrams {
    fn ip_socket(&self) -> options::Socket<'_> {
        options::Socket {
            v6: self.socket.is_v6(),
            net: &self.net,
            common: &self.common,
            kind: self.kind(),
            datagram: Some(&self.socket),
            stream: None,
        }
    }
}

//! sock_diag(7) for the internet protocols: the TCP, UDP and raw sockets of the namespace's stack, as ss(8) asks for them. Unix,
//! netlink and packet sockets are in `diag_other`.
//!
//! Sockets have no cookies. Other families are ENOENT, as on a kernel without their modules.

use super::asker::{Asker, MULTI};
use super::diag_filter::{Filter, Subject};
use super::error::Result;
use super::wire::{self, Message};
use crate::tcp_info;
use abi::Errno;
use ktime::Ktime;
use netstack::datagram::DatagramSocket;
use netstack::notify::Events;
use netstack::options::IpOptions;
use netstack::rows::{Row, Timer};
use netstack::tcp::{State, TcpSocket};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCPDIAG_GETSOCK: u16 = 18;
const SOCK_DESTROY: u16 = 21;
/// Length of `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// Attribute of a request: a program that filters sockets.
const BYTECODE: u16 = 1;
/// Attributes of an answer (INET_DIAG_*).
const MEMINFO: u16 = 1;
const INFO: u16 = 2;
const CONG: u16 = 4;
const TOS: u16 = 5;
const TCLASS: u16 = 6;
const SKMEMINFO: u16 = 7;
const SHUTDOWN: u16 = 8;
const PROTOCOL: u16 = 10;
const SKV6ONLY: u16 = 11;
const MARK: u16 = 15;
/// RCV_SHUTDOWN and SEND_SHUTDOWN.
const READ: u8 = 1;
const WRITE: u8 = 2;

/// What a dump asks for.
struct DiagRequest {
    family: i32,
    extensions: u8,
    states: u32,
    /// Own port and the peer's, 0 for any.
    ports: (u16, u16),
    /// The addresses of a request for one socket.
    addresses: [[u8; 16]; 2],
    /// The asker may see marks.
    admin: bool,
}

impl DiagRequest {
    fn parse(body: &[u8], admin: bool) -> Result<DiagRequest> {
        let request: &[u8; REQUEST] = body.first_chunk().ok_or(Errno::EINVAL)?;
        let port = |at: usize| u16::from_be_bytes([request[at], request[at + 1]]);
        let address = |at: usize| request[at..].first_chunk().copied().unwrap_or_default();
        Ok(DiagRequest {
            addresses: [address(12), address(28)],
            family: request[0].into(),
            extensions: request[2],
            states: u32::from_ne_bytes([request[4], request[5], request[6], request[7]]),
            ports: (port(8), port(10)),
            admin,
        })
    }

    /// Whether a socket is one of those asked for.
    fn has(&self, row: &Row) -> bool {
        let family = if row.v6 { libc::AF_INET6 } else { libc::AF_INET };
        let port = |wanted: u16, has: u16| wanted == 0 || wanted == has;
        family == self.family
            && self.states & 1u32.checked_shl(row.state.into()).unwrap_or(0) != 0
            && port(self.ports.0, row.local.port())
            && port(self.ports.1, row.remote.port())
    }

    /// Whether a socket is the one asked for: with these addresses, or the one that would accept from there.
    fn is(&self, row: &Row) -> bool {
        let whole = |at: usize, has: SocketAddr| address(has, row.v6) == self.addresses[at];
        let family = if row.v6 { libc::AF_INET6 } else { libc::AF_INET };
        let open = row.remote.port() == 0;
        family == self.family
            && self.ports.0 == row.local.port()
            && (whole(0, row.local) || (open && row.local.ip().is_unspecified()))
            && (open || (self.ports.1 == row.remote.port() && whole(1, row.remote)))
    }

    /// Whether an attribute is asked for.
    fn asks(&self, attribute: u16) -> bool {
        self.extensions & 1 << (attribute - 1) != 0
    }
}

/// A socket of one of the protocols.
enum DiagSocket {
    Tcp(Arc<TcpSocket>),
    Datagram(Arc<DatagramSocket>, bool),
}

impl DiagSocket {
    fn row(&self, now: Ktime) -> Row {
        match self {
            DiagSocket::Tcp(socket) => socket.row(now),
            DiagSocket::Datagram(socket, _) => socket.row(),
        }
    }

    fn subject(&self, now: Ktime) -> Subject {
        let ip = match self {
            DiagSocket::Tcp(socket) => socket.configure(now, |o| o.ip.clone()),
            DiagSocket::Datagram(socket, _) => socket.configure(now, |o| o.clone()),
        };
        Subject { device: ip.device, mark: ip.mark }
    }

    fn describe(
        &self,
        new: impl Fn() -> Message,
        wanted: &DiagRequest,
        (row, now): (&Row, Ktime),
    ) -> Vec<u8> {
        match self {
            DiagSocket::Tcp(socket) => tcp(new, wanted, socket, (row, now)),
            DiagSocket::Datagram(socket, raw) => datagram(new, wanted, socket, *raw, (row, now)),
        }
    }

    /// SOCK_DESTROY.
    fn destroy(&self, now: Ktime) {
        match self {
            DiagSocket::Tcp(socket) => socket.destroy(now),
            DiagSocket::Datagram(socket, _) => socket.destroy(),
        }
    }
}

/// The sockets of a protocol; `None` for an unknown one.
fn sockets(asker: &Asker<'_>, protocol: u8) -> Option<Vec<DiagSocket>> {
    let stack = asker.net.stack();
    let datagrams = |all: Vec<Arc<DatagramSocket>>, raw: bool| {
        all.into_iter().map(|socket| DiagSocket::Datagram(socket, raw)).collect()
    };
    match protocol.into() {
        libc::IPPROTO_TCP => Some(stack.tcp_sockets().into_iter().map(DiagSocket::Tcp).collect()),
        libc::IPPROTO_UDP => Some(datagrams(stack.udp_sockets(), false)),
        libc::IPPROTO_UDPLITE => Some(datagrams(stack.udp_lite_sockets(), false)),
        libc::IPPROTO_RAW => Some(datagrams(stack.raw_sockets(), true)),
        _ => None,
    }
}

/// What answers a request; `None` is a mere acknowledgement.
pub(super) fn answer(asker: &Asker<'_>) -> Result<Option<Vec<Vec<u8>>>> {
    let [family, protocol, ..] = *asker.body() else { return Err(Errno::EINVAL.into()) };
    let destroys = match asker.header.kind {
        SOCK_DIAG_BY_FAMILY => false,
        SOCK_DESTROY => true,
        // The older form of a dump.
        TCPDIAG_GETSOCK => return Err(Errno::EOPNOTSUPP.into()),
        _ => return Err(Errno::EINVAL.into()),
    };
    match family.into() {
        libc::AF_INET | libc::AF_INET6 => {}
        libc::AF_UNIX | libc::AF_NETLINK | libc::AF_PACKET if destroys => {
            return Err(Errno::EOPNOTSUPP.into());
        }
        libc::AF_UNIX => return super::diag_other::unix(asker).map(Some),
        libc::AF_NETLINK => return super::diag_other::netlink(asker).map(Some),
        libc::AF_PACKET => return super::diag_other::packet(asker).map(Some),
        _ => return Err(Errno::ENOENT.into()),
    }
    let wanted = DiagRequest::parse(asker.body(), asker.is_admin())?;
    let all = sockets(asker, protocol);
    let now = || asker.net.now();
    if destroys || !asker.dumps() {
        let one = all.iter().flatten().find(|found| wanted.is(&found.row(now()))).ok_or(Errno::ENOENT)?;
        if destroys && !wanted.admin {
            return Err(Errno::EPERM.into());
        }
        if destroys {
            one.destroy(now());
            return Ok(None);
        }
        let new = || asker.reply(SOCK_DIAG_BY_FAMILY, 0);
        return Ok(Some(vec![one.describe(new, &wanted, (&one.row(now()), now()))]));
    }
    let program = wire::attribute(asker.message, REQUEST, BYTECODE).filter(|program| !program.is_empty());
    let filter = program.map(|program| Filter::new(program, wanted.admin)).transpose()?;
    let new = || Message::new(SOCK_DIAG_BY_FAMILY, MULTI, asker.header.seq, asker.port);
    let describe = |found: &DiagSocket| {
        let row = Some(found.row(now())).filter(|row| wanted.has(row))?;
        let chosen = filter.as_ref().is_none_or(|filter| filter.accepts(&row, &found.subject(now())));
        chosen.then(|| found.describe(new, &wanted, (&row, now())))
    };
    // A dump of an unknown protocol ends with the error.
    let code = if all.is_some() { 0 } else { -Errno::ENOENT.raw() };
    let items = all.iter().flatten().filter_map(describe).collect();
    Ok(Some(asker.dump_ending(items, code)))
}

fn tcp(
    new: impl Fn() -> Message,
    wanted: &DiagRequest,
    socket: &TcpSocket,
    (row, now): (&Row, Ktime),
) -> Vec<u8> {
    let (ip, congestion) = socket.configure(now, |o| (o.ip.clone(), o.congestion));
    // A listener's send queue is its backlog.
    let tx = if row.state == State::Listen as u8 { socket.info(now).sacked } else { row.tx as u32 };
    let message = new().fixed(&fixed(row, tx, ip.device));
    if row.state == State::TimeWait as u8 {
        return message.done();
    }
    let mut message = shared(message, wanted, row, &ip).attribute(SHUTDOWN, &[shutdown(socket, row.state)]);
    if wanted.asks(INFO) {
        message = message.attribute(INFO, &tcp_info::bytes(socket, now));
    }
    if wanted.asks(CONG) {
        message = message.text(CONG, congestion.name());
    }
    let (send, receive) = socket.buffers();
    memory(message, wanted, (row, socket.send_charge()), (receive, send)).done()
}

fn datagram(
    new: impl Fn() -> Message,
    wanted: &DiagRequest,
    socket: &Arc<DatagramSocket>,
    raw: bool,
    (row, now): (&Row, Ktime),
) -> Vec<u8> {
    let ip = socket.configure(now, |o| o.clone());
    let message = new().fixed(&fixed(row, row.tx as u32, ip.device));
    let mut message = shared(message, wanted, row, &ip).attribute(SHUTDOWN, &[0]);
    if raw {
        message = message.attribute(PROTOCOL, &[row.local.port() as u8]);
    }
    let sysctls = &socket.network().sysctls;
    memory(message, wanted, (row, row.tx), (sysctls.rmem_default.size(), sysctls.wmem_default.size())).done()
}

/// INET_DIAG_MEMINFO and INET_DIAG_SKMEMINFO, as far as the stack counts: what waits in both queues, and their limits.
fn memory(
    mut message: Message,
    wanted: &DiagRequest,
    (row, sent): (&Row, usize),
    (receive, send): (usize, usize),
) -> Message {
    let listens = row.state == State::Listen as u8;
    let (rx, tx) = if listens { (0, 0) } else { (row.rx as u32, sent as u32) };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    if wanted.asks(MEMINFO) {
        message = message.attribute(MEMINFO, &words(&[rx, tx, 0, 0]));
    }
    if wanted.asks(SKMEMINFO) {
        let all = [rx, receive as u32, 0, send as u32, 0, tx, 0, 0, row.drops];
        message = message.attribute(SKMEMINFO, &words(&all));
    }
    message
}

/// Which directions are shut: what has come to an end for the reader, and a FIN of one's own.
fn shutdown(socket: &TcpSocket, state: u8) -> u8 {
    let events = socket.readiness();
    let sent =
        [State::FinWait1, State::FinWait2, State::Closing, State::LastAck].iter().any(|s| *s as u8 == state);
    match events {
        events if events.contains(Events::HUP) => READ | WRITE,
        events => u8::from(events.contains(Events::RDHUP)) * READ + u8::from(sent) * WRITE,
    }
}

/// Attributes that TCP and datagram sockets share.
fn shared(mut message: Message, wanted: &DiagRequest, row: &Row, ip: &IpOptions) -> Message {
    if wanted.asks(TOS) {
        message = message.attribute(TOS, &[ip.tos]);
    }
    if row.v6 {
        if wanted.asks(TCLASS) {
            message = message.attribute(TCLASS, &[ip.class]);
        }
        if [State::Listen as u8, State::Closed as u8].contains(&row.state) {
            message = message.attribute(SKV6ONLY, &[(ip.v6only || is_v6_address(row.local)).into()]);
        }
    }
    if wanted.admin { message.number(MARK, ip.mark) } else { message }
}

/// An IPv6 address other than the unspecified one: a socket bound to it gets nothing by IPv4.
fn is_v6_address(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V6(v6) if !v6.is_unspecified() && v6.to_ipv4_mapped().is_none())
}

/// `struct inet_diag_msg`.
fn fixed(row: &Row, tx: u32, device: u32) -> Vec<u8> {
    let family = if row.v6 { libc::AF_INET6 } else { libc::AF_INET };
    let tries = match row.timer.0 {
        Timer::Retransmission => row.retransmits,
        Timer::Probe | Timer::Keepalive => row.probes,
        Timer::Off | Timer::TimeWait => 0,
    };
    let mut out = vec![family as u8, row.state, row.timer.0 as u8, tries.min(255) as u8];
    out.extend(row.local.port().to_be_bytes());
    out.extend(row.remote.port().to_be_bytes());
    out.extend(address(row.local, row.v6));
    out.extend(address(row.remote, row.v6));
    out.extend(device.to_ne_bytes());
    // INET_DIAG_NOCOOKIE: sockets have no cookies.
    out.extend([0xff; 8]);
    let left = u32::try_from(row.timer.1.as_millis()).unwrap_or(u32::MAX);
    for word in [left, row.rx as u32, tx, row.uid, row.inode as u32] {
        out.extend(word.to_ne_bytes());
    }
    out
}

/// An address as the four words of `struct inet_diag_sockid`.
fn address(address: SocketAddr, v6: bool) -> [u8; 16] {
    match address.ip() {
        IpAddr::V6(v6) => v6.octets(),
        IpAddr::V4(v4) if v6 => v4.to_ipv6_mapped().octets(),
        IpAddr::V4(v4) => {
            let mut out = [0; 16];
            out[..4].copy_from_slice(&v4.octets());
            out
        }
    }
}

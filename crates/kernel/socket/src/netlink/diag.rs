//! sock_diag(7) for the internet protocols: the TCP, UDP and raw sockets of the namespace's stack, as ss(8) asks for them.
//!
//! Only dumps are answered. Other families are ENOENT, as on a kernel without their modules; ss(8) then reads /proc/net.

use super::answer::{MULTI, NLMSG_DONE, joined};
use super::wire::{self, HEADER, Header, Message};
use crate::net_ns::{NetNamespace, now};
use crate::tcp_info;
use abi::Errno;
use netstack::datagram::DatagramSocket;
use netstack::notify::Events;
use netstack::options::IpOptions;
use netstack::rows::{Row, Timer};
use netstack::tcp::{State, TcpSocket};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use vfs::{Caller, Cap};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCPDIAG_GETSOCK: u16 = 18;
const SOCK_DESTROY: u16 = 21;
/// Length of `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// Attribute of a request: a program that filters sockets.
const BYTECODE: u16 = 1;
/// Attributes of an answer (INET_DIAG_*).
const INFO: u16 = 2;
const CONG: u16 = 4;
const TOS: u16 = 5;
const TCLASS: u16 = 6;
const SHUTDOWN: u16 = 8;
const PROTOCOL: u16 = 10;
const SKV6ONLY: u16 = 11;
const MARK: u16 = 15;
/// RCV_SHUTDOWN and SEND_SHUTDOWN.
const READ: u8 = 1;
const WRITE: u8 = 2;

/// What a dump asks for.
struct Wanted {
    family: i32,
    extensions: u8,
    states: u32,
    /// Own port and the peer's, 0 for any.
    ports: (u16, u16),
    /// The asker may see marks.
    admin: bool,
}

impl Wanted {
    fn parse(body: &[u8], admin: bool) -> Result<Wanted, Errno> {
        let request: &[u8; REQUEST] = body.first_chunk().ok_or(Errno::EINVAL)?;
        let port = |at: usize| u16::from_be_bytes([request[at], request[at + 1]]);
        Ok(Wanted {
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

    /// Whether an attribute is asked for.
    fn asks(&self, attribute: u16) -> bool {
        self.extensions & 1 << (attribute - 1) != 0
    }
}

/// The datagrams that answer a request.
pub(super) fn answer(
    net: &NetNamespace,
    header: Header,
    message: &[u8],
    port: u32,
    cx: &dyn Caller,
) -> Result<Vec<Vec<u8>>, Errno> {
    let body = message.get(HEADER..).unwrap_or_default();
    let [family, protocol, ..] = *body else { return Err(Errno::EINVAL) };
    match header.kind {
        SOCK_DIAG_BY_FAMILY => {}
        // The older form of a dump (TCPDIAG_GETSOCK), and closing sockets.
        TCPDIAG_GETSOCK | SOCK_DESTROY => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EINVAL),
    }
    if !matches!(family.into(), libc::AF_INET | libc::AF_INET6) {
        return Err(Errno::ENOENT);
    }
    let wanted = Wanted::parse(body, cx.creds().ns_capable(net.user_ns(), Cap::NET_ADMIN))?;
    let dump = i32::from(header.flags) & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
    if !dump || wire::attribute(message, REQUEST, BYTECODE).is_some_and(|program| !program.is_empty()) {
        return Err(Errno::EOPNOTSUPP);
    }
    let new = || Message::new(SOCK_DIAG_BY_FAMILY, MULTI, header.seq, port);
    let stack = net.stack();
    let datagrams = |all: Vec<Arc<DatagramSocket>>, raw: bool| {
        all.iter().filter_map(|socket| datagram(new, &wanted, socket, raw)).collect()
    };
    let (items, code) = match protocol.into() {
        libc::IPPROTO_TCP => (stack.tcp_sockets().iter().filter_map(|s| tcp(new, &wanted, s)).collect(), 0),
        libc::IPPROTO_UDP => (datagrams(stack.udp_sockets(), false), 0),
        libc::IPPROTO_RAW => (datagrams(stack.raw_sockets(), true), 0),
        // A dump of an unknown protocol ends with the error.
        _ => (Vec::new(), -Errno::ENOENT.raw()),
    };
    let done = Message::new(NLMSG_DONE, MULTI, header.seq, port).fixed(&code.to_ne_bytes()).done();
    Ok(joined(items, done))
}

fn tcp(new: impl Fn() -> Message, wanted: &Wanted, socket: &TcpSocket) -> Option<Vec<u8>> {
    let time = now();
    let row = Some(socket.row(time)).filter(|row| wanted.has(row))?;
    let (ip, congestion) = socket.configure(time, |o| (o.ip.clone(), o.congestion));
    // A listener's send queue is its backlog.
    let tx = if row.state == State::Listen as u8 { socket.info(time).sacked } else { row.tx as u32 };
    let message = new().fixed(&fixed(&row, tx, ip.device));
    if row.state == State::TimeWait as u8 {
        return Some(message.done());
    }
    let mut message = shared(message, wanted, &row, &ip).attribute(SHUTDOWN, &[shutdown(socket, row.state)]);
    if wanted.asks(INFO) {
        message = message.attribute(INFO, &tcp_info::bytes(socket));
    }
    if wanted.asks(CONG) {
        message = message.text(CONG, congestion.name());
    }
    Some(message.done())
}

fn datagram(
    new: impl Fn() -> Message,
    wanted: &Wanted,
    socket: &Arc<DatagramSocket>,
    raw: bool,
) -> Option<Vec<u8>> {
    let row = Some(socket.row()).filter(|row| wanted.has(row))?;
    let ip = socket.configure(now(), |o| o.clone());
    let mut message = shared(new().fixed(&fixed(&row, row.tx as u32, ip.device)), wanted, &row, &ip)
        .attribute(SHUTDOWN, &[0]);
    if raw {
        message = message.attribute(PROTOCOL, &[row.local.port() as u8]);
    }
    Some(message.done())
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
fn shared(mut message: Message, wanted: &Wanted, row: &Row, ip: &IpOptions) -> Message {
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

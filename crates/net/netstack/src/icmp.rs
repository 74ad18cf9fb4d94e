//! ICMP and ICMPv6: echo, errors about packets, errors to sockets.

use crate::buf::Buf;
use crate::frame::Offload;
use crate::iface::LOOPBACK;
use crate::path::{Cast, Header};
use crate::received::Packet;
use crate::route::Key;
use crate::stack::Stack;
use crate::time::Instant;
use crate::wire::icmp::{self, Icmp, Quoted, SocketError};
use crate::wire::ip::IpInfo;
use crate::wire::proto;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Why a packet could not be handled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Problem {
    /// No socket has the port.
    NoPort,
    /// No protocol has the number.
    NoProtocol,
    /// No route.
    NoRoute,
    /// The next hop does not answer.
    HostUnreachable,
    /// The TTL is used up.
    TimeExceeded,
    /// Fragments are missing.
    Reassembly,
    /// The next link is too narrow.
    TooBig { mtu: u32 },
    /// A header field is wrong.
    Parameter { pointer: u32 },
    /// An option of IPv6 is not known. `to_groups` says that the senders to groups are told, too.
    Option { pointer: u32, to_groups: bool },
    /// A packet filter refuses it.
    Rejected { kind: u8, code: u8 },
}

impl Problem {
    /// Type, code and the four bytes after the checksum.
    fn header(self, v6: bool) -> (u8, u8, [u8; 4]) {
        let zero = [0; 4];
        match (self, v6) {
            (Problem::NoPort, false) => (icmp::UNREACHABLE, 3, zero),
            (Problem::NoPort, true) => (icmp::UNREACHABLE6, 4, zero),
            (Problem::NoProtocol, false) => (icmp::UNREACHABLE, 2, zero),
            (Problem::NoProtocol, true) => (icmp::PARAMETER6, 1, 6u32.to_be_bytes()),
            (Problem::NoRoute, false) => (icmp::UNREACHABLE, 0, zero),
            (Problem::NoRoute, true) => (icmp::UNREACHABLE6, 0, zero),
            (Problem::HostUnreachable, false) => (icmp::UNREACHABLE, 1, zero),
            (Problem::HostUnreachable, true) => (icmp::UNREACHABLE6, 3, zero),
            (Problem::TimeExceeded, false) => (icmp::TIME_EXCEEDED, 0, zero),
            (Problem::TimeExceeded, true) => (icmp::TIME_EXCEEDED6, 0, zero),
            (Problem::Reassembly, false) => (icmp::TIME_EXCEEDED, 1, zero),
            (Problem::Reassembly, true) => (icmp::TIME_EXCEEDED6, 1, zero),
            (Problem::TooBig { mtu }, false) => (icmp::UNREACHABLE, 4, mtu.min(0xffff).to_be_bytes()),
            (Problem::TooBig { mtu }, true) => (icmp::TOO_BIG6, 0, mtu.to_be_bytes()),
            (Problem::Parameter { pointer }, false) => (icmp::PARAMETER, 0, (pointer << 24).to_be_bytes()),
            (Problem::Parameter { pointer }, true) => (icmp::PARAMETER6, 0, pointer.to_be_bytes()),
            (Problem::Option { pointer, .. }, _) => (icmp::PARAMETER6, 2, pointer.to_be_bytes()),
            (Problem::Rejected { kind, code }, _) => (kind, code, zero),
        }
    }
}

/// Bounds ICMP errors per second (RFC 1812 section 4.3.2.8): a bucket (`icmp_msgs_burst`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limiter {
    /// Thousandths of a message.
    credit: u64,
    last: Option<Instant>,
}

impl Limiter {
    fn allow(&mut self, now: Instant, per_second: u64, most: u64) -> bool {
        let most = most.saturating_mul(1000);
        if per_second == 0 {
            return true;
        }
        let gained = self
            .last
            .map_or(most, |last| (now.since(last).as_micros() as u64).saturating_mul(per_second) / 1000);
        // A gain below one unit is not lost: the time is kept.
        if gained > 0 {
            self.last = Some(now);
        }
        self.credit = (self.credit + gained).min(most);
        let allowed = self.credit >= 1000;
        self.credit -= if allowed { 1000 } else { 0 };
        allowed
    }
}

impl Stack {
    /// Takes a message for this host.
    pub(crate) fn icmp_input(self: &Arc<Self>, packet: &Packet<'_>) {
        let v6 = packet.info.dst.is_ipv6();
        let counters = if v6 { &self.counters.icmp6 } else { &self.counters.icmp };
        counters.in_msgs.bump();
        let Some(header) = Icmp::parse(&packet.info, packet.payload()) else {
            counters.in_csum_errors.bump();
            return counters.in_errors.bump();
        };
        match (v6, header.kind) {
            (false, icmp::ECHO) | (true, icmp::ECHO6) => {
                counters.in_echos.bump();
                self.echo(packet, &header);
            }
            (false, icmp::ECHO_REPLY) | (true, icmp::ECHO_REPLY6) => {
                counters.in_echo_reps.bump();
                self.ping_input(packet, &header);
            }
            (true, icmp::NEIGHBOUR_SOLICIT | icmp::NEIGHBOUR_ADVERT) => self.discovery_input(packet, &header),
            (true, icmp::ROUTER_ADVERT) => self.router_input(packet, &header),
            (true, icmp::LISTENER_QUERY) => self.listener_query(packet),
            _ => self.icmp_error_input(packet, &header),
        }
    }

    /// A router asks for multicast listeners (RFC 2710).
    fn listener_query(self: &Arc<Self>, packet: &Packet<'_>) {
        let group = packet.payload().get(Icmp::LEN..).and_then(|body| body.first_chunk::<16>());
        let Some(group) = group.map(|bytes| std::net::Ipv6Addr::from(*bytes)) else { return };
        if packet.info.ttl == 1 {
            let asked = (!group.is_unspecified()).then_some(IpAddr::V6(group));
            self.answer_query(packet.now, packet.iface, true, asked);
        }
    }

    fn echo(self: &Arc<Self>, packet: &Packet<'_>, header: &Icmp) {
        let group = !matches!(packet.cast, Cast::Local | Cast::Unicast);
        let v4 = packet.info.dst.is_ipv4();
        let quiet = v4 && group && self.sysctls.icmp_echo_ignore_broadcasts.on();
        if self.sysctls.icmp_echo_ignore_all.on() || quiet {
            return;
        }
        let body = packet.payload().get(Icmp::LEN..).unwrap_or_default();
        let kind = if v4 { icmp::ECHO_REPLY } else { icmp::ECHO_REPLY6 };
        let src = (!group).then_some(packet.info.dst);
        self.send_icmp(
            packet.now,
            (src, packet.info.src),
            packet.iface.index,
            (kind, 0, header.rest),
            body,
            packet.info.tos,
        );
    }

    /// Sends a message.
    fn send_icmp(
        self: &Arc<Self>,
        now: Instant,
        (src, dst): (Option<IpAddr>, IpAddr),
        oif: u32,
        (kind, code, rest): (u8, u8, [u8; 4]),
        body: &[u8],
        tos: u8,
    ) {
        let v6 = dst.is_ipv6();
        let scoped = crate::addr::scope(dst) == crate::addr::Scope::Link;
        let key = Key { src, oif: if scoped { oif } else { 0 }, tos, ..Key::to(dst) };
        let Ok(path) = self.route(&key, now) else { return };
        let counters = if v6 { &self.counters.icmp6 } else { &self.counters.icmp };
        let between = match (path.src, path.dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some((src, dst)),
            _ => None,
        };
        let mut buf = self.pool.copy(body);
        buf.push_front(Icmp::new(kind, code, rest).sealed(between, body).as_bytes());
        counters.out_msgs.bump();
        match kind {
            icmp::ECHO_REPLY if !v6 => counters.out_echo_reps.bump(),
            icmp::ECHO_REPLY6 => counters.out_echo_reps.bump(),
            _ => counters.out_errors.bump(),
        }
        let protocol = if v6 { proto::ICMPV6 } else { proto::ICMP };
        let header = Header { protocol, tos, flow: u32::from(rest[0]), ..Header::default() };
        let _ = self.send_ip(now, &path, &header, buf, Offload::default());
    }

    /// Tells the sender of a packet what is wrong with it, unless RFC 1122 section 3.2.2 forbids it.
    pub(crate) fn icmp_problem(self: &Arc<Self>, packet: &Packet<'_>, problem: Problem) {
        let v6 = packet.info.dst.is_ipv6();
        let always = matches!(problem, Problem::TooBig { .. } | Problem::Option { to_groups: true, .. });
        let to_group = matches!(packet.cast, Cast::Broadcast | Cast::Multicast) && !(v6 && always);
        let src = packet.info.src;
        if to_group || src.is_unspecified() || src.is_multicast() || about_error(packet) {
            return;
        }
        let limit = self.sysctls.icmp_msgs_per_sec.size() as u64;
        let burst = self.sysctls.icmp_msgs_burst.size() as u64;
        if packet.iface.index != LOOPBACK && !self.limiter.lock().allow(packet.now, limit, burst) {
            return;
        }
        // RFC 1812 asks for as much as fits 576 bytes, RFC 4443 for 1280.
        let room = if v6 { 1280 - 40 - Icmp::LEN } else { 576 - 20 - Icmp::LEN };
        let quote = packet.buf.get(..packet.buf.len().min(room)).unwrap_or_default();
        let own = (packet.cast == Cast::Local).then_some(packet.info.dst);
        let tos = if v6 { 0 } else { (packet.info.tos & 0x1e) | 0xc0 };
        self.send_icmp(packet.now, (own, src), packet.iface.index, problem.header(v6), quote, tos);
    }

    /// A packet of ours (or one that we forward) found no neighbour.
    pub(crate) fn host_unreachable(self: &Arc<Self>, now: Instant, buf: Buf) {
        self.own_problem(now, buf, Problem::HostUnreachable);
    }

    /// Fragments of a packet are missing.
    pub(crate) fn reassembly_timeout(self: &Arc<Self>, now: Instant, first: Buf) {
        self.own_problem(now, first, Problem::Reassembly);
    }

    fn own_problem(self: &Arc<Self>, now: Instant, buf: Buf, problem: Problem) {
        let v6 = buf.first().is_some_and(|first| first >> 4 == 6);
        let (Some(iface), Some(quote)) = (self.link(LOOPBACK), icmp::quoted(&buf, v6)) else { return };
        let info = quote.info;
        if self.is_local(info.src) && !matches!(problem, Problem::Reassembly) {
            let (kind, code, rest) = problem.header(v6);
            if let Some(error) = icmp::socket_error(&Icmp::new(kind, code, rest), v6) {
                self.error_to_socket(now, &quote, &error, (kind, code), info.src);
            }
            return;
        }
        let cast = Cast::Unicast;
        let packet = Packet { now, iface: &iface, info, verified: true, cast, mark: 0, buf: buf.clone() };
        self.icmp_problem(&packet, problem);
    }

    /// Tells the sender of a packet that a filter refused it. `input` is the interface that received the packet, 0 for a packet of
    /// this host.
    pub fn send_error_about(self: &Arc<Self>, now: Instant, packet: &[u8], input: u32, kind: (u8, u8)) {
        let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let iface = self.link(if input == 0 { LOOPBACK } else { input });
        let (Some(iface), Some(quote)) = (iface, icmp::quoted(packet, v6)) else { return };
        let info = quote.info;
        let cast = match info.dst {
            dst if dst.is_multicast() => Cast::Multicast,
            dst if dst == Ipv4Addr::BROADCAST => Cast::Broadcast,
            dst if self.is_local(dst) => Cast::Local,
            _ => Cast::Unicast,
        };
        let packet =
            Packet { now, iface: &iface, info, verified: true, cast, mark: 0, buf: self.pool.copy(packet) };
        self.icmp_problem(&packet, Problem::Rejected { kind: kind.0, code: kind.1 });
    }

    /// Takes an error about a packet that this host sent.
    fn icmp_error_input(self: &Arc<Self>, packet: &Packet<'_>, header: &Icmp) {
        let v6 = packet.info.dst.is_ipv6();
        let counters = if v6 { &self.counters.icmp6 } else { &self.counters.icmp };
        let body = packet.payload().get(Icmp::LEN..).unwrap_or_default();
        let error = icmp::socket_error(header, v6);
        let (Some(error), Some(quote)) = (error, icmp::quoted(body, v6)) else { return };
        if header.kind == if v6 { icmp::UNREACHABLE6 } else { icmp::UNREACHABLE } {
            counters.in_dest_unreachs.bump();
        }
        if packet.cast == Cast::Local {
            self.error_to_socket(packet.now, &quote, &error, (header.kind, header.code), packet.info.src);
        }
    }

    /// Hands an error to the socket that sent the quoted packet; a path MTU counts only when such a socket exists.
    fn error_to_socket(
        self: &Arc<Self>,
        now: Instant,
        quote: &Quoted<'_>,
        error: &SocketError,
        kind: (u8, u8),
        from: IpAddr,
    ) {
        if quote.info.protocol == proto::TCP {
            self.tcp_error(now, quote, error);
        } else {
            self.datagram_error(now, quote, error, kind, from);
        }
    }

    /// Remembers a path MTU that an error told.
    pub(crate) fn learn_mtu(&self, now: Instant, info: &IpInfo, mtu: u32) {
        let floor = if info.dst.is_ipv4() { self.sysctls.min_pmtu.size() as u32 } else { 1280 };
        let keep = Duration::from_secs(self.sysctls.mtu_expires.size() as u64);
        // A zero comes from routers before RFC 1191.
        let mtu = if mtu == 0 { 576 } else { mtu }.max(floor);
        if self.pmtus.write().set(info.dst, mtu, now, keep) {
            self.changed();
        }
    }
}

/// True when a packet is an ICMP error itself, or a fragment that is not the first.
fn about_error(packet: &Packet<'_>) -> bool {
    let kind = packet.payload().first().copied();
    match packet.info.protocol {
        proto::ICMP => !matches!(kind, Some(icmp::ECHO_REPLY | icmp::ECHO | 13..=18)),
        proto::ICMPV6 => kind.is_none_or(|kind| kind < 128),
        _ => crate::wire::ip::Ipv4::parse_quoted(&packet.buf).is_some_and(|ip| ip.offset() > 0),
    }
}

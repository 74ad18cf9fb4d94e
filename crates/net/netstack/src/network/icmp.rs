//! ICMP and ICMPv6: echo, errors about packets, errors to sockets.

use super::hooks::Answers;
use super::layer::Network;
use super::path::{Cast, Header};
use super::received::Packet;
use super::route::Key;
use crate::buf::Buf;
use crate::checksum::Sum;
use crate::device::iface::LOOPBACK;
use crate::frame::{Frame, Offload, Part, Tags};
use crate::wire::icmp::{self, Icmp, Quoted, SocketError};
use crate::wire::ip::{IpInfo, Ipv4};
use crate::wire::ipv6::Ipv6;
use crate::wire::proto;
use conntrack::Flow;
use ktime::Ktime;
use std::net::{IpAddr, Ipv4Addr};
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
    pub(crate) fn header(self, v6: bool) -> (u8, u8, [u8; 4]) {
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

impl Network {
    pub(crate) fn echo(&self, packet: &Packet, header: &Icmp) {
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
            (packet.iface.index, Flow::None),
            (kind, 0, header.rest),
            body,
            packet.info.tos,
        );
    }

    /// Sends a message. An error belongs to the connection of the packet that it is about.
    fn send_icmp(
        &self,
        now: Ktime,
        (src, dst): (Option<IpAddr>, IpAddr),
        (oif, flow): (u32, Flow),
        (kind, code, rest): (u8, u8, [u8; 4]),
        body: &[u8],
        tos: u8,
    ) {
        let v6 = dst.is_ipv6();
        let scoped = crate::addr::scope(dst) == crate::addr::Scope::Link;
        let key = Key { src, oif: if scoped { oif } else { 0 }, tos, ..Key::to(dst) };
        let Ok(path) = self.route(&key, now) else { return };
        let between = match (path.src, path.dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some((src, dst)),
            _ => None,
        };
        let mut buf = self.links.pool.copy(body);
        buf.push_front(Icmp::new(kind, code, rest).sealed(between, body).as_bytes());
        self.counters.icmp_sent(v6, kind);
        let protocol = if v6 { proto::ICMPV6 } else { proto::ICMP };
        let header = Header { protocol, tos, flow: u32::from(rest[0]), ..Header::default() };
        let tags = Tags { flow, ..Tags::default() };
        let _ = self.send_tagged(now, &path, &header, (buf, Offload::default()), tags);
    }

    /// Tells the sender of a packet what is wrong with it, unless RFC 1122 section 3.2.2 forbids it.
    pub(crate) fn icmp_problem(&self, packet: &Packet, problem: Problem) {
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
        let via = (packet.iface.index, packet.flow.answer());
        self.send_icmp(packet.now, (own, src), via, problem.header(v6), quote, tos);
    }

    /// Fragments of a packet are missing: tells its sender.
    pub(crate) fn reassembly_timeout(&self, now: Ktime, first: Buf) {
        let v6 = first.first().is_some_and(|first| first >> 4 == 6);
        if let Some(quote) = icmp::quoted(&first, v6) {
            let info = quote.info;
            let from = (LOOPBACK, Flow::None);
            self.problem_of(now, first.clone(), info, from, Cast::Unicast, Problem::Reassembly);
        }
    }

    /// Tells the sender of a packet, whose headers are read already, what is wrong with it.
    pub(crate) fn problem_of(
        &self,
        now: Ktime,
        buf: Buf,
        info: IpInfo,
        (input, flow): (u32, Flow),
        cast: Cast,
        problem: Problem,
    ) {
        let Some(iface) = self.link(input) else { return };
        let part = Part::Alone;
        let packet = Packet { now, iface, info, verified: true, cast, mark: 0, flow, part, buf };
        self.icmp_problem(&packet, problem);
    }

    /// Reads an error about a packet that this host sent, for the socket that sent it.
    pub(crate) fn error_about<'a>(&self, packet: &'a Packet, header: &Icmp) -> Option<ErrorAbout<'a>> {
        let v6 = packet.info.dst.is_ipv6();
        let counters = if v6 { &self.counters.icmp6 } else { &self.counters.icmp };
        let body = packet.payload().get(Icmp::LEN..).unwrap_or_default();
        let (error, quote) = (icmp::socket_error(header, v6)?, icmp::quoted(body, v6)?);
        if header.kind == if v6 { icmp::UNREACHABLE6 } else { icmp::UNREACHABLE } {
            counters.in_dest_unreachs.bump();
        }
        let kind = (header.kind, header.code);
        (packet.cast == Cast::Local).then_some(ErrorAbout { quote, error, kind, from: packet.info.src })
    }
}

/// An ICMP error about a packet of this host.
pub(crate) struct ErrorAbout<'a> {
    pub(crate) quote: Quoted<'a>,
    pub(crate) error: SocketError,
    /// Type and code.
    pub(crate) kind: (u8, u8),
    /// The host that sent the error.
    pub(crate) from: IpAddr,
}

impl Answers for Network {
    fn send_error_about(&self, now: Ktime, packet: &[u8], (input, flow): (u32, &Flow), kind: (u8, u8)) {
        let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let Some(quote) = icmp::quoted(packet, v6) else { return };
        let info = quote.info;
        let cast = match info.dst {
            dst if dst.is_multicast() => Cast::Multicast,
            dst if dst == Ipv4Addr::BROADCAST => Cast::Broadcast,
            dst if self.is_local(dst) => Cast::Local,
            _ => Cast::Unicast,
        };
        let input = if input == 0 { LOOPBACK } else { input };
        let problem = Problem::Rejected { kind: kind.0, code: kind.1 };
        self.problem_of(now, self.links.pool.copy(packet), info, (input, flow.clone()), cast, problem);
    }

    fn send_segment(&self, now: Ktime, (src, dst): (IpAddr, IpAddr), mut segment: [u8; 20], tags: Tags) {
        let key = Key { src: Some(src), mark: tags.mark, ..Key::to(dst) };
        let Ok(path) = self.route(&key, now) else { return };
        segment[16..18].fill(0);
        let sum = Sum::new().pseudo(src, dst, proto::TCP, segment.len()).with(&segment).finish();
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut buf = self.links.pool.copy(&segment);
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut ip = Ipv4::new(src, dst, proto::TCP, segment.len()).fragment(0, false, true);
                ip.ttl = self.sysctls.ip_default_ttl.get() as u8;
                buf.push_front(ip.sealed().as_bytes());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut ip = Ipv6::new(src, dst, proto::TCP, segment.len());
                ip.hop_limit = self.sysctls.ip6_hop_limit.get() as u8;
                buf.push_front(ip.as_bytes());
            }
            _ => return,
        }
        self.counters.ip_of(dst).out_requests.bump();
        let header = Header { protocol: proto::TCP, mark: tags.mark, ..Header::default() };
        let _ = self.send_own(now, &path, Frame { tags, ..Frame::new(buf) }, &header);
    }
}

/// True when a packet is an ICMP error itself, or a fragment that is not the first.
fn about_error(packet: &Packet) -> bool {
    let kind = packet.payload().first().copied();
    match packet.info.protocol {
        proto::ICMP => !matches!(kind, Some(icmp::ECHO_REPLY | icmp::ECHO | 13..=18)),
        proto::ICMPV6 => kind.is_none_or(|kind| kind < 128),
        _ => crate::wire::ip::Ipv4::parse_quoted(&packet.buf).is_some_and(|ip| ip.offset() > 0),
    }
}

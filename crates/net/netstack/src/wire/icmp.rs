//! ICMP (RFC 792), ICMPv6 (RFC 4443) and neighbour discovery (RFC 4861).

use super::eth::Mac;
use super::ip::{IpInfo, Ipv4};
use super::ipv6::{Ipv6, walk};
use super::proto;
use crate::checksum::Sum;
use abi::Errno;
use std::net::{IpAddr, Ipv6Addr};
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first eight bytes of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Icmp {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    checksum: U16,
    /// Four bytes with a meaning that depends on the type.
    pub rest: [u8; 4],
}

/// Echo reply.
pub const ECHO_REPLY: u8 = 0;
/// Destination unreachable.
pub const UNREACHABLE: u8 = 3;
/// Echo request.
pub const ECHO: u8 = 8;
/// Time exceeded.
pub const TIME_EXCEEDED: u8 = 11;
/// Parameter problem.
pub const PARAMETER: u8 = 12;
/// ICMPv6: destination unreachable.
pub const UNREACHABLE6: u8 = 1;
/// ICMPv6: packet too big.
pub const TOO_BIG6: u8 = 2;
/// ICMPv6: time exceeded.
pub const TIME_EXCEEDED6: u8 = 3;
/// ICMPv6: parameter problem.
pub const PARAMETER6: u8 = 4;
/// ICMPv6: echo request.
pub const ECHO6: u8 = 128;
/// ICMPv6: echo reply.
pub const ECHO_REPLY6: u8 = 129;
/// Multicast listener query.
pub const LISTENER_QUERY: u8 = 130;
/// Router solicitation.
pub const ROUTER_SOLICIT: u8 = 133;
/// Router advertisement.
pub const ROUTER_ADVERT: u8 = 134;
/// Neighbour solicitation.
pub const NEIGHBOUR_SOLICIT: u8 = 135;
/// Neighbour advertisement.
pub const NEIGHBOUR_ADVERT: u8 = 136;

impl Icmp {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// A header without a checksum.
    pub fn new(kind: u8, code: u8, rest: [u8; 4]) -> Icmp {
        Icmp { kind, code, checksum: U16::ZERO, rest }
    }

    /// The header with its checksum; `between` are source and destination for ICMPv6.
    #[must_use]
    pub fn sealed(mut self, between: Option<(Ipv6Addr, Ipv6Addr)>, payload: &[u8]) -> Icmp {
        self.checksum = U16::ZERO;
        let sum = pseudo(between, payload.len() + Self::LEN);
        self.checksum = U16::new(sum.with(self.as_bytes()).with(payload).finish());
        self
    }

    /// Reads a message and checks its checksum.
    pub fn parse(info: &IpInfo, bytes: &[u8]) -> Option<Icmp> {
        let (header, _) = Icmp::read_from_prefix(bytes).ok()?;
        let between = match (info.src, info.dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some((src, dst)),
            _ => None,
        };
        pseudo(between, bytes.len()).with(bytes).is_valid().then_some(header)
    }

    /// The identifier of an echo message.
    pub fn ident(&self) -> u16 {
        u16::from_be_bytes([self.rest[0], self.rest[1]])
    }

    /// The MTU of a "fragmentation needed" or "packet too big" message.
    pub fn mtu(&self, v6: bool) -> u32 {
        let all = u32::from_be_bytes(self.rest);
        if v6 { all } else { all & 0xffff }
    }
}

fn pseudo(between: Option<(Ipv6Addr, Ipv6Addr)>, len: usize) -> Sum {
    let sum = Sum::new();
    between.map_or(sum, |(src, dst)| sum.pseudo(src.into(), dst.into(), proto::ICMPV6, len))
}

/// The packet that an error message quotes.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a> {
    /// Its header.
    pub info: IpInfo,
    /// The start of its payload, usually eight bytes or more.
    pub payload: &'a [u8],
}

/// Reads the quoted packet of an error message.
pub fn quoted(bytes: &[u8], v6: bool) -> Option<Quoted<'_>> {
    let info = if v6 {
        let header = Ipv6::parse_quoted(bytes)?;
        let chain = walk(header.next, bytes.get(Ipv6::LEN..)?)?;
        IpInfo {
            src: header.src().into(),
            dst: header.dst().into(),
            protocol: chain.protocol,
            ttl: header.hop_limit,
            tos: header.traffic_class(),
            header_len: Ipv6::LEN + chain.len,
        }
    } else {
        let header = Ipv4::parse_quoted(bytes)?;
        IpInfo {
            src: header.src().into(),
            dst: header.dst().into(),
            protocol: header.protocol,
            ttl: header.ttl,
            tos: header.tos,
            header_len: header.header_len(),
        }
    };
    Some(Quoted { info, payload: bytes.get(info.header_len..)? })
}

/// What an error message means to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketError {
    /// The error number.
    pub errno: Errno,
    /// True when a connection ends by it; else it is kept for a later request.
    pub fatal: bool,
    /// The new path MTU, for "packet too big".
    pub mtu: Option<u32>,
}

/// The meaning of an error message (icmp(7), RFC 1122 section 4.2.3.9).
pub fn socket_error(header: &Icmp, v6: bool) -> Option<SocketError> {
    let (errno, fatal) = match (v6, header.kind, header.code) {
        (false, UNREACHABLE, 0 | 6 | 11) => (Errno::ENETUNREACH, header.code == 6),
        (false, UNREACHABLE, 1 | 5 | 12) => (Errno::EHOSTUNREACH, false),
        (false, UNREACHABLE, 2) => (Errno::ENOPROTOOPT, true),
        (false, UNREACHABLE, 3) => (Errno::ECONNREFUSED, true),
        (false, UNREACHABLE, 4) => (Errno::EMSGSIZE, false),
        (false, UNREACHABLE, 7) => (Errno::EHOSTDOWN, true),
        (false, UNREACHABLE, 8) => (Errno::ENONET, true),
        (false, UNREACHABLE, 9) => (Errno::ENETUNREACH, true),
        (false, UNREACHABLE, 10 | 13..=15) => (Errno::EHOSTUNREACH, true),
        (false, TIME_EXCEEDED, _) => (Errno::EHOSTUNREACH, false),
        (false, PARAMETER, _) => (Errno::EPROTO, true),
        (true, UNREACHABLE6, 0) => (Errno::ENETUNREACH, false),
        (true, UNREACHABLE6, 1 | 5 | 6) => (Errno::EACCES, true),
        (true, UNREACHABLE6, 2 | 3) => (Errno::EHOSTUNREACH, false),
        (true, UNREACHABLE6, 4) => (Errno::ECONNREFUSED, true),
        (true, TOO_BIG6, _) => (Errno::EMSGSIZE, false),
        (true, TIME_EXCEEDED6, _) => (Errno::EHOSTUNREACH, false),
        (true, PARAMETER6, _) => (Errno::EPROTO, true),
        _ => return None,
    };
    let mtu = (errno == Errno::EMSGSIZE).then(|| header.mtu(v6));
    Some(SocketError { errno, fatal, mtu })
}

/// A neighbour solicitation or advertisement.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour {
    /// The address in question.
    pub target: Ipv6Addr,
    /// The link-layer address option.
    pub mac: Option<Mac>,
    /// Flags of an advertisement: router, solicited, override.
    pub flags: u8,
}

/// The advertisement answers a solicitation.
pub const SOLICITED: u8 = 0x40;
/// The advertisement replaces a cached address.
pub const OVERRIDE: u8 = 0x20;

impl Neighbour {
    /// Reads the body after the first eight bytes.
    pub fn parse(header: &Icmp, body: &[u8]) -> Option<Neighbour> {
        let target: [u8; 16] = body.get(..16)?.try_into().ok()?;
        let wanted = if header.kind == NEIGHBOUR_SOLICIT { 1 } else { 2 };
        let (mut mac, mut options) = (None, body.get(16..)?);
        while let (Some(&kind), Some(&units)) = (options.first(), options.get(1)) {
            let option = options.get(..usize::from(units) * 8).filter(|o| !o.is_empty())?;
            if kind == wanted {
                mac = option.get(2..8).and_then(|m| m.try_into().ok()).map(Mac);
            }
            options = &options[option.len()..];
        }
        let target = Ipv6Addr::from(target);
        (!target.is_multicast()).then_some(Neighbour { target, mac, flags: header.rest[0] })
    }

    /// The message after the IPv6 header, with its checksum.
    pub fn emit(&self, solicit: bool, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        let mut body = self.target.octets().to_vec();
        if let Some(mac) = self.mac {
            body.extend([if solicit { 1 } else { 2 }, 1]);
            body.extend(mac.0);
        }
        let kind = if solicit { NEIGHBOUR_SOLICIT } else { NEIGHBOUR_ADVERT };
        let flags = if solicit { 0 } else { self.flags };
        let header = Icmp::new(kind, 0, [flags, 0, 0, 0]).sealed(Some((src, dst)), &body);
        [header.as_bytes(), &body].concat()
    }
}

//! What a rule sees of a packet, and changes.

use crate::checksum::{added, updated};
use crate::state::FilterState;
use conntrack::{Direction, Entry, Flow, State, Tuple};
use ktime::Ktime;
use netstack::buf::Buf;
use netstack::frame::{Checksum, Offload, Owner, Tags};
use netstack::headers::Headers;
use netstack::hooks::{Hooked, Point};
use netstack::iface::Iface;
use netstack::tables::Tables;
use netstack::wire::ip::{IpInfo, Ipv4};
use netstack::wire::ipv6::Ipv6;
use netstack::wire::proto;
use std::cell::OnceCell;
use std::net::IpAddr;
use std::sync::Arc;

/// UDP-Lite (RFC 3828).
pub(crate) const UDP_LITE: u8 = 136;

/// The family of a packet, and of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What connection tracking says of a packet, with the bits of xt_conntrack and nf_tables (`NF_CT_STATE_BIT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtState {
    /// It belongs to no connection.
    Invalid = 1,
    /// Its connection has had packets both ways.
    Established = 2,
    /// It is an error about a connection.
    Related = 4,
    /// It opens a connection.
    New = 8,
    /// A rule exempted it.
    Untracked = 64,
}

/// A packet at a point.
pub struct Packet<'a> {
    /// Where.
    pub point: Point,
    /// The family.
    pub family: Family,
    /// When.
    pub now: Ktime,
    /// The interface that received it.
    pub input: Option<&'a Iface>,
    /// The interface that will send it.
    pub output: Option<&'a Iface>,
    /// Routes and interfaces of the stack.
    pub tables: &'a Tables,
    /// The filter: connections, and actions to defer.
    pub netfilter: &'a FilterState,
    /// Addresses, protocol and the length of the IP headers.
    pub info: IpInfo,
    /// Offset of a fragment in bytes; 0 for whole packets and first fragments.
    pub fragment: usize,
    /// Mark, socket owner and connection.
    pub tags: &'a mut Tags,
    /// The headers as the stack has read them; they follow what is written.
    headers: &'a mut Headers,
    buf: &'a mut Buf,
    offload: &'a mut Offload,
    names: [OnceCell<String>; 2],
}

impl<'a> Packet<'a> {
    /// The packet, if its headers are sound.
    pub(crate) fn new(netfilter: &'a FilterState, hooked: &'a mut Hooked<'_>) -> Option<Packet<'a>> {
        let Headers { info, fragment, .. } = *hooked.headers;
        if info.header_len > hooked.packet.len() {
            return None;
        }
        Some(Packet {
            point: hooked.point,
            family: if info.src.is_ipv4() { Family::V4 } else { Family::V6 },
            now: hooked.now,
            input: hooked.input,
            output: hooked.output,
            tables: hooked.tables,
            netfilter,
            info,
            fragment,
            tags: hooked.tags,
            headers: hooked.headers,
            buf: hooked.packet,
            offload: hooked.offload,
            names: Default::default(),
        })
    }

    /// The bytes from the IP header on.
    pub fn bytes(&self) -> &[u8] {
        self.buf
    }

    /// The bytes after the IP headers: the transport header, unless [`Packet::fragment`] says otherwise.
    pub fn payload(&self) -> &[u8] {
        self.buf.get(self.info.header_len..).unwrap_or_default()
    }

    /// Bytes of the packet.
    pub fn total_len(&self) -> usize {
        self.buf.len()
    }

    /// Bytes of the largest segment, for a packet that a device will cut.
    pub fn segment_size(&self) -> Option<u16> {
        self.offload.gso.map(|gso| gso.size)
    }

    /// Name of the interface that received it; empty without one.
    pub fn input_name(&self) -> &str {
        self.names[0].get_or_init(|| self.input.map(Iface::name).unwrap_or_default())
    }

    /// Name of the interface that will send it; empty without one.
    pub fn output_name(&self) -> &str {
        self.names[1].get_or_init(|| self.output.map(Iface::name).unwrap_or_default())
    }

    /// The packet's mark.
    pub fn mark(&self) -> u32 {
        self.tags.mark
    }

    /// Changes it.
    pub fn set_mark(&mut self, mark: u32) {
        self.tags.mark = mark;
    }

    /// The owner of the sending socket, at Output and PostRouting.
    pub fn owner(&self) -> Option<Owner> {
        self.tags.owner.filter(|_| matches!(self.point, Point::Output | Point::PostRouting))
    }

    /// When, in milliseconds of the kernel's clock, as connections count time.
    pub fn millis(&self) -> u64 {
        self.now.millis()
    }

    /// Source and destination port of TCP, UDP, SCTP, DCCP and UDP-Lite.
    pub fn ports(&self) -> Option<(u16, u16)> {
        if self.fragment != 0 || !has_ports(self.info.protocol) {
            return None;
        }
        let bytes = self.payload().first_chunk::<4>()?;
        Some((u16::from_be_bytes([bytes[0], bytes[1]]), u16::from_be_bytes([bytes[2], bytes[3]])))
    }

    /// The tuple for connection tracking; `None` when the transport header is missing.
    pub fn tuple(&self) -> Option<Tuple> {
        if self.fragment != 0 {
            return None;
        }
        tuple_of(&self.info, self.payload())
    }

    // Connections.

    /// The connection, and the packet's direction and state.
    pub fn connection(&self) -> Option<(&Arc<Entry>, Direction, State)> {
        match &self.tags.flow {
            Flow::Tracked { entry, direction, state } => Some((entry, *direction, *state)),
            _ => None,
        }
    }

    /// The state as rules compare it.
    pub fn ct_state(&self) -> CtState {
        match &self.tags.flow {
            Flow::None => CtState::Invalid,
            Flow::Untracked => CtState::Untracked,
            Flow::Tracked { state: State::New, .. } => CtState::New,
            Flow::Tracked { state: State::Established, .. } => CtState::Established,
            Flow::Tracked { state: State::Related, .. } => CtState::Related,
        }
    }

    // Changes. Checksums follow.

    /// Replaces bytes, `at` counted from the IP header. The checksums of IPv4, TCP, UDP, ICMP and ICMPv6 follow; false when the packet
    /// is shorter. The fields that hold those checksums are not to be written.
    pub fn write(&mut self, at: usize, new: &[u8]) -> bool {
        let (from, to) = (at & !1, (at + new.len()).next_multiple_of(2));
        let Some(old) =
            self.buf.get(from..to.min(self.buf.len())).filter(|_| at + new.len() <= self.buf.len())
        else {
            return false;
        };
        let mut old = old.to_vec();
        let mut fresh = old.clone();
        if let Some(place) = fresh.get_mut(at - from..at - from + new.len()) {
            place.copy_from_slice(new);
        }
        if let Some(place) = self.buf.bytes_mut().get_mut(at..at + new.len()) {
            place.copy_from_slice(new);
        }
        if old.len() % 2 == 1 {
            old.push(0);
            fresh.push(0);
        }
        self.follow(from, &old, &fresh);
        if from < self.info.header_len {
            self.headers.changed = true;
            let fresh = Headers::read(self.buf).filter(|fresh| fresh.info.header_len <= self.buf.len());
            if let Some(Headers { info, fragment, .. }) = fresh {
                (self.info, self.fragment) = (info, fragment);
                *self.headers = Headers { info, fragment, changed: true };
            }
        }
        true
    }

    /// Repairs checksums after `old` became `new` at an even place.
    fn follow(&mut self, at: usize, old: &[u8], new: &[u8]) {
        let header_len = self.info.header_len;
        let addresses = match self.family {
            Family::V4 => Ipv4::LEN - 8..Ipv4::LEN,
            Family::V6 => Ipv6::LEN - 32..Ipv6::LEN,
        };
        if at < header_len && self.family == Family::V4 {
            self.change_field(10, |field| updated(field, old, new));
        }
        let overlap = at.max(addresses.start)..(at + old.len()).min(addresses.end);
        let pseudo = !overlap.is_empty();
        let Some(place) = self.checksum_place() else { return };
        let partial = matches!(self.offload.checksum, Checksum::Partial { .. });
        if at >= header_len && !partial {
            self.change_field(place, |field| updated(field, old, new));
        } else if pseudo && self.info.protocol != proto::ICMP {
            let (old, new) =
                (&old[overlap.start - at..overlap.end - at], &new[overlap.start - at..overlap.end - at]);
            self.change_field(
                place,
                |field| if partial { added(field, old, new) } else { updated(field, old, new) },
            );
        }
    }

    fn change_field(&mut self, at: usize, f: impl FnOnce(u16) -> u16) {
        let udp = self.info.protocol == proto::UDP && at >= self.info.header_len;
        let partial = matches!(self.offload.checksum, Checksum::Partial { .. });
        let Some(field) = self.buf.bytes_mut().get_mut(at..at + 2) else { return };
        let old = u16::from_be_bytes([field[0], field[1]]);
        if udp && old == 0 && !partial {
            // The sender left it out.
            return;
        }
        let new = match f(old) {
            0 if udp => 0xffff,
            new => new,
        };
        field.copy_from_slice(&new.to_be_bytes());
    }

    /// Where the transport checksum is, from the IP header on.
    fn checksum_place(&self) -> Option<usize> {
        let offset = match self.info.protocol {
            proto::TCP => 16,
            proto::UDP | UDP_LITE => 6,
            proto::ICMP | proto::ICMPV6 => 2,
            _ => return None,
        };
        (self.fragment == 0).then_some(self.info.header_len + offset)
    }

    /// Sets the source address; false for one of the other family.
    pub fn set_src(&mut self, ip: IpAddr) -> bool {
        self.set_address(ip, 12, 8)
    }

    /// Sets the destination address; false for one of the other family.
    pub fn set_dst(&mut self, ip: IpAddr) -> bool {
        self.set_address(ip, 16, 24)
    }

    fn set_address(&mut self, ip: IpAddr, at4: usize, at6: usize) -> bool {
        match (self.family, ip) {
            (Family::V4, IpAddr::V4(v4)) => self.write(at4, &v4.octets()),
            (Family::V6, IpAddr::V6(v6)) => self.write(at6, &v6.octets()),
            _ => false,
        }
    }

    /// Sets the source port.
    pub fn set_src_port(&mut self, port: u16) -> bool {
        self.ports().is_some() && self.write(self.info.header_len, &port.to_be_bytes())
    }

    /// Sets the destination port.
    pub fn set_dst_port(&mut self, port: u16) -> bool {
        self.ports().is_some() && self.write(self.info.header_len + 2, &port.to_be_bytes())
    }

    /// Sets type of service or traffic class.
    pub fn set_tos(&mut self, tos: u8) -> bool {
        match self.family {
            Family::V4 => self.write(1, &[tos]),
            Family::V6 => {
                let Some(&[first, second]) = self.buf.first_chunk::<2>() else { return false };
                self.write(0, &[(first & 0xf0) | tos >> 4, (second & 0xf) | tos << 4])
            }
        }
    }

    /// Sets TTL or hop limit.
    pub fn set_ttl(&mut self, ttl: u8) -> bool {
        self.write(if self.family == Family::V4 { 8 } else { 7 }, &[ttl])
    }

    /// True when the transport checksum has not been checked yet.
    pub(crate) fn is_unchecked(&self) -> bool {
        self.offload.checksum == Checksum::Unknown
    }

    /// Notes that the transport checksum is right.
    pub(crate) fn set_checked(&mut self) {
        self.offload.checksum = Checksum::Valid;
    }

    /// The bytes, for changes after which the caller repairs the checksums.
    pub(crate) fn raw_mut(&mut self) -> &mut [u8] {
        self.buf.bytes_mut()
    }

    /// True when the transport checksum field holds the pseudo header's sum only.
    pub(crate) fn is_partial(&self) -> bool {
        matches!(self.offload.checksum, Checksum::Partial { .. })
    }
}

/// Protocols with headers that begin with two ports.
pub(crate) fn has_ports(protocol: u8) -> bool {
    /// DCCP, SCTP.
    const OTHERS: [u8; 2] = [33, 132];
    has_translated_ports(protocol) || OTHERS.contains(&protocol)
}

/// Those of them whose ports are translated: their checksums can be repaired.
pub(crate) fn has_translated_ports(protocol: u8) -> bool {
    matches!(protocol, proto::TCP | proto::UDP | UDP_LITE)
}

/// The tuple of a packet with a transport header that starts with `payload`.
pub(crate) fn tuple_of(info: &IpInfo, payload: &[u8]) -> Option<Tuple> {
    let pair = |at: usize| Some(u16::from_be_bytes([*payload.get(at)?, *payload.get(at + 1)?]));
    let (src_port, dst_port) = match info.protocol {
        protocol if has_ports(protocol) => (pair(0)?, pair(2)?),
        proto::ICMP if info.src.is_ipv4() => (pair(4)?, pair(0)?),
        proto::ICMPV6 if info.src.is_ipv6() => (pair(4)?, pair(0)?),
        _ => (0, 0),
    };
    Some(Tuple { src: info.src, dst: info.dst, protocol: info.protocol, src_port, dst_port })
}

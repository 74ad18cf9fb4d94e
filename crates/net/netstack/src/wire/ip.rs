//! IPv4 headers (RFC 791), and what the two families share.

use crate::checksum::Sum;
use std::net::{IpAddr, Ipv4Addr};
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An IPv4 header without options.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv4 {
    version_len: u8,
    /// Type of service.
    pub tos: u8,
    total_len: U16,
    /// Identification.
    pub id: U16,
    flags_offset: U16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    checksum: U16,
    src: [u8; 4],
    dst: [u8; 4],
}

/// The don't-fragment bit.
const DF: u16 = 0x4000;
/// The more-fragments bit.
const MF: u16 = 0x2000;

impl Ipv4 {
    /// Bytes without options.
    pub const LEN: usize = 20;

    /// A header for `payload` bytes.
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload: usize) -> Ipv4 {
        Ipv4 {
            version_len: 0x45,
            tos: 0,
            total_len: U16::new(u16::try_from(payload + Self::LEN).unwrap_or(u16::MAX)),
            id: U16::ZERO,
            flags_offset: U16::ZERO,
            ttl: 64,
            protocol,
            checksum: U16::ZERO,
            src: src.octets(),
            dst: dst.octets(),
        }
    }

    /// Sets fragmentation: offset in bytes (a multiple of 8), more fragments, don't fragment.
    #[must_use]
    pub fn fragment(mut self, offset: usize, more: bool, dont: bool) -> Ipv4 {
        let bits = if more { MF } else { 0 } | if dont { DF } else { 0 };
        self.flags_offset = U16::new(((offset / 8) as u16 & 0x1fff) | bits);
        self
    }

    /// The header with its checksum.
    #[must_use]
    pub fn sealed(mut self) -> Ipv4 {
        self.checksum = U16::ZERO;
        self.checksum = U16::new(Sum::new().with(self.as_bytes()).finish());
        self
    }

    /// Reads and checks a header; the bytes may be longer than the packet.
    pub fn parse(bytes: &[u8]) -> Option<Ipv4> {
        let (header, _) = Ipv4::read_from_prefix(bytes).ok()?;
        let (len, total) = (header.header_len(), header.total_len());
        let sound = header.version_len >> 4 == 4 && len >= Self::LEN && total >= len && total <= bytes.len();
        (sound && Sum::new().with(&bytes[..len]).is_valid()).then_some(header)
    }

    /// Like [`Ipv4::parse`] for the start of a packet, as ICMP errors quote it: lengths and checksum are not checked.
    pub fn parse_quoted(bytes: &[u8]) -> Option<Ipv4> {
        let (header, _) = Ipv4::read_from_prefix(bytes).ok()?;
        (header.version_len >> 4 == 4 && header.header_len() >= Self::LEN).then_some(header)
    }

    /// Bytes of the header, options included.
    pub fn header_len(&self) -> usize {
        usize::from(self.version_len & 0xf) * 4
    }

    /// Bytes of the packet.
    pub fn total_len(&self) -> usize {
        self.total_len.get().into()
    }

    /// Offset of a fragment in bytes.
    pub fn offset(&self) -> usize {
        usize::from(self.flags_offset.get() & 0x1fff) * 8
    }

    /// True when further fragments follow.
    pub fn more_fragments(&self) -> bool {
        self.flags_offset.get() & MF != 0
    }

    /// True when routers may not fragment the packet.
    pub fn dont_fragment(&self) -> bool {
        self.flags_offset.get() & DF != 0
    }

    /// Source.
    pub fn src(&self) -> Ipv4Addr {
        self.src.into()
    }

    /// Destination.
    pub fn dst(&self) -> Ipv4Addr {
        self.dst.into()
    }
}

/// What the transport protocols need of an IP header, of either family.
#[derive(Clone, Copy, Debug)]
pub struct IpInfo {
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// Protocol of the payload.
    pub protocol: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Bytes of all IP headers.
    pub header_len: usize,
}

impl IpInfo {
    /// True when a router on the way has marked congestion (RFC 3168).
    pub fn congested(&self) -> bool {
        self.tos & 3 == 3
    }
}

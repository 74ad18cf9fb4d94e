//! IPv6 headers and extension headers (RFC 8200).

use super::proto;
use std::net::Ipv6Addr;
use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An IPv6 header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv6 {
    version_class_flow: U32,
    payload_len: U16,
    /// What follows.
    pub next: u8,
    /// Hop limit.
    pub hop_limit: u8,
    src: [u8; 16],
    dst: [u8; 16],
}

impl Ipv6 {
    /// Bytes of the header.
    pub const LEN: usize = 40;

    /// A header for `payload` bytes.
    pub fn new(src: Ipv6Addr, dst: Ipv6Addr, next: u8, payload: usize) -> Ipv6 {
        Ipv6 {
            version_class_flow: U32::new(6 << 28),
            payload_len: U16::new(u16::try_from(payload).unwrap_or(u16::MAX)),
            next,
            hop_limit: 64,
            src: src.octets(),
            dst: dst.octets(),
        }
    }

    /// Sets traffic class and flow label.
    #[must_use]
    pub fn class(mut self, class: u8, flow: u32) -> Ipv6 {
        self.version_class_flow = U32::new((6 << 28) | (u32::from(class) << 20) | (flow & 0xf_ffff));
        self
    }

    /// Reads and checks a header; the bytes may be longer than the packet.
    pub fn parse(bytes: &[u8]) -> Option<Ipv6> {
        let header = Ipv6::parse_quoted(bytes)?;
        (header.payload_len() + Self::LEN <= bytes.len()).then_some(header)
    }

    /// Like [`Ipv6::parse`] for the start of a packet, as ICMP errors quote it.
    pub fn parse_quoted(bytes: &[u8]) -> Option<Ipv6> {
        let (header, _) = Ipv6::read_from_prefix(bytes).ok()?;
        (header.version_class_flow.get() >> 28 == 6).then_some(header)
    }

    /// Bytes after this header.
    pub fn payload_len(&self) -> usize {
        self.payload_len.get().into()
    }

    /// Traffic class.
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_flow.get() >> 20) as u8
    }

    /// Source.
    pub fn src(&self) -> Ipv6Addr {
        self.src.into()
    }

    /// Destination.
    pub fn dst(&self) -> Ipv6Addr {
        self.dst.into()
    }
}

/// A fragment header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Fragment {
    /// What follows.
    pub next: u8,
    reserved: u8,
    offset_more: U16,
    /// Identification.
    pub id: U32,
}

impl Fragment {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// A fragment header; the offset is in bytes, a multiple of 8.
    pub fn new(next: u8, offset: usize, more: bool, id: u32) -> Fragment {
        let offset_more = U16::new((offset as u16 & !7) | u16::from(more));
        Fragment { next, reserved: 0, offset_more, id: U32::new(id) }
    }

    /// Offset in bytes.
    pub fn offset(&self) -> usize {
        usize::from(self.offset_more.get() & !7)
    }

    /// True when further fragments follow.
    pub fn more_fragments(&self) -> bool {
        self.offset_more.get() & 1 == 1
    }
}

/// The end of a chain of extension headers.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// Protocol of the payload, or a header that the chain stops at.
    pub protocol: u8,
    /// Bytes of the extension headers.
    pub len: usize,
    /// The fragment header, which ends the chain, and where its protocol is stored.
    pub fragment: Option<Fragment>,
}

/// Headers that a chain may have; more are dropped.
const MAX_HEADERS: usize = 8;

/// Walks the extension headers of `payload`; `None` when they are malformed.
pub fn walk(first: u8, payload: &[u8]) -> Option<Chain> {
    let mut chain = Chain { protocol: first, len: 0, fragment: None };
    for _ in 0..MAX_HEADERS {
        let rest = payload.get(chain.len..)?;
        match chain.protocol {
            proto::HOP_BY_HOP if chain.len > 0 => return None,
            proto::HOP_BY_HOP | proto::DEST_OPTIONS | proto::ROUTING => {
                let (&next, &units) = (rest.first()?, rest.get(1)?);
                let len = (usize::from(units) + 1) * 8;
                rest.get(..len)?;
                chain.protocol = next;
                chain.len += len;
            }
            proto::FRAGMENT => {
                let (fragment, _) = Fragment::read_from_prefix(rest).ok()?;
                chain.protocol = fragment.next;
                chain.len += Fragment::LEN;
                chain.fragment = Some(fragment);
                return Some(chain);
            }
            _ => return Some(chain),
        }
    }
    None
}

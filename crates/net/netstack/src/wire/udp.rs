//! UDP headers (RFC 768).

use crate::checksum::Sum;
use std::net::IpAddr;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A UDP header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Udp {
    src: U16,
    dst: U16,
    len: U16,
    checksum: U16,
}

impl Udp {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// A header for `payload` bytes, without a checksum.
    pub fn new(src: u16, dst: u16, payload: usize) -> Udp {
        let len = u16::try_from(payload + Self::LEN).unwrap_or(u16::MAX);
        Udp { src: U16::new(src), dst: U16::new(dst), len: U16::new(len), checksum: U16::ZERO }
    }

    /// The header with its checksum.
    #[must_use]
    pub fn sealed(mut self, src: IpAddr, dst: IpAddr, payload: &[u8]) -> Udp {
        self.checksum = U16::ZERO;
        let sum = Sum::new().pseudo(src, dst, super::proto::UDP, self.len.get().into());
        let sum = sum.with(self.as_bytes()).with(payload).finish();
        self.checksum = U16::new(if sum == 0 { 0xffff } else { sum });
        self
    }

    /// The header with a given checksum field.
    #[must_use]
    pub fn with_checksum(mut self, checksum: u16) -> Udp {
        self.checksum = U16::new(checksum);
        self
    }

    /// Reads a header and its payload.
    pub fn parse(bytes: &[u8]) -> Option<(Udp, &[u8])> {
        let (header, _) = Udp::read_from_prefix(bytes).ok()?;
        let payload = bytes.get(Self::LEN..header.len.get().into())?;
        Some((header, payload))
    }

    /// True when the checksum over `bytes` (header and payload) is right; IPv4 may leave it out.
    pub fn checksum_ok(&self, src: IpAddr, dst: IpAddr, bytes: &[u8]) -> bool {
        if self.checksum.get() == 0 {
            return src.is_ipv4();
        }
        let bytes = bytes.get(..self.len.get().into()).unwrap_or(bytes);
        Sum::new().pseudo(src, dst, super::proto::UDP, bytes.len()).with(bytes).is_valid()
    }

    /// Source port.
    pub fn src(&self) -> u16 {
        self.src.get()
    }

    /// Destination port.
    pub fn dst(&self) -> u16 {
        self.dst.get()
    }
}

//! UDP headers (RFC 768), and those of UDP-Lite (RFC 3828), where the length is the checksum's coverage.

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

    /// True when there is no checksum.
    pub fn is_unsealed(&self) -> bool {
        self.checksum.get() == 0
    }

    /// True when the checksum over `bytes` (header and payload) is right; IPv4 may leave it out.
    pub fn checksum_ok(&self, src: IpAddr, dst: IpAddr, bytes: &[u8]) -> bool {
        if self.checksum.get() == 0 {
            return src.is_ipv4();
        }
        let bytes = bytes.get(..self.len.get().into()).unwrap_or(bytes);
        Sum::new().pseudo(src, dst, super::proto::UDP, bytes.len()).with(bytes).is_valid()
    }

    /// A header of UDP-Lite for a payload. Its checksum covers the first `coverage` bytes, header included; 0 for all.
    pub fn lite(src: u16, dst: u16, between: (IpAddr, IpAddr), payload: &[u8], coverage: u16) -> Udp {
        let total = Self::LEN + payload.len();
        let covered = if coverage == 0 { total } else { usize::from(coverage).clamp(Self::LEN, total) };
        let field = if usize::from(coverage) < total { coverage } else { u16::try_from(total).unwrap_or(0) };
        let mut header =
            Udp { src: U16::new(src), dst: U16::new(dst), len: U16::new(field), checksum: U16::ZERO };
        let sum = Sum::new().pseudo(between.0, between.1, super::proto::UDP_LITE, total);
        let sum = sum.with(header.as_bytes()).with(&payload[..covered - Self::LEN]).finish();
        header.checksum = U16::new(if sum == 0 { 0xffff } else { sum });
        header
    }

    /// Reads a header of UDP-Lite, its payload, and how many bytes the checksum covers.
    pub fn parse_lite(bytes: &[u8]) -> Option<(Udp, &[u8], usize)> {
        let (header, payload) = Udp::read_from_prefix(bytes).ok()?;
        let coverage = match usize::from(header.len.get()) {
            0 => bytes.len(),
            covered => Some(covered).filter(|covered| (Self::LEN..=bytes.len()).contains(covered))?,
        };
        Some((header, payload, coverage))
    }

    /// True when UDP-Lite's checksum over the first `coverage` of `bytes` is right; it is never left out.
    pub fn lite_checksum_ok(&self, src: IpAddr, dst: IpAddr, bytes: &[u8], coverage: usize) -> bool {
        let covered = bytes.get(..coverage).unwrap_or(bytes);
        let sum = Sum::new().pseudo(src, dst, super::proto::UDP_LITE, bytes.len()).with(covered);
        self.checksum.get() != 0 && sum.is_valid()
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

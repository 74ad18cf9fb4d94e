//! A packet for this host, with its headers read: the network layer reads them once, the transport layer takes them from here.

use super::path::Cast;
use crate::buf::Buf;
use crate::device::iface::Iface;
use crate::frame::Part;
use crate::wire::ip::IpInfo;
use crate::wire::ipv6::Ipv6;
use conntrack::Flow;
use ktime::Ktime;
use std::sync::Arc;

/// A packet for this host.
pub(crate) struct Packet {
    pub(crate) now: Ktime,
    pub(crate) iface: Arc<Iface>,
    pub(crate) info: IpInfo,
    /// The transport checksum needs no check.
    pub(crate) verified: bool,
    /// How many hosts it was sent to.
    pub(crate) cast: Cast,
    /// `SO_MARK` or a rule's mark.
    pub(crate) mark: u32,
    /// The packet's connection, if the filter tracks.
    pub(crate) flow: Flow,
    /// The place among datagrams that are one piece for their sender.
    pub(crate) part: Part,
    /// From the IP header on, without link padding.
    pub(crate) buf: Buf,
}

impl Packet {
    /// The bytes after the IP headers.
    pub(crate) fn payload(&self) -> &[u8] {
        self.buf.get(self.info.header_len..).unwrap_or_default()
    }

    /// The extension headers of IPv6, with the number of the first one.
    pub(crate) fn extensions(&self) -> Option<(u8, Buf)> {
        let some = self.info.dst.is_ipv6() && self.info.header_len > Ipv6::LEN;
        some.then(|| (self.buf.get(6).copied().unwrap_or(0), self.buf.slice(Ipv6::LEN, self.info.header_len)))
    }
}

//! The IP headers of a packet, read once: on a packet's way through the layer, the transport layer and the packet filter take them from
//! here. Whatever writes to the headers of a packet sets [`Headers::changed`], and they are read again.

use crate::wire::ip::{IpInfo, Ipv4};
use crate::wire::ipv6::{Chain, Ipv6, walk};

/// The IP headers of a packet. Plain data.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    /// Addresses, protocol and the length of the headers.
    pub info: IpInfo,
    /// Offset of a fragment in bytes; 0 for whole packets and first fragments.
    pub fragment: usize,
    /// The packet filter has written to the headers.
    pub changed: bool,
}

impl Headers {
    /// Reads the headers of a packet; lengths and checksum are not checked.
    pub fn read(packet: &[u8]) -> Option<Headers> {
        if packet.first()? >> 4 == 4 {
            return Some(Headers::of_v4(&Ipv4::parse_quoted(packet)?));
        }
        let header = Ipv6::parse_quoted(packet)?;
        let chain = walk(header.next, packet.get(Ipv6::LEN..)?)?;
        Some(Headers::of_v6(&header, &chain))
    }

    /// The headers of a packet of IPv6.
    pub(crate) fn of_v6(header: &Ipv6, chain: &Chain) -> Headers {
        let info = IpInfo {
            src: header.src().into(),
            dst: header.dst().into(),
            protocol: chain.protocol,
            ttl: header.hop_limit,
            tos: header.traffic_class(),
            header_len: Ipv6::LEN + chain.len,
        };
        Headers { info, fragment: chain.fragment.map_or(0, |f| f.offset()), changed: false }
    }

    /// The headers of a packet of IPv4.
    pub(crate) fn of_v4(header: &Ipv4) -> Headers {
        let info = IpInfo {
            src: header.src().into(),
            dst: header.dst().into(),
            protocol: header.protocol,
            ttl: header.ttl,
            tos: header.tos,
            header_len: header.header_len(),
        };
        Headers { info, fragment: header.offset(), changed: false }
    }
}

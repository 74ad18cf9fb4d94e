//! Ethernet (IEEE 802.3) and ARP (RFC 826).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A hardware address.
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(transparent)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All hosts of the link.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// True for a group address, broadcast included.
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// The group address of an IP multicast address (RFC 1112 section 6.4, RFC 2464 section 7).
    pub fn of_group(group: IpAddr) -> Mac {
        match group {
            IpAddr::V4(v4) => {
                let [_, b, c, d] = v4.octets();
                Mac([1, 0, 0x5e, b & 0x7f, c, d])
            }
            IpAddr::V6(v6) => {
                let [.., a, b, c, d] = v6.octets();
                Mac([0x33, 0x33, a, b, c, d])
            }
        }
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// IPv4.
pub const IPV4: u16 = 0x0800;
/// ARP.
pub const ARP: u16 = 0x0806;
/// IPv6.
pub const IPV6: u16 = 0x86dd;
/// A tag of IEEE 802.1Q.
pub const VLAN: u16 = 0x8100;

/// An Ethernet header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ethernet {
    /// Destination.
    pub dst: Mac,
    /// Source.
    pub src: Mac,
    /// What follows.
    pub kind: U16,
}

impl Ethernet {
    /// Bytes of the header.
    pub const LEN: usize = 14;

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Option<Ethernet> {
        Ethernet::read_from_prefix(bytes).ok().map(|(header, _)| header)
    }
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Arp {
    hardware: U16,
    protocol: U16,
    hardware_len: u8,
    protocol_len: u8,
    operation: U16,
    /// Hardware address of the sender.
    pub sender_mac: Mac,
    sender: [u8; 4],
    /// Hardware address of the target.
    pub target_mac: Mac,
    target: [u8; 4],
}

impl Arp {
    /// A request or a reply.
    pub fn new(request: bool, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Arp {
        Arp {
            hardware: U16::new(1),
            protocol: U16::new(IPV4),
            hardware_len: 6,
            protocol_len: 4,
            operation: U16::new(if request { 1 } else { 2 }),
            sender_mac: sender.0,
            sender: sender.1.octets(),
            target_mac: target.0,
            target: target.1.octets(),
        }
    }

    /// Reads a packet; `None` for other hardware, other protocols and other operations.
    pub fn parse(bytes: &[u8]) -> Option<Arp> {
        let (arp, _) = Arp::read_from_prefix(bytes).ok()?;
        let known = arp.hardware.get() == 1
            && arp.protocol.get() == IPV4
            && (arp.hardware_len, arp.protocol_len) == (6, 4)
            && matches!(arp.operation.get(), 1 | 2);
        known.then_some(arp)
    }

    /// True for a request.
    pub fn is_request(&self) -> bool {
        self.operation.get() == 1
    }

    /// The sender's address.
    pub fn sender(&self) -> Ipv4Addr {
        self.sender.into()
    }

    /// The address that is asked for.
    pub fn target(&self) -> Ipv4Addr {
        self.target.into()
    }
}

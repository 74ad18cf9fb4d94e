//! Packets of the host's stack: what is asked for, and datagrams as answers. Pure.

use host_interfaces::{HOST_SIDE, HOST_SIDE_V6};
use netstack::checksum::Sum;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Lengths of the headers of IPv6 and UDP, and of IPv4 without options.
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP_HEADER: usize = 8;
/// Flags of TCP: SYN and ACK.
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// A packet that concerns the sandbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) transport: Transport<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transport<'a> {
    /// A segment; the first one of a connection `opens` it.
    Tcp { opens: bool },
    /// The payload of a datagram.
    Udp(&'a [u8]),
}

impl Packet<'_> {
    /// A TCP or UDP packet of the host's side to one address; nothing for others. There are no fragments: every datagram fits.
    pub(super) fn parse(bytes: &[u8]) -> Option<Packet<'_>> {
        let (from, to, protocol, header, length) = match bytes.first()? >> 4 {
            4 => {
                let fixed: &[u8; IPV4] = bytes.first_chunk()?;
                let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0;
                let (from, to) = fixed[12..].split_at(4);
                let from = Ipv4Addr::from(<[u8; 4]>::try_from(from).ok()?);
                let to = Ipv4Addr::from(<[u8; 4]>::try_from(to).ok()?);
                if fragment || to.is_multicast() || to.is_broadcast() || to.is_unspecified() {
                    return None;
                }
                let length = u16::from_be_bytes([fixed[2], fixed[3]]);
                (from.into(), to.into(), fixed[9], usize::from(fixed[0] & 0xf) * 4, length.into())
            }
            6 => {
                let fixed: &[u8; IPV6] = bytes.first_chunk()?;
                let from = Ipv6Addr::from(<[u8; 16]>::try_from(&fixed[8..24]).ok()?);
                let to = Ipv6Addr::from(<[u8; 16]>::try_from(&fixed[24..]).ok()?);
                if to.is_multicast() || to.is_unspecified() || to.is_unicast_link_local() {
                    return None;
                }
                let length = IPV6 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
                (IpAddr::from(from), IpAddr::from(to), fixed[6], IPV6, length)
            }
            _ => return None,
        };
        let answers = from == crate::names::SERVER && protocol == TCP;
        if !answers && from != HOST_SIDE && from != HOST_SIDE_V6 {
            return None;
        }
        let payload = bytes.get(header..length.min(bytes.len()))?;
        let port = |at: usize| Some(u16::from_be_bytes(*payload.get(at..)?.first_chunk()?));
        let (from, to) = (SocketAddr::new(from, port(0)?), SocketAddr::new(to, port(2)?));
        let transport = match protocol {
            TCP => Transport::Tcp { opens: payload.get(13)? & (SYN | ACK) == SYN },
            UDP => {
                let length = usize::from(port(4)?);
                Transport::Udp(payload.get(UDP_HEADER..length)?)
            }
            _ => return None,
        };
        if answers && transport == (Transport::Tcp { opens: true }) {
            return None;
        }
        Some(Packet { from, to, transport })
    }
}

/// A datagram as a packet; nothing for one that is too long or between families.
pub(super) fn datagram(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(UDP_HEADER + payload.len()).ok()?;
    let mut out = ip_header(from.ip(), to.ip(), UDP, length)?;
    let header = [from.port().to_be_bytes(), to.port().to_be_bytes(), length.to_be_bytes()].concat();
    let sum = Sum::new().pseudo(from.ip(), to.ip(), UDP, length.into()).with(&header).with(payload).finish();
    out.extend(header);
    // Zero would mean that there is none.
    out.extend(if sum == 0 { [0xff; 2] } else { sum.to_be_bytes() });
    out.extend(payload);
    Some(out)
}

/// The message that says that nothing is at the UDP port `to`, for the datagrams from `from`.
pub(super) fn refusal(from: SocketAddr, to: SocketAddr) -> Option<Vec<u8>> {
    let udp = [from.port().to_be_bytes(), to.port().to_be_bytes(), [0, 8], [0, 0]].concat();
    let refused = [ip_header(from.ip(), to.ip(), UDP, 8)?, udp].concat();
    let (kind, code, protocol) = if from.is_ipv4() { (3, 3, 1) } else { (1, 4, 58) };
    let length = 8 + refused.len();
    let mut icmp = [vec![kind, code, 0, 0, 0, 0, 0, 0], refused].concat();
    let pseudo = Sum::new().pseudo(to.ip(), from.ip(), protocol, length);
    let sum = if from.is_ipv4() { Sum::new() } else { pseudo }.with(&icmp).finish();
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut out = ip_header(to.ip(), from.ip(), protocol, u16::try_from(length).ok()?)?;
    out.extend(icmp);
    Some(out)
}

/// The IP header before `length` bytes.
fn ip_header(from: IpAddr, to: IpAddr, protocol: u8, length: u16) -> Option<Vec<u8>> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = length.checked_add(IPV4 as u16)?.to_be_bytes();
            let mut out = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
            out.extend(from.octets());
            out.extend(to.octets());
            let sum = Sum::new().with(&out).finish();
            out[10..12].copy_from_slice(&sum.to_be_bytes());
            Some(out)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let length = length.to_be_bytes();
            let start = [0x60, 0, 0, 0, length[0], length[1], protocol, 64];
            Some([&start[..], &from.octets(), &to.octets()].concat())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(v6: bool) -> (SocketAddr, SocketAddr) {
        match v6 {
            false => (SocketAddr::new(HOST_SIDE.into(), 4000), "10.0.2.100:53".parse().unwrap()),
            true => (SocketAddr::new(HOST_SIDE_V6.into(), 4000), "[fd00::2]:53".parse().unwrap()),
        }
    }

    #[test]
    fn datagrams_round_trip() {
        for v6 in [false, true] {
            let (from, to) = ends(v6);
            for payload in [&b""[..], b"x", &[7; 1400]] {
                let bytes = datagram(from, to, payload).unwrap();
                let packet = Packet::parse(&bytes).unwrap();
                assert_eq!(packet, Packet { from, to, transport: Transport::Udp(payload) });
                let ip = if v6 { IPV6 } else { IPV4 };
                assert!(v6 || Sum::new().with(&bytes[..IPV4]).is_valid());
                let sum = Sum::new().pseudo(from.ip(), to.ip(), UDP, bytes.len() - ip);
                assert!(sum.with(&bytes[ip..]).is_valid());
            }
            assert_eq!(datagram(from, to, &vec![0; 65536]), None);
            assert_eq!(datagram(from, ends(!v6).1, b""), None);
        }
    }

    #[test]
    fn refusals_name_the_datagram() {
        let (from, to) = ends(false);
        let bytes = refusal(from, to).unwrap();
        assert_eq!((bytes.len(), bytes[9], &bytes[20..22]), (20 + 8 + 28, 1, &[3, 3][..]));
        assert!(Sum::new().with(&bytes[20..]).is_valid());
        let named = Packet::parse(&bytes[28..]).unwrap();
        assert_eq!((named.from, named.to), (from, to));
        let (from, to) = ends(true);
        let bytes = refusal(from, to).unwrap();
        assert_eq!((bytes.len(), bytes[6], &bytes[40..42]), (40 + 8 + 48, 58, &[1, 4][..]));
        assert!(Sum::new().pseudo(to.ip(), from.ip(), 58, 56).with(&bytes[40..]).is_valid());
    }

    #[test]
    fn what_is_not_for_the_sandbox() {
        let (from, to) = ends(false);
        let other = "127.0.0.12:1".parse().unwrap();
        let group = "224.0.0.1:1".parse().unwrap();
        for (from, to) in [(other, to), (from, group), (from, "255.255.255.255:1".parse().unwrap())] {
            assert_eq!(Packet::parse(&datagram(from, to, b"x").unwrap()), None);
        }
        let whole = datagram(from, to, b"x").unwrap();
        for length in 0..whole.len() {
            assert_eq!(Packet::parse(&whole[..length]), None, "{length}");
        }
        let mut fragment = whole.clone();
        fragment[6] = 0x20;
        assert_eq!(Packet::parse(&fragment), None);
        let mut longer = whole;
        longer[24..26].copy_from_slice(&[0, 7]);
        assert_eq!(Packet::parse(&longer), None);
    }

    #[test]
    fn any_bytes() {
        let mut seed = 1u64;
        let mut bytes = [0; 80];
        for _ in 0..100_000 {
            for byte in &mut bytes {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                *byte = (seed >> 56) as u8;
            }
            bytes[0] = if seed & 1 == 0 { 0x45 } else { 0x60 };
            bytes[12..16].copy_from_slice(&HOST_SIDE.octets());
            let _ = Packet::parse(&bytes);
        }
    }
}

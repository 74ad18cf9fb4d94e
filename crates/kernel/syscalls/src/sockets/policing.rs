//! Policies about sockets: the address that a call really means, and the protocol.
//!
//! Addresses were copied from the program once; the call goes on with that copy. Paths of Unix sockets are decided on where
//! they are looked up.

use abi::Result;
use policy::{Address, Kind, Protocol};
use socket::SocketOps;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use task::Current;
use task::policing::Subject;

/// The protocol of a socket.
pub(crate) fn protocol(domain: i32, kind: i32, protocol: i32) -> Protocol {
    match (domain, kind) {
        (libc::AF_UNIX, _) => Protocol::UNIX,
        (libc::AF_NETLINK, _) => Protocol::NETLINK,
        (libc::AF_PACKET, _) => Protocol::PACKET,
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_RAW) => Protocol::RAW,
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM) => match protocol {
            0 | libc::IPPROTO_TCP => Protocol::TCP,
            _ => Protocol::OTHER,
        },
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM) => match protocol {
            0 | libc::IPPROTO_UDP | libc::IPPROTO_UDPLITE => Protocol::UDP,
            libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6 => Protocol::ICMP,
            _ => Protocol::OTHER,
        },
        _ => Protocol::OTHER,
    }
}

fn of_socket(ops: &dyn SocketOps) -> Protocol {
    protocol(ops.domain(), ops.kind(), ops.protocol())
}

/// The address of a struct sockaddr. `to`: something is sent there, and nowhere in particular means the local host.
/// `None` for a path of a Unix socket, and for what only ends an association.
fn address(bytes: &[u8], domain: i32, to: bool) -> Option<Address<'_>> {
    let Some(family) = bytes.first_chunk().map(|family| i32::from(u16::from_ne_bytes(*family))) else {
        return Some(Address::Other);
    };
    let port = || bytes.get(2..4).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b));
    let meant = |ip: IpAddr| match ip {
        IpAddr::V4(ip) if to && ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if to && ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    match family {
        libc::AF_UNSPEC | libc::AF_INET if matches!(domain, libc::AF_INET | libc::AF_INET6) => {
            let ip = bytes.get(4..8).and_then(|b| b.first_chunk::<4>());
            Some(ip.map_or(Address::Other, |ip| Address::Ip(meant(Ipv4Addr::from(*ip).into()), port())))
        }
        libc::AF_INET6 => {
            let ip = bytes.get(8..24).and_then(|b| b.first_chunk::<16>());
            Some(
                ip.map_or(Address::Other, |ip| {
                    Address::Ip(meant(Ipv6Addr::from(*ip).to_canonical()), port())
                }),
            )
        }
        libc::AF_UNIX => match bytes.get(2..).unwrap_or_default() {
            [] => Some(Address::Other),
            [0, name @ ..] => Some(Address::Abstract(name)),
            _ => None,
        },
        _ => Some(Address::Other),
    }
}

/// The error of a policy that refuses to make a socket.
pub(crate) fn new_socket(c: &Current, domain: i32, kind: i32, number: i32) -> Result<()> {
    c.police(Kind::NetSocket, || Subject { protocol: protocol(domain, kind, number), ..Subject::default() })
}

/// The error of a policy that refuses bind(2), connect(2), or to send to an address.
pub(crate) fn with_address(c: &Current, kind: Kind, ops: &dyn SocketOps, addr: &[u8]) -> Result<()> {
    if !c.kernel().policies.concerns(kind) {
        return Ok(());
    }
    let Some(address) = address(addr, ops.domain(), kind == Kind::NetConnect) else { return Ok(()) };
    c.police(kind, || Subject { address: Some(address), protocol: of_socket(ops), ..Subject::default() })
}

/// The error of a policy that refuses to listen at the socket's own address, or to accept from a peer.
pub(crate) fn of_end(c: &Current, kind: Kind, ops: &dyn SocketOps, addr: &[u8]) -> Result<()> {
    c.police(kind, || {
        let path = addr.get(2..).filter(|_| ops.domain() == libc::AF_UNIX).unwrap_or_default();
        let path = path.split(|b| *b == 0).next().unwrap_or_default();
        let address = address(addr, ops.domain(), false).unwrap_or(Address::Path(path));
        Subject { address: Some(address), protocol: of_socket(ops), ..Subject::default() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_are_meant() {
        let v4 = |family: u8, ip: [u8; 4]| {
            let mut bytes = vec![family, 0, 0, 80];
            bytes.extend(ip);
            bytes.extend([0; 8]);
            bytes
        };
        let ip = |text: &str| Some(Address::Ip(text.parse().unwrap(), 80));
        assert_eq!(address(&v4(2, [10, 0, 0, 1]), libc::AF_INET, true), ip("10.0.0.1"));
        assert_eq!(address(&v4(0, [10, 0, 0, 1]), libc::AF_INET, true), ip("10.0.0.1"));
        assert_eq!(address(&v4(2, [0; 4]), libc::AF_INET, true), ip("127.0.0.1"));
        assert_eq!(address(&v4(2, [0; 4]), libc::AF_INET, false), ip("0.0.0.0"));
        let mut v6 = vec![10, 0, 0, 80, 0, 0, 0, 0];
        v6.extend("::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(address(&v6, libc::AF_INET6, true), ip("10.0.0.1"));
        assert_eq!(address(b"\x01\0/run/x", libc::AF_UNIX, true), None);
        assert_eq!(address(b"\x01\0\0x", libc::AF_UNIX, true), Some(Address::Abstract(b"x")));
        assert_eq!(address(b"\x02", libc::AF_INET, true), Some(Address::Other));
    }

    #[test]
    fn protocols_are_those_of_the_socket() {
        assert_eq!(protocol(libc::AF_INET, libc::SOCK_STREAM, 0), Protocol::TCP);
        assert_eq!(protocol(libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6), Protocol::ICMP);
        assert_eq!(protocol(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_TCP), Protocol::RAW);
        assert_eq!(protocol(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0), Protocol::UNIX);
    }
}

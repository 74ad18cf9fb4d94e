//! Names of sockets for messages to users.

use socket::SocketOps;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// What an obstacle says of a socket.
pub(super) fn of_socket(ino: u64, ops: &dyn SocketOps) -> String {
    let kind = match (ops.domain(), ops.kind()) {
        (libc::AF_NETLINK, _) => "a netlink socket with a message of another program",
        (libc::AF_PACKET, _) => "a packet socket",
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM) => "a TCP socket of the host",
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM) => "a UDP socket of the host",
        (libc::AF_INET | libc::AF_INET6, _) => "a socket of the host",
        _ => "a socket of an unknown family",
    };
    let ends = [address(&ops.local_addr()), ops.peer_addr().ok().and_then(|peer| address(&peer))];
    let ends: Vec<_> = ends.into_iter().flatten().map(|end| end.to_string()).collect();
    let ends = if ends.is_empty() { String::new() } else { format!(" ({})", ends.join(" to ")) };
    format!("socket:[{ino}] is {kind}{ends}")
}

/// A `sockaddr_in` or `sockaddr_in6`.
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET => Some((Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?), port).into()),
        libc::AF_INET6 => Some((Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?), port).into()),
        _ => None,
    }
}

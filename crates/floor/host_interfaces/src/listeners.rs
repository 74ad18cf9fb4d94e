//! sock_diag(7): where a network namespace of the host takes TCP connections.

use crate::netlink::Netlink;
use rustix::net::netlink::SOCK_DIAG;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

/// SOCK_DIAG_BY_FAMILY.
const BY_FAMILY: u16 = 20;
/// The bit of TCP_LISTEN in `idiag_states`.
const LISTENS: u32 = 1 << 10;
/// Lengths of `struct inet_diag_req_v2` and of the part of `struct inet_diag_msg` that is looked at.
const REQUEST: usize = 56;
const MESSAGE: usize = 12;

/// A socket of sock_diag(7). It belongs to the network namespace that the thread was in that made it.
#[derive(Debug)]
pub struct Listeners(Netlink);

impl From<OwnedFd> for Listeners {
    fn from(fd: OwnedFd) -> Listeners {
        Listeners(fd.into())
    }
}

impl From<Listeners> for OwnedFd {
    fn from(socket: Listeners) -> OwnedFd {
        socket.0.into()
    }
}

impl Listeners {
    /// In the caller's network namespace.
    pub(crate) fn new() -> io::Result<Listeners> {
        Netlink::new(Some(SOCK_DIAG)).map(Listeners)
    }

    /// The port of a TCP socket that listens at an address of IPv4. A host whose kernel has no `tcp_diag` gives an error.
    pub fn port_at(&self, address: Ipv4Addr) -> io::Result<Option<u16>> {
        let mut request = [0; REQUEST];
        (request[0], request[1]) = (libc::AF_INET as u8, libc::IPPROTO_TCP as u8);
        request[4..8].copy_from_slice(&LISTENS.to_ne_bytes());
        let all = self.0.ask(BY_FAMILY, &request)?;
        Ok(all.iter().find_map(|message| port(message, address)))
    }
}

/// The port of a socket if it has the address.
fn port(message: &[u8], address: Ipv4Addr) -> Option<u16> {
    // The family, three bytes, the ports, and the source address begin `struct inet_diag_msg`.
    let found: &[u8; MESSAGE] = crate::parse::fixed(message)?;
    let is_it = found[0] == libc::AF_INET as u8 && found[8..12] == address.octets();
    is_it.then(|| u16::from_be_bytes([found[4], found[5]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_listener_is_found() {
        let address = Ipv4Addr::new(127, 99, 98, 97);
        let listeners = Listeners::new().unwrap();
        assert_eq!(listeners.port_at(address).unwrap(), None);
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listeners.port_at(address).unwrap(), Some(port));
        assert_eq!(listeners.port_at(Ipv4Addr::new(127, 99, 98, 96)).unwrap(), None);
    }
}

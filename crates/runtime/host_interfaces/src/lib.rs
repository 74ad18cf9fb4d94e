//! The interfaces, addresses and routes of a network namespace of the host, to be shown inside. See rtnetlink(7).
//!
//! The container's manager (Docker's hooks, CNI plugins, Podman's netavark) makes interfaces, addresses and routes in
//! the namespace of the container's processes. The kernel inside receives them when it is set up, and again right
//! before the first process runs.

#![forbid(unsafe_code)]

mod takeover;

pub use takeover::take_over;

use netlink_wire::{Message, find, list_of, next, word};
use rustix::net::{
    AddressFamily as Family, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use spec::{Interface, Interfaces, Route};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Most interfaces, addresses and routes of each kind that are shown.
const MOST: usize = 1024;
/// Room for one answer; the kernel sends at most 32 KiB at once.
const ANSWER: usize = 64 << 10;

/// The interfaces, addresses and routes of the namespace behind `namespace` (a file of /proc/PID/ns), with a loopback
/// interface that is up in any case: the one inside is the kernel's own. Fails with EPERM without CAP_SYS_ADMIN over it.
pub fn look(namespace: BorrowedFd<'_>) -> io::Result<Interfaces> {
    // In a thread of its own: not every thread could go back to where it was.
    let dump = || {
        move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
        look_here()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, dump)?;
        thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

/// The same of the namespace that the caller is in, which anybody may ask about.
pub fn look_here() -> io::Result<Interfaces> {
    let socket = socket_with(Family::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let links = ask(&socket, libc::RTM_GETLINK, &[0; IFINFO])?;
    let addresses = ask(&socket, libc::RTM_GETADDR, &[0; IFADDR])?;
    Ok(gather(&links, &addresses, &ask_routes(&socket)?))
}

/// Whether the namespace of a process has more interfaces than `lo`: the cheap question before [`look`].
pub fn has_more_than_loopback(pid: i32) -> bool {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
    let names = listed.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    names.into_iter().any(|name| name != "lo")
}

/// The routes of both families.
fn ask_routes(socket: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut routes = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut request = [0; RTMSG];
        request[0] = family as u8;
        routes.extend(ask(socket, libc::RTM_GETROUTE, &request)?);
    }
    Ok(routes)
}

/// All answers to a request for a list, whose fixed part is `fixed`.
fn ask(socket: &OwnedFd, kind: u16, fixed: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    send(socket, &Message::new(kind, flags, 0, 0).fixed(fixed).done(), SendFlags::empty())?;
    let (mut found, mut buffer) = (Vec::new(), vec![0; ANSWER]);
    loop {
        let (length, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let (header, message, after) = next(rest).ok_or(io::ErrorKind::InvalidData)?;
            rest = after;
            match i32::from(header.kind) {
                libc::NLMSG_DONE => return Ok(found),
                libc::NLMSG_ERROR => refusal(message).map_or(Ok(()), Err)?,
                libc::NLMSG_NOOP | libc::NLMSG_OVERRUN => {}
                _ if found.len() < MOST => found.push(message.to_vec()),
                _ => {}
            }
        }
    }
}

/// The error that an answer of the kind NLMSG_ERROR tells; none in an acknowledgement.
fn refusal(message: &[u8]) -> Option<io::Error> {
    let errno = word(message, netlink_wire::HEADER)?.cast_signed();
    (errno != 0).then(|| io::Error::from_raw_os_error(-errno))
}

/// From messages to what the kernel inside keeps. Whatever concerns the host's loopback interface is left out.
fn gather(links: &[Vec<u8>], addresses: &[Vec<u8>], routes: &[Vec<u8>]) -> Interfaces {
    let mut shown = Interfaces::loopback();
    let links = links.iter().filter_map(|message| interface(message));
    let mut found: BTreeMap<u32, Interface> = links.map(|link| (link.index, link)).collect();
    for (index, address, prefix) in addresses.iter().filter_map(|message| address(message)) {
        if let Some(interface) = found.get_mut(&index) {
            interface.addresses.push((address, prefix));
        }
    }
    let routes = routes.iter().filter_map(|message| route(message));
    shown.routes.extend(routes.filter(|route| found.contains_key(&route.interface)));
    shown.links.extend(found.into_values());
    shown
}

/// Lengths of `struct ifinfomsg`, `struct ifaddrmsg` and `struct rtmsg`.
const IFINFO: usize = 16;
const IFADDR: usize = 8;
const RTMSG: usize = 12;

/// The fixed part of a message.
fn fixed<const N: usize>(message: &[u8]) -> Option<&[u8; N]> {
    message.get(netlink_wire::HEADER..)?.first_chunk()
}

/// An attribute with a number.
fn number(attributes: &[u8], kind: u16) -> Option<u32> {
    word(find(attributes, kind)?, 0)
}

/// The interface of RTM_NEWLINK, unless it is a loopback interface.
fn interface(message: &[u8]) -> Option<Interface> {
    let header: &[u8; IFINFO] = fixed(message)?;
    let attributes = list_of(message, IFINFO);
    let name = find(attributes, libc::IFLA_IFNAME)?.split(|byte| *byte == 0).next()?;
    let interface = Interface {
        index: word(header, 4)?,
        name: String::from_utf8_lossy(name).into_owned(),
        flags: word(header, 8)?,
        kind: u16::from_ne_bytes([header[2], header[3]]),
        mtu: number(attributes, libc::IFLA_MTU).unwrap_or(0),
        address: find(attributes, libc::IFLA_ADDRESS).unwrap_or_default().to_vec(),
        addresses: Vec::new(),
    };
    (interface.index > 1 && interface.kind != LOOPBACK).then_some(interface)
}

/// ARPHRD_LOOPBACK.
const LOOPBACK: u16 = 772;

/// The interface, the address and the prefix's length of RTM_NEWADDR.
fn address(message: &[u8]) -> Option<(u32, IpAddr, u8)> {
    let header: &[u8; IFADDR] = fixed(message)?;
    let attributes = list_of(message, IFADDR);
    // Without a peer, the one address stands in IFA_ADDRESS.
    let found = find(attributes, libc::IFA_LOCAL).or_else(|| find(attributes, libc::IFA_ADDRESS))?;
    Some((word(header, 4)?, ip(found)?, header[1]))
}

/// The route of RTM_NEWROUTE.
fn route(message: &[u8]) -> Option<Route> {
    let header: &[u8; RTMSG] = fixed(message)?;
    let any = match i32::from(header[0]) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let attributes = list_of(message, RTMSG);
    let to = match find(attributes, libc::RTA_DST) {
        Some(bytes) => ip(bytes)?,
        None => any,
    };
    let table = number(attributes, libc::RTA_TABLE).unwrap_or(header[4].into());
    Some(Route {
        to: (to, header[1]),
        via: find(attributes, libc::RTA_GATEWAY).and_then(ip),
        interface: number(attributes, libc::RTA_OIF)?,
        table: u8::try_from(table).ok()?,
        kind: header[7],
        scope: header[6],
    })
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn own_namespace() {
        let own = std::fs::File::open("/proc/self/ns/net").unwrap();
        match look(own.as_fd()) {
            Ok(shown) => {
                assert_eq!(shown.links[0].name, "lo");
                let indices: Vec<u32> = shown.links.iter().map(|link| link.index).collect();
                assert!(shown.routes.iter().all(|route| indices.contains(&route.interface)));
            }
            // An ordinary user may not enter even where he is.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
        assert!(look(std::fs::File::open("/proc/self/ns/uts").unwrap().as_fd()).is_err());
    }

    #[test]
    fn messages() {
        let link = |index: u8, name: &str| {
            let header = [0, 0, 1, 0, index, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            let message = Message::new(libc::RTM_NEWLINK, 0, 0, 0).fixed(&header);
            message.text(libc::IFLA_IFNAME, name).number(libc::IFLA_MTU, 1500).done()
        };
        let own = Ipv4Addr::new(10, 0, 0, 2);
        let addressed = Message::new(libc::RTM_NEWADDR, 0, 0, 0).fixed(&[2, 24, 0, 0, 7, 0, 0, 0]);
        let addressed = addressed.attribute(libc::IFA_LOCAL, &own.octets()).done();
        let own = IpAddr::V4(own);
        let gateway = Ipv4Addr::new(10, 0, 0, 1);
        let route = |gateway: Option<Ipv4Addr>, interface| {
            let message =
                Message::new(libc::RTM_NEWROUTE, 0, 0, 0).fixed(&[2, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0]);
            let message = match gateway {
                Some(gateway) => message.attribute(libc::RTA_GATEWAY, &gateway.octets()),
                None => message,
            };
            message.number(libc::RTA_OIF, interface).done()
        };
        let shown = gather(
            &[link(1, "lo"), link(7, "eth0")],
            &[addressed],
            &[route(Some(gateway), 7), route(None, 9)],
        );
        assert_eq!(shown.links[0], Interfaces::loopback().links[0]);
        assert_eq!((shown.links[1].name.as_str(), shown.links[1].mtu), ("eth0", 1500));
        assert_eq!(shown.links[1].addresses, [(own, 24)]);
        let routes = &shown.routes[Interfaces::loopback().routes.len()..];
        assert_eq!(routes.len(), 1);
        assert_eq!((routes[0].via, routes[0].to.1, routes[0].interface), (Some(gateway.into()), 0, 7));
    }
}

//! The interfaces, addresses and routes of a network namespace of the host, to be shown inside. See rtnetlink(7).
//!
//! The container's manager (Docker's hooks, CNI plugins, Podman's netavark) makes interfaces, addresses and routes in
//! the namespace of the container's processes. The kernel inside receives them when it is set up, and again right
//! before the first process runs.

#![forbid(unsafe_code)]

mod takeover;

pub use takeover::take_over;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
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
    let links = ask(&socket, RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let addresses = ask(&socket, RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    let mut routes = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        routes.extend(ask(&socket, RouteNetlinkMessage::GetRoute(request))?);
    }
    Ok(gather(links, addresses, routes))
}

/// Whether the namespace of a process has more interfaces than `lo`: the cheap question before [`look`].
pub fn has_more_than_loopback(pid: i32) -> bool {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
    let names = listed.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    names.into_iter().any(|name| name != "lo")
}

/// All answers to a request for a list.
fn ask(socket: &OwnedFd, request: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(request));
    message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    send(socket, &bytes, SendFlags::empty())?;
    let (mut found, mut buffer) = (Vec::new(), vec![0; ANSWER]);
    loop {
        let (length, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            match answer.payload {
                NetlinkPayload::Done(_) => return Ok(found),
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(inner) if found.len() < MOST => found.push(inner),
                _ => {}
            }
            // Messages begin at multiples of four bytes.
            let step = (answer.header.length as usize).next_multiple_of(4).max(4);
            rest = rest.get(step..).unwrap_or_default();
        }
    }
}

/// From messages to what the kernel inside keeps. Whatever concerns the host's loopback interface is left out.
fn gather(
    links: Vec<RouteNetlinkMessage>,
    addresses: Vec<RouteNetlinkMessage>,
    routes: Vec<RouteNetlinkMessage>,
) -> Interfaces {
    let mut shown = Interfaces::loopback();
    let mut found: BTreeMap<u32, Interface> = links
        .into_iter()
        .filter_map(|m| if let RouteNetlinkMessage::NewLink(link) = m { interface(link) } else { None })
        .map(|interface| (interface.index, interface))
        .collect();
    for message in addresses {
        if let RouteNetlinkMessage::NewAddress(message) = message
            && let Some(interface) = found.get_mut(&message.header.index)
            && let Some(address) = address(&message)
        {
            interface.addresses.push((address, message.header.prefix_len));
        }
    }
    for message in routes {
        if let RouteNetlinkMessage::NewRoute(message) = message
            && let Some(route) = route(&message)
            && found.contains_key(&route.interface)
        {
            shown.routes.push(route);
        }
    }
    shown.links.extend(found.into_values());
    shown
}

fn interface(link: LinkMessage) -> Option<Interface> {
    let (mut name, mut mtu, mut address) = (None, 0, Vec::new());
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text),
            LinkAttribute::Mtu(bytes) => mtu = bytes,
            LinkAttribute::Address(bytes) => address = bytes,
            _ => {}
        }
    }
    let (flags, kind) = (link.header.flags.bits(), link.header.link_layer_type.into());
    let interface =
        Interface { index: link.header.index, name: name?, flags, kind, mtu, address, addresses: Vec::new() };
    (interface.index > 1 && interface.kind != LOOPBACK).then_some(interface)
}

/// ARPHRD_LOOPBACK.
const LOOPBACK: u16 = 772;

fn address(message: &AddressMessage) -> Option<IpAddr> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    // Without a peer, the one address stands here.
    local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })
}

fn route(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    let any = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let (mut to, mut via, mut interface, mut table) = (any, None, None, u32::from(header.table));
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => to = ip(address)?,
            RouteAttribute::Gateway(address) => via = ip(address),
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Table(number) => table = *number,
            _ => {}
        }
    }
    Some(Route {
        to: (to, header.destination_prefix_length),
        via,
        interface: interface?,
        table: u8::try_from(table).ok()?,
        kind: header.kind.into(),
        scope: header.scope.into(),
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
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
        let mut link = LinkMessage::default();
        link.header.index = 7;
        link.attributes = vec![LinkAttribute::IfName("eth0".into()), LinkAttribute::Mtu(1500)];
        let mut lo = LinkMessage::default();
        lo.header.index = 1;
        lo.attributes = vec![LinkAttribute::IfName("lo".into())];
        let mut addressed = AddressMessage::default();
        (addressed.header.index, addressed.header.prefix_len) = (7, 24);
        let own = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
        addressed.attributes = vec![AddressAttribute::Local(own)];
        let mut default = RouteMessage::default();
        default.header.address_family = AddressFamily::Inet;
        default.header.table = 254;
        let gateway = Ipv4Addr::new(10, 0, 0, 1);
        default.attributes =
            vec![RouteAttribute::Gateway(RouteAddress::Inet(gateway)), RouteAttribute::Oif(7)];
        let mut elsewhere = default.clone();
        elsewhere.attributes = vec![RouteAttribute::Oif(9)];
        let shown = gather(
            vec![RouteNetlinkMessage::NewLink(lo), RouteNetlinkMessage::NewLink(link)],
            vec![RouteNetlinkMessage::NewAddress(addressed)],
            vec![RouteNetlinkMessage::NewRoute(default), RouteNetlinkMessage::NewRoute(elsewhere)],
        );
        assert_eq!(shown.links[0], Interfaces::loopback().links[0]);
        assert_eq!((shown.links[1].name.as_str(), shown.links[1].mtu), ("eth0", 1500));
        assert_eq!(shown.links[1].addresses, [(own, 24)]);
        let routes = &shown.routes[Interfaces::loopback().routes.len()..];
        assert_eq!(routes.len(), 1);
        assert_eq!((routes[0].via, routes[0].to.1, routes[0].interface), (Some(gateway.into()), 0, 7));
    }
}

//! Messages of rtnetlink(7) as the interfaces, addresses, routes and neighbours that they tell of.

use netlink_wire::{find, list_of, word};
use spec::{Interface, Interfaces, Neighbour, Route};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Lengths of `struct ifinfomsg`, `struct ifaddrmsg`, `struct rtmsg`, `struct ndmsg` and `struct fib_rule_hdr`.
pub(crate) const IFINFO: usize = 16;
pub(crate) const IFADDR: usize = 8;
pub(crate) const RTMSG: usize = 12;
pub(crate) const NDMSG: usize = 12;
pub(crate) const RULE: usize = 12;

/// The number of the interface that leads inside. No interface gets it by itself, so the others have the numbers that they would
/// have without it.
pub(crate) const INWARD: u32 = 0x5246_0001;
/// ARPHRD_LOOPBACK.
const LOOPBACK: u16 = 772;

/// From messages to what the kernel inside keeps. What concerns the host's loopback interface is left out.
pub(crate) fn gather(
    links: &[Vec<u8>],
    addresses: &[Vec<u8>],
    routes: &[Vec<u8>],
    neighbours: &[Vec<u8>],
) -> Interfaces {
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
    let neighbours = neighbours.iter().filter_map(|message| neighbour(message));
    shown.neighbours.extend(neighbours.filter(|neighbour| found.contains_key(&neighbour.interface)));
    shown.links.extend(found.into_values());
    shown
}

/// The fixed part of a message.
pub(crate) fn fixed<const N: usize>(message: &[u8]) -> Option<&[u8; N]> {
    message.get(netlink_wire::HEADER..)?.first_chunk()
}

/// An attribute with a number.
pub(crate) fn number(attributes: &[u8], kind: u16) -> Option<u32> {
    word(find(attributes, kind)?, 0)
}

/// The interface of RTM_NEWLINK, unless it is a loopback interface or the way inward.
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
    let inward = interface.index == INWARD;
    (interface.index > 1 && interface.kind != LOOPBACK && !inward).then_some(interface)
}

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
        metric: number(attributes, libc::RTA_PRIORITY).unwrap_or(0),
        source: find(attributes, libc::RTA_PREFSRC).and_then(ip),
    })
}

/// The neighbour of RTM_NEWNEIGH, if an administrator has entered it.
fn neighbour(message: &[u8]) -> Option<Neighbour> {
    let header: &[u8; NDMSG] = fixed(message)?;
    let state = u16::from_ne_bytes([header[8], header[9]]);
    let attributes = list_of(message, NDMSG);
    let mac = find(attributes, libc::NDA_LLADDR)?.try_into().ok()?;
    let found = Neighbour { interface: word(header, 4)?, ip: ip(find(attributes, libc::NDA_DST)?)?, mac };
    (state & libc::NUD_PERMANENT != 0).then_some(found)
}

/// An address of IPv4 or IPv6.
pub(crate) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_wire::Message;

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
            message.number(libc::RTA_OIF, interface).number(libc::RTA_PRIORITY, 100).done()
        };
        let neighbour = |state: u8, last: u8| {
            let header = [2, 0, 0, 0, 7, 0, 0, 0, state, 0, 0, 0];
            let message = Message::new(libc::RTM_NEWNEIGH, 0, 0, 0).fixed(&header);
            message.attribute(libc::NDA_DST, &[10, 0, 0, last]).attribute(libc::NDA_LLADDR, &[2; 6]).done()
        };
        let shown = gather(
            &[link(1, "lo"), link(7, "eth0")],
            &[addressed],
            &[route(Some(gateway), 7), route(None, 9)],
            &[neighbour(0x80, 1), neighbour(2, 3)],
        );
        assert_eq!(shown.links[0], Interfaces::loopback().links[0]);
        assert_eq!((shown.links[1].name.as_str(), shown.links[1].mtu), ("eth0", 1500));
        assert_eq!(shown.links[1].addresses, [(own, 24)]);
        let routes = &shown.routes[Interfaces::loopback().routes.len()..];
        assert_eq!(routes.len(), 1);
        assert_eq!((routes[0].via, routes[0].to.1, routes[0].interface), (Some(gateway.into()), 0, 7));
        assert_eq!(routes[0].metric, 100);
        assert_eq!(shown.neighbours, [Neighbour { interface: 7, ip: gateway.into(), mac: [2; 6] }]);
    }
}

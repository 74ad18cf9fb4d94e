//! The answers of netlink(7), and those of rtnetlink(7).

use super::NETLINK_SOCK_DIAG;
use super::wire::{self, HEADER, Header, Message};
use crate::net_ns::NetNamespace;
use abi::Errno;
use netstack::addr::Prefix;
use netstack::route::{Action, RouteKind, Rule};
use spec::{Interface, Interfaces, Route};
use std::net::IpAddr;
use vfs::{Caller, Cap};

const NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
pub(super) const NLMSG_DONE: u16 = libc::NLMSG_DONE as u16;
pub(super) const MULTI: u16 = libc::NLM_F_MULTI as u16;
/// Lengths of `struct ifinfomsg`, `ifaddrmsg` and `rtmsg`.
const IFINFO: usize = 16;
const IFADDR: usize = 8;
const RTMSG: usize = 12;
/// Answers of a dump are put together up to this size.
const DATAGRAM: usize = 8 << 10;

/// The datagrams that answer one datagram of requests; no more than one request's beyond `room` bytes.
pub(super) fn to(
    net: &NetNamespace,
    protocol: i32,
    mut bytes: &[u8],
    port: u32,
    cx: &dyn Caller,
    room: usize,
) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    while out.iter().map(Vec::len).sum::<usize>() <= room
        && let Some((header, message, rest)) = wire::next(bytes)
    {
        bytes = rest;
        if header.flags & libc::NLM_F_REQUEST as u16 == 0 || header.kind < 16 {
            continue;
        }
        let answered = match protocol {
            NETLINK_SOCK_DIAG => super::diag::answer(net, header, message, port, cx).map(Some),
            _ => answer(net, header, message, port, cx),
        };
        match answered {
            Ok(Some(mut answers)) => out.append(&mut answers),
            Ok(None) => out.push(acknowledge(None, header, message, port)),
            Err(error) => out.push(acknowledge(Some(error), header, message, port)),
        }
    }
    out
}

/// NLMSG_ERROR: 0 is an acknowledgement and repeats the header only.
fn acknowledge(error: Option<Errno>, header: Header, message: &[u8], port: u32) -> Vec<u8> {
    let repeated = if error.is_some() { message } else { &message[..HEADER] };
    let code = error.map_or(0, |error| -error.raw());
    Message::new(NLMSG_ERROR, 0, header.seq, port).fixed(&code.to_ne_bytes()).fixed(repeated).done()
}

/// `None` asks for a mere acknowledgement.
fn answer(
    owner: &NetNamespace,
    header: Header,
    message: &[u8],
    port: u32,
    cx: &dyn Caller,
) -> Result<Option<Vec<Vec<u8>>>, Errno> {
    let dump = i32::from(header.flags) & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
    let body = message.get(HEADER..).unwrap_or_default();
    let family = i32::from(body.first().copied().unwrap_or(0));
    let wanted = |ip: &IpAddr| family == libc::AF_UNSPEC || family == family_of(ip);
    let flags = if dump { MULTI } else { 0 };
    let new = |kind: u16| Message::new(kind, flags, header.seq, port);
    let net = &*owner.interfaces();
    let links = net.links.iter();
    let items: Vec<Vec<u8>> = match header.kind {
        libc::RTM_GETLINK if dump => links.map(|link| describe_link(new(libc::RTM_NEWLINK), link)).collect(),
        libc::RTM_GETLINK => {
            if body.len() < IFINFO {
                return Err(Errno::EINVAL);
            }
            let link = named_link(net, message)?;
            return Ok(Some(vec![describe_link(new(libc::RTM_NEWLINK), link)]));
        }
        libc::RTM_GETADDR => links
            .flat_map(|link| link.addresses.iter().map(move |address| (link, address)))
            .filter(|(_, (ip, _))| wanted(ip))
            .map(|(link, (ip, bits))| describe_address(new(libc::RTM_NEWADDR), link, ip, *bits))
            .collect(),
        libc::RTM_GETROUTE if dump => net
            .routes
            .iter()
            .filter(|route| wanted(&route.to.0))
            .map(|route| describe_route(new(libc::RTM_NEWROUTE), route))
            .collect(),
        libc::RTM_GETROUTE => return route_to(net, message, new(libc::RTM_NEWROUTE)).map(|r| Some(vec![r])),
        libc::RTM_GETRULE if dump => rules(owner, family, || new(libc::RTM_NEWRULE)),
        // There are none to show, which a dump can say.
        libc::RTM_GETNEIGH if dump => Vec::new(),
        libc::RTM_GETQDISC if dump => super::qdisc::describe(owner, libc::RTM_NEWQDISC, header.seq, port),
        // Of each four numbers the third asks; the others change something.
        kind if kind % 4 != 2 => {
            if !cx.creds().ns_capable(owner.user_ns(), Cap::NET_ADMIN) {
                return Err(Errno::EPERM);
            }
            super::change::apply(owner, kind, header.flags, message)?;
            return Ok(if i32::from(header.flags) & libc::NLM_F_ACK != 0 { None } else { Some(Vec::new()) });
        }
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let done = Message::new(NLMSG_DONE, MULTI, header.seq, port).fixed(&0i32.to_ne_bytes()).done();
    Ok(Some(joined(items, done)))
}

/// The rules of one family, or of both.
fn rules(owner: &NetNamespace, family: i32, new: impl Fn() -> Message) -> Vec<Vec<u8>> {
    if !owner.shows_stack() {
        return Vec::new();
    }
    let of = |v4: bool| if v4 { libc::AF_INET } else { libc::AF_INET6 };
    owner.stack().read_routes(|routes| {
        let wanted = |rule: &&Rule| family == libc::AF_UNSPEC || family == of(rule.v4);
        routes
            .rules()
            .iter()
            .filter(wanted)
            .map(|rule| describe_rule(new(), of(rule.v4) as u8, rule))
            .collect()
    })
}

/// A `struct fib_rule_hdr` with its attributes.
fn describe_rule(message: Message, family: u8, rule: &Rule) -> Vec<u8> {
    const FR_ACT: [(RouteKind, u8); 3] =
        [(RouteKind::Blackhole, 6), (RouteKind::Unreachable, 7), (RouteKind::Prohibit, 8)];
    const FRA_DST: u16 = 1;
    const FRA_SRC: u16 = 2;
    const FRA_PRIORITY: u16 = 6;
    const FRA_FWMARK: u16 = 10;
    const FRA_TABLE: u16 = 15;
    const FRA_FWMASK: u16 = 16;
    let (action, table) = match rule.action {
        Action::Table(table) => (1, table),
        Action::Refuse(kind) => (FR_ACT.iter().find(|(k, _)| *k == kind).map_or(0, |(_, act)| *act), 0),
    };
    let len = |prefix: &Option<Prefix>| prefix.map_or(0, |prefix| prefix.len);
    let short = u8::try_from(table).unwrap_or(0);
    let mut fixed = vec![family, len(&rule.to), len(&rule.from), rule.tos.unwrap_or(0), short, 0, 0, action];
    fixed.extend(0u32.to_ne_bytes());
    let mut message = message.fixed(&fixed).number(FRA_TABLE, table);
    for (kind, prefix) in [(FRA_DST, rule.to), (FRA_SRC, rule.from)] {
        if let Some(prefix) = prefix {
            message = message.attribute(kind, &bytes_of(&prefix.addr));
        }
    }
    if rule.priority != 0 {
        message = message.number(FRA_PRIORITY, rule.priority);
    }
    if let Some((mark, mask)) = rule.mark {
        message = message.number(FRA_FWMARK, mark).number(FRA_FWMASK, mask);
    }
    message.done()
}

/// Puts messages together into datagrams; the last message stands alone.
pub(super) fn joined(items: Vec<Vec<u8>>, done: Vec<u8>) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    for item in items {
        match out.last_mut().filter(|last| last.len() + item.len() <= DATAGRAM) {
            Some(last) => last.extend(item),
            None => out.push(item),
        }
    }
    out.push(done);
    out
}

fn family_of(ip: &IpAddr) -> i32 {
    if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

fn bytes_of(ip: &IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The interface that a request for one names, by index or name.
fn named_link<'a>(net: &'a Interfaces, message: &[u8]) -> Result<&'a Interface, Errno> {
    let index =
        message.get(HEADER + 4..HEADER + 8).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
    let name = wire::attribute(message, IFINFO, libc::IFLA_IFNAME);
    let name = name.map(|name| name.strip_suffix(&[0]).unwrap_or(name));
    if index == 0 && name.is_none() {
        return Err(Errno::EINVAL);
    }
    let is = |link: &&Interface| match name {
        _ if index != 0 => link.index == index,
        Some(name) => link.name.as_bytes() == name,
        None => false,
    };
    net.links.iter().find(is).ok_or(Errno::ENODEV)
}

fn describe_link(message: Message, link: &Interface) -> Vec<u8> {
    let loopback = link.flags & libc::IFF_LOOPBACK as u32 != 0;
    // IF_OPER_DOWN; IF_OPER_UNKNOWN for the loopback interface; IF_OPER_UP.
    let state = match link.flags & libc::IFF_UP as u32 {
        0 => 2,
        _ if loopback => 0,
        _ => 6,
    };
    let mut fixed = vec![libc::AF_UNSPEC as u8, 0];
    fixed.extend(link.kind.to_ne_bytes());
    fixed.extend(link.index.to_ne_bytes());
    fixed.extend(link.flags.to_ne_bytes());
    fixed.extend(0u32.to_ne_bytes());
    let broadcast = vec![if loopback { 0 } else { 0xff }; link.address.len()];
    message
        .fixed(&fixed)
        .text(libc::IFLA_IFNAME, &link.name)
        .number(libc::IFLA_TXQLEN, 1000)
        .attribute(libc::IFLA_OPERSTATE, &[state])
        .attribute(libc::IFLA_LINKMODE, &[0])
        .number(libc::IFLA_MTU, link.mtu)
        .number(libc::IFLA_GROUP, 0)
        .number(libc::IFLA_PROMISCUITY, 0)
        .number(libc::IFLA_NUM_TX_QUEUES, 1)
        .number(libc::IFLA_NUM_RX_QUEUES, 1)
        .attribute(libc::IFLA_CARRIER, &[1])
        .text(libc::IFLA_QDISC, "noqueue")
        .attribute(libc::IFLA_ADDRESS, &link.address)
        .attribute(libc::IFLA_BROADCAST, &broadcast)
        .attribute(libc::IFLA_STATS64, &[0; 24 * 8])
        .attribute(libc::IFLA_STATS, &[0; 24 * 4])
        .done()
}

fn describe_address(message: Message, link: &Interface, ip: &IpAddr, bits: u8) -> Vec<u8> {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let scope = match ip {
        ip if ip.is_loopback() => libc::RT_SCOPE_HOST,
        _ if link_local => libc::RT_SCOPE_LINK,
        _ => libc::RT_SCOPE_UNIVERSE,
    };
    let flags = libc::IFA_F_PERMANENT;
    let mut fixed = vec![family_of(ip) as u8, bits, flags as u8, scope];
    fixed.extend(link.index.to_ne_bytes());
    debug_assert_eq!(fixed.len(), IFADDR);
    let mut message = message.fixed(&fixed).attribute(libc::IFA_ADDRESS, &bytes_of(ip));
    if let IpAddr::V4(v4) = ip {
        message = message.attribute(libc::IFA_LOCAL, &bytes_of(ip));
        if !ip.is_loopback() && bits < 31 {
            let host = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
            message = message.attribute(libc::IFA_BROADCAST, &(v4.to_bits() | host).to_be_bytes());
        }
        message = message.text(libc::IFA_LABEL, &link.name);
    }
    const IFA_FLAGS: u16 = 8;
    let forever = [u32::MAX.to_ne_bytes(), u32::MAX.to_ne_bytes(), [0; 4], [0; 4]].concat();
    message.number(IFA_FLAGS, flags).attribute(libc::IFA_CACHEINFO, &forever).done()
}

fn describe_route(message: Message, route: &Route) -> Vec<u8> {
    let (to, bits) = &route.to;
    // RTPROT_KERNEL for what came with an address, RTPROT_BOOT.
    let protocol = if route.via.is_none() { 2 } else { 3 };
    let mut fixed = vec![family_of(to) as u8, *bits, 0, 0, route.table, protocol, route.scope, route.kind];
    fixed.extend(0u32.to_ne_bytes());
    debug_assert_eq!(fixed.len(), RTMSG);
    let mut message = message.fixed(&fixed).number(libc::RTA_TABLE, route.table.into());
    if *bits != 0 {
        message = message.attribute(libc::RTA_DST, &bytes_of(to));
    }
    if let Some(via) = &route.via {
        message = message.attribute(libc::RTA_GATEWAY, &bytes_of(via));
    }
    message.number(libc::RTA_OIF, route.interface).done()
}

/// The route that a packet to the address in the request would take.
fn route_to(net: &Interfaces, message: &[u8], new: Message) -> Result<Vec<u8>, Errno> {
    let to = wire::attribute(message, RTMSG, libc::RTA_DST).ok_or(Errno::EINVAL)?;
    let matches = |route: &&Route| {
        let (prefix, bits) = (bytes_of(&route.to.0), usize::from(route.to.1));
        let bit = |bytes: &[u8], n: usize| bytes[n / 8] >> (7 - n % 8) & 1;
        prefix.len() == to.len() && (0..bits).all(|n| bit(&prefix, n) == bit(to, n))
    };
    let best = net.routes.iter().filter(matches).max_by_key(|route| route.to.1);
    best.map(|route| describe_route(new, route)).ok_or(Errno::ENETUNREACH)
}

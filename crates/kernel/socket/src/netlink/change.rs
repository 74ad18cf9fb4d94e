//! Changes by rtnetlink(7): addresses, routes and links of the namespace's TCP/IP stack. What a change says that is not understood is
//! EOPNOTSUPP, so that nothing is left out in silence. Interfaces that are only shown cannot be changed (EOPNOTSUPP).

use super::wire::{self, HEADER};
use crate::net_ns::NetNamespace;
use abi::Errno;
use netstack::Stack;
use netstack::addr::{Prefix, Scope};
use netstack::iface::{Address, Iface};
use netstack::route::{Route, RouteKind};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Lengths of `struct ifinfomsg`, `ifaddrmsg` and `rtmsg`.
pub(super) const IFINFO: usize = 16;
const IFADDR: usize = 8;
const RTMSG: usize = 12;
/// Attributes that libc lacks.
const IFA_FLAGS: u16 = 8;
const IFLA_EXT_MASK: u16 = 29;
/// Flags of IFA_FLAGS that say no more than that the address is permanent.
const PERMANENT: u32 = 0x80;

pub(super) type Result<T> = std::result::Result<T, Errno>;

/// A request with a fixed part and attributes.
pub(super) struct Request<'a> {
    bytes: &'a [u8],
    fixed: usize,
}

impl<'a> Request<'a> {
    /// With attributes of these kinds only.
    pub(super) fn new(bytes: &'a [u8], fixed: usize, known: &[u16]) -> Result<Request<'a>> {
        if bytes.len() < HEADER + fixed {
            return Err(Errno::EINVAL);
        }
        match wire::attributes(bytes, fixed).all(|kind| known.contains(&kind)) {
            true => Ok(Request { bytes, fixed }),
            false => Err(Errno::EOPNOTSUPP),
        }
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(HEADER + at).copied().unwrap_or(0)
    }

    pub(super) fn word(&self, at: usize) -> u32 {
        let word = self.bytes.get(HEADER + at..).and_then(<[u8]>::first_chunk);
        word.copied().map_or(0, u32::from_ne_bytes)
    }

    pub(super) fn attribute(&self, kind: u16) -> Option<&'a [u8]> {
        wire::attribute(self.bytes, self.fixed, kind)
    }

    pub(super) fn number(&self, kind: u16) -> Result<Option<u32>> {
        let value = self.attribute(kind);
        value.map(|v| v.first_chunk().copied().map(u32::from_ne_bytes).ok_or(Errno::EINVAL)).transpose()
    }

    /// An address of the family that the request names.
    fn address(&self, kind: u16) -> Result<Option<IpAddr>> {
        let Some(value) = self.attribute(kind) else { return Ok(None) };
        let address = match i32::from(self.byte(0)) {
            libc::AF_INET => <[u8; 4]>::try_from(value).map(IpAddr::from),
            libc::AF_INET6 => <[u8; 16]>::try_from(value).map(IpAddr::from),
            _ => return Err(Errno::EAFNOSUPPORT),
        };
        address.map(Some).map_err(|_| Errno::EINVAL)
    }
}

/// Does what a request asks.
pub(super) fn apply(net: &NetNamespace, kind: u16, flags: u16, bytes: &[u8]) -> Result<()> {
    if !net.shows_stack() {
        return Err(Errno::EOPNOTSUPP);
    }
    let stack = net.stack();
    match kind {
        libc::RTM_NEWADDR => new_address(net, bytes),
        libc::RTM_DELADDR => delete_address(net, bytes),
        libc::RTM_NEWROUTE => new_route(net, flags, bytes),
        libc::RTM_DELROUTE => delete_route(stack, bytes),
        libc::RTM_NEWLINK => new_link(net, flags, bytes),
        libc::RTM_SETLINK => change_link(net, bytes),
        libc::RTM_DELLINK => {
            let request = Request::new(bytes, IFINFO, &[libc::IFLA_IFNAME, IFLA_EXT_MASK])?;
            stack.remove_link(named(net, &request)?.index)
        }
        libc::RTM_NEWQDISC => super::qdisc::set(net, flags, bytes),
        libc::RTM_DELQDISC => super::qdisc::delete(net, bytes),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// An interface of the stack.
fn link(net: &NetNamespace, index: u32) -> Result<Arc<Iface>> {
    let shown = || net.interfaces().links.iter().any(|link| link.index == index);
    net.stack().link(index).ok_or_else(|| if shown() { Errno::EOPNOTSUPP } else { Errno::ENODEV })
}

/// The interface that an `ifinfomsg` names, by index or name.
fn named(net: &NetNamespace, request: &Request<'_>) -> Result<Arc<Iface>> {
    match request.word(4) {
        0 => {
            let name = request.attribute(libc::IFLA_IFNAME).ok_or(Errno::EINVAL)?;
            net.stack().link_by_name(text(name)?).ok_or(Errno::ENODEV)
        }
        index => link(net, index),
    }
}

fn text(bytes: &[u8]) -> Result<&str> {
    let name = bytes.split(|&b| b == 0).next().unwrap_or_default();
    std::str::from_utf8(name).map_err(|_| Errno::EINVAL)
}

/// The name that an interface may have.
pub(super) fn valid_name(bytes: &[u8]) -> Result<&str> {
    let name = text(bytes)?;
    let valid =
        !name.is_empty() && name.len() < 16 && !name.contains(['/', ':', ' ']) && !name.starts_with('.');
    if valid { Ok(name) } else { Err(Errno::EINVAL) }
}

const OF_ADDRESS: [u16; 6] = [
    libc::IFA_LOCAL,
    libc::IFA_ADDRESS,
    libc::IFA_BROADCAST,
    libc::IFA_LABEL,
    libc::IFA_CACHEINFO,
    IFA_FLAGS,
];

/// The address in a request, and the other end.
fn addresses(request: &Request<'_>) -> Result<(Prefix, Option<IpAddr>)> {
    let (own, other) = (request.address(libc::IFA_LOCAL)?, request.address(libc::IFA_ADDRESS)?);
    let own = own.or(other).ok_or(Errno::EINVAL)?;
    let len = request.byte(1);
    if len > netstack::addr::bits(own) {
        return Err(Errno::EINVAL);
    }
    Ok((Prefix::new(own, len), other.filter(|other| *other != own)))
}

fn new_address(net: &NetNamespace, bytes: &[u8]) -> Result<()> {
    let request = Request::new(bytes, IFADDR, &OF_ADDRESS)?;
    let (prefix, peer) = addresses(&request)?;
    if request.number(IFA_FLAGS)?.unwrap_or(0) & !PERMANENT != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let link = link(net, request.word(4))?;
    let broadcast = match request.address(libc::IFA_BROADCAST)? {
        Some(IpAddr::V4(v4)) => Some(v4),
        _ => None,
    };
    let address = Address { peer, broadcast, ..Address::new(prefix) };
    let scope = if prefix.addr.is_ipv4() { scope(request.byte(3)) } else { address.scope };
    net.stack().add_address(link.index, Address { scope, ..address })
}

fn delete_address(net: &NetNamespace, bytes: &[u8]) -> Result<()> {
    let request = Request::new(bytes, IFADDR, &OF_ADDRESS)?;
    let (prefix, _) = addresses(&request)?;
    net.stack().remove_address(link(net, request.word(4))?.index, prefix)
}

/// RT_SCOPE_*.
fn scope(scope: u8) -> Scope {
    match scope {
        libc::RT_SCOPE_HOST => Scope::Host,
        libc::RT_SCOPE_LINK => Scope::Link,
        _ => Scope::Global,
    }
}

/// Whether a request names an interface that exists, if only one that is shown.
fn exists(net: &NetNamespace, request: &Request<'_>) -> Result<bool> {
    let name = request.attribute(libc::IFLA_IFNAME).map(text).transpose()?;
    let index = request.word(4);
    let named = |link: &spec::Interface| match index {
        0 => name == Some(&link.name),
        index => link.index == index,
    };
    Ok(net.interfaces().links.iter().any(named))
}

/// Changes an interface that exists, makes one that does not.
fn new_link(net: &NetNamespace, flags: u16, bytes: &[u8]) -> Result<()> {
    let any: Vec<u16> = wire::attributes(bytes, IFINFO).collect();
    let request = Request::new(bytes, IFINFO, &any)?;
    let flags = i32::from(flags);
    match exists(net, &request)? {
        true if flags & libc::NLM_F_EXCL != 0 => Err(Errno::EEXIST),
        true if flags & libc::NLM_F_REPLACE != 0 => Err(Errno::EOPNOTSUPP),
        true => change_link(net, bytes),
        false if flags & libc::NLM_F_CREATE != 0 => super::create::link(net, bytes),
        false => Err(Errno::ENODEV),
    }
}

fn change_link(net: &NetNamespace, bytes: &[u8]) -> Result<()> {
    const UP: u32 = libc::IFF_UP as u32;
    let known = [libc::IFLA_IFNAME, libc::IFLA_MTU, libc::IFLA_MASTER, IFLA_EXT_MASK];
    let request = Request::new(bytes, IFINFO, &known)?;
    let (index, flags, change) = (request.word(4), request.word(8), request.word(12));
    let link = named(net, &request)?;
    if change & !UP != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if let Some(name) = request.attribute(libc::IFLA_IFNAME).filter(|_| index != 0) {
        let name = valid_name(name)?;
        if name != link.name() {
            net.stack().rename(link.index, name)?;
        }
    }
    if let Some(mtu) = request.number(libc::IFLA_MTU)? {
        net.stack().set_mtu(link.index, mtu)?;
    }
    if let Some(master) = request.number(libc::IFLA_MASTER)? {
        super::create::set_master(net.stack(), link.index, master)?;
    }
    if change & UP != 0 || flags & UP != 0 {
        net.stack().set_up(link.index, flags & UP != 0)?;
    }
    Ok(())
}

const OF_ROUTE: [u16; 6] =
    [libc::RTA_DST, libc::RTA_OIF, libc::RTA_GATEWAY, libc::RTA_PRIORITY, libc::RTA_PREFSRC, libc::RTA_TABLE];

/// A route as a request describes it; interface 0 when it names none.
fn route(request: &Request<'_>) -> Result<Route> {
    let family: IpAddr = match i32::from(request.byte(0)) {
        libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        libc::AF_INET6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        _ => return Err(Errno::EAFNOSUPPORT),
    };
    let (len, source_len, tos) = (request.byte(1), request.byte(2), request.byte(3));
    if len > netstack::addr::bits(family) {
        return Err(Errno::EINVAL);
    }
    if source_len != 0 || tos != 0 || request.word(8) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let dst = Prefix::new(request.address(libc::RTA_DST)?.unwrap_or(family), len);
    if dst.network() != dst.addr {
        return Err(Errno::EINVAL);
    }
    let kind = match request.byte(7) {
        0 | libc::RTN_UNICAST => RouteKind::Unicast,
        libc::RTN_LOCAL => RouteKind::Local,
        libc::RTN_BROADCAST => RouteKind::Broadcast,
        libc::RTN_BLACKHOLE => RouteKind::Blackhole,
        libc::RTN_UNREACHABLE => RouteKind::Unreachable,
        libc::RTN_PROHIBIT => RouteKind::Prohibit,
        libc::RTN_THROW => RouteKind::Throw,
        _ => return Err(Errno::EINVAL),
    };
    let iface = request.number(libc::RTA_OIF)?.unwrap_or(0);
    let refuses = !matches!(kind, RouteKind::Unicast | RouteKind::Local | RouteKind::Broadcast);
    if refuses && (iface != 0 || request.attribute(libc::RTA_GATEWAY).is_some()) {
        return Err(Errno::EINVAL);
    }
    let table = match request.number(libc::RTA_TABLE)?.unwrap_or(request.byte(4).into()) {
        0 => u32::from(libc::RT_TABLE_MAIN),
        table => table,
    };
    // IPv6 routes have this metric unless told otherwise (IP6_RT_PRIO_USER).
    let usual = if family.is_ipv6() { 1024 } else { 0 };
    Ok(Route {
        table,
        kind,
        source: request.address(libc::RTA_PREFSRC)?,
        metric: request.number(libc::RTA_PRIORITY)?.unwrap_or(usual),
        scope: scope(request.byte(6)),
        protocol: request.byte(5),
        ..Route::new(dst, iface, request.address(libc::RTA_GATEWAY)?)
    })
}

fn new_route(net: &NetNamespace, flags: u16, bytes: &[u8]) -> Result<()> {
    let request = Request::new(bytes, RTMSG, &OF_ROUTE)?;
    let mut route = route(&request)?;
    let stack = net.stack();
    if matches!(route.kind, RouteKind::Unicast | RouteKind::Local | RouteKind::Broadcast) {
        if route.iface == 0 {
            route.iface = towards(stack, route.gateway)?;
        }
        if !link(net, route.iface)?.is_up() {
            return Err(Errno::ENETDOWN);
        }
    }
    let flags = i32::from(flags);
    let same = |old: &Route| (old.table, old.dst, old.metric) == (route.table, route.dst, route.metric);
    stack.with_routes(|routes| {
        let known = routes.routes().iter().any(same);
        match known {
            true if flags & libc::NLM_F_REPLACE != 0 => drop(routes.remove(same)),
            true => return Err(Errno::EEXIST),
            false if flags & libc::NLM_F_CREATE == 0 => return Err(Errno::ENOENT),
            false => {}
        }
        routes.add(route.clone())
    })
}

/// The interface that leads to a gateway: a direct route does.
fn towards(stack: &Stack, gateway: Option<IpAddr>) -> Result<u32> {
    let gateway = gateway.ok_or(Errno::ENODEV)?;
    stack.read_routes(|routes| {
        let direct =
            |r: &&Route| r.kind == RouteKind::Unicast && r.gateway.is_none() && r.dst.contains(gateway);
        let best = routes.routes().iter().filter(direct).max_by_key(|r| r.dst.len);
        best.map(|route| route.iface).ok_or(Errno::ENETUNREACH)
    })
}

fn delete_route(stack: &Stack, bytes: &[u8]) -> Result<()> {
    let request = Request::new(bytes, RTMSG, &OF_ROUTE)?;
    let wanted = route(&request)?;
    let metric = request.number(libc::RTA_PRIORITY)?;
    let matches = |r: &Route| {
        (r.table, r.dst) == (wanted.table, wanted.dst)
            && (wanted.iface == 0 || wanted.iface == r.iface)
            && (wanted.gateway.is_none() || wanted.gateway == r.gateway)
            && metric.is_none_or(|metric| metric == r.metric)
            && (request.byte(7) == 0 || wanted.kind == r.kind)
    };
    stack.with_routes(|routes| routes.remove(matches)).map(drop).map_err(|_| Errno::ESRCH)
}

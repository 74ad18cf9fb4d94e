//! Routes: RTM_GETROUTE, RTM_NEWROUTE and RTM_DELROUTE. See ip-route(8).

use super::address_list::scope_byte;
use super::asker::{Asker, FILTERED};
use super::error::{Refusal, Result};
use super::gateways;
use super::request::Request;
use super::wire::{self, Message, bytes_of, family_of};
use crate::net_ns::NetNamespace;
use abi::Errno;
use ktime::Ktime;
use netstack::addr::{Prefix, Scope};
use netstack::route::{Hop, Key, Route, RouteKind, TABLE_MAIN};
use netstack::{Cast, LOOPBACK, Stack};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of `struct rtmsg`.
const RTMSG: usize = 12;
/// Attributes that libc lacks.
const RTA_PREF: u16 = 20;
const RTA_UID: u16 = 25;
/// Of RTA_METRICS.
const RTAX_MTU: u16 = 2;
/// RTNH_F_ONLINK, RTM_F_CLONED, RTM_F_LOOKUP_TABLE.
const ONLINK: u32 = 4;
const CLONED: u32 = 0x200;
const LOOKUP_TABLE: u32 = 0x1000;
/// RT_TABLE_COMPAT: a table with a number that needs more than a byte.
const COMPAT: u8 = 252;
/// IP6_RT_PRIO_USER.
const METRIC6: u32 = 1024;

fn kind_byte(kind: RouteKind) -> u8 {
    match kind {
        RouteKind::Unicast => libc::RTN_UNICAST,
        RouteKind::Local => libc::RTN_LOCAL,
        RouteKind::Broadcast => libc::RTN_BROADCAST,
        RouteKind::Blackhole => libc::RTN_BLACKHOLE,
        RouteKind::Unreachable => libc::RTN_UNREACHABLE,
        RouteKind::Prohibit => libc::RTN_PROHIBIT,
        RouteKind::Throw => libc::RTN_THROW,
    }
}

/// Whether packets leave by the route, so that it names an interface.
fn leads(kind: RouteKind) -> bool {
    matches!(kind, RouteKind::Unicast | RouteKind::Local | RouteKind::Broadcast)
}

pub(super) fn describe(message: Message, route: &Route, now: Ktime) -> Vec<u8> {
    let v6 = route.dst.addr.is_ipv6();
    let short = u8::try_from(route.table).unwrap_or(COMPAT);
    // Routes of IPv6 have no scope.
    let scope = if v6 { 0 } else { scope_byte(route.scope) };
    let family = family_of(&route.dst.addr) as u8;
    // Groups have routes of their own type.
    let group = v6 && route.dst.addr.is_multicast() && route.kind == RouteKind::Unicast;
    let kind = if group { libc::RTN_MULTICAST } else { kind_byte(route.kind) };
    let mut fixed = vec![family, route.dst.len, 0, route.tos, short, route.protocol, scope, kind];
    fixed.extend((if route.onlink { ONLINK } else { 0 }).to_ne_bytes());
    let mut message = message.fixed(&fixed).number(libc::RTA_TABLE, route.table);
    if route.dst.len != 0 {
        message = message.attribute(libc::RTA_DST, &bytes_of(&route.dst.addr));
    }
    if v6 || route.metric != 0 {
        message = message.number(libc::RTA_PRIORITY, route.metric);
    }
    if let Some(source) = route.source {
        message = message.attribute(libc::RTA_PREFSRC, &bytes_of(&source));
    }
    if let Some(mtu) = route.mtu {
        let metrics = wire::nested(RTAX_MTU, &mtu.to_ne_bytes());
        message = message.attribute(libc::RTA_METRICS, &metrics);
    }
    if !route.others.is_empty() {
        let hops: Vec<u8> = route.hops().flat_map(|hop| next_hop(&hop)).collect();
        message = message.attribute(libc::RTA_MULTIPATH, &hops);
    } else if let Some(gateway) = route.gateway {
        message = message.attribute(libc::RTA_GATEWAY, &bytes_of(&gateway));
    }
    // Routes of IPv6 that refuse packets are on the loopback interface.
    match route.iface {
        _ if !route.others.is_empty() => {}
        0 if v6 => message = message.number(libc::RTA_OIF, LOOPBACK),
        0 => {}
        index => message = message.number(libc::RTA_OIF, index),
    }
    if v6 {
        message = message.attribute(libc::RTA_CACHEINFO, &cache_info(route, now)).attribute(RTA_PREF, &[0]);
    }
    message.done()
}

/// `struct rtnexthop` with its attributes.
fn next_hop(hop: &Hop) -> Vec<u8> {
    let gateway =
        hop.gateway.map_or_else(Vec::new, |gateway| wire::nested(libc::RTA_GATEWAY, &bytes_of(&gateway)));
    let len = (RTNH + gateway.len()) as u16;
    let mut out = len.to_ne_bytes().to_vec();
    out.extend([if hop.onlink { ONLINK as u8 } else { 0 }, (hop.weight - 1) as u8]);
    out.extend(hop.iface.to_ne_bytes());
    out.extend(gateway);
    out
}

/// `struct rta_cacheinfo`: the time that is left, in hundredths of seconds.
fn cache_info(route: &Route, now: Ktime) -> [u8; 32] {
    let mut info = [0; 32];
    let left = route.expires.map_or(0, |at| at.since(now).as_millis() / 10);
    info[8..12].copy_from_slice(&i32::try_from(left).unwrap_or(i32::MAX).to_ne_bytes());
    info
}

/// A route that is only shown.
fn of_shown(route: &spec::Route) -> Option<Route> {
    let kind = match route.kind {
        libc::RTN_UNICAST => RouteKind::Unicast,
        libc::RTN_LOCAL => RouteKind::Local,
        libc::RTN_BROADCAST => RouteKind::Broadcast,
        libc::RTN_BLACKHOLE => RouteKind::Blackhole,
        libc::RTN_UNREACHABLE => RouteKind::Unreachable,
        libc::RTN_PROHIBIT => RouteKind::Prohibit,
        libc::RTN_THROW => RouteKind::Throw,
        _ => return None,
    };
    Some(Route {
        table: route.table.into(),
        kind,
        scope: scope(route.scope),
        // RTPROT_KERNEL for what came with an address, RTPROT_BOOT.
        protocol: if route.via.is_none() { 2 } else { 3 },
        metric: if route.to.0.is_ipv6() { METRIC6 } else { 0 },
        ..Route::new(Prefix::new(route.to.0, route.to.1), route.interface, route.via)
    })
}

fn all(asker: &Asker<'_>) -> Vec<Route> {
    let net = asker.net;
    let shown = net.interfaces();
    let of_stack = |index: u32| net.shows_stack() && net.stack().link(index).is_some();
    let mut all = match net.shows_stack() {
        true => net.stack().read_routes(|routes| routes.routes().to_vec()),
        false => Vec::new(),
    };
    let others = shown
        .routes
        .iter()
        .filter(|route| !net.shows_stack() || (route.interface != 0 && !of_stack(route.interface)));
    all.extend(others.filter_map(of_shown));
    all
}

/// All routes of a family; with strict checks those of a table, interface, kind or maker that the request names.
pub(super) fn dump(asker: &Asker<'_>) -> Result<Vec<Vec<u8>>> {
    // Cached routes: there are none.
    if asker.word(8) & CLONED != 0 {
        return Ok(Vec::new());
    }
    let number = |kind| {
        let value = wire::attribute(asker.message, RTMSG, kind)?;
        value.first_chunk().copied().map(u32::from_ne_bytes)
    };
    let strict = |value: u32| Some(value).filter(|value| asker.strict && *value != 0);
    let table = strict(number(libc::RTA_TABLE).unwrap_or(asker.byte(4).into()));
    let oif = strict(number(libc::RTA_OIF).unwrap_or(0));
    let (protocol, kind) = (strict(asker.byte(5).into()), strict(asker.byte(7).into()));
    let filtered = [table, oif, protocol, kind].iter().any(Option::is_some);
    let all = all(asker);
    let family = asker.family();
    let of_family = |route: &&Route| family == libc::AF_UNSPEC || family == family_of(&route.dst.addr);
    if let Some(table) = table
        && family != libc::AF_UNSPEC
        && !(253..=255).contains(&table)
        && !all.iter().filter(of_family).any(|route| route.table == table)
    {
        let text = if family == libc::AF_INET { NO_TABLE } else { NO_TABLE6 };
        return Err(Refusal::with(Errno::ENOENT, text));
    }
    let wanted = |route: &&Route| {
        table.is_none_or(|table| table == route.table)
            && oif.is_none_or(|oif| oif == route.iface)
            && protocol.is_none_or(|protocol| protocol == u32::from(route.protocol))
            && kind.is_none_or(|kind| kind == u32::from(kind_byte(route.kind)))
    };
    let (flags, now) = (if filtered { FILTERED } else { 0 }, asker.net.now());
    // In the order of Linux's tables: by the low byte of their number, then by address, the longest prefix first.
    let mut out: Vec<_> = all.iter().filter(of_family).filter(wanted).collect();
    out.sort_by_key(|r| {
        let v6 = r.dst.addr.is_ipv6();
        let default = v6 && r.dst.len == 0;
        (v6, r.table & 0xff, r.table, default, r.dst.addr, std::cmp::Reverse(r.dst.len), r.metric)
    });
    let describe = |route| {
        let mut message = describe(asker.reply(libc::RTM_NEWROUTE, flags), route, now);
        mark_down(asker, route, &mut message);
        message
    };
    Ok(out.into_iter().map(describe).collect())
}

/// Marks a route by an interface without a carrier (`RTNH_F_LINKDOWN`), in a message about it.
fn mark_down(asker: &Asker<'_>, route: &Route, message: &mut [u8]) {
    const LINKDOWN: u8 = 16;
    const FLAGS: usize = wire::HEADER + 8;
    let leaves = matches!(route.kind, RouteKind::Unicast | RouteKind::Broadcast) && route.others.is_empty();
    let link = asker.net.stack().link(route.iface).filter(|_| leaves && asker.net.shows_stack());
    if link.is_some_and(|link| link.is_up() && link.about().no_carrier)
        && let Some(flags) = message.get_mut(FLAGS)
    {
        *flags |= LINKDOWN;
    }
}

const NO_TABLE: &str = "ipv4: FIB table does not exist";
const NO_TABLE6: &str = "ipv6: FIB table does not exist";

const OF_GET: [u16; 6] =
    [libc::RTA_DST, libc::RTA_SRC, libc::RTA_IIF, libc::RTA_OIF, libc::RTA_MARK, RTA_UID];

/// The way that a packet to the address in the request would take.
pub(super) fn get(asker: &Asker<'_>) -> Result<Vec<u8>> {
    let request = Request::new(asker.message, RTMSG, &OF_GET)?;
    let family = match asker.family() {
        libc::AF_INET | libc::AF_UNSPEC => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    let dst = request.address(libc::RTA_DST)?.unwrap_or(family);
    let src = request.address(libc::RTA_SRC)?.filter(|src| !src.is_unspecified());
    if !asker.net.shows_stack() {
        return shown_way(asker, dst);
    }
    let stack = asker.net.stack();
    let iif = request.number(libc::RTA_IIF)?.unwrap_or(0);
    let oif = request.number(libc::RTA_OIF)?.unwrap_or(0);
    for index in [iif, oif].into_iter().filter(|index| *index != 0) {
        stack.link(index).ok_or(Errno::ENODEV)?;
    }
    let mark = request.number(libc::RTA_MARK)?.unwrap_or(0);
    // Packets that came in are routed like those of this host, as far as the rules do not tell them apart.
    let key = Key { src, oif, mark, iif, tos: request.byte(3) & 0x1c, ..Key::to(dst) };
    if dst.is_unspecified() && dst.is_ipv4() && wire::attribute(asker.message, RTMSG, libc::RTA_DST).is_none()
    {
        return Err(Errno::ENETUNREACH.into());
    }
    let own_source = src.filter(|src| src.is_ipv4() && iif == 0);
    if own_source.is_some_and(|src| src.is_multicast() || src == Ipv4Addr::BROADCAST) {
        return Err(Errno::EINVAL.into());
    }
    if own_source.is_some_and(|src| stack.owner_of(src).is_none()) {
        return Err(Errno::ENETUNREACH.into());
    }
    let path = stack.route(&key, asker.net.now())?;
    let found = stack.read_routes(|routes| routes.lookup(&key, |_| true).cloned());
    let named = dst.is_ipv6() || asker.word(8) & LOOKUP_TABLE != 0;
    let table = found.as_ref().ok().filter(|_| named).map_or(TABLE_MAIN, |route| route.table);
    let (kind, cache) = match path.cast {
        Cast::Local => (libc::RTN_LOCAL, 0x8000_0000),
        Cast::Broadcast => (libc::RTN_BROADCAST, 0x9000_0000),
        Cast::Multicast if path.iface.is_member(dst) => (libc::RTN_MULTICAST, 0xa000_0000),
        Cast::Multicast => (libc::RTN_MULTICAST, 0x2000_0000),
        _ => (libc::RTN_UNICAST, 0),
    };
    let len = netstack::addr::bits(dst);
    let short = u8::try_from(table).unwrap_or(COMPAT);
    let v4 = dst.is_ipv4();
    let protocol = found.as_ref().map_or(0, |route| route.protocol);
    let mut fixed = vec![
        family_of(&dst) as u8,
        len,
        own_source.map_or(0, |_| 32),
        key.tos,
        short,
        if v4 { 0 } else { protocol },
        0,
        kind,
    ];
    fixed.extend((if v4 { CLONED | cache } else { 0 }).to_ne_bytes());
    let mut message = asker
        .reply(libc::RTM_NEWROUTE, 0)
        .fixed(&fixed)
        .number(libc::RTA_TABLE, table)
        .attribute(libc::RTA_DST, &bytes_of(&dst))
        .number(libc::RTA_OIF, path.iface.index);
    message = match own_source {
        Some(src) => message.attribute(libc::RTA_SRC, &bytes_of(&src)),
        None => message.attribute(libc::RTA_PREFSRC, &bytes_of(&path.src)),
    };
    if path.next_hop != dst {
        message = message.attribute(libc::RTA_GATEWAY, &bytes_of(&path.next_hop));
    }
    if mark != 0 {
        message = message.number(libc::RTA_MARK, mark);
    }
    if let Some(mtu) = found.ok().and_then(|route| route.mtu) {
        message = message.attribute(libc::RTA_METRICS, &wire::nested(RTAX_MTU, &mtu.to_ne_bytes()));
    }
    if v4 {
        message = message.number(RTA_UID, asker.cx.creds().uid);
    } else {
        message = message.number(libc::RTA_PRIORITY, found_metric(stack, &key));
        message = message.attribute(RTA_PREF, &[0]);
    }
    Ok(message.attribute(libc::RTA_CACHEINFO, &[0; 32]).done())
}

fn found_metric(stack: &Stack, key: &Key) -> u32 {
    stack.read_routes(|routes| routes.lookup(key, |_| true).map_or(0, |route| route.metric))
}

/// The longest prefix among routes that are only shown.
fn shown_way(asker: &Asker<'_>, dst: IpAddr) -> Result<Vec<u8>> {
    let all = all(asker);
    let best = all.iter().filter(|route| route.dst.contains(dst)).max_by_key(|route| route.dst.len);
    let best = best.ok_or(Refusal::from(Errno::ENETUNREACH))?;
    Ok(describe(asker.reply(libc::RTM_NEWROUTE, 0), best, asker.net.now()))
}

const OF_ROUTE: [u16; 10] = [
    libc::RTA_DST,
    libc::RTA_OIF,
    libc::RTA_GATEWAY,
    libc::RTA_PRIORITY,
    libc::RTA_PREFSRC,
    libc::RTA_TABLE,
    libc::RTA_METRICS,
    libc::RTA_MULTIPATH,
    libc::RTA_CACHEINFO,
    RTA_PREF,
];

/// RT_SCOPE_*.
fn scope(scope: u8) -> Scope {
    match scope {
        libc::RT_SCOPE_HOST | libc::RT_SCOPE_NOWHERE => Scope::Host,
        libc::RT_SCOPE_LINK => Scope::Link,
        _ => Scope::Global,
    }
}

/// Length of `struct rtnexthop`.
const RTNH: usize = 8;
/// Next hops that a route may have.
const MAX_HOPS: usize = 256;

/// The next hops of RTA_MULTIPATH.
fn hops(request: &Request<'_>) -> Result<Vec<Hop>> {
    let Some(mut rest) = request.attribute(libc::RTA_MULTIPATH) else { return Ok(Vec::new()) };
    let extra = || Refusal::with(Errno::EINVAL, "Invalid nexthop configuration - extra data after nexthops");
    let mut out = Vec::new();
    while let Some(head) = rest.first_chunk::<RTNH>() {
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let Some(own) = rest.get(RTNH..len) else { break };
        if u32::from(head[2]) & !ONLINK != 0 || out.len() >= MAX_HOPS {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let gateway = match wire::find(own, libc::RTA_GATEWAY) {
            Some(bytes) => Some(request.parse(bytes)?).filter(|gateway| !gateway.is_unspecified()),
            None => None,
        };
        out.push(Hop {
            iface: u32::from_ne_bytes([head[4], head[5], head[6], head[7]]),
            gateway,
            weight: u16::from(head[3]) + 1,
            onlink: head[2] != 0,
            own_gateway: false,
        });
        rest = rest.get(wire::align(len)..).unwrap_or_default();
    }
    if !rest.is_empty() || out.is_empty() { Err(extra()) } else { Ok(out) }
}

/// A route as a request describes it; interface 0 when it names none.
fn route(request: &Request<'_>) -> Result<Route> {
    let family: IpAddr = match i32::from(request.byte(0)) {
        libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    let (len, source_len, tos) = (request.byte(1), request.byte(2), request.byte(3));
    if len > netstack::addr::bits(family) {
        return Err(Refusal::with(Errno::EINVAL, "Invalid prefix length"));
    }
    if source_len != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let hops = hops(request)?;
    let (hop, others) = (hops.first().copied(), hops.get(1..).unwrap_or_default().to_vec());
    let flags = request.word(8) | if hop.is_some_and(|hop| hop.onlink) { ONLINK } else { 0 };
    if flags & !ONLINK != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let dst = Prefix::new(request.address(libc::RTA_DST)?.unwrap_or(family), len);
    if dst.network() != dst.addr && family.is_ipv4() {
        return Err(Refusal::with(Errno::EINVAL, "Invalid prefix for given prefix length"));
    }
    let kind = match request.byte(7) {
        0 | libc::RTN_UNICAST => RouteKind::Unicast,
        libc::RTN_LOCAL => RouteKind::Local,
        libc::RTN_BROADCAST => RouteKind::Broadcast,
        libc::RTN_BLACKHOLE => RouteKind::Blackhole,
        libc::RTN_UNREACHABLE => RouteKind::Unreachable,
        libc::RTN_PROHIBIT => RouteKind::Prohibit,
        libc::RTN_THROW => RouteKind::Throw,
        _ => return Err(Refusal::with(Errno::EINVAL, "Invalid rtm_type")),
    };
    let oif = hop.map_or(0, |hop| hop.iface);
    let iface = request.number(libc::RTA_OIF)?.filter(|index| *index != 0).unwrap_or(oif);
    let gateway = request.address(libc::RTA_GATEWAY)?.or(hop.and_then(|hop| hop.gateway));
    let gateway = gateway.filter(|gateway| !gateway.is_unspecified());
    if !leads(kind) && family.is_ipv4() && (iface != 0 || gateway.is_some()) {
        return Err(Refusal::with(Errno::EINVAL, REFUSES_WITH_HOP));
    }
    let table = match request.number(libc::RTA_TABLE)?.unwrap_or(request.byte(4).into()) {
        0 => TABLE_MAIN,
        table => table,
    };
    let usual = if family.is_ipv6() { METRIC6 } else { 0 };
    let metric = request.number(libc::RTA_PRIORITY)?.filter(|metric| *metric != 0).unwrap_or(usual);
    let metrics = request.attribute(libc::RTA_METRICS).unwrap_or_default();
    let mtu = wire::find(metrics, RTAX_MTU).and_then(|mtu| mtu.first_chunk().copied());
    Ok(Route {
        table,
        kind,
        source: request.address(libc::RTA_PREFSRC)?,
        metric,
        scope: scope(request.byte(6)),
        protocol: request.byte(5),
        mtu: mtu.map(u32::from_ne_bytes).filter(|mtu| *mtu != 0),
        tos,
        onlink: flags & ONLINK != 0,
        weight: hop.map_or(1, |hop| hop.weight),
        others: if leads(kind) { others } else { Vec::new() },
        ..Route::new(Prefix { addr: dst.network(), len }, if leads(kind) { iface } else { 0 }, gateway)
    })
}

const REFUSES_WITH_HOP: &str = "Routes with these types do not have gateway or device";

/// RTM_NEWROUTE.
pub(super) fn add(asker: &Asker<'_>) -> Result<()> {
    let request = Request::new(asker.message, RTMSG, &OF_ROUTE)?;
    insert(asker.net, route(&request)?, i32::from(asker.header.flags))
}

/// Adds a route or puts it in the place of another one, as NLM_F_* say.
pub(super) fn insert(net: &NetNamespace, mut route: Route, flags: i32) -> Result<()> {
    let stack = net.stack();
    if leads(route.kind) {
        if route.scope == Scope::Host && route.dst.addr.is_ipv4() && route.gateway.is_some() {
            return Err(Refusal::with(Errno::EINVAL, "Route with host scope can not have a gateway"));
        }
        let mut hops: Vec<Hop> = route.hops().collect();
        for hop in &mut hops {
            gateways::check(net, hop, &route)?;
        }
        (route.iface, route.own_gateway) = (hops[0].iface, hops[0].own_gateway);
        route.others = hops.split_off(1);
        let disabled = |hop: Hop| stack.link(hop.iface).is_some_and(|link| link.disables_v6());
        if route.dst.addr.is_ipv6() && route.hops().any(disabled) {
            return Err(Refusal::with(Errno::EACCES, "IPv6 is disabled on nexthop device"));
        }
    }
    if let Some(source) = route.source
        && !stack.is_local(source)
    {
        return Err(Refusal::with(Errno::EINVAL, "Invalid prefsrc address"));
    }
    let has = |flag| flags & flag != 0;
    let key = |r: &Route| (r.table, r.dst, r.tos, r.metric);
    let same = |old: &Route| key(old) == key(&route);
    stack.with_routes(|routes| {
        let known = routes.routes().iter().any(same);
        match known {
            true if has(libc::NLM_F_EXCL) => Err(Errno::EEXIST),
            true if has(libc::NLM_F_REPLACE) && !routes.has_room_for_hops(&route) => Err(Errno::ENOBUFS),
            true if has(libc::NLM_F_REPLACE) => {
                routes.replace(&route, same);
                Ok(())
            }
            // Routes of IPv6 with other next hops would be one route with several.
            true if has(libc::NLM_F_CREATE) => routes.add_beside(route.clone(), !has(libc::NLM_F_APPEND)),
            true => Err(Errno::EEXIST),
            false if !has(libc::NLM_F_CREATE) => Err(Errno::ENOENT),
            false => routes.add_beside(route.clone(), false),
        }
    })?;
    Ok(())
}

/// True when the further hops that a request names are those of a route.
fn same_hops(wanted: &Route, route: &Route) -> bool {
    let same = |(a, b): (&Hop, &Hop)| {
        (a.iface == 0 || a.iface == b.iface) && (a.gateway, a.weight) == (b.gateway, b.weight)
    };
    wanted.weight == route.weight
        && wanted.others.len() == route.others.len()
        && wanted.others.iter().zip(&route.others).all(same)
}

/// RTM_DELROUTE.
pub(super) fn delete(asker: &Asker<'_>) -> Result<()> {
    let request = Request::new(asker.message, RTMSG, &OF_ROUTE)?;
    let wanted = route(&request)?;
    let metric = request.number(libc::RTA_PRIORITY)?;
    let (scope_wanted, protocol) = (request.byte(6), request.byte(5));
    let matches = |r: &Route| {
        (r.table, r.dst) == (wanted.table, wanted.dst)
            && (wanted.iface == 0 || wanted.iface == r.iface)
            && (wanted.gateway.is_none() || wanted.gateway == r.gateway)
            && (wanted.others.is_empty() || same_hops(&wanted, r))
            && (wanted.source.is_none() || wanted.source == r.source)
            && metric.is_none_or(|metric| metric == r.metric || metric == 0)
            && (wanted.tos == 0 || wanted.tos == r.tos)
            && (request.byte(7) == 0 || wanted.kind == r.kind)
            && (protocol == 0 || protocol == r.protocol)
            && (r.dst.addr.is_ipv6()
                || scope_wanted == libc::RT_SCOPE_NOWHERE
                || scope_byte(r.scope) == scope_wanted)
    };
    asker.net.stack().with_routes(|routes| routes.remove(matches)).map_err(|_| Errno::ESRCH)?;
    Ok(())
}

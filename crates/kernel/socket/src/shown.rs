//! The interfaces and routes of a stack in the form that programs see.

use netstack::Stack;
use netstack::addr::Scope;
use netstack::iface::{Iface, Kind, NO_MULTICAST};
use netstack::route::{Route, RouteKind};
use spec::{Interface, Interfaces};
use std::sync::atomic::Ordering;

/// IFF_LOWER_UP, which libc lacks.
const LOWER_UP: u32 = 1 << 16;
/// ARPHRD_LOOPBACK, ARPHRD_ETHER, ARPHRD_NONE.
const KINDS: [u16; 3] = [772, 1, 0xfffe];
/// RT_TABLE_COMPAT: a table with a number that needs more than a byte.
const COMPAT: u8 = 252;

/// All of a stack's.
pub(crate) fn interfaces(stack: &Stack) -> Interfaces {
    let links = stack.links().iter().map(|link| interface(link)).collect();
    let routes = stack.read_routes(|routes| routes.routes().iter().map(route).collect());
    Interfaces { links, routes, neighbours: Vec::new() }
}

/// One interface.
pub(crate) fn interface(link: &Iface) -> Interface {
    let (kind, own) = match link.kind {
        Kind::Loopback => (KINDS[0], libc::IFF_LOOPBACK),
        Kind::Ethernet => (KINDS[1], libc::IFF_BROADCAST | libc::IFF_MULTICAST),
        Kind::Tunnel => (KINDS[2], libc::IFF_POINTOPOINT | libc::IFF_NOARP | libc::IFF_MULTICAST),
    };
    let off =
        if link.shown.flags.load(Ordering::Relaxed) & NO_MULTICAST == 0 { 0 } else { libc::IFF_MULTICAST };
    let up = (libc::IFF_UP | libc::IFF_RUNNING) as u32 | LOWER_UP;
    let address = if link.kind == Kind::Tunnel { Vec::new() } else { link.mac().0.to_vec() };
    Interface {
        index: link.index,
        name: link.name(),
        flags: (own & !off) as u32 | if link.is_up() { up } else { 0 },
        kind,
        mtu: link.mtu(),
        address,
        addresses: link.addresses().iter().map(|a| (a.ip(), a.prefix.len)).collect(),
    }
}

fn route(route: &Route) -> spec::Route {
    spec::Route {
        to: (route.dst.addr, route.dst.len),
        via: route.gateway,
        interface: route.iface,
        table: u8::try_from(route.table).unwrap_or(COMPAT),
        kind: match route.kind {
            RouteKind::Unicast => libc::RTN_UNICAST,
            RouteKind::Local => libc::RTN_LOCAL,
            RouteKind::Broadcast => libc::RTN_BROADCAST,
            RouteKind::Blackhole => libc::RTN_BLACKHOLE,
            RouteKind::Unreachable => libc::RTN_UNREACHABLE,
            RouteKind::Prohibit => libc::RTN_PROHIBIT,
            RouteKind::Throw => libc::RTN_THROW,
        },
        scope: match route.scope {
            Scope::Host => libc::RT_SCOPE_HOST,
            Scope::Link => libc::RT_SCOPE_LINK,
            Scope::Global => libc::RT_SCOPE_UNIVERSE,
        },
        metric: route.metric,
        source: route.source,
    }
}

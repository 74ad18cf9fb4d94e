//! Next hops of routes that are to be added: their interface must be up, and it must lead to their gateway.

use super::error::{Refusal, Result};
use super::request;
use crate::net_ns::NetNamespace;
use abi::Errno;
use netstack::LOOPBACK;
use netstack::addr::{Scope, is_link_local};
use netstack::route::{Hop, Route, RouteKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const INVALID: &str = "Nexthop has invalid gateway";
const DOWN: &str = "Nexthop device is not up";

/// Checks a next hop of a route, as Linux does. Fills in the interface, which the gateway may say, and whether the gateway is an
/// address of this host.
pub(super) fn check(net: &NetNamespace, hop: &mut Hop, route: &Route) -> Result<()> {
    match hop.gateway {
        None if hop.onlink && route.dst.addr.is_ipv4() => Err(Refusal::with(
            Errno::EINVAL,
            "Invalid flags for nexthop - PERVASIVE and ONLINK can not be set",
        )),
        None if hop.iface == 0 => Err(Errno::ENODEV.into()),
        None => must_be_up(net, hop.iface, "Device for nexthop is not up"),
        Some(IpAddr::V4(gateway)) => check_v4(net, hop, gateway, route),
        Some(IpAddr::V6(gateway)) => check_v6(net, hop, gateway),
    }
}

fn must_be_up(net: &NetNamespace, iface: u32, text: &'static str) -> Result<()> {
    match request::link(net, iface)?.is_up() {
        true => Ok(()),
        false => Err(Refusal::with(Errno::ENETDOWN, text)),
    }
}

fn check_v4(net: &NetNamespace, hop: &mut Hop, gateway: Ipv4Addr, route: &Route) -> Result<()> {
    let towards = |iface, scope| {
        net.stack().read_routes(|routes| {
            let way = routes.towards(gateway.into(), iface, scope, route.table)?;
            Some((way.kind, way.iface))
        })
    };
    let invalid = |errno| Refusal::with(errno, INVALID);
    if hop.onlink {
        if route.scope != Scope::Global {
            return Err(Refusal::with(Errno::EINVAL, "Nexthop has invalid scope"));
        }
        if hop.iface == 0 {
            return Err(Refusal::with(Errno::ENODEV, "Nexthop device required for onlink"));
        }
        must_be_up(net, hop.iface, DOWN)?;
        let of_host = matches!(towards(0, Scope::Link), Some((RouteKind::Local | RouteKind::Broadcast, _)));
        return if of_host || gateway.is_multicast() { Err(invalid(Errno::EINVAL)) } else { Ok(()) };
    }
    if hop.iface != 0 {
        request::link(net, hop.iface)?;
    }
    let narrower = if route.scope == Scope::Global { Scope::Link } else { Scope::Host };
    let (kind, iface) = towards(hop.iface, narrower).ok_or_else(|| invalid(Errno::ENETUNREACH))?;
    match kind {
        RouteKind::Unicast => {}
        RouteKind::Local => hop.own_gateway = true,
        _ => return Err(invalid(Errno::EINVAL)),
    }
    if hop.iface == 0 {
        hop.iface = iface;
    }
    Ok(())
}

fn check_v6(net: &NetNamespace, hop: &mut Hop, gateway: Ipv6Addr) -> Result<()> {
    let stack = net.stack();
    let refused = |text| Err(Refusal::with(Errno::EINVAL, text));
    let of_link = is_link_local(gateway);
    let own = || match of_link {
        true => stack.link(hop.iface).is_some_and(|link| link.has_address(gateway.into())),
        false => stack.is_local(gateway.into()),
    };
    if own() {
        return refused("Gateway can not be a local address");
    }
    if gateway.is_multicast() {
        return refused("Invalid gateway address");
    }
    if of_link || hop.onlink {
        if hop.iface == 0 {
            return refused("Egress device not specified");
        }
        must_be_up(net, hop.iface, DOWN)?;
    } else {
        let direct = stack.read_routes(|routes| {
            let leads = |iface| iface != 0 && (hop.iface == 0 || hop.iface == iface);
            let mut all = routes.routes().iter();
            let found = all.find(|route| {
                route.kind == RouteKind::Unicast
                    && route.gateway.is_none()
                    && leads(route.iface)
                    && route.dst.contains(gateway.into())
            });
            found.map(|route| route.iface)
        });
        hop.iface = direct.ok_or(Errno::EHOSTUNREACH)?;
    }
    match hop.iface == LOOPBACK {
        true => refused("Egress device can not be loopback device for this route"),
        false => Ok(()),
    }
}

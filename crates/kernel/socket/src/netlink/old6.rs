//! The requests of `struct in6_ifreq` and `struct in6_rtmsg` on sockets of AF_INET6, as ifconfig(8) and route(8) make them.

use super::error::{Refusal, Result};
use super::{old, routes};
use crate::net_ns::NetNamespace;
use abi::Errno;
use caller::UserMemory;
use netstack::addr::Prefix;
use netstack::iface::{Address, Iface};
use netstack::route::{Route, RouteKind};
use std::net::Ipv6Addr;
use std::sync::Arc;
use vfs::Caller;

/// `struct in6_ifreq`: the address, the length of its prefix, the interface's number.
const IN6_IFREQ: usize = 24;
/// `struct in6_rtmsg`, and where its parts are.
const IN6_RTMSG: usize = 80;
const GATEWAY: usize = 32;
const DST_LEN: usize = 52;
const SRC_LEN: usize = 54;
const METRIC: usize = 56;
const FLAGS: usize = 72;
const INDEX: usize = 76;
/// RTF_GATEWAY, RTF_REJECT.
const TO_GATEWAY: u32 = 2;
const REJECT: u32 = 0x200;
/// The metric of a route that names none.
const USUAL_METRIC: u32 = 1024;

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(chunk(bytes, at))
}

fn address(bytes: &[u8], at: usize) -> Ipv6Addr {
    Ipv6Addr::from(chunk::<16>(bytes, at))
}

fn link(net: &NetNamespace, index: u32) -> Result<Arc<Iface>> {
    Ok(net.stack().link(index).filter(|_| net.shows_stack()).ok_or(Errno::ENODEV)?)
}

/// SIOCSIFADDR (`adds`) and SIOCDIFADDR.
pub(super) fn change(
    cx: &dyn Caller,
    net: &NetNamespace,
    mem: &mut dyn UserMemory,
    adds: bool,
    arg: u64,
) -> Result<u64> {
    old::require_admin(cx, net)?;
    let mut request = [0; IN6_IFREQ];
    mem.copy_in(arg, &mut request)?;
    let len = u8::try_from(word(&request, 16)).ok().filter(|len| *len <= 128).ok_or(Errno::EINVAL)?;
    let prefix = Prefix::new(address(&request, 0).into(), len);
    let _rtnl = net.rtnl();
    let link = link(net, word(&request, 20))?;
    let stack = net.stack();
    if adds {
        let (now, dad) = (net.now(), stack.detection(&link, false));
        let fresh = Address { created: now, updated: now, dad, ..Address::new(prefix) };
        stack.add_address(link.index, fresh)?;
    } else {
        stack.remove_address(link.index, prefix)?;
    }
    Ok(0)
}

/// SIOCADDRT (`adds`) and SIOCDELRT.
pub(super) fn route(
    cx: &dyn Caller,
    net: &NetNamespace,
    mem: &mut dyn UserMemory,
    adds: bool,
    arg: u64,
) -> Result<u64> {
    old::require_admin(cx, net)?;
    let mut request = [0; IN6_RTMSG];
    mem.copy_in(arg, &mut request)?;
    let route = parse(&request)?;
    let _rtnl = net.rtnl();
    if route.iface != 0 {
        link(net, route.iface)?;
    }
    if adds {
        let metric = if route.metric == 0 { USUAL_METRIC } else { route.metric };
        routes::insert(net, Route { metric, ..route }, libc::NLM_F_CREATE | libc::NLM_F_EXCL)?;
        return Ok(0);
    }
    old::remove(net, &route, false)?;
    Ok(0)
}

fn parse(request: &[u8; IN6_RTMSG]) -> Result<Route> {
    let length = |at| u16::from_ne_bytes(chunk(request, at));
    let len = u8::try_from(length(DST_LEN)).ok().filter(|len| *len <= 128).ok_or(Errno::EINVAL)?;
    if length(SRC_LEN) != 0 {
        // Routes by source are not there.
        return Err(Refusal::from(Errno::EINVAL));
    }
    let flags = word(request, FLAGS);
    let via = address(request, GATEWAY);
    let gateway = (flags & TO_GATEWAY != 0).then_some(via.into());
    let (kind, iface) = match flags & REJECT {
        0 => (RouteKind::Unicast, word(request, INDEX)),
        _ => (RouteKind::Unreachable, 0),
    };
    let base =
        Route::new(Prefix::new(Prefix::new(address(request, 0).into(), len).network(), len), iface, gateway);
    Ok(Route { kind, metric: word(request, METRIC), protocol: old::BOOT, ..base })
}

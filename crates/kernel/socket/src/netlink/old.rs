//! The requests of arp(7) and of rtentry: SIOCGARP and its relatives, SIOCADDRT and SIOCDELRT, as arp(8) and route(8) make them.

use super::error::{Refusal, Result};
use super::routes;
use crate::net_ns::NetNamespace;
use abi::Errno;
use caller::UserMemory;
use netstack::addr::Prefix;
use netstack::iface::{Iface, Kind};
use netstack::neigh::State;
use netstack::route::{Route, RouteKind};
use netstack::wire::eth::Mac;
use rights::Cap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use vfs::Caller;

pub(super) const SIOCADDRT: u32 = 0x890b;
pub(super) const SIOCDELRT: u32 = 0x890c;
pub(super) const SIOCDARP: u32 = 0x8953;
pub(super) const SIOCGARP: u32 = 0x8954;
pub(super) const SIOCSARP: u32 = 0x8955;

/// `struct arpreq`, and where its parts are.
const ARPREQ: usize = 68;
const HARDWARE: usize = 16;
const FLAGS: usize = 32;
const DEVICE: usize = 52;
/// ATF_COM, ATF_PERM, ATF_PUBL.
const COMPLETE: u32 = 2;
const PERMANENT: u32 = 4;
const PUBLISHED: u32 = 8;
/// ARPHRD_ETHER.
const ETHER: u16 = 1;

/// `struct rtentry`, and where its parts are.
const RTENTRY: usize = 120;
const DST: usize = 8;
const GATEWAY: usize = 24;
const MASK: usize = 40;
const RT_FLAGS: usize = 56;
const METRIC: usize = 80;
const DEV: usize = 88;
const RT_MTU: usize = 96;
/// RTF_GATEWAY, RTF_HOST, RTF_MTU, RTF_REJECT.
const TO_GATEWAY: u16 = 2;
const HOST: u16 = 4;
const HAS_MTU: u16 = 0x40;
const REJECT: u16 = 0x200;
/// RTPROT_BOOT.
pub(super) const BOOT: u8 = 3;

/// Family and address of a `struct sockaddr_in`.
fn sockaddr(bytes: &[u8], at: usize) -> (u16, Ipv4Addr) {
    let b = |n: usize| bytes.get(at + n).copied().unwrap_or(0);
    (u16::from_ne_bytes([b(0), b(1)]), Ipv4Addr::new(b(4), b(5), b(6), b(7)))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u16::from_ne_bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_ne_bytes)
}

pub(super) fn require_admin(cx: &dyn Caller, net: &NetNamespace) -> Result<()> {
    match cx.creds().ns_capable(net.user_ns(), Cap::NET_ADMIN) {
        true => Ok(()),
        false => Err(Errno::EPERM.into()),
    }
}

/// SIOCGARP, SIOCSARP and SIOCDARP.
pub(super) fn arp(
    cx: &dyn Caller,
    net: &NetNamespace,
    mem: &mut dyn UserMemory,
    cmd: u32,
    arg: u64,
) -> Result<u64> {
    if cmd != SIOCGARP {
        require_admin(cx, net)?;
    }
    let mut request = [0; ARPREQ];
    mem.copy_in(arg, &mut request)?;
    let (family, ip) = sockaddr(&request, 0);
    if i32::from(family) != libc::AF_INET {
        return Err(Errno::EPFNOSUPPORT.into());
    }
    let flags = word(&request, FLAGS);
    if flags & PUBLISHED != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if !net.shows_stack() {
        return Err(Errno::ENODEV.into());
    }
    let name = request[DEVICE..].split(|&b| b == 0).next().unwrap_or_default();
    let link = match name {
        [] if cmd == SIOCGARP => return Err(Errno::ENODEV.into()),
        [] => towards(net, ip)?,
        name => named(net, name)?,
    };
    let key = (link.index, IpAddr::from(ip));
    let stack = net.stack();
    match cmd {
        SIOCGARP => {
            let all = stack.with_neighbours(|table| table.shown(net.now(), &stack.sysctls));
            let (_, mac, state) = all.into_iter().find(|(known, ..)| *known == key).ok_or(Errno::ENXIO)?;
            let flags = match state {
                State::Permanent => COMPLETE | PERMANENT,
                State::Incomplete | State::Failed => 0,
                _ => COMPLETE,
            };
            request[HARDWARE..HARDWARE + 16].fill(0);
            request[HARDWARE..HARDWARE + 2].copy_from_slice(&ETHER.to_ne_bytes());
            request[HARDWARE + 2..HARDWARE + 8].copy_from_slice(&mac.0);
            request[FLAGS..FLAGS + 4].copy_from_slice(&flags.to_ne_bytes());
            mem.copy_out(arg, &request)?;
        }
        SIOCSARP => {
            let hardware = half(&request, HARDWARE);
            if hardware != ETHER || link.kind != Kind::Ethernet {
                return Err(Errno::EINVAL.into());
            }
            let mac = Mac(*request[HARDWARE + 2..].first_chunk().ok_or(Errno::EINVAL)?);
            let state = if flags & PERMANENT != 0 { State::Permanent } else { State::Stale };
            let (time, most) = (net.now(), stack.sysctls.neigh_gc_thresh.size());
            let waiting = stack.with_neighbours(|table| {
                let known = table.shown(time, &stack.sysctls);
                let room = known.len() < most || known.iter().any(|(other, ..)| *other == key);
                if room { Ok(table.set_at(key, mac, state, time)) } else { Err(Errno::ENOBUFS) }
            })?;
            stack.send_waiting(time, &link, mac, waiting);
        }
        _ if stack.with_neighbours(|table| table.remove(&key)) => {}
        _ => return Err(Errno::ENXIO.into()),
    }
    Ok(0)
}

/// An interface by name.
fn named(net: &NetNamespace, name: &[u8]) -> Result<Arc<Iface>> {
    let name = std::str::from_utf8(name).map_err(|_| Errno::ENODEV)?;
    Ok(net.stack().link_by_name(name).ok_or(Errno::ENODEV)?)
}

/// The interface by which packets to an address leave.
fn towards(net: &NetNamespace, ip: Ipv4Addr) -> Result<Arc<Iface>> {
    Ok(net.stack().route(&netstack::route::Key::to(ip.into()), net.now())?.iface)
}

/// SIOCADDRT and SIOCDELRT.
pub(super) fn route(
    cx: &dyn Caller,
    net: &NetNamespace,
    mem: &mut dyn UserMemory,
    cmd: u32,
    arg: u64,
) -> Result<u64> {
    require_admin(cx, net)?;
    let mut request = [0; RTENTRY];
    mem.copy_in(arg, &mut request)?;
    if !net.shows_stack() {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let (flags, route) = parse(net, mem, &request, cmd)?;
    let _rtnl = net.rtnl();
    if cmd == SIOCADDRT {
        routes::insert(net, route, libc::NLM_F_CREATE)?;
        return Ok(0);
    }
    remove(net, &route, flags & REJECT != 0)?;
    Ok(0)
}

/// Removes the first route that has what is named of this one; its kind counts when `of_kind` says so. ESRCH when there is none.
pub(super) fn remove(net: &NetNamespace, route: &Route, of_kind: bool) -> Result<()> {
    let matches = |r: &Route| {
        (r.table, r.dst) == (route.table, route.dst)
            && (route.iface == 0 || route.iface == r.iface)
            && (route.gateway.is_none() || route.gateway == r.gateway)
            && (route.metric == 0 || route.metric == r.metric)
            && (!of_kind || r.kind == route.kind)
    };
    net.stack().with_routes(|routes| routes.remove(matches)).map_err(|_| Errno::ESRCH)?;
    Ok(())
}

fn parse(
    net: &NetNamespace,
    mem: &mut dyn UserMemory,
    request: &[u8; RTENTRY],
    cmd: u32,
) -> Result<(u16, Route)> {
    let ((family, dst), (gateway_family, gateway), (mask_family, mask)) =
        (sockaddr(request, DST), sockaddr(request, GATEWAY), sockaddr(request, MASK));
    if i32::from(family) != libc::AF_INET {
        return Err(Errno::EAFNOSUPPORT.into());
    }
    let flags = half(request, RT_FLAGS);
    let mut len = 32;
    if flags & HOST == 0 {
        if i32::from(mask_family) != libc::AF_INET && (mask.to_bits() != 0 || mask_family != 0) {
            return Err(Errno::EAFNOSUPPORT.into());
        }
        let bits = mask.to_bits();
        if bits.leading_ones() + bits.trailing_zeros() < 32 || dst.to_bits() & !bits != 0 {
            return Err(Errno::EINVAL.into());
        }
        len = bits.leading_ones() as u8;
    }
    let mut iface = 0;
    let pointer = long(request, DEV);
    if pointer != 0 {
        let mut name = [0; 16];
        mem.copy_in(pointer, &mut name)?;
        let name = name.split(|&b| b == 0).next().unwrap_or_default();
        iface = named(net, name)?.index;
    }
    let usable = i32::from(gateway_family) == libc::AF_INET && !gateway.is_unspecified();
    let via = Some(IpAddr::from(gateway)).filter(|_| usable && flags & TO_GATEWAY != 0);
    if cmd == SIOCADDRT && flags & TO_GATEWAY != 0 && via.is_none() {
        return Err(Refusal::from(Errno::EINVAL));
    }
    let reject = flags & REJECT != 0;
    let metric = half(request, METRIC);
    let mtu = u32::try_from(long(request, RT_MTU)).ok().filter(|mtu| flags & HAS_MTU != 0 && *mtu != 0);
    let base = Route::new(Prefix::new(dst.into(), len), if reject { 0 } else { iface }, via);
    let kind = if reject { RouteKind::Unreachable } else { RouteKind::Unicast };
    let metric = u32::from(metric.saturating_sub(1));
    Ok((flags, Route { kind, metric, protocol: BOOT, mtu, ..base }))
}

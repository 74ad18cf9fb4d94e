//! addrtype, iprange, pkttype, physdev.

use super::data::Data;
use super::{Context, Match, when};
use abi::Errno;
use netfilter::{Family, Packet, Point};
use netstack::LOOPBACK;
use netstack::route::{Key, RouteKind};
use std::net::{IpAddr, Ipv4Addr};

/// Numbers of address types (`RTN_*`).
const UNSPECIFIED: u16 = 0;
const UNICAST: u16 = 1;
const LOCAL: u16 = 2;
const BROADCAST: u16 = 3;
const MULTICAST: u16 = 5;
const BLACKHOLE: u16 = 6;
const UNREACHABLE: u16 = 7;
const PROHIBIT: u16 = 8;

/// The type of an address, as routes (of one interface, unless 0) have it.
fn type_of(packet: &Packet<'_>, ip: IpAddr, iface: u32) -> u16 {
    if ip == Ipv4Addr::BROADCAST || (ip.is_ipv4() && ip.is_unspecified()) {
        return BROADCAST;
    }
    if ip.is_multicast() {
        return MULTICAST;
    }
    if ip.is_unspecified() {
        return UNSPECIFIED;
    }
    let of_iface = |link: u32| iface == 0 || link == iface;
    packet.tables.read_routes(|routes| match routes.lookup(&Key::to(ip), |_| true) {
        Ok(route) => match route.kind {
            RouteKind::Local if of_iface(route.iface) => LOCAL,
            RouteKind::Broadcast if of_iface(route.iface) => BROADCAST,
            _ => UNICAST,
        },
        Err(Errno::EINVAL) => BLACKHOLE,
        Err(Errno::EACCES) => PROHIBIT,
        Err(_) => UNREACHABLE,
    })
}

struct Types {
    src: (u16, bool),
    dst: (u16, bool),
    /// The interface that addresses are compared with.
    limit: Option<Limit>,
}

#[derive(Clone, Copy)]
enum Limit {
    Input,
    Output,
}

impl Types {
    fn matches(&self, packet: &Packet<'_>) -> bool {
        let link = match self.limit {
            Some(Limit::Input) => packet.input,
            Some(Limit::Output) => packet.output,
            None => None,
        };
        let iface = link.map_or(0, |link| link.index);
        let fits = |(mask, inverted): (u16, bool), ip| {
            mask == 0 || (mask >> type_of(packet, ip, iface) & 1 == 1) != inverted
        };
        fits(self.src, packet.info.src) && fits(self.dst, packet.info.dst)
    }
}

/// `struct xt_addrtype_info`
pub(super) fn addrtype0(_: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let (src, dst) = ((data.u16(0), data.u32(4) != 0), (data.u16(2), data.u32(8) != 0));
    let types = Types { src, dst, limit: None };
    when(move |packet| types.matches(packet))
}

/// `struct xt_addrtype_info_v1`
pub(super) fn addrtype1(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let flags = data.u32(4);
    let limit = match flags & 0xc {
        0 => None,
        4 => Some(Limit::Input),
        8 => Some(Limit::Output),
        _ => return Err(Errno::EINVAL),
    };
    let none_of = |points: [Point; 2]| !cx.points.iter().any(|point| points.contains(point));
    let possible = match limit {
        Some(Limit::Input) => none_of([Point::Output, Point::PostRouting]),
        Some(Limit::Output) => none_of([Point::PreRouting, Point::Input]),
        None => true,
    };
    if !possible || cx.family == Family::V6 && (data.u16(0) | data.u16(2)) & (1 << BROADCAST) != 0 {
        return Err(Errno::EINVAL);
    }
    let types = Types { src: (data.u16(0), flags & 1 != 0), dst: (data.u16(2), flags & 2 != 0), limit };
    when(move |packet| types.matches(packet))
}

/// `struct xt_iprange_mtinfo`
pub(super) fn iprange(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let ip = |n: usize| data.ip(16 * n, cx.family);
    let (src, dst, flags) = (ip(0)..=ip(1), ip(2)..=ip(3), data.u8(64));
    when(move |packet| {
        let fits =
            |flag: u8, inverted: u8, inside: bool| flags & flag == 0 || inside != (flags & inverted != 0);
        fits(1, 16, src.contains(&packet.info.src)) && fits(2, 32, dst.contains(&packet.info.dst))
    })
}

/// `struct xt_pkttype_info`
pub(super) fn pkttype(_: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    const HOST: u32 = 0;
    const FOR_BROADCAST: u32 = 1;
    const FOR_GROUP: u32 = 2;
    let (wanted, inverted) = (data.u32(0), data.u32(4) != 0);
    when(move |packet| {
        let dst = packet.info.dst;
        let looped = packet.input.is_some_and(|link| link.index == LOOPBACK);
        let kind = match dst {
            _ if dst.is_multicast() => FOR_GROUP,
            _ if !looped && type_of(packet, dst, 0) == BROADCAST => FOR_BROADCAST,
            _ => HOST,
        };
        (kind == wanted) != inverted
    })
}

/// `struct xt_physdev_info`: no packet at these points crosses a bridge as a frame.
pub(super) fn physdev(_: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let (inverted, wanted) = (data.u8(64), data.u8(65));
    if wanted & 0x1f == 0 || wanted & !0x1f != 0 {
        return Err(Errno::EINVAL);
    }
    when(move |_| wanted & !inverted == 0)
}

//! tcp, udp, icmp, icmp6, multiport, tcpmss.

use super::data::Data;
use super::{Context, Match, when};
use abi::Errno;
use netfilter::{Family, Packet};
use netstack::wire::proto;

fn in_range((low, high): (u16, u16), port: u16, inverted: bool) -> bool {
    (low..=high).contains(&port) != inverted
}

/// Ranges of source and destination ports.
fn port_ranges(data: Data<'_>) -> [(u16, u16); 2] {
    [(data.u16(0), data.u16(2)), (data.u16(4), data.u16(6))]
}

/// `struct xt_tcp`
pub(super) fn tcp(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    const INV_SRC: u8 = 1;
    const INV_DST: u8 = 2;
    const INV_FLAGS: u8 = 4;
    const INV_OPTION: u8 = 8;
    cx.require_protocol(proto::TCP)?;
    let [src, dst] = port_ranges(data);
    let (option, mask, compare, inverted) = (data.u8(8), data.u8(9), data.u8(10), data.u8(11));
    if inverted & !0xf != 0 {
        return Err(Errno::EINVAL);
    }
    when(move |packet| {
        let (Some(ports), Some(header)) = (packet.ports(), packet.payload().first_chunk::<20>()) else {
            return false;
        };
        let flags = (header[13] & mask == compare) != (inverted & INV_FLAGS != 0);
        in_range(src, ports.0, inverted & INV_SRC != 0)
            && in_range(dst, ports.1, inverted & INV_DST != 0)
            && flags
            && (option == 0 || find_option(packet, option).is_some() != (inverted & INV_OPTION != 0))
    })
}

/// The bytes of a TCP option after kind and length.
fn find_option<'a>(packet: &'a Packet<'_>, wanted: u8) -> Option<&'a [u8]> {
    let segment = packet.payload();
    let len = usize::from(segment.get(12)? >> 4) * 4;
    let mut options = segment.get(20..len)?;
    while let Some(&kind) = options.first() {
        let size = match kind {
            0 => return None,
            1 => 1,
            _ => usize::from(*options.get(1)?),
        };
        let option = options.get(..size).filter(|_| kind == 1 || size >= 2)?;
        if kind == wanted {
            return Some(option.get(2..).unwrap_or_default());
        }
        options = &options[size..];
    }
    None
}

/// `struct xt_udp`
pub(super) fn udp(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    const UDP_LITE: u8 = 136;
    cx.require_protocol(proto::UDP).or_else(|_| cx.require_protocol(UDP_LITE))?;
    let ([src, dst], inverted) = (port_ranges(data), data.u8(8));
    if inverted & !3 != 0 {
        return Err(Errno::EINVAL);
    }
    when(move |packet| {
        let ports = packet.ports();
        ports.is_some_and(|ports| {
            in_range(src, ports.0, inverted & 1 != 0) && in_range(dst, ports.1, inverted & 2 != 0)
        })
    })
}

/// `struct ipt_icmp` and `struct ip6t_icmp`
pub(super) fn icmp(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    /// Any type, for IPv4.
    const ANY: u8 = 0xff;
    let v4 = cx.family == Family::V4;
    cx.require_protocol(if v4 { proto::ICMP } else { proto::ICMPV6 })?;
    let (kind, codes, inverted) = (data.u8(0), data.u8(1)..=data.u8(2), data.u8(3));
    if inverted & !1 != 0 {
        return Err(Errno::EINVAL);
    }
    when(move |packet| {
        if packet.fragment != 0 {
            return false;
        }
        let Some(&[is, code]) = packet.payload().first_chunk::<2>() else { return false };
        let matched = (v4 && kind == ANY) || (is == kind && codes.contains(&code));
        matched != (inverted != 0)
    })
}

/// `struct xt_multiport_v1`
pub(super) fn multiport(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    const MAX: usize = 15;
    const PROTOCOLS: [u8; 5] = [proto::TCP, proto::UDP, 136, 132, 33];
    let (flags, count, inverted) = (data.u8(0), usize::from(data.u8(1)), data.u8(47) != 0);
    let known = PROTOCOLS.into_iter().any(|protocol| cx.require_protocol(protocol).is_ok());
    if !known || flags > 2 || count > MAX {
        return Err(Errno::EINVAL);
    }
    let mut ranges = Vec::new();
    let mut n = 0;
    while n < count {
        let (port, is_range) = (data.u16(2 + 2 * n), data.u8(32 + n) != 0);
        let last = if is_range { data.u16(4 + 2 * n) } else { port };
        ranges.push(port..=last);
        n += if is_range { 2 } else { 1 };
    }
    when(move |packet| {
        let Some((src, dst)) = packet.ports() else { return false };
        let fits = |range: &std::ops::RangeInclusive<u16>| match flags {
            0 => range.contains(&src),
            1 => range.contains(&dst),
            _ => range.contains(&src) || range.contains(&dst),
        };
        ranges.iter().any(fits) != inverted
    })
}

/// `struct xt_tcpmss_match_info`
pub(super) fn tcpmss(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    const MSS: u8 = 2;
    cx.require_protocol(proto::TCP)?;
    let (range, inverted) = (data.u16(0)..=data.u16(2), data.u8(4) != 0);
    when(move |packet| match find_option(packet, MSS) {
        Some(&[high, low]) => range.contains(&u16::from_be_bytes([high, low])) != inverted,
        _ => inverted,
    })
}

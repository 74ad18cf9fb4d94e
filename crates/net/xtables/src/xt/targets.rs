//! REJECT, MARK, CONNMARK, NOTRACK, CT, TCPMSS, TTL, HL, TOS, DSCP.

use super::data::Data;
use super::{Context, Decision, Target, act};
use abi::Errno;
use conntrack::Flow;
use netfilter::{Family, Packet, Point};
use netstack::wire::proto;
use std::sync::atomic::Ordering;

const REJECTING: [Point; 3] = [Point::Input, Point::Forward, Point::Output];

/// `struct ipt_reject_info`
pub(super) fn reject4(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    const UNREACHABLE: u8 = 3;
    cx.require_place(&["filter"], &REJECTING)?;
    let code = match data.u32(0) {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 3,
        5 => 9,
        6 => 10,
        7 => return reset(cx),
        8 => 13,
        _ => return Err(Errno::EINVAL),
    };
    act(move |packet| {
        packet.reject_with_icmp(UNREACHABLE, code);
        Decision::Drop
    })
}

/// `struct ip6t_reject_info`
pub(super) fn reject6(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    const UNREACHABLE: u8 = 1;
    cx.require_place(&["filter"], &REJECTING)?;
    let code = match data.u32(0) {
        code @ 0..=4 => code as u8,
        6 => return reset(cx),
        7 => 5,
        8 => 6,
        _ => return Err(Errno::EINVAL),
    };
    act(move |packet| {
        packet.reject_with_icmp(UNREACHABLE, code);
        Decision::Drop
    })
}

fn reset(cx: &Context<'_>) -> Result<Box<dyn Target>, Errno> {
    cx.require_protocol(proto::TCP)?;
    act(|packet| {
        packet.reject_with_reset();
        Decision::Drop
    })
}

/// `struct xt_mark_tginfo2`
pub(super) fn mark(_: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    let (mark, mask) = (data.u32(0), data.u32(4));
    act(move |packet| {
        packet.set_mark(packet.mark() & !mask ^ mark);
        Decision::Continue
    })
}

/// `struct xt_connmark_tginfo1`
pub(super) fn connmark1(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    connmark(cx, data, data.u8(12), 0)
}

/// `struct xt_connmark_tginfo2`
pub(super) fn connmark2(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    let bits = i32::from(data.u8(13).min(31));
    connmark(cx, data, data.u8(14), if data.u8(12) == 0 { bits } else { -bits })
}

/// `shift`: to the left, or to the right if negative.
fn connmark(cx: &Context<'_>, data: Data<'_>, mode: u8, shift: i32) -> Result<Box<dyn Target>, Errno> {
    let (mark, mask, packets) = (data.u32(0), data.u32(4), data.u32(8));
    let tracking = cx.netfilter.need_conntrack()?;
    let shifted = move |value: u32| if shift < 0 { value >> -shift } else { value << shift };
    act(move |packet| {
        let _ = &tracking;
        let Some((entry, _, _)) = packet.connection() else { return Decision::Continue };
        let (own, now) = (entry.mark(), packet.mark());
        match mode {
            0 => entry.mark.store(shifted(own & !mask ^ mark), Ordering::Relaxed),
            1 => entry.mark.store(own & !mask ^ shifted(now & packets), Ordering::Relaxed),
            2 => {
                let restored = shifted(own & mask);
                packet.set_mark(now & !packets ^ restored);
            }
            _ => {}
        }
        Decision::Continue
    })
}

/// Only packets that are not tracked yet can be exempted.
fn exempt(packet: &mut Packet<'_>) -> Decision {
    if matches!(packet.tags.flow, Flow::None) {
        packet.tags.flow = Flow::Untracked;
    }
    Decision::Continue
}

/// NOTRACK has no structure.
pub(super) fn notrack(cx: &Context<'_>, _: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    cx.require_place(&["raw"], &[Point::PreRouting, Point::Output])?;
    act(exempt)
}

/// `struct xt_ct_target_info` and `struct xt_ct_target_info_v1`: zones, helpers and events are not supported.
pub(super) fn ct(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    const NOTRACK: u16 = 1;
    const NOTRACK_ALIAS: u16 = 2;
    cx.require_place(&["raw"], &[Point::PreRouting, Point::Output])?;
    let flags = data.u16(0);
    if data.u8(12) != 0 {
        // No helper has any name.
        return Err(Errno::ENOENT);
    }
    if data.u16(2) != 0 || flags & !(NOTRACK | NOTRACK_ALIAS) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    match flags & NOTRACK {
        0 => act(|_| Decision::Continue),
        _ => act(exempt),
    }
}

/// `struct xt_tcpmss_info`
pub(super) fn tcpmss(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    const CLAMP: u16 = 0xffff;
    cx.require_protocol(proto::TCP)?;
    let mss = data.u16(0);
    let clamping = [Point::Forward, Point::Output, Point::PostRouting];
    if mss == CLAMP && cx.points.iter().any(|point| !clamping.contains(point)) {
        return Err(Errno::EINVAL);
    }
    act(move |packet| {
        let headers = if packet.family == Family::V4 { 40 } else { 60 };
        let limit = match mss {
            CLAMP => {
                let mtu = [packet.input, packet.output].into_iter().flatten().map(|link| link.mtu()).min();
                u16::try_from(mtu.unwrap_or(0)).unwrap_or(u16::MAX).saturating_sub(headers)
            }
            mss => mss,
        };
        lower_mss(packet, limit, mss == CLAMP);
        Decision::Continue
    })
}

/// Sets the MSS option of a SYN; `lower_only` keeps smaller ones.
fn lower_mss(packet: &mut Packet<'_>, limit: u16, lower_only: bool) {
    const SYN: u8 = 2;
    const MSS: u8 = 2;
    let segment = packet.payload();
    let Some(header) = segment.first_chunk::<20>().filter(|header| header[13] & SYN != 0) else { return };
    let Some(options) = segment.get(20..usize::from(header[12] >> 4) * 4) else { return };
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        let size = match (kind, options.get(at + 1)) {
            (0, _) => return,
            (1, _) => 1,
            (_, Some(&size)) if size >= 2 => usize::from(size),
            _ => return,
        };
        if let (MSS, 4, Some(old)) = (kind, size, options.get(at + 2..at + 4)) {
            let old = u16::from_be_bytes([old[0], old[1]]);
            let place = packet.info.header_len + 20 + at + 2;
            if limit > 0 && (old > limit || !lower_only) {
                packet.write(place, &limit.min(old).to_be_bytes());
            }
            return;
        }
        at += size;
    }
}

/// `struct ipt_TTL_info`, `struct ip6t_HL_info`
pub(super) fn ttl(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    cx.require_place(&["mangle"], cx.points)?;
    let (mode, n) = (data.u8(0), data.u8(1));
    if mode > 2 || (mode != 0 && n == 0) {
        return Err(Errno::EINVAL);
    }
    act(move |packet| {
        let old = packet.info.ttl;
        packet.set_ttl(match mode {
            0 => n,
            1 => old.saturating_add(n),
            _ => old.saturating_sub(n),
        });
        Decision::Continue
    })
}

/// `struct xt_tos_target_info`
pub(super) fn tos(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    cx.require_place(&["mangle"], cx.points)?;
    let (value, mask) = (data.u8(0), data.u8(1));
    act(move |packet| {
        packet.set_tos(packet.info.tos & !mask ^ value);
        Decision::Continue
    })
}

/// `struct xt_DSCP_info`
pub(super) fn dscp(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    cx.require_place(&["mangle"], cx.points)?;
    let dscp = data.u8(0);
    if dscp > 63 {
        return Err(Errno::EDOM);
    }
    act(move |packet| {
        packet.set_tos(packet.info.tos & 3 | dscp << 2);
        Decision::Continue
    })
}

//! SNAT, DNAT, MASQUERADE, REDIRECT.

use super::data::Data;
use super::{Context, Decision, Target, act};
use abi::Errno;
use netfilter::nat::{Manip, Range, masquerade, redirect, setup};
use netfilter::{Packet, Point, Verdict};
use std::net::IpAddr;

/// Bits of a range's flags (`NF_NAT_RANGE_*`).
const ADDRESSES: u32 = 1;
const PORTS: u32 = 2;
const RANDOM: u32 = 4;
const PERSISTENT: u32 = 8;
const RANDOM_FULLY: u32 = 16;
const OFFSET: u32 = 32;

const SOURCE: [Point; 2] = [Point::PostRouting, Point::Input];
const DESTINATION: [Point; 2] = [Point::PreRouting, Point::Output];

fn range(flags: u32, addresses: (IpAddr, IpAddr), ports: (u16, u16), base: u16) -> Result<Range, Errno> {
    if flags & !(ADDRESSES | PORTS | RANDOM | PERSISTENT | RANDOM_FULLY | OFFSET) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Range {
        addresses: (flags & ADDRESSES != 0).then_some(addresses),
        ports: (flags & PORTS != 0).then_some(ports),
        base_port: (flags & OFFSET != 0).then_some(base),
        random: flags & (RANDOM | RANDOM_FULLY) != 0,
        persistent: flags & PERSISTENT != 0,
    })
}

/// `struct nf_nat_ipv4_multi_range_compat` with its one range.
fn range4(data: Data<'_>) -> Result<Range, Errno> {
    if data.u32(0) != 1 {
        return Err(Errno::EINVAL);
    }
    range(data.u32(4), (data.ipv4(8), data.ipv4(12)), (data.be16(16), data.be16(18)), 0)
}

/// `struct nf_nat_range` and `struct nf_nat_range2`
fn range6(cx: &Context<'_>, data: Data<'_>) -> Result<Range, Errno> {
    let addresses = (data.ip(4, cx.family), data.ip(20, cx.family));
    range(data.u32(0), addresses, (data.be16(36), data.be16(38)), data.be16(40))
}

fn target(f: impl Fn(&mut Packet<'_>) -> Verdict + Send + Sync + 'static) -> Result<Box<dyn Target>, Errno> {
    act(move |packet| match f(packet) {
        Verdict::Accept => Decision::Accept,
        Verdict::Drop | Verdict::Stolen => Decision::Drop,
    })
}

fn masquerade_as(cx: &Context<'_>, range: Range) -> Result<Box<dyn Target>, Errno> {
    cx.require_place(&["nat"], &[Point::PostRouting])?;
    if range.addresses.is_some() {
        return Err(Errno::EINVAL);
    }
    target(move |packet| masquerade(packet, &range))
}

pub(super) fn masquerade4(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    masquerade_as(cx, range4(data)?)
}

pub(super) fn masquerade6(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    masquerade_as(cx, range6(cx, data)?)
}

fn redirect_to(cx: &Context<'_>, range: Range) -> Result<Box<dyn Target>, Errno> {
    cx.require_place(&["nat"], &DESTINATION)?;
    if range.addresses.is_some() {
        return Err(Errno::EINVAL);
    }
    target(move |packet| redirect(packet, &range))
}

pub(super) fn redirect4(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    redirect_to(cx, range4(data)?)
}

pub(super) fn redirect6(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    redirect_to(cx, range6(cx, data)?)
}

fn source(cx: &Context<'_>, range: Range) -> Result<Box<dyn Target>, Errno> {
    cx.require_place(&["nat"], &SOURCE)?;
    target(move |packet| setup(packet, Manip::Src, &range))
}

fn destination(cx: &Context<'_>, range: Range) -> Result<Box<dyn Target>, Errno> {
    cx.require_place(&["nat"], &DESTINATION)?;
    target(move |packet| setup(packet, Manip::Dst, &range))
}

pub(super) fn snat4(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    source(cx, range4(data)?)
}

pub(super) fn snat(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    source(cx, range6(cx, data)?)
}

pub(super) fn dnat4(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    destination(cx, range4(data)?)
}

pub(super) fn dnat(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    destination(cx, range6(cx, data)?)
}

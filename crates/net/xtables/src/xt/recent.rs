//! recent.

use super::data::{Data, masked};
use super::{Context, Match, when};
use abi::Errno;
use netfilter::Family;
use netfilter::recent::{Ask, How};
use std::net::IpAddr;

/// `struct xt_recent_mtinfo`
pub(super) fn recent0(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let all = match cx.family {
        Family::V4 => IpAddr::from([0xff; 4]),
        Family::V6 => IpAddr::from([0xff; 16]),
    };
    recent(cx, data, all)
}

/// `struct xt_recent_mtinfo_v1`
pub(super) fn recent1(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    recent(cx, data, data.ip(212, cx.family))
}

fn recent(cx: &Context<'_>, data: Data<'_>, mask: IpAddr) -> Result<Box<dyn Match>, Errno> {
    const TTL: u8 = 16;
    const REAP: u8 = 32;
    const MAX_HITS: u32 = 256;
    let (seconds, hits, flags, inverted) = (data.u32(0), data.u32(4), data.u8(8), data.u8(9) != 0);
    let ask = match flags & !(TTL | REAP) {
        1 => Ask::Check,
        2 => Ask::Set,
        4 => Ask::Update,
        8 => Ask::Remove,
        _ => return Err(Errno::EINVAL),
    };
    let timed = seconds != 0 || hits != 0;
    let senseless = (matches!(ask, Ask::Set | Ask::Remove) && timed) || (flags & REAP != 0 && seconds == 0);
    let name = data.text(10, 200).filter(|name| !name.is_empty() && !name.contains('/'));
    let Some(name) = name.filter(|_| !senseless && hits < MAX_HITS) else { return Err(Errno::EINVAL) };
    let list = cx.netfilter.recent.get(&name).ok_or(Errno::ENOMEM)?;
    let by_destination = data.u8(210) != 0;
    when(move |packet| {
        let ip = if by_destination { packet.info.dst } else { packet.info.src };
        let how = How { seconds, hits, ttl: (flags & TTL != 0).then_some(packet.info.ttl) };
        list.ask(ask, masked(ip, mask), packet.info.ttl, &how, packet.now) != inverted
    })
}

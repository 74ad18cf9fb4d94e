//! state, conntrack, connmark, mark, owner.

use super::data::{Data, in_network};
use super::{Context, Match, when};
use abi::Errno;
use conntrack::{Direction, Entry, Status, Tuple};
use netfilter::{CtState, Packet, Point};
use std::net::IpAddr;

/// `struct xt_state_info`
pub(super) fn state(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let (mask, tracking) = (data.u32(0), cx.netfilter.need_conntrack()?);
    when(move |packet| {
        let _ = &tracking;
        mask & packet.ct_state() as u32 != 0
    })
}

/// Bits of `match_flags` and `invert_flags` of the match conntrack.
mod what {
    pub(super) const STATE: u16 = 1 << 0;
    pub(super) const PROTOCOL: u16 = 1 << 1;
    pub(super) const ADDRESSES: [u16; 4] = [1 << 2, 1 << 3, 1 << 4, 1 << 5];
    pub(super) const STATUS: u16 = 1 << 6;
    pub(super) const EXPIRES: u16 = 1 << 7;
    pub(super) const PORTS: [u16; 4] = [1 << 8, 1 << 9, 1 << 10, 1 << 11];
    pub(super) const DIRECTION: u16 = 1 << 12;
}

/// The match conntrack, from whichever revision of its structure.
struct Conntrack {
    /// Source and destination of the original direction, then those of the replies: address and mask.
    addresses: [(IpAddr, IpAddr); 4],
    ports: [(u16, u16); 4],
    expires: (u32, u32),
    protocol: u16,
    flags: u16,
    inverted: u16,
    states: u16,
    status: u16,
}

/// `struct xt_conntrack_mtinfo1`
pub(super) fn conntrack1(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let ports = [138, 140, 142, 144].map(|at| (data.be16(at), data.be16(at)));
    conntrack(cx, data, ports, (data.u8(150).into(), data.u8(151).into()))
}

/// `struct xt_conntrack_mtinfo2`
pub(super) fn conntrack2(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let ports = [138, 140, 142, 144].map(|at| (data.be16(at), data.be16(at)));
    conntrack(cx, data, ports, (data.u16(150), data.u16(152)))
}

/// `struct xt_conntrack_mtinfo3`
pub(super) fn conntrack3(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let ports = [0, 1, 2, 3].map(|n| (data.u16(138 + 2 * n), data.u16(154 + 2 * n)));
    conntrack(cx, data, ports, (data.u16(150), data.u16(152)))
}

fn conntrack(
    cx: &Context<'_>,
    data: Data<'_>,
    ports: [(u16, u16); 4],
    (states, status): (u16, u16),
) -> Result<Box<dyn Match>, Errno> {
    let address = |n: usize| (data.ip(32 * n, cx.family), data.ip(32 * n + 16, cx.family));
    let wanted = Conntrack {
        addresses: [0, 1, 2, 3].map(address),
        ports,
        expires: (data.u32(128), data.u32(132)),
        protocol: data.u16(136),
        flags: data.u16(146),
        inverted: data.u16(148),
        states,
        status,
    };
    let tracking = cx.netfilter.need_conntrack()?;
    when(move |packet| {
        let _ = &tracking;
        wanted.matches(packet)
    })
}

impl Conntrack {
    /// A condition that is asked for and not fulfilled.
    fn fails(&self, flag: u16, fulfilled: bool) -> bool {
        self.flags & flag != 0 && fulfilled == (self.inverted & flag != 0)
    }

    fn matches(&self, packet: &Packet<'_>) -> bool {
        if self.fails(what::STATE, self.states & state_bits(packet) != 0) {
            return false;
        }
        let Some((entry, direction, _)) = packet.connection() else {
            return self.flags & !what::STATE == 0;
        };
        let original = direction == Direction::Original;
        let (ahead, back) = (entry.original, entry.reply());
        if self.fails(what::DIRECTION, original) || self.fails_tuples(&ahead, &back) {
            return false;
        }
        let shown = status_bits(entry);
        let status = self.status & shown != 0 || (self.status == 0 && shown == 0);
        let left = entry.seconds_left(packet.millis());
        let expires = (u64::from(self.expires.0)..=u64::from(self.expires.1)).contains(&left);
        !self.fails(what::STATUS, status) && !self.fails(what::EXPIRES, expires)
    }

    fn fails_tuples(&self, ahead: &Tuple, back: &Tuple) -> bool {
        let addresses = [ahead.src, ahead.dst, back.src, back.dst];
        let ports = [ahead.src_port, ahead.dst_port, back.src_port, back.dst_port];
        let address = |n: usize| in_network(addresses[n], self.addresses[n].0, self.addresses[n].1);
        let port = |n: usize| (self.ports[n].0..=self.ports[n].1.max(self.ports[n].0)).contains(&ports[n]);
        (0..4).any(|n| self.fails(what::ADDRESSES[n], address(n)))
            || self.fails(what::PROTOCOL, u16::from(ahead.protocol) == self.protocol)
            || (0..4).any(|n| self.fails(what::PORTS[n], port(n)))
    }
}

/// States as this match numbers them: those of [`CtState`], but for `UNTRACKED`, and translation.
fn state_bits(packet: &Packet<'_>) -> u16 {
    const SNAT: u16 = 1 << 6;
    const DNAT: u16 = 1 << 7;
    const UNTRACKED: u16 = 1 << 8;
    let state = match packet.ct_state() {
        CtState::Untracked => UNTRACKED,
        other => other as u16,
    };
    let Some((entry, _, _)) = packet.connection() else { return state };
    let snat = if entry.has(Status::SRC_NAT) { SNAT } else { 0 };
    let dnat = if entry.has(Status::DST_NAT) { DNAT } else { 0 };
    state | snat | dnat
}

/// EXPECTED, SEEN_REPLY, ASSURED, CONFIRMED.
fn status_bits(entry: &Entry) -> u16 {
    entry.status() as u16 & 0xf
}

/// `struct xt_mark_mtinfo1`
pub(super) fn mark(_: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let (mark, mask, inverted) = (data.u32(0), data.u32(4), data.u8(8) != 0);
    when(move |packet| (packet.mark() & mask == mark) != inverted)
}

/// `struct xt_connmark_mtinfo1`
pub(super) fn connmark(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let (mark, mask, inverted) = (data.u32(0), data.u32(4), data.u8(8) != 0);
    let tracking = cx.netfilter.need_conntrack()?;
    when(move |packet| {
        let _ = &tracking;
        packet.connection().is_some_and(|(entry, _, _)| (entry.mark() & mask == mark) != inverted)
    })
}

/// `struct xt_owner_match_info`
pub(super) fn owner(cx: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    const UID: u8 = 1;
    const GID: u8 = 2;
    const SOCKET: u8 = 4;
    let points = [Point::Output, Point::PostRouting];
    let (uids, gids) = (data.u32(0)..=data.u32(4), data.u32(8)..=data.u32(12));
    let (flags, inverted) = (data.u8(16), data.u8(17));
    let backwards = (flags & UID != 0 && uids.is_empty()) || (flags & GID != 0 && gids.is_empty());
    if backwards || flags & !7 != 0 || cx.points.iter().any(|point| !points.contains(point)) {
        return Err(Errno::EINVAL);
    }
    when(move |packet| {
        let Some(owner) = packet.owner() else { return flags & !inverted == 0 };
        let fails = |flag: u8, fulfilled: bool| flags & flag != 0 && fulfilled == (inverted & flag != 0);
        !fails(SOCKET, true)
            && !fails(UID, uids.contains(&owner.uid))
            && !fails(GID, gids.contains(&owner.gid))
    })
}

//! comment, length, ttl, hl, tos, dscp.

use super::data::Data;
use super::{Context, Match, when};
use abi::Errno;

/// `struct xt_comment_info`
pub(super) fn comment(_: &Context<'_>, _: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    when(|_| true)
}

/// `struct xt_length_info`
pub(super) fn length(_: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let (range, inverted) = (usize::from(data.u16(0))..=usize::from(data.u16(2)), data.u8(4) != 0);
    when(move |packet| range.contains(&packet.total_len()) != inverted)
}

/// `struct ipt_ttl_info`, `struct ip6t_hl_info`
pub(super) fn ttl(_: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let (mode, wanted) = (data.u8(0), data.u8(1));
    when(move |packet| {
        let ttl = packet.info.ttl;
        match mode {
            0 => ttl == wanted,
            1 => ttl != wanted,
            2 => ttl < wanted,
            3 => ttl > wanted,
            _ => false,
        }
    })
}

/// `struct xt_tos_match_info`
pub(super) fn tos(_: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let (mask, value, inverted) = (data.u8(0), data.u8(1), data.u8(2) != 0);
    when(move |packet| (packet.info.tos & mask == value) != inverted)
}

/// `struct xt_dscp_info`
pub(super) fn dscp(_: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let (dscp, inverted) = (data.u8(0), data.u8(1) != 0);
    if dscp > 63 {
        return Err(Errno::EDOM);
    }
    when(move |packet| (packet.info.tos >> 2 == dscp) != inverted)
}

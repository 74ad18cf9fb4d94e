//! Extension headers of IPv6 as control messages have them: RFC 3542, and RFC 2292 before it. See ipv6(7).

use crate::names::{IPV6_2292DSTOPTS, IPV6_2292HOPOPTS, IPV6_2292RTHDR};
use abi::{Errno, Result};
use netstack::wire::extension::Extensions;
use socket::Ancillary;
use std::net::SocketAddrV6;

/// A header in a control message: as long as it says.
fn header(m: &Ancillary) -> Result<Vec<u8>> {
    let units = m.data.get(1).copied().ok_or(Errno::EINVAL)?;
    Ok(m.data.get(..(usize::from(units) + 1) * 8).ok_or(Errno::EINVAL)?.to_vec())
}

/// Takes a control message with a header; `None` for other messages. Routing headers of the kinds that Linux takes here need
/// Mobile IPv6, so they are refused.
pub(crate) fn say(all: &mut Extensions, m: &Ancillary, privileged: &dyn Fn() -> bool) -> Option<Result<()>> {
    let once = matches!(m.kind, libc::IPV6_HOPOPTS | IPV6_2292HOPOPTS | IPV6_2292DSTOPTS);
    let place = match m.kind {
        libc::IPV6_HOPOPTS | IPV6_2292HOPOPTS => &mut all.hop,
        libc::IPV6_DSTOPTS | IPV6_2292DSTOPTS => &mut all.destination,
        libc::IPV6_RTHDRDSTOPTS => &mut all.before_routing,
        libc::IPV6_RTHDR | IPV6_2292RTHDR => return Some(Err(Errno::EINVAL)),
        _ => return None,
    };
    Some(header(m).and_then(|header| match privileged() {
        _ if once && m.kind != IPV6_2292DSTOPTS && !place.is_empty() => Err(Errno::EINVAL),
        false => Err(Errno::EPERM),
        true if once && !place.is_empty() => Err(Errno::EINVAL),
        true => {
            *place = header;
            Ok(())
        }
    }))
}

/// The headers that a reader asks for, in their order: kind of header and its bytes.
pub(crate) fn received(first: u8, mut rest: &[u8]) -> Vec<(u8, &[u8])> {
    let mut out = Vec::new();
    let mut kind = first;
    while let Some(&[next, units]) = rest.first_chunk::<2>() {
        let Some((header, after)) = rest.split_at_checked((usize::from(units) + 1) * 8) else { break };
        out.push((kind, header));
        (kind, rest) = (next, after);
    }
    out
}

/// `struct ip6_mtuinfo`; without an address all of it is zero.
pub(crate) fn mtu_info(to: SocketAddrV6, mtu: u32, family: u16) -> Vec<u8> {
    let mut info = family.to_ne_bytes().to_vec();
    info.extend([0; 6]);
    info.extend(to.ip().octets());
    info.extend(to.scope_id().to_ne_bytes());
    info.extend(mtu.to_ne_bytes());
    info
}

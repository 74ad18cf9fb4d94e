//! ICMP_FILTER and ICMP6_FILTER of raw sockets: raw(7), RFC 3542 section 3.2.

use super::socket::Socket;
use abi::{Errno, Result};
use netstack::datagram::Protocol;

/// True for the option of a raw socket of ICMP; EOPNOTSUPP for that of another protocol.
pub(super) fn has(socket: &Socket<'_>, level: i32, name: i32) -> Result<bool> {
    let filter = if socket.v6 { (libc::IPPROTO_ICMPV6, 1) } else { (libc::SOL_RAW, 1) };
    match socket.datagram.map(|socket| socket.protocol()) {
        Some(Protocol::Raw(_)) if (level, name) != filter => Ok(false),
        Some(Protocol::Raw(p)) if [libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6].contains(&p.into()) => Ok(true),
        Some(Protocol::Raw(_)) => Err(Errno::EOPNOTSUPP),
        _ => Ok(false),
    }
}

/// getsockopt(2)
pub(super) fn get(socket: &Socket<'_>) -> Result<Vec<u8>> {
    let words = socket.with(|o| Ok(o.icmp_filter))?;
    let count = if socket.v6 { words.len() } else { 1 };
    Ok(words[..count].iter().flat_map(|word| word.to_ne_bytes()).collect())
}

/// setsockopt(2)
pub(super) fn set(socket: &Socket<'_>, value: &[u8]) -> Result<()> {
    let most = if socket.v6 { 8 } else { 1 };
    socket.with(|o| {
        let given = value.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word));
        o.icmp_filter.iter_mut().take(most).zip(given).for_each(|(word, new)| *word = new);
        Ok(())
    })
}

//! Options of level IPPROTO_IPV6 for extension headers and path MTUs: RFC 3542, and RFC 2292 before it. See ipv6(7).

use super::socket::Socket;
use crate::control;
use crate::headers::mtu_info;
use crate::names::IPV6_2292PKTOPTIONS;
use crate::value::{int, read_int};
use abi::{Errno, Result};
use netstack::wire::extension::{Extensions, is_segment_routing};
use rights::Cap;
use socket::Ancillary;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;
use vfs::Caller;

const IPV6_HDRINCL: i32 = 36;

/// The longest header that a socket may have.
const MAX_HEADER: usize = 8 * 255;
/// The longest value of IPV6_2292PKTOPTIONS.
const MAX_PACKET_OPTIONS: usize = 64 * 1024;
/// Bytes of `struct in6_pktinfo` and of `struct cmsghdr`.
const PKTINFO: usize = 20;
const CMSGHDR: usize = 16;

/// The field of a header.
fn field(all: &mut Extensions, name: i32) -> Option<&mut Vec<u8>> {
    match name {
        libc::IPV6_HOPOPTS => Some(&mut all.hop),
        libc::IPV6_RTHDRDSTOPTS => Some(&mut all.before_routing),
        libc::IPV6_RTHDR => Some(&mut all.routing),
        libc::IPV6_DSTOPTS => Some(&mut all.destination),
        _ => None,
    }
}

/// getsockopt(2); `None` for options that are none of these.
pub(crate) fn get(socket: &Socket<'_>, name: i32) -> Option<Result<Vec<u8>>> {
    let value = match name {
        libc::IPV6_HOPOPTS | libc::IPV6_RTHDRDSTOPTS | libc::IPV6_RTHDR | libc::IPV6_DSTOPTS => {
            socket.with(|o| {
                let mut all = o.extensions.as_deref().cloned().unwrap_or_default();
                Ok(field(&mut all, name).map(std::mem::take).unwrap_or_default())
            })
        }
        libc::IPV6_PATHMTU => socket
            .path_mtu()
            .map(|mtu| mtu_info(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0), mtu as u32, 0)),
        libc::IPV6_DONTFRAG => socket.with(|o| Ok(int(o.dont_fragment6.into()))),
        IPV6_HDRINCL if socket.kind == libc::SOCK_RAW => socket.with(|o| Ok(int(o.header_included.into()))),
        _ => return None,
    };
    Some(value)
}

/// setsockopt(2); `None` for options that are none of these.
pub(crate) fn set(socket: &Socket<'_>, cx: &dyn Caller, name: i32, value: &[u8]) -> Option<Result<()>> {
    Some(match name {
        libc::IPV6_HOPOPTS | libc::IPV6_RTHDRDSTOPTS | libc::IPV6_RTHDR | libc::IPV6_DSTOPTS => {
            set_header(socket, cx, name, value)
        }
        libc::IPV6_PKTINFO => set_interface(socket, value),
        IPV6_2292PKTOPTIONS => set_all(socket, cx, value),
        // A value that is too short is 0.
        libc::IPV6_DONTFRAG => socket.with(|o| {
            o.dont_fragment6 = read_int(value).is_ok_and(|v| v != 0);
            Ok(())
        }),
        IPV6_HDRINCL if socket.kind == libc::SOCK_RAW => read_int(value).and_then(|v| {
            socket.with(|o| {
                o.header_included = v != 0;
                Ok(())
            })
        }),
        _ => return None,
    })
}

/// The most that setsockopt(2) takes for an option, if that is more than usual.
pub(crate) fn longest(name: i32) -> Option<usize> {
    match name {
        libc::IPV6_HOPOPTS..=libc::IPV6_DSTOPTS => Some(MAX_HEADER + 1),
        IPV6_2292PKTOPTIONS => Some(MAX_PACKET_OPTIONS + 1),
        _ => None,
    }
}

/// True when the caller may send options for hops and destinations.
pub(crate) fn may_send_options(socket: &Socket<'_>, cx: &dyn Caller) -> bool {
    cx.creds().ns_capable(socket.net.user_ns(), Cap::NET_RAW)
}

/// One header of every packet, or none any more.
fn set_header(socket: &Socket<'_>, cx: &dyn Caller, name: i32, value: &[u8]) -> Result<()> {
    if name != libc::IPV6_RTHDR && !may_send_options(socket, cx) {
        return Err(Errno::EPERM);
    }
    let header = match value {
        [] => Vec::new(),
        [_, units, ..] if value.len().is_multiple_of(8) && value.len() <= MAX_HEADER => {
            value.get(..(usize::from(*units) + 1) * 8).ok_or(Errno::EINVAL)?.to_vec()
        }
        _ => return Err(Errno::EINVAL),
    };
    if name == libc::IPV6_RTHDR && !value.is_empty() && !is_segment_routing(value) {
        return Err(Errno::EINVAL);
    }
    change(socket, |all| {
        if let Some(place) = field(all, name) {
            *place = header;
        }
    })
}

/// Changes the headers of a socket. TCP sends none: ENOPROTOOPT.
fn change(socket: &Socket<'_>, f: impl FnOnce(&mut Extensions)) -> Result<()> {
    socket.with(|o| {
        let mut all = o.extensions.as_deref().cloned().unwrap_or_default();
        f(&mut all);
        if socket.datagram.is_none() && !all.is_empty() {
            return Err(Errno::ENOPROTOOPT);
        }
        o.extensions = (!all.is_empty()).then(|| Arc::new(all));
        Ok(())
    })
}

/// IPV6_PKTINFO: the interface counts for packets, the address does not.
fn set_interface(socket: &Socket<'_>, value: &[u8]) -> Result<()> {
    let info: &[u8; PKTINFO] = value.first_chunk().ok_or(Errno::EINVAL)?;
    let index = info.last_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    socket.with(|o| {
        if index != 0 && o.device != 0 && o.device != index {
            return Err(Errno::EINVAL);
        }
        o.sticky_device = index;
        Ok(())
    })
}

/// IPV6_2292PKTOPTIONS: all headers, as control messages.
fn set_all(socket: &Socket<'_>, cx: &dyn Caller, value: &[u8]) -> Result<()> {
    if value.len() > MAX_PACKET_OPTIONS {
        return Err(Errno::EINVAL);
    }
    let messages = messages(value)?;
    let foreign = socket.with(|ip| Ok(ip.free_bind || ip.transparent))?;
    let privileged = || may_send_options(socket, cx);
    let said = control::of_sender(socket.net.stack(), (true, foreign), &messages, privileged)?;
    change(socket, |all| *all = said.extensions.as_deref().cloned().unwrap_or_default())
}

/// The control messages in a buffer (cmsg(3)).
fn messages(mut rest: &[u8]) -> Result<Vec<Ancillary>> {
    let mut out = Vec::new();
    while let Some(header) = rest.first_chunk::<CMSGHDR>() {
        let number =
            |at: usize| header.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| i32::from_ne_bytes(*b));
        let len = header.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let len = usize::try_from(len).map_err(|_| Errno::EINVAL)?;
        let data = rest.get(CMSGHDR..len).ok_or(Errno::EINVAL)?.to_vec();
        out.push(Ancillary { level: number(8), kind: number(12), data });
        rest = rest.get(len.next_multiple_of(8)..).unwrap_or_default();
    }
    Ok(out)
}

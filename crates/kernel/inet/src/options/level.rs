//! Which module has an option, for sockets of both kinds.

use super::socket::Socket;
use super::{groups, icmp, ip, netfilter, tcp, udp};
use abi::{Errno, Result};
use caller::UserMemory;
use netstack::datagram::Protocol;
use vfs::Caller;

/// Options of raw sockets of IPv6.
const RAW_OPTIONS: [i32; 2] = [libc::IPV6_CHECKSUM, libc::IPV6_HDRINCL];

impl Socket<'_> {
    fn is_raw(&self) -> bool {
        self.datagram.is_some_and(|socket| matches!(socket.protocol(), Protocol::Raw(_)))
    }

    /// Raw sockets of IPv6 have no options of IPv4.
    fn lacks(&self, level: i32) -> bool {
        level == libc::IPPROTO_IP && self.is_raw() && self.v6
    }

    /// The level by which a module knows an option. Raw sockets know options of IPv6 by two levels.
    fn level(&self, level: i32, name: i32) -> i32 {
        let by_raw = level == libc::SOL_RAW && self.is_raw() && self.v6 && RAW_OPTIONS.contains(&name);
        if by_raw { libc::IPPROTO_IPV6 } else { level }
    }
}

/// getsockopt(2) of an option whose value the caller's memory describes; `None` for other options.
pub(crate) fn get_at(
    socket: &Socket<'_>,
    cx: &dyn Caller,
    mem: &mut dyn UserMemory,
    option: (i32, i32),
    value: u64,
    room: usize,
) -> Option<Result<Vec<u8>>> {
    if socket.lacks(option.0) {
        return Some(Err(Errno::ENOPROTOOPT));
    }
    let original = socket.stream.and_then(|stream| netfilter::original(socket.net, stream, option, room));
    original
        .or_else(|| groups::get(mem, socket, option, value, room))
        .or_else(|| netfilter::get(cx, mem, (socket.net, socket.v6), option, value, room))
}

/// setsockopt(2) of such an option.
pub(crate) fn set_at(
    socket: &Socket<'_>,
    cx: &dyn Caller,
    mem: &mut dyn UserMemory,
    option: (i32, i32),
    value: u64,
    len: usize,
) -> Option<Result<()>> {
    if socket.lacks(option.0) {
        return Some(Err(Errno::ENOPROTOOPT));
    }
    netfilter::set(cx, mem, (socket.net, socket.v6), option, value, len)
}

/// getsockopt(2) of the levels of protocols.
pub(crate) fn get(socket: &Socket<'_>, level: i32, name: i32) -> Result<Vec<u8>> {
    match (level, socket.stream, socket.datagram) {
        (libc::IPPROTO_TCP, Some(stream), _) => tcp::get(socket.net, stream, socket.common, name),
        (libc::IPPROTO_UDP | libc::IPPROTO_UDPLITE, _, Some(datagram)) if datagram.protocol().is_udp() => {
            udp::get(socket.net, datagram, name)
        }
        _ if icmp::has(socket, level, name)? => icmp::get(socket),
        _ => ip::get(socket, socket.level(level, name), name),
    }
}

/// setsockopt(2) of the levels of protocols.
pub(crate) fn set(socket: &Socket<'_>, cx: &dyn Caller, level: i32, name: i32, value: &[u8]) -> Result<()> {
    match (level, socket.stream, socket.datagram) {
        (libc::IPPROTO_TCP, Some(stream), _) => {
            tcp::set((socket.net, stream), socket.common, cx, name, value)
        }
        (libc::IPPROTO_UDP | libc::IPPROTO_UDPLITE, _, Some(datagram)) if datagram.protocol().is_udp() => {
            udp::set(socket.net, datagram, name, value)
        }
        _ if icmp::has(socket, level, name)? => icmp::set(socket, value),
        _ => ip::set(socket, cx, socket.level(level, name), name, value),
    }
}

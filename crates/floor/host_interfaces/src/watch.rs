//! Being told that a network namespace changes.

use rustix::net::{AddressFamily as Family, SocketFlags, SocketType, bind, netlink, socket_with};
use std::io;
use std::os::fd::OwnedFd;

/// RTMGRP_*: interfaces, neighbours, addresses and routes.
const GROUPS: u32 = (libc::RTMGRP_LINK
    | libc::RTMGRP_NEIGH
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_ROUTE) as u32;

/// A non-blocking socket that can be read when the caller's network namespace has changed.
pub(crate) fn events() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(Family::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &netlink::SocketAddrNetlink::new(0, GROUPS))?;
    Ok(socket)
}

/// Takes all events; false when there was none. What they say does not matter: the namespace is read anew.
pub fn drain(events: &OwnedFd) -> bool {
    let (mut buffer, mut any) = ([0; 64], false);
    loop {
        match rustix::io::read(events, &mut buffer) {
            // ENOBUFS: there were more than the socket has room for.
            Ok(_) | Err(rustix::io::Errno::NOBUFS) => any = true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return any,
        }
    }
}

//! Multicast groups: IP_ADD_MEMBERSHIP, IPV6_JOIN_GROUP, MCAST_JOIN_GROUP and their relatives. See ip(7), ipv6(7).

use super::ip::Socket;
use crate::addr;
use abi::{Errno, Result};
use netstack::datagram::DatagramSocket;
use socket::net_ns::now;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const MCAST_JOIN_GROUP: i32 = 42;
const MCAST_BLOCK_SOURCE: i32 = 43;
const MCAST_UNBLOCK_SOURCE: i32 = 44;
const MCAST_LEAVE_GROUP: i32 = 45;
const MCAST_JOIN_SOURCE_GROUP: i32 = 46;
const MCAST_LEAVE_SOURCE_GROUP: i32 = 47;
/// Bytes of `struct sockaddr_storage`, and where the first one stands in `struct group_req`.
const STORAGE: usize = 128;
const GROUP: usize = 8;

fn array<const N: usize>(value: &[u8], at: usize) -> Result<[u8; N]> {
    value.get(at..).and_then(<[u8]>::first_chunk).copied().ok_or(Errno::EINVAL)
}

fn v4(value: &[u8], at: usize) -> Result<Ipv4Addr> {
    array::<4>(value, at).map(Ipv4Addr::from)
}

/// The interface that has an address; 0 for the unspecified address.
fn having(socket: &Socket<'_>, ip: Ipv4Addr) -> Result<u32> {
    if ip.is_unspecified() {
        return Ok(0);
    }
    let links = socket.net.stack().links();
    let found = links.iter().find(|link| link.addresses().iter().any(|a| a.ip() == IpAddr::V4(ip)));
    found.map(|link| link.index).ok_or(Errno::ENODEV)
}

/// Sets an option of groups; `None` for options that are none.
pub(crate) fn set(socket: &Socket<'_>, level: i32, name: i32, value: &[u8]) -> Option<Result<()>> {
    let v6 = level == libc::IPPROTO_IPV6;
    let known = match name {
        MCAST_JOIN_GROUP..=MCAST_LEAVE_SOURCE_GROUP => true,
        libc::IPV6_ADD_MEMBERSHIP | libc::IPV6_DROP_MEMBERSHIP if v6 => true,
        libc::IP_ADD_MEMBERSHIP | libc::IP_DROP_MEMBERSHIP => !v6,
        libc::IP_UNBLOCK_SOURCE..=libc::IP_DROP_SOURCE_MEMBERSHIP => !v6,
        _ => false,
    };
    if !known {
        return None;
    }
    // Streams belong to no group.
    let Some(datagrams) = socket.datagram else { return Some(Err(Errno::EPROTO)) };
    Some(match name {
        MCAST_JOIN_GROUP..=MCAST_LEAVE_SOURCE_GROUP => of_any_family(datagrams, v6, name, value),
        _ if v6 => of_ipv6(datagrams, name, value),
        libc::IP_ADD_MEMBERSHIP | libc::IP_DROP_MEMBERSHIP => of_ipv4(socket, datagrams, name, value),
        _ => source_of_ipv4(socket, datagrams, name, value),
    })
}

/// `struct ip_mreq` or `ip_mreqn`.
fn of_ipv4(socket: &Socket<'_>, datagrams: &DatagramSocket, name: i32, value: &[u8]) -> Result<()> {
    let (group, own) = (v4(value, 0)?, v4(value, 4)?);
    let named = array(value, 8).map_or(0, u32::from_ne_bytes);
    if !group.is_multicast() {
        return Err(if name == libc::IP_ADD_MEMBERSHIP { Errno::EINVAL } else { Errno::EADDRNOTAVAIL });
    }
    let iface = if named != 0 { named } else { having(socket, own)? };
    match name {
        libc::IP_ADD_MEMBERSHIP => datagrams.join(now(), group.into(), iface),
        _ => datagrams.leave(now(), group.into(), iface),
    }
}

/// `struct ip_mreq_source`.
fn source_of_ipv4(socket: &Socket<'_>, datagrams: &DatagramSocket, name: i32, value: &[u8]) -> Result<()> {
    let (group, own, source) = (v4(value, 0)?, v4(value, 4)?, v4(value, 8)?);
    let iface = having(socket, own)?;
    let block = matches!(name, libc::IP_BLOCK_SOURCE | libc::IP_UNBLOCK_SOURCE);
    let add = matches!(name, libc::IP_BLOCK_SOURCE | libc::IP_ADD_SOURCE_MEMBERSHIP);
    datagrams.change_source(now(), (group.into(), iface), source.into(), add, block)
}

/// `struct ipv6_mreq`.
fn of_ipv6(datagrams: &DatagramSocket, name: i32, value: &[u8]) -> Result<()> {
    let group = Ipv6Addr::from(array::<16>(value, 0)?);
    let iface = u32::from_ne_bytes(array(value, 16)?);
    if !group.is_multicast() {
        return Err(if name == libc::IPV6_ADD_MEMBERSHIP { Errno::EINVAL } else { Errno::EADDRNOTAVAIL });
    }
    match name {
        libc::IPV6_ADD_MEMBERSHIP => datagrams.join(now(), group.into(), iface),
        _ => datagrams.leave(now(), group.into(), iface),
    }
}

/// The address in a `struct sockaddr_storage`.
fn stored(value: &[u8], at: usize, v6: bool) -> Result<IpAddr> {
    let raw = value.get(at..at + STORAGE).ok_or(Errno::EINVAL)?;
    match (addr::family(raw)?, v6) {
        (libc::AF_INET, false) => Ok((*addr::v4(raw)?.ip()).into()),
        (libc::AF_INET6, true) => Ok((*addr::v6(raw)?.ip()).into()),
        _ => Err(Errno::EADDRNOTAVAIL),
    }
}

/// `struct group_req` or `group_source_req`.
fn of_any_family(datagrams: &Arc<DatagramSocket>, v6: bool, name: i32, value: &[u8]) -> Result<()> {
    let iface = u32::from_ne_bytes(array(value, 0)?);
    let group = stored(value, GROUP, v6)?;
    match name {
        MCAST_JOIN_GROUP => return datagrams.join(now(), group, iface),
        MCAST_LEAVE_GROUP => return datagrams.leave(now(), group, iface),
        _ => {}
    }
    let source = stored(value, GROUP + STORAGE, v6)?;
    let block = matches!(name, MCAST_BLOCK_SOURCE | MCAST_UNBLOCK_SOURCE);
    let add = matches!(name, MCAST_BLOCK_SOURCE | MCAST_JOIN_SOURCE_GROUP);
    datagrams.change_source(now(), (group, iface), source, add, block)
}

/// IP_MULTICAST_IF: an address, an `ip_mreq` or an `ip_mreqn`.
pub(crate) fn set_interface(socket: &Socket<'_>, value: &[u8]) -> Result<()> {
    let own = if value.len() >= 8 { v4(value, 4)? } else { v4(value, 0)? };
    let named = array(value, 8).map_or(0, u32::from_ne_bytes);
    let iface = match named {
        0 => having(socket, own).map_err(|_| Errno::EADDRNOTAVAIL)?,
        named => socket.net.stack().link(named).map(|link| link.index).ok_or(Errno::EADDRNOTAVAIL)?,
    };
    socket.with(|o| {
        o.multicast_device = iface;
        o.multicast_source = (!own.is_unspecified()).then_some(own.into());
        Ok(())
    })
}

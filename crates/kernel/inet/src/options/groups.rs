//! Multicast groups: IP_ADD_MEMBERSHIP, IPV6_JOIN_GROUP, MCAST_JOIN_GROUP and their relatives. See ip(7), ipv6(7).

use super::socket::Socket;
use crate::addr;
use abi::{Errno, Result};
use caller::UserMemory;
use netstack::datagram::DatagramSocket;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

const MCAST_JOIN_GROUP: i32 = 42;
const MCAST_BLOCK_SOURCE: i32 = 43;
const MCAST_UNBLOCK_SOURCE: i32 = 44;
const MCAST_LEAVE_GROUP: i32 = 45;
const MCAST_JOIN_SOURCE_GROUP: i32 = 46;
const MCAST_LEAVE_SOURCE_GROUP: i32 = 47;
/// IP_MSFILTER and MCAST_MSFILTER, and what comes before their sources.
const IP_MSFILTER: i32 = 41;
const MCAST_MSFILTER: i32 = 48;
const IP_FILTER: usize = 16;
const GROUP_FILTER: usize = 144;
/// Modes of filters.
const EXCLUDE: u32 = 0;
const INCLUDE: u32 = 1;
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
    socket.net.stack().owner_of(ip.into()).map(|link| link.index).ok_or(Errno::ENODEV)
}

/// Sets an option of groups; `None` for options that are none.
pub(crate) fn set(socket: &Socket<'_>, level: i32, name: i32, value: &[u8]) -> Option<Result<()>> {
    let v6 = level == libc::IPPROTO_IPV6;
    let known = match name {
        MCAST_JOIN_GROUP..=MCAST_LEAVE_SOURCE_GROUP | MCAST_MSFILTER => true,
        IP_MSFILTER => !v6,
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
        MCAST_JOIN_GROUP..=MCAST_LEAVE_SOURCE_GROUP => of_any_family(socket, datagrams, v6, name, value),
        MCAST_MSFILTER => set_filter(socket, datagrams, v6, value),
        IP_MSFILTER => set_filter4(socket, datagrams, value),
        _ if v6 => of_ipv6(socket, datagrams, name, value),
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
    let iface = if named != 0 { Ok(named) } else { having(socket, own) };
    // Nothing is left on an interface that there is not.
    let iface = iface.map_err(|e| if name == libc::IP_ADD_MEMBERSHIP { e } else { Errno::EADDRNOTAVAIL })?;
    match name {
        libc::IP_ADD_MEMBERSHIP => datagrams.join(socket.net.now(), group.into(), iface),
        _ => datagrams.leave(socket.net.now(), group.into(), iface),
    }
}

/// `struct ip_mreq_source`.
fn source_of_ipv4(socket: &Socket<'_>, datagrams: &DatagramSocket, name: i32, value: &[u8]) -> Result<()> {
    let (group, own, source) = (v4(value, 0)?, v4(value, 4)?, v4(value, 8)?);
    let iface = having(socket, own)?;
    let block = matches!(name, libc::IP_BLOCK_SOURCE | libc::IP_UNBLOCK_SOURCE);
    let add = matches!(name, libc::IP_BLOCK_SOURCE | libc::IP_ADD_SOURCE_MEMBERSHIP);
    datagrams.change_source(socket.net.now(), (group.into(), iface), source.into(), add, block)
}

/// `struct ipv6_mreq`.
fn of_ipv6(socket: &Socket<'_>, datagrams: &DatagramSocket, name: i32, value: &[u8]) -> Result<()> {
    let group = Ipv6Addr::from(array::<16>(value, 0)?);
    let iface = u32::from_ne_bytes(array(value, 16)?);
    if !group.is_multicast() {
        return Err(if name == libc::IPV6_ADD_MEMBERSHIP { Errno::EINVAL } else { Errno::EADDRNOTAVAIL });
    }
    match name {
        libc::IPV6_ADD_MEMBERSHIP => datagrams.join(socket.net.now(), group.into(), iface),
        _ => datagrams.leave(socket.net.now(), group.into(), iface),
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
fn of_any_family(
    socket: &Socket<'_>,
    datagrams: &Arc<DatagramSocket>,
    v6: bool,
    name: i32,
    value: &[u8],
) -> Result<()> {
    let iface = u32::from_ne_bytes(array(value, 0)?);
    let group = stored(value, GROUP, v6)?;
    match name {
        MCAST_JOIN_GROUP => return datagrams.join(socket.net.now(), group, iface),
        MCAST_LEAVE_GROUP => return datagrams.leave(socket.net.now(), group, iface),
        _ => {}
    }
    let source = stored(value, GROUP + STORAGE, v6)?;
    let block = matches!(name, MCAST_BLOCK_SOURCE | MCAST_UNBLOCK_SOURCE);
    let add = matches!(name, MCAST_BLOCK_SOURCE | MCAST_JOIN_SOURCE_GROUP);
    datagrams.change_source(socket.net.now(), (group, iface), source, add, block)
}

/// The most that setsockopt(2) takes for an option of groups, if that is more than usual.
pub(crate) fn longest(name: i32) -> Option<usize> {
    // One source more than any group may have.
    (name == MCAST_MSFILTER).then_some(GROUP_FILTER + 65 * STORAGE)
}

fn word(value: &[u8], at: usize) -> Result<u32> {
    array(value, at).map(u32::from_ne_bytes)
}

/// The mode: whether sources are left out.
fn excludes(mode: u32) -> Result<bool> {
    match mode {
        EXCLUDE => Ok(true),
        INCLUDE => Ok(false),
        _ => Err(Errno::EINVAL),
    }
}

/// How many sources follow; ENOBUFS for more than the most, EINVAL when they are not there.
fn count(most: usize, value: &[u8], number: u32, head: usize, each: usize) -> Result<usize> {
    let number = number as usize;
    if number > most {
        return Err(Errno::ENOBUFS);
    }
    if value.len() < head + number * each { Err(Errno::EINVAL) } else { Ok(number) }
}

/// `struct ip_msfilter`: group, own address, mode, sources.
fn set_filter4(socket: &Socket<'_>, datagrams: &DatagramSocket, value: &[u8]) -> Result<()> {
    let (group, own, mode, number) = (v4(value, 0)?, v4(value, 4)?, word(value, 8)?, word(value, 12)?);
    let most = socket.net.stack().max_sources(group.into());
    let number = count(most, value, number, IP_FILTER, 4)?;
    let sources: Result<Vec<IpAddr>> =
        (0..number).map(|n| Ok(v4(value, IP_FILTER + 4 * n)?.into())).collect();
    if !group.is_multicast() {
        return Err(Errno::EINVAL);
    }
    let exclude = excludes(mode)?;
    datagrams.set_sources(socket.net.now(), (group.into(), having(socket, own)?), exclude, sources?)
}

/// `struct group_filter`: interface, group, mode, sources.
fn set_filter(socket: &Socket<'_>, datagrams: &DatagramSocket, v6: bool, value: &[u8]) -> Result<()> {
    let (mode, number) = (word(value, GROUP + STORAGE)?, word(value, GROUP + STORAGE + 4)?);
    let any = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let number = count(datagrams.max_sources(any), value, number, GROUP_FILTER, STORAGE)?;
    let group = stored(value, GROUP, v6).map_err(|_| Errno::EINVAL)?;
    let sources: Result<Vec<IpAddr>> =
        (0..number).map(|n| stored(value, GROUP_FILTER + STORAGE * n, v6)).collect();
    datagrams.set_sources(socket.net.now(), (group, word(value, 0)?), excludes(mode)?, sources?)
}

/// getsockopt(2) of IP_MSFILTER and MCAST_MSFILTER; `None` for other options. What is there already says which group, and for how
/// many sources there is room.
pub(crate) fn get(
    mem: &mut dyn UserMemory,
    socket: &Socket<'_>,
    (level, name): (i32, i32),
    value: u64,
    room: usize,
) -> Option<Result<Vec<u8>>> {
    let v6 = level == libc::IPPROTO_IPV6 && socket.v6;
    let datagrams = socket.datagram?;
    match (level, name) {
        (libc::IPPROTO_IP, IP_MSFILTER) => Some(filter4(mem, socket, datagrams, value, room)),
        (libc::IPPROTO_IP, MCAST_MSFILTER) => Some(filter(mem, (socket, datagrams), false, value, room)),
        (libc::IPPROTO_IPV6, MCAST_MSFILTER) if v6 => {
            Some(filter(mem, (socket, datagrams), true, value, room))
        }
        _ => None,
    }
}

/// The start of a program's buffer.
fn head(mem: &mut dyn UserMemory, value: u64, room: usize, len: usize) -> Result<Vec<u8>> {
    if room < len {
        return Err(Errno::EINVAL);
    }
    let mut head = vec![0; len];
    mem.copy_in(value, &mut head)?;
    Ok(head)
}

fn filter4(
    mem: &mut dyn UserMemory,
    socket: &Socket<'_>,
    datagrams: &DatagramSocket,
    value: u64,
    room: usize,
) -> Result<Vec<u8>> {
    let mut out = head(mem, value, room, IP_FILTER)?;
    let (group, own, most) = (v4(&out, 0)?, v4(&out, 4)?, word(&out, 12)?);
    if !group.is_multicast() {
        return Err(Errno::EINVAL);
    }
    let (exclude, sources) = datagrams.sources(socket.net.now(), group.into(), having(socket, own)?)?;
    out.truncate(8);
    out.extend((if exclude { EXCLUDE } else { INCLUDE }).to_ne_bytes());
    out.extend((sources.len() as u32).to_ne_bytes());
    for source in sources.iter().take(most as usize) {
        if let IpAddr::V4(source) = source {
            out.extend(source.octets());
        }
    }
    Ok(out)
}

fn filter(
    mem: &mut dyn UserMemory,
    (socket, datagrams): (&Socket<'_>, &DatagramSocket),
    v6: bool,
    value: u64,
    room: usize,
) -> Result<Vec<u8>> {
    let mut out = head(mem, value, room, GROUP_FILTER)?;
    let (iface, most) = (word(&out, 0)?, word(&out, GROUP + STORAGE + 4)?);
    let group = stored(&out, GROUP, v6).map_err(|_| Errno::EADDRNOTAVAIL)?;
    let (exclude, sources) = datagrams.sources(socket.net.now(), group, iface)?;
    out.truncate(GROUP + STORAGE);
    out.extend((if exclude { EXCLUDE } else { INCLUDE }).to_ne_bytes());
    out.extend((sources.len() as u32).to_ne_bytes());
    for source in sources.iter().take(most as usize) {
        let mut bytes = addr::to_bytes(SocketAddr::new(*source, 0));
        bytes.resize(STORAGE, 0);
        out.extend(bytes);
    }
    Ok(out)
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

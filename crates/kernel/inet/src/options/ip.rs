//! Options of levels IPPROTO_IP and IPPROTO_IPV6: ip(7), ipv6(7).

use super::socket::Socket;
use super::{extension, groups};
use crate::control::Wants;
use crate::names::IPV6_2292PKTOPTIONS;
use crate::value::{int, read_int};
use abi::{Errno, Result};
use netstack::datagram::Protocol;
use netstack::options::MtuDiscovery;
use rights::Cap;
use socket::{NetNamespace, cmsg};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vfs::Caller;

const IP_PROTOCOL: i32 = 52;
const IP_PKTOPTIONS: i32 = 9;
const IPV6_MULTICAST_ALL: i32 = 29;
const IPV6_MINHOPCOUNT: i32 = 73;

fn discovery(v: MtuDiscovery) -> i32 {
    match v {
        MtuDiscovery::Dont => 0,
        MtuDiscovery::Want => 1,
        MtuDiscovery::Do => 2,
        MtuDiscovery::Probe => 3,
        MtuDiscovery::Interface => 4,
        MtuDiscovery::Omit => 5,
    }
}

fn to_discovery(v: i32) -> Result<MtuDiscovery> {
    match v {
        0 => Ok(MtuDiscovery::Dont),
        1 => Ok(MtuDiscovery::Want),
        2 => Ok(MtuDiscovery::Do),
        3 => Ok(MtuDiscovery::Probe),
        4 => Ok(MtuDiscovery::Interface),
        5 => Ok(MtuDiscovery::Omit),
        _ => Err(Errno::EINVAL),
    }
}

/// getsockopt(2).
pub(crate) fn get(socket: &Socket<'_>, level: i32, name: i32) -> Result<Vec<u8>> {
    let wanted = Wants::knows(level, name) && (level == libc::IPPROTO_IP || socket.v6);
    match level {
        _ if wanted => Ok(int(socket.common.wants.get(level, name) as i32)),
        libc::IPPROTO_IP if name == libc::IP_MULTICAST_IF => {
            let own = socket.with(|o| Ok(o.multicast_source))?;
            Ok(match own {
                Some(std::net::IpAddr::V4(own)) => own.octets().to_vec(),
                _ => vec![0; 4],
            })
        }
        libc::IPPROTO_IP if name == IP_PKTOPTIONS => received(socket, false),
        libc::IPPROTO_IPV6 if socket.v6 && name == IPV6_2292PKTOPTIONS => received(socket, true),
        // Packets have no options.
        libc::IPPROTO_IP if name == libc::IP_OPTIONS => Ok(Vec::new()),
        libc::IPPROTO_IP => get4(socket, name).map(int),
        libc::IPPROTO_IPV6 if socket.v6 => {
            extension::get(socket, name).unwrap_or_else(|| get6(socket, name).map(int))
        }
        _ => Err(socket.no_level()),
    }
}

/// IP_PKTOPTIONS and IPV6_2292PKTOPTIONS of a stream: what a datagram's reader is told in control messages, as far as it is
/// known of a connection: the interface and the address.
fn received(socket: &Socket<'_>, v6: bool) -> Result<Vec<u8>> {
    let stream = socket.stream.ok_or(Errno::ENOPROTOOPT)?;
    let mut told = cmsg::Writer::new(128);
    let wants = |level, name| socket.common.wants.get(level, name);
    let device = stream.device();
    if v6 && wants(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) {
        // The peer's address, as Linux has it here.
        let peer = if device == 0 { None } else { stream.peer() };
        let ip = match peer.map(|peer| peer.ip()) {
            Some(IpAddr::V6(ip)) => ip,
            _ => Ipv6Addr::UNSPECIFIED,
        };
        let info = [&ip.octets()[..], &device.to_ne_bytes()].concat();
        told.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
    }
    if !v6 && wants(libc::IPPROTO_IP, libc::IP_PKTINFO) {
        let own = match stream.local().ip() {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(ip) => ip.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED),
        };
        let info = [device.to_ne_bytes(), own.octets(), own.octets()].concat();
        told.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
    }
    Ok(told.out)
}

fn get4(socket: &Socket<'_>, name: i32) -> Result<i32> {
    let sysctls = &socket.net.stack().sysctls;
    match name {
        libc::IP_MTU => return socket.path_mtu(),
        IP_PROTOCOL => {
            return Ok(match socket.datagram.map(|datagram| datagram.protocol()) {
                Some(Protocol::Raw(protocol)) => protocol.into(),
                _ => 0,
            });
        }
        _ => {}
    }
    socket.with(|o| {
        Ok(match name {
            libc::IP_TOS => o.tos.into(),
            libc::IP_TTL => o.ttl.map_or(sysctls.ip_default_ttl.get() as i32, i32::from),
            libc::IP_HDRINCL if socket.kind == libc::SOCK_RAW => o.header_included as i32,
            libc::IP_HDRINCL => 0,
            libc::IP_MINTTL => o.min_ttl.into(),
            libc::IP_MTU_DISCOVER => discovery(o.mtu_discovery),
            libc::IP_RECVERR => o.receive_errors as i32,
            libc::IP_BIND_ADDRESS_NO_PORT => o.bind_no_port as i32,
            libc::IP_FREEBIND => o.free_bind as i32,
            libc::IP_TRANSPARENT => o.transparent as i32,
            libc::IP_MULTICAST_TTL => o.multicast_ttl.into(),
            libc::IP_MULTICAST_LOOP => o.multicast_loop as i32,
            libc::IP_MULTICAST_ALL => o.multicast_all as i32,
            _ => return Err(Errno::ENOPROTOOPT),
        })
    })
}

fn get6(socket: &Socket<'_>, name: i32) -> Result<i32> {
    let sysctls = &socket.net.stack().sysctls;
    match name {
        libc::IPV6_MTU => return socket.path_mtu(),
        libc::IPV6_ADDRFORM if !socket.has_ports() => return Err(Errno::ENOPROTOOPT),
        libc::IPV6_ADDRFORM if !socket.is_connected() => return Err(Errno::ENOTCONN),
        libc::IPV6_ADDRFORM => return Ok(libc::AF_INET6),
        _ => {}
    }
    socket.with(|o| {
        Ok(match name {
            libc::IPV6_MULTICAST_IF => o.multicast_device as i32,
            IPV6_MULTICAST_ALL => o.multicast_all as i32,
            libc::IPV6_CHECKSUM if socket.kind == libc::SOCK_RAW => o.checksum_at.map_or(-1, i32::from),
            libc::IPV6_V6ONLY => o.v6only as i32,
            libc::IPV6_UNICAST_HOPS => o.hops.map_or(sysctls.ip6_hop_limit.get() as i32, i32::from),
            IPV6_MINHOPCOUNT => o.min_hops.into(),
            libc::IPV6_MULTICAST_HOPS => o.multicast_hops.into(),
            libc::IPV6_MULTICAST_LOOP => o.multicast_loop as i32,
            libc::IPV6_TCLASS => o.class.into(),
            libc::IPV6_RECVERR => o.receive_errors6 as i32,
            libc::IPV6_FREEBIND => o.free_bind as i32,
            libc::IPV6_TRANSPARENT => o.transparent as i32,
            libc::IPV6_MTU_DISCOVER => discovery(o.mtu_discovery),
            _ => return Err(Errno::ENOPROTOOPT),
        })
    })
}

/// setsockopt(2).
pub(crate) fn set(socket: &Socket<'_>, cx: &dyn Caller, level: i32, name: i32, value: &[u8]) -> Result<()> {
    if (level == libc::IPPROTO_IP || level == libc::IPPROTO_IPV6 && socket.v6)
        && let Some(done) = groups::set(socket, level, name, value)
    {
        return done;
    }
    match level {
        libc::IPPROTO_IP if name == libc::IP_MULTICAST_IF => groups::set_interface(socket, value),
        libc::IPPROTO_IP if Wants::knows(level, name) => {
            socket.common.wants.set(level, name, small(value)? != 0);
            Ok(())
        }
        libc::IPPROTO_IPV6 if socket.v6 && Wants::knows(level, name) => {
            let on = read_int(value)? != 0;
            socket.common.wants.set(level, name, on);
            if name == libc::IPV6_RECVPATHMTU {
                socket.with(|o| {
                    o.receive_path_mtu = on;
                    Ok(())
                })?;
            }
            Ok(())
        }
        libc::IPPROTO_IP if name == libc::IP_OPTIONS && value.is_empty() => Ok(()),
        libc::IPPROTO_IP => set4(socket, cx, name, value),
        libc::IPPROTO_IPV6 if socket.v6 && name == libc::IPV6_ADDRFORM => {
            socket.change_family(read_int(value)?)
        }
        libc::IPPROTO_IPV6 if socket.v6 => match extension::set(socket, cx, name, value) {
            Some(done) => done,
            None => set6(socket, cx, name, read_int(value)?),
        },
        _ => Err(Errno::ENOPROTOOPT),
    }
}

/// The IPv4 options take a byte, too.
fn small(value: &[u8]) -> Result<i32> {
    match value {
        [] => Ok(0),
        [one] | [one, _] | [one, _, _] => Ok(i32::from(*one)),
        _ => read_int(value),
    }
}

/// Options that want one byte at the least.
const NOT_EMPTY: [i32; 6] = [
    libc::IP_MINTTL,
    libc::IP_FREEBIND,
    libc::IP_TRANSPARENT,
    libc::IP_MULTICAST_TTL,
    libc::IP_MULTICAST_LOOP,
    libc::IP_MULTICAST_ALL,
];

fn set4(socket: &Socket<'_>, cx: &dyn Caller, name: i32, value: &[u8]) -> Result<()> {
    let v = small(value)?;
    let byte = |v: i32| u8::try_from(v).map_err(|_| Errno::EINVAL);
    if value.is_empty() && NOT_EMPTY.contains(&name) {
        return Err(Errno::EINVAL);
    }
    socket.with(|o| {
        match name {
            libc::IP_TOS if socket.kind == libc::SOCK_STREAM => o.tos = v as u8 & !3 | o.tos & 3,
            libc::IP_TOS => o.tos = v as u8,
            libc::IP_TTL if v == -1 => o.ttl = None,
            libc::IP_TTL if v == 0 => return Err(Errno::EINVAL),
            libc::IP_TTL => o.ttl = Some(byte(v)?),
            libc::IP_MINTTL => o.min_ttl = byte(v)?,
            libc::IP_HDRINCL if socket.kind == libc::SOCK_RAW => o.header_included = v != 0,
            libc::IP_MTU_DISCOVER => o.mtu_discovery = to_discovery(v)?,
            libc::IP_RECVERR => o.receive_errors = v != 0,
            libc::IP_BIND_ADDRESS_NO_PORT => o.bind_no_port = v != 0,
            libc::IP_FREEBIND => o.free_bind = v != 0,
            libc::IP_TRANSPARENT if v != 0 && !privileged(cx, socket.net) => return Err(Errno::EPERM),
            libc::IP_TRANSPARENT => o.transparent = v != 0,
            libc::IP_MULTICAST_TTL if socket.kind == libc::SOCK_STREAM => return Err(Errno::EINVAL),
            libc::IP_MULTICAST_TTL if v == -1 => o.multicast_ttl = 1,
            libc::IP_MULTICAST_TTL => o.multicast_ttl = byte(v)?,
            libc::IP_MULTICAST_LOOP => o.multicast_loop = v != 0,
            libc::IP_MULTICAST_ALL => o.multicast_all = flag(v)?,
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    })
}

fn flag(v: i32) -> Result<bool> {
    match v {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

fn privileged(cx: &dyn Caller, net: &NetNamespace) -> bool {
    let creds = cx.creds();
    [Cap::NET_ADMIN, Cap::NET_RAW].into_iter().any(|cap| creds.ns_capable(net.user_ns(), cap))
}

fn set6(socket: &Socket<'_>, cx: &dyn Caller, name: i32, v: i32) -> Result<()> {
    let limit = |v: i32| match v {
        -1 => Ok(None),
        _ => u8::try_from(v).map(Some).map_err(|_| Errno::EINVAL),
    };
    let links = socket.net.stack();
    let bound = match (socket.datagram, socket.stream) {
        (Some(socket), _) => socket.local().port() != 0,
        (None, Some(socket)) => socket.local().port() != 0,
        (None, None) => false,
    };
    socket.with(|o| {
        match name {
            libc::IPV6_MULTICAST_IF if socket.kind == libc::SOCK_STREAM => return Err(Errno::ENOPROTOOPT),
            libc::IPV6_MULTICAST_IF if v != 0 && links.link(v as u32).is_none() => return Err(Errno::ENODEV),
            libc::IPV6_MULTICAST_IF => o.multicast_device = v as u32,
            IPV6_MULTICAST_ALL => o.multicast_all = flag(v)?,
            libc::IPV6_CHECKSUM if socket.kind != libc::SOCK_RAW => return Err(Errno::ENOPROTOOPT),
            libc::IPV6_CHECKSUM if v < 0 => o.checksum_at = None,
            libc::IPV6_CHECKSUM if v & 1 != 0 => return Err(Errno::EINVAL),
            libc::IPV6_CHECKSUM => o.checksum_at = Some(u16::try_from(v).map_err(|_| Errno::EINVAL)?),
            libc::IPV6_V6ONLY if bound || socket.kind == libc::SOCK_RAW => return Err(Errno::EINVAL),
            libc::IPV6_V6ONLY => o.v6only = v != 0,
            libc::IPV6_UNICAST_HOPS => o.hops = limit(v)?,
            IPV6_MINHOPCOUNT => o.min_hops = u8::try_from(v).map_err(|_| Errno::EINVAL)?,
            libc::IPV6_MULTICAST_HOPS if socket.kind == libc::SOCK_STREAM => return Err(Errno::ENOPROTOOPT),
            libc::IPV6_MULTICAST_HOPS => o.multicast_hops = limit(v)?.unwrap_or(1),
            libc::IPV6_MULTICAST_LOOP => o.multicast_loop = flag(v)?,
            libc::IPV6_TCLASS if socket.kind == libc::SOCK_STREAM => {
                o.class = limit(v)?.unwrap_or(0) & !3 | o.class & 3;
            }
            libc::IPV6_TCLASS => o.class = limit(v)?.unwrap_or(0),
            libc::IPV6_RECVERR => o.receive_errors6 = v != 0,
            libc::IPV6_FREEBIND => o.free_bind = v != 0,
            libc::IPV6_TRANSPARENT if v != 0 && !privileged(cx, socket.net) => return Err(Errno::EPERM),
            libc::IPV6_TRANSPARENT => o.transparent = v != 0,
            libc::IPV6_MTU_DISCOVER => o.mtu_discovery = to_discovery(v)?,
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    })
}

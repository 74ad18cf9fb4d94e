//! Options of levels IPPROTO_IP and IPPROTO_IPV6: ip(7), ipv6(7).

use super::{int, read_int};
use abi::{Errno, Result};
use netstack::datagram::DatagramSocket;
use netstack::options::{IpOptions, MtuDiscovery};
use netstack::tcp::TcpSocket;
use socket::NetNamespace;
use socket::net_ns::now;
use std::sync::Arc;
use vfs::{Caller, Cap};

/// A socket whose options are read or changed.
pub(crate) struct Socket<'a> {
    pub(crate) v6: bool,
    pub(crate) net: &'a NetNamespace,
    pub(crate) kind: i32,
    /// One of these two is there.
    pub(crate) datagram: Option<&'a Arc<DatagramSocket>>,
    pub(crate) stream: Option<&'a TcpSocket>,
}

impl Socket<'_> {
    fn with<R>(&self, f: impl FnOnce(&mut IpOptions) -> Result<R>) -> Result<R> {
        match (self.datagram, self.stream) {
            (Some(socket), _) => socket.configure(now(), f),
            (None, Some(socket)) => socket.configure(now(), |o| f(&mut o.ip)),
            (None, None) => Err(Errno::ENOPROTOOPT),
        }
    }

    /// The answer for a level that the socket does not have.
    fn no_level(&self) -> Errno {
        if self.v6 { Errno::ENOPROTOOPT } else { Errno::EOPNOTSUPP }
    }
}

fn discovery(v: MtuDiscovery) -> i32 {
    match v {
        MtuDiscovery::Dont => 0,
        MtuDiscovery::Want => 1,
        MtuDiscovery::Do => 2,
        MtuDiscovery::Probe => 3,
    }
}

fn to_discovery(v: i32) -> Result<MtuDiscovery> {
    match v {
        0 => Ok(MtuDiscovery::Dont),
        1 => Ok(MtuDiscovery::Want),
        2 => Ok(MtuDiscovery::Do),
        3 => Ok(MtuDiscovery::Probe),
        _ => Err(Errno::EINVAL),
    }
}

/// getsockopt(2).
pub(crate) fn get(socket: &Socket<'_>, level: i32, name: i32) -> Result<Vec<u8>> {
    match level {
        libc::IPPROTO_IP => get4(socket, name).map(int),
        libc::IPPROTO_IPV6 if socket.v6 => get6(socket, name).map(int),
        _ => Err(socket.no_level()),
    }
}

fn get4(socket: &Socket<'_>, name: i32) -> Result<i32> {
    let sysctls = &socket.net.stack().sysctls;
    socket.with(|o| {
        Ok(match name {
            libc::IP_TOS => o.tos.into(),
            libc::IP_TTL => o.ttl.map_or(sysctls.ip_default_ttl.get() as i32, i32::from),
            libc::IP_HDRINCL if socket.kind == libc::SOCK_RAW => o.header_included as i32,
            libc::IP_HDRINCL => 0,
            libc::IP_MTU_DISCOVER => discovery(o.mtu_discovery),
            libc::IP_RECVERR => o.receive_errors as i32,
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
    socket.with(|o| {
        Ok(match name {
            libc::IPV6_V6ONLY => o.v6only as i32,
            libc::IPV6_UNICAST_HOPS => o.hops.map_or(sysctls.ip6_hop_limit.get() as i32, i32::from),
            libc::IPV6_MULTICAST_HOPS => o.multicast_hops.into(),
            libc::IPV6_MULTICAST_LOOP => o.multicast_loop as i32,
            libc::IPV6_TCLASS => o.class.into(),
            libc::IPV6_RECVERR => o.receive_errors6 as i32,
            libc::IPV6_MTU_DISCOVER => discovery(o.mtu_discovery),
            _ => return Err(Errno::ENOPROTOOPT),
        })
    })
}

/// setsockopt(2).
pub(crate) fn set(socket: &Socket<'_>, cx: &dyn Caller, level: i32, name: i32, value: &[u8]) -> Result<()> {
    match level {
        libc::IPPROTO_IP => set4(socket, cx, name, value),
        libc::IPPROTO_IPV6 if socket.v6 => set6(socket, name, read_int(value)?),
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

fn set4(socket: &Socket<'_>, cx: &dyn Caller, name: i32, value: &[u8]) -> Result<()> {
    let v = small(value)?;
    let byte = |v: i32| u8::try_from(v).map_err(|_| Errno::EINVAL);
    socket.with(|o| {
        match name {
            libc::IP_TOS if socket.kind == libc::SOCK_STREAM => o.tos = v as u8 & !3 | o.tos & 3,
            libc::IP_TOS => o.tos = v as u8,
            libc::IP_TTL if v == -1 => o.ttl = None,
            libc::IP_TTL if v == 0 => return Err(Errno::EINVAL),
            libc::IP_TTL => o.ttl = Some(byte(v)?),
            libc::IP_HDRINCL if socket.kind == libc::SOCK_RAW => o.header_included = v != 0,
            libc::IP_MTU_DISCOVER => o.mtu_discovery = to_discovery(v)?,
            libc::IP_RECVERR => o.receive_errors = v != 0,
            libc::IP_FREEBIND => o.free_bind = v != 0,
            libc::IP_TRANSPARENT if v != 0 && !privileged(cx) => return Err(Errno::EPERM),
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

fn privileged(cx: &dyn Caller) -> bool {
    cx.creds().capable(Cap::NET_ADMIN) || cx.creds().capable(Cap::NET_RAW)
}

fn set6(socket: &Socket<'_>, name: i32, v: i32) -> Result<()> {
    let limit = |v: i32| match v {
        -1 => Ok(None),
        _ => u8::try_from(v).map(Some).map_err(|_| Errno::EINVAL),
    };
    let bound = match (socket.datagram, socket.stream) {
        (Some(socket), _) => socket.local().port() != 0,
        (None, Some(socket)) => socket.local().port() != 0,
        (None, None) => false,
    };
    socket.with(|o| {
        match name {
            libc::IPV6_V6ONLY if bound => return Err(Errno::EINVAL),
            libc::IPV6_V6ONLY => o.v6only = v != 0,
            libc::IPV6_UNICAST_HOPS => o.hops = limit(v)?,
            libc::IPV6_MULTICAST_HOPS if socket.kind == libc::SOCK_STREAM => return Err(Errno::ENOPROTOOPT),
            libc::IPV6_MULTICAST_HOPS => o.multicast_hops = limit(v)?.unwrap_or(1),
            libc::IPV6_MULTICAST_LOOP => o.multicast_loop = flag(v)?,
            libc::IPV6_TCLASS => o.class = limit(v)?.unwrap_or(0),
            libc::IPV6_RECVERR => o.receive_errors6 = v != 0,
            libc::IPV6_MTU_DISCOVER => o.mtu_discovery = to_discovery(v)?,
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    })
}

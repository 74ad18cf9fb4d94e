//! socket(2): the kinds of sockets that exist.

use crate::gofer::NetGofer;
use crate::shared::Shared;
use crate::sock::HostSocket;
use abi::{Errno, Result};
use netproto::{Domain, Kind, Request};
use socket::family::Family;
use socket::{NetNamespace, SocketOps};
use std::sync::Arc;
use vfs::Caller;

/// IPPROTO_MAX.
const IPPROTO_MAX: i32 = 263;

/// AF_INET or AF_INET6.
pub struct HostFamily {
    shared: Arc<Shared>,
    domain: Domain,
}

impl HostFamily {
    /// Both families, IPv4 first, of one kernel.
    pub fn pair(gofer: NetGofer) -> [Arc<HostFamily>; 2] {
        let shared = Arc::new(Shared::new(gofer));
        [Domain::V4, Domain::V6].map(|domain| Arc::new(HostFamily { shared: shared.clone(), domain }))
    }
}

/// What type and protocol mean. ESOCKTNOSUPPORT, EPROTONOSUPPORT, EPERM, EINVAL.
fn kind_of(domain: Domain, kind: i32, protocol: i32) -> Result<Kind> {
    let ping = match domain {
        Domain::V4 => libc::IPPROTO_ICMP,
        Domain::V6 => libc::IPPROTO_ICMPV6,
    };
    if !(0..IPPROTO_MAX).contains(&protocol) {
        return Err(Errno::EINVAL);
    }
    match (kind, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Ok(Kind::Stream),
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Ok(Kind::Datagram),
        (libc::SOCK_DGRAM, protocol) if protocol == ping => Ok(Kind::Ping),
        (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => Err(Errno::EPROTONOSUPPORT),
        (libc::SOCK_RAW, 0) => Err(Errno::EPROTONOSUPPORT),
        // Whatever a program may inside, it has no such right over the host's network.
        (libc::SOCK_RAW, _) => Err(Errno::EPERM),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

impl Family for HostFamily {
    fn create(
        &self,
        _cx: &dyn Caller,
        _net: &Arc<NetNamespace>,
        kind: i32,
        protocol: i32,
    ) -> Result<Arc<dyn SocketOps>> {
        let kind = kind_of(self.domain, kind, protocol)?;
        let gofer = &self.shared.gofer;
        let id = gofer.next_id();
        let (_, fd) = gofer.call(&Request::Socket { id, domain: self.domain, kind })?;
        let made = fd
            .ok_or(Errno::ENFILE)
            .and_then(|fd| HostSocket::new(self.shared.clone(), self.domain, kind, fd, Some(id)));
        if made.is_err() {
            gofer.close(id);
        }
        Ok(Arc::new(made?))
    }

    fn pair(
        &self,
        _cx: &dyn Caller,
        _net: &Arc<NetNamespace>,
        kind: i32,
        protocol: i32,
    ) -> Result<[Arc<dyn SocketOps>; 2]> {
        kind_of(self.domain, kind, protocol)?;
        Err(Errno::EOPNOTSUPP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_protocols() {
        let v4 = |kind, protocol| kind_of(Domain::V4, kind, protocol);
        assert_eq!(v4(libc::SOCK_STREAM, 6), Ok(Kind::Stream));
        assert_eq!(v4(libc::SOCK_DGRAM, 0), Ok(Kind::Datagram));
        assert_eq!(v4(libc::SOCK_DGRAM, libc::IPPROTO_ICMP), Ok(Kind::Ping));
        assert_eq!(v4(libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6), Err(Errno::EPROTONOSUPPORT));
        assert_eq!(v4(libc::SOCK_STREAM, 17), Err(Errno::EPROTONOSUPPORT));
        assert_eq!(v4(libc::SOCK_RAW, 1), Err(Errno::EPERM));
        assert_eq!(v4(libc::SOCK_SEQPACKET, 0), Err(Errno::ESOCKTNOSUPPORT));
        assert_eq!(v4(libc::SOCK_STREAM, -1), Err(Errno::EINVAL));
    }
}

//! socket(2) for AF_INET and AF_INET6.

use crate::datagram::Datagrams;
use crate::stream::Stream;
use abi::{Errno, Result};
use netstack::datagram::Protocol;
use rights::Cap;
use socket::family::Family;
use socket::{NetNamespace, SocketOps};
use std::sync::Arc;
use vfs::Caller;

/// IPPROTO_MAX: the protocols of Linux's own are above the 255 of the header field.
const IPPROTO_MAX: i32 = 263;

/// One of the two internet families.
pub struct InetFamily {
    v6: bool,
}

impl InetFamily {
    /// AF_INET.
    pub fn v4() -> InetFamily {
        InetFamily { v6: false }
    }

    /// AF_INET6.
    pub fn v6() -> InetFamily {
        InetFamily { v6: true }
    }

    fn make(
        &self,
        cx: &dyn Caller,
        net: &Arc<NetNamespace>,
        kind: i32,
        protocol: i32,
    ) -> Result<Arc<dyn SocketOps>> {
        if !(0..IPPROTO_MAX).contains(&protocol) {
            return Err(Errno::EINVAL);
        }
        let ping = if self.v6 { libc::IPPROTO_ICMPV6 } else { libc::IPPROTO_ICMP };
        match (kind, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
                Ok(Stream::create(net, self.v6, (cx.creds().fsuid, cx.creds().fsgid)))
            }
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
                Ok(Datagrams::create(cx, net, self.v6, Protocol::Udp))
            }
            (libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE) => {
                Ok(Datagrams::create(cx, net, self.v6, Protocol::UdpLite))
            }
            (libc::SOCK_DGRAM, p) if p == ping => {
                may_ping(cx, net)?;
                Ok(Datagrams::create(cx, net, self.v6, Protocol::Ping))
            }
            (libc::SOCK_RAW, 1..) => {
                if !cx.creds().ns_capable(net.user_ns(), Cap::NET_RAW) {
                    return Err(Errno::EPERM);
                }
                let protocol = u8::try_from(protocol).map_err(|_| Errno::EPROTONOSUPPORT)?;
                Ok(Datagrams::create(cx, net, self.v6, Protocol::Raw(protocol)))
            }
            (libc::SOCK_STREAM | libc::SOCK_DGRAM | libc::SOCK_RAW, _) => Err(Errno::EPROTONOSUPPORT),
            _ => Err(Errno::ESOCKTNOSUPPORT),
        }
    }
}

/// Ping sockets are for the groups of net.ipv4.ping_group_range: EACCES.
fn may_ping(cx: &dyn Caller, net: &NetNamespace) -> Result<()> {
    let sysctls = &net.stack().sysctls;
    let range = sysctls.ping_group_low.get()..=sysctls.ping_group_high.get();
    let creds = cx.creds();
    let allowed = |gid: &u32| range.contains(&i64::from(*gid));
    if allowed(&creds.egid) || creds.groups.iter().any(allowed) { Ok(()) } else { Err(Errno::EACCES) }
}

impl Family for InetFamily {
    fn create(
        &self,
        cx: &dyn Caller,
        net: &Arc<NetNamespace>,
        kind: i32,
        protocol: i32,
    ) -> Result<Arc<dyn SocketOps>> {
        self.make(cx, net, kind, protocol)
    }

    /// Linux makes both sockets before it finds that they cannot be connected.
    fn pair(
        &self,
        cx: &dyn Caller,
        net: &Arc<NetNamespace>,
        kind: i32,
        protocol: i32,
    ) -> Result<[Arc<dyn SocketOps>; 2]> {
        self.make(cx, net, kind, protocol)?;
        Err(Errno::EOPNOTSUPP)
    }
}

//! Socket options that pass through to the host's sockets in host mode. Any other answers ENOPROTOOPT.
//!
//! Left out on purpose: options that take pointers (SO_ATTACH_FILTER, TCP_ZEROCOPY_RECEIVE), change where packets go
//! (IP_OPTIONS, IPV6_RTHDR, SO_BINDTODEVICE, IP_UNICAST_IF) or load code of the host's kernel (TCP_ULP).

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOption {
    /// SOL_SOCKET, IPPROTO_*.
    pub level: i32,
    /// SO_*, IP_*, ...
    pub name: i32,
    /// Which calls.
    pub access: Access,
}

/// Which calls an option is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// getsockopt(2).
    Get,
    /// setsockopt(2) too.
    GetSet,
    /// setsockopt(2) only.
    Set,
    /// As [`GetSet`](Self::GetSet), but not where a policy says what may be reached.
    Open,
    /// As [`Set`](Self::Set), but not where a policy says what may be reached.
    OpenSet,
}

impl SocketOption {
    /// Whether getsockopt(2) takes it.
    pub fn gets(&self) -> bool {
        !matches!(self.access, Access::Set | Access::OpenSet)
    }

    /// Whether setsockopt(2) takes it.
    pub fn sets(&self, policed: bool) -> bool {
        match self.access {
            Access::Get => false,
            Access::GetSet | Access::Set => true,
            Access::Open | Access::OpenSet => !policed,
        }
    }
}

const fn option(level: i32, name: i32, access: Access) -> SocketOption {
    SocketOption { level, name, access }
}

/// The option of that level and name, if it is one of ours.
pub fn find(level: i32, name: i32) -> Option<&'static SocketOption> {
    ALL.iter().find(|o| (o.level, o.name) == (level, name))
}

const SOCKET: i32 = libc::SOL_SOCKET;
const IP: i32 = libc::IPPROTO_IP;
const V6: i32 = libc::IPPROTO_IPV6;
const TCP: i32 = libc::IPPROTO_TCP;
const UDP: i32 = libc::IPPROTO_UDP;

/// `IPV6_FREEBIND` and others that libc lacks.
const IPV6_FREEBIND: i32 = 78;
const IP_BIND_ADDRESS_NO_PORT: i32 = 24;
const IPV6_ADDR_PREFERENCES: i32 = 72;
const TCP_NOTSENT_LOWAT: i32 = 25;

/// All of them.
pub const ALL: &[SocketOption] = &[
    option(SOCKET, libc::SO_TYPE, Access::Get),
    option(SOCKET, libc::SO_PROTOCOL, Access::Get),
    option(SOCKET, libc::SO_DOMAIN, Access::Get),
    option(SOCKET, libc::SO_ERROR, Access::Get),
    option(SOCKET, libc::SO_ACCEPTCONN, Access::Get),
    option(SOCKET, libc::SO_REUSEADDR, Access::GetSet),
    option(SOCKET, libc::SO_REUSEPORT, Access::GetSet),
    option(SOCKET, libc::SO_KEEPALIVE, Access::GetSet),
    option(SOCKET, libc::SO_BROADCAST, Access::GetSet),
    option(SOCKET, libc::SO_DONTROUTE, Access::GetSet),
    option(SOCKET, libc::SO_OOBINLINE, Access::GetSet),
    option(SOCKET, libc::SO_LINGER, Access::GetSet),
    option(SOCKET, libc::SO_SNDBUF, Access::GetSet),
    option(SOCKET, libc::SO_RCVBUF, Access::GetSet),
    option(SOCKET, libc::SO_RCVLOWAT, Access::GetSet),
    option(SOCKET, libc::SO_SNDLOWAT, Access::Get),
    option(SOCKET, libc::SO_PRIORITY, Access::GetSet),
    option(SOCKET, libc::SO_NO_CHECK, Access::GetSet),
    option(SOCKET, libc::SO_TIMESTAMP, Access::GetSet),
    option(SOCKET, libc::SO_TIMESTAMPNS, Access::GetSet),
    option(SOCKET, libc::SO_RXQ_OVFL, Access::GetSet),
    option(SOCKET, libc::SO_INCOMING_CPU, Access::Get),
    option(SOCKET, libc::SO_MAX_PACING_RATE, Access::GetSet),
    option(IP, libc::IP_TOS, Access::GetSet),
    option(IP, libc::IP_TTL, Access::GetSet),
    option(IP, libc::IP_MTU, Access::Get),
    option(IP, libc::IP_MTU_DISCOVER, Access::GetSet),
    option(IP, libc::IP_RECVERR, Access::GetSet),
    option(IP, libc::IP_RECVTOS, Access::GetSet),
    option(IP, libc::IP_RECVTTL, Access::GetSet),
    option(IP, libc::IP_PKTINFO, Access::GetSet),
    option(IP, libc::IP_FREEBIND, Access::Open),
    option(IP, IP_BIND_ADDRESS_NO_PORT, Access::GetSet),
    option(IP, libc::IP_RECVORIGDSTADDR, Access::GetSet),
    option(IP, libc::IP_MULTICAST_TTL, Access::GetSet),
    option(IP, libc::IP_MULTICAST_LOOP, Access::GetSet),
    option(IP, libc::IP_MULTICAST_ALL, Access::Open),
    option(IP, libc::IP_MULTICAST_IF, Access::Open),
    option(IP, libc::IP_ADD_MEMBERSHIP, Access::OpenSet),
    option(IP, libc::IP_DROP_MEMBERSHIP, Access::OpenSet),
    option(IP, libc::IP_ADD_SOURCE_MEMBERSHIP, Access::OpenSet),
    option(IP, libc::IP_DROP_SOURCE_MEMBERSHIP, Access::OpenSet),
    option(V6, libc::IPV6_V6ONLY, Access::GetSet),
    option(V6, libc::IPV6_UNICAST_HOPS, Access::GetSet),
    option(V6, libc::IPV6_MULTICAST_HOPS, Access::GetSet),
    option(V6, libc::IPV6_MULTICAST_LOOP, Access::GetSet),
    option(V6, libc::IPV6_MULTICAST_IF, Access::Open),
    option(V6, libc::IPV6_ADD_MEMBERSHIP, Access::OpenSet),
    option(V6, libc::IPV6_DROP_MEMBERSHIP, Access::OpenSet),
    option(V6, libc::IPV6_MTU, Access::Get),
    option(V6, libc::IPV6_MTU_DISCOVER, Access::GetSet),
    option(V6, libc::IPV6_DONTFRAG, Access::GetSet),
    option(V6, libc::IPV6_RECVERR, Access::GetSet),
    option(V6, libc::IPV6_RECVPKTINFO, Access::GetSet),
    option(V6, libc::IPV6_RECVHOPLIMIT, Access::GetSet),
    option(V6, libc::IPV6_RECVTCLASS, Access::GetSet),
    option(V6, libc::IPV6_TCLASS, Access::GetSet),
    option(V6, IPV6_FREEBIND, Access::Open),
    option(V6, IPV6_ADDR_PREFERENCES, Access::GetSet),
    option(TCP, libc::TCP_NODELAY, Access::GetSet),
    option(TCP, libc::TCP_MAXSEG, Access::GetSet),
    option(TCP, libc::TCP_CORK, Access::GetSet),
    option(TCP, libc::TCP_KEEPIDLE, Access::GetSet),
    option(TCP, libc::TCP_KEEPINTVL, Access::GetSet),
    option(TCP, libc::TCP_KEEPCNT, Access::GetSet),
    option(TCP, libc::TCP_SYNCNT, Access::GetSet),
    option(TCP, libc::TCP_LINGER2, Access::GetSet),
    option(TCP, libc::TCP_DEFER_ACCEPT, Access::GetSet),
    option(TCP, libc::TCP_WINDOW_CLAMP, Access::GetSet),
    option(TCP, libc::TCP_INFO, Access::Get),
    option(TCP, libc::TCP_QUICKACK, Access::GetSet),
    option(TCP, libc::TCP_CONGESTION, Access::GetSet),
    option(TCP, libc::TCP_USER_TIMEOUT, Access::GetSet),
    option(TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, Access::GetSet),
    option(TCP, TCP_NOTSENT_LOWAT, Access::GetSet),
    option(TCP, libc::TCP_FASTOPEN, Access::GetSet),
    option(UDP, libc::UDP_CORK, Access::GetSet),
    option(UDP, libc::UDP_SEGMENT, Access::GetSet),
    option(UDP, libc::UDP_GRO, Access::GetSet),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_listed_once() {
        for (at, one) in ALL.iter().enumerate() {
            assert!(ALL[at + 1..].iter().all(|o| (o.level, o.name) != (one.level, one.name)), "{one:?}");
        }
    }

    #[test]
    fn what_leads_around_a_policy_is_not_there() {
        for (level, name) in [
            (SOCKET, libc::SO_ATTACH_FILTER),
            (SOCKET, libc::SO_BINDTODEVICE),
            (SOCKET, libc::SO_MARK),
            (IP, libc::IP_OPTIONS),
            (IP, libc::IP_TRANSPARENT),
            (V6, libc::IPV6_RTHDR),
            (V6, libc::IPV6_ADDRFORM),
            (TCP, libc::TCP_ULP),
            (TCP, libc::TCP_FASTOPEN_CONNECT),
            (TCP, libc::TCP_ZEROCOPY_RECEIVE),
            (TCP, libc::TCP_REPAIR),
        ] {
            assert_eq!(find(level, name), None);
        }
        let join = find(IP, libc::IP_ADD_MEMBERSHIP).unwrap();
        assert!(join.sets(false) && !join.sets(true) && !join.gets());
    }
}

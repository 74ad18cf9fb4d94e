//! What lists of sockets show: /proc/net and sock_diag.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Why a socket has a timer, as /proc/net/tcp numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// None is set.
    Off = 0,
    /// Retransmission.
    Retransmission = 1,
    /// Keepalive, or the wait for the peer's FIN.
    Keepalive = 2,
    /// TIME-WAIT.
    TimeWait = 3,
    /// Window probe.
    Probe = 4,
}

/// `state` of a datagram socket with a peer, and of one without: the numbers of TCP's states.
pub(crate) const ESTABLISHED: u8 = 1;
/// See [`ESTABLISHED`].
pub(crate) const CLOSED: u8 = 7;

/// A socket in a list.
#[derive(Clone, Debug)]
pub struct Row {
    /// True for a socket of family AF_INET6.
    pub v6: bool,
    /// Own address; for raw sockets the port is the protocol.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// A number of [`crate::tcp::State`]; established stands for a peer, closed for none.
    pub state: u8,
    /// Bytes that are written and not acknowledged; of a listener the backlog.
    pub tx: usize,
    /// Bytes to be read; of a listener the connections to be accepted.
    pub rx: usize,
    /// The timer that is set, and how long it still takes.
    pub timer: (Timer, Duration),
    /// Retransmissions of the oldest segment.
    pub retransmits: u32,
    /// Owner.
    pub uid: u32,
    /// Probes without an answer.
    pub probes: u32,
    /// The descriptor's inode, 0 without one.
    pub inode: u64,
    /// Datagrams dropped for want of room.
    pub drops: u32,
}

/// The unspecified address of a family, port 0.
pub(crate) fn any(v6: bool) -> SocketAddr {
    let ip: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    SocketAddr::new(ip, 0)
}

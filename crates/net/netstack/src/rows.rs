//! What lists of sockets show: /proc/net and sock_diag.

use crate::datagram::{DatagramSocket, Protocol};
use crate::stack::Stack;
use crate::tcp::{State, TcpSocket};
use crate::time::Instant;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
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

/// A socket in a list.
#[derive(Clone, Debug)]
pub struct Row {
    /// True for a socket of family AF_INET6.
    pub v6: bool,
    /// Own address; for raw sockets the port is the protocol.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// A number of [`State`]; established stands for a peer, closed for none.
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

impl TcpSocket {
    /// The socket's row.
    pub fn row(&self, now: Instant) -> Row {
        let info = self.info(now);
        let (rx, tx, _) = self.queued();
        let state = self.state();
        let (timer, (uid, inode)) = self.timer_and_owner(now);
        let listens = state == State::Listen;
        Row {
            v6: self.is_v6(),
            local: self.local(),
            remote: self.peer().filter(|_| !listens).unwrap_or(any(self.is_v6())),
            state: state as u8,
            tx: if listens { 0 } else { tx },
            rx: if listens { info.unacked as usize } else { rx },
            timer,
            retransmits: info.retransmits.into(),
            uid,
            probes: info.probes.into(),
            inode,
            drops: 0,
        }
    }
}

impl DatagramSocket {
    /// The socket's row.
    pub fn row(&self) -> Row {
        let (local, remote) = (self.local(), self.remote().ok());
        let (rx, drops) = self.queue_state();
        let (uid, inode) = self.owner();
        let local = match self.protocol() {
            Protocol::Raw(protocol) => SocketAddr::new(local.ip(), protocol.into()),
            _ => local,
        };
        let state = if remote.is_some() { State::Established } else { State::Closed };
        Row {
            v6: self.is_v6(),
            local,
            remote: remote.unwrap_or(any(self.is_v6())),
            state: state as u8,
            tx: 0,
            rx,
            timer: (Timer::Off, Duration::ZERO),
            retransmits: 0,
            uid,
            probes: 0,
            inode,
            drops,
        }
    }
}

fn any(v6: bool) -> SocketAddr {
    let ip: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    SocketAddr::new(ip, 0)
}

impl Stack {
    /// All ping sockets that are bound.
    pub fn ping_sockets(&self) -> Vec<Arc<DatagramSocket>> {
        let mut all = self.ping.all();
        all.extend(self.ping6.all());
        all
    }
}

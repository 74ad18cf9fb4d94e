//! The row of a datagram socket in lists of sockets.

use super::{DatagramSocket, Protocol};
use crate::rows::{CLOSED, ESTABLISHED, Row, Timer, any};
use std::net::SocketAddr;
use std::time::Duration;

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
        let state = if remote.is_some() { ESTABLISHED } else { CLOSED };
        Row {
            v6: self.is_v6(),
            local,
            remote: remote.unwrap_or(any(self.is_v6())),
            state,
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

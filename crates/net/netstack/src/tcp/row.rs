//! The row of a TCP socket in lists of sockets.

use super::conn::State;
use super::socket::TcpSocket;
use crate::rows::{Row, any};
use ktime::Ktime;

impl TcpSocket {
    /// The socket's row.
    pub fn row(&self, now: Ktime) -> Row {
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

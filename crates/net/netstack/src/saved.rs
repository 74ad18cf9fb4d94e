//! The sockets of a stack as plain data, and back.

use crate::Stack;
use crate::datagram::{DatagramSocket, DatagramState};
use crate::notify::Notifier;
use crate::tcp::{Placed, TcpSocket, TcpSockets, TcpState};
use abi::Errno;
use ktime::Ktime;
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

impl Stack {
    /// The TCP sockets as plain data: `owned` are those of descriptors, `outside` tells addresses that no stack of the kernel has.
    /// Nothing else may use the stack meanwhile. The error has the addresses of a socket with an owner that is missing in `owned`.
    pub fn save_tcp(
        &self,
        owned: &[Arc<TcpSocket>],
        now: Ktime,
        outside: &dyn Fn(IpAddr) -> bool,
    ) -> Result<TcpSockets, (SocketAddr, Option<SocketAddr>)> {
        let all = self.tcp_sockets();
        // Nothing may be between the two ends of a connection.
        all.iter().for_each(|socket| socket.use_packets(now));
        let mut seen: HashSet<_> = owned.iter().map(|socket| socket.id()).collect();
        for listener in &all {
            seen.extend(listener.queued_children().iter().map(|child| child.id()));
        }
        let mut orphans = Vec::new();
        for socket in all.iter().filter(|socket| seen.insert(socket.id())) {
            if !socket.is_orphan() {
                return Err((socket.local(), socket.peer()));
            }
            orphans.push(socket.save(outside));
        }
        let owned = owned.iter().map(|socket| socket.save(outside)).collect();
        Ok(TcpSockets { owned, orphans })
    }

    /// Puts a saved socket into its place. `EADDRINUSE` when a connection with the same addresses is there, `EINVAL` when the state
    /// is none that a socket can have. With `notify` a descriptor owns it.
    pub fn place_tcp(
        self: &Arc<Self>,
        saved: TcpState,
        notify: Option<Notifier>,
        placed: &mut Placed,
    ) -> Result<Arc<TcpSocket>, Errno> {
        let owned = notify.is_some();
        let socket = TcpSocket::place(&self.tcp.context(|| self.clone()), saved, notify, placed)?;
        if owned != socket.is_orphan() { Ok(socket) } else { Err(Errno::EINVAL) }
    }

    /// Puts a saved datagram socket into its place; `EINVAL` when the state is none that a socket can have.
    pub fn place_datagram(
        self: &Arc<Self>,
        saved: DatagramState,
        notify: Notifier,
    ) -> Result<Arc<DatagramSocket>, Errno> {
        DatagramSocket::place(&self.datagrams, self.clone(), saved, notify)
    }
}

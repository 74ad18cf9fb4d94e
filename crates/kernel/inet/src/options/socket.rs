//! A socket of either kind, as options see it.

use super::Common;
use abi::{Errno, Result};
use netstack::datagram::DatagramSocket;
use netstack::options::IpOptions;
use netstack::tcp::{State, TcpSocket};
use socket::NetNamespace;
use std::sync::Arc;

/// A socket with options that are read or changed.
pub(crate) struct Socket<'a> {
    pub(crate) v6: bool,
    pub(crate) net: &'a NetNamespace,
    pub(crate) common: &'a Common,
    pub(crate) kind: i32,
    /// One of these two is there.
    pub(crate) datagram: Option<&'a Arc<DatagramSocket>>,
    pub(crate) stream: Option<&'a TcpSocket>,
}

impl Socket<'_> {
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut IpOptions) -> Result<R>) -> Result<R> {
        match (self.datagram, self.stream) {
            (Some(socket), _) => socket.configure(self.net.now(), f),
            (None, Some(socket)) => socket.configure(self.net.now(), |o| f(&mut o.ip)),
            (None, None) => Err(Errno::ENOPROTOOPT),
        }
    }

    /// The MTU of the way to the peer; ENOTCONN without one.
    pub(crate) fn path_mtu(&self) -> Result<i32> {
        let mtu = match (self.datagram, self.stream) {
            (Some(socket), _) => socket.path_mtu(),
            (None, Some(socket)) if socket.remote().is_ok() => Some(socket.info(self.net.now()).pmtu),
            _ => None,
        };
        mtu.map(|mtu| mtu as i32).ok_or(Errno::ENOTCONN)
    }

    /// The protocol of a stream or datagram socket that has ports.
    pub(super) fn has_ports(&self) -> bool {
        self.stream.is_some() || self.datagram.is_some_and(|socket| socket.protocol().is_udp())
    }

    /// Whether it is connected, as IPV6_ADDRFORM has it.
    pub(super) fn is_connected(&self) -> bool {
        let stream = self.stream.is_some_and(|socket| socket.state() == State::Established);
        stream || self.datagram.is_some_and(|socket| socket.remote().is_ok())
    }

    /// IPV6_ADDRFORM: the only value is AF_INET.
    pub(super) fn change_family(&self, v: i32) -> Result<()> {
        if v != libc::AF_INET {
            return Err(Errno::EINVAL);
        }
        if !self.has_ports() {
            return Err(Errno::ENOPROTOOPT);
        }
        match (self.stream, self.datagram) {
            (Some(socket), _) => socket.become_v4(),
            (None, Some(socket)) => socket.become_v4(),
            (None, None) => Err(Errno::ENOPROTOOPT),
        }
    }

    /// The answer for a level that the socket does not have.
    pub(super) fn no_level(&self) -> Errno {
        if self.v6 { Errno::ENOPROTOOPT } else { Errno::EOPNOTSUPP }
    }
}

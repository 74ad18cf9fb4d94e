//! Sockets to the name servers that the network gofer replaces. Datagrams to them and back go over a pair of sockets
//! and carry the server's address.

use crate::shared::Shared;
use abi::{Errno, Result};
use hostfs::Watch;
use hostsys::{fs, net};
use netproto::address::{FRAME, from_frame, to_frame};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use wait::{Events, WaitQueue};

/// No message between a program and a name server is longer than what it may be over UDP.
const LONGEST: usize = 65535;

/// The kernel's end of the pair.
pub(crate) struct NameService {
    fd: OwnedFd,
    watch: Watch,
    /// The server that the socket is connected to, and the local address that it then has.
    peer: Option<(SocketAddr, Option<SocketAddr>)>,
}

impl NameService {
    pub(crate) fn new(shared: &Shared, fd: OwnedFd, queue: &WaitQueue) -> Result<NameService> {
        let watch = shared.poller()?.watch(&fd, queue)?;
        Ok(NameService { fd, watch, peer: None })
    }

    pub(crate) fn set_peer(&mut self, peer: Option<(SocketAddr, Option<SocketAddr>)>) {
        self.peer = peer;
    }

    /// The server that the socket is connected to.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer.map(|(peer, _)| peer)
    }

    /// The local address of a socket that is connected to a server.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.peer.and_then(|(_, local)| local)
    }

    /// Readiness that the pair adds to the socket's own.
    pub(crate) fn poll(&self) -> Events {
        Events(fs::poll_now(&self.fd, Events::READABLE.0)).intersect(Events::READABLE)
    }

    /// Sends a datagram to a server. One that is too long for a question is lost, as on the way.
    pub(crate) fn send(&self, server: SocketAddr, data: &[u8]) -> Result<usize> {
        if data.len() > LONGEST {
            return Err(Errno::EMSGSIZE);
        }
        let packet = [&to_frame(&server), data].concat();
        net::send(&self.fd, &packet, 0).map(|_| data.len())
    }

    /// Length of the next datagram; 0 without one.
    pub(crate) fn unread(&self) -> usize {
        self.receive(true).map_or(0, |(_, data)| data.len())
    }

    /// The next datagram, and the server that it is from. EAGAIN.
    pub(crate) fn receive(&self, peek: bool) -> Result<(SocketAddr, Vec<u8>)> {
        let mut packet = vec![0; FRAME + 4096];
        let flags = if peek { libc::MSG_PEEK } else { 0 };
        let length = net::receive(&self.fd, &mut packet, &mut [], flags)?.len;
        // The gofer has closed its end.
        let (frame, _) = packet[..length].split_first_chunk::<FRAME>().ok_or(Errno::EAGAIN)?;
        let server = from_frame(frame).ok_or(Errno::EAGAIN)?;
        Ok((server, packet[FRAME..length].to_vec()))
    }
}

impl Drop for NameService {
    fn drop(&mut self) {
        self.watch.stop(&self.fd);
    }
}

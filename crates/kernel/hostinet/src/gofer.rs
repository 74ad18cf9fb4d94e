//! The kernel's end of the socket to the network gofer.

use abi::{Errno, Result};
use hostsys::one_fd;
use lock_order::Mutex;
use netproto::{REPLY, Reply, Request};
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Asks for sockets. One request is on its way at a time; the gofer answers none of them by waiting.
pub struct NetGofer {
    channel: Mutex<OwnedFd>,
    next: AtomicU64,
    policed: bool,
}

impl NetGofer {
    /// At the other end of `channel`. `policed`: it has a policy, and the seccomp filter is the one that goes with it.
    pub fn new(channel: OwnedFd, policed: bool) -> NetGofer {
        NetGofer { channel: Mutex::new(channel), next: AtomicU64::new(1), policed }
    }

    /// Whether there is a policy of what may be reached.
    pub(crate) fn policed(&self) -> bool {
        self.policed
    }

    /// A number for a new socket.
    pub(crate) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request and waits for its answer. ENETDOWN when the gofer is gone.
    pub(crate) fn call(&self, request: &Request<'_>) -> Result<(Reply, Option<OwnedFd>)> {
        let bytes = request.encode();
        let channel = self.channel.lock();
        transmit(&channel, &bytes)?;
        let (reply, fd) = receive(&channel)?;
        match reply.errno {
            0 => Ok((reply, fd)),
            errno => Err(Errno::from_raw(errno)),
        }
    }

    /// Says that a socket is gone.
    pub(crate) fn close(&self, id: u64) {
        // A gofer that is gone has closed it already.
        let _ = transmit(&self.channel.lock(), &Request::Close { id }.encode());
    }
}

fn transmit(channel: &OwnedFd, bytes: &[u8]) -> Result<()> {
    loop {
        match send(channel, bytes, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(Errno::ENETDOWN),
        }
    }
}

fn receive(channel: &OwnedFd) -> Result<(Reply, Option<OwnedFd>)> {
    let mut bytes = [0; REPLY + 1];
    let packet = one_fd::receive(channel, &mut bytes).map_err(|_| Errno::ENETDOWN)?;
    // No bytes at all: the end.
    if packet.len == 0 || packet.is_cut {
        return Err(Errno::ENETDOWN);
    }
    let reply = bytes.get(..packet.len).and_then(Reply::decode).ok_or(Errno::EPROTO)?;
    if packet.fd_is_lost {
        return Err(Errno::ENFILE);
    }
    Ok((reply, packet.fd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use netproto::{Domain, Kind};
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    #[test]
    fn a_gofer_that_is_gone_is_a_network_that_is_down() {
        let pair =
            || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let request = Request::Socket { id: 1, domain: Domain::V4, kind: Kind::Stream };
        let (a, b) = pair();
        drop(b);
        assert_eq!(NetGofer::new(a, false).call(&request).unwrap_err(), Errno::ENETDOWN);
        let (a, b) = pair();
        let answers = std::thread::spawn(move || {
            let mut bytes = [0; 128];
            for answer in [&Reply { errno: 13, ..Reply::default() }.encode()[..], b"x"] {
                let (length, _) = recv(&b, &mut bytes[..], RecvFlags::empty()).unwrap();
                assert_eq!(Request::decode(&bytes[..length]), Some(request));
                send(&b, answer, SendFlags::empty()).unwrap();
            }
        });
        let gofer = NetGofer::new(a, false);
        assert_eq!(gofer.call(&request).unwrap_err(), Errno::EACCES);
        assert_eq!(gofer.call(&request).unwrap_err(), Errno::EPROTO);
        answers.join().unwrap();
    }
}

//! Sockets of netlink(7) in a network namespace of the host.
//!
//! Questions are asked with read(2) and write(2) alone, so that a process with a filter that allows no more may ask them.

use netlink_wire::{Header, Message, next, word};
use rustix::net::{AddressFamily as Family, Protocol, SocketFlags, SocketType, socket_with, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Most entries of a list that are taken.
const MOST: usize = 1024;
/// Room for one answer; the kernel sends at most 32 KiB at once.
const ANSWER: usize = 64 << 10;
/// The host's kernel answers at once. A socket of another kind must not hold anything up.
const PATIENCE: Duration = Duration::from_secs(5);

/// A socket of netlink(7). It belongs to the network namespace that the thread was in that made it.
#[derive(Debug)]
pub(crate) struct Netlink(OwnedFd);

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Netlink {
    fn from(fd: OwnedFd) -> Netlink {
        Netlink(fd)
    }
}

impl From<Netlink> for OwnedFd {
    fn from(socket: Netlink) -> OwnedFd {
        socket.0
    }
}

impl Netlink {
    /// In the caller's network namespace.
    pub(crate) fn new(protocol: Option<Protocol>) -> io::Result<Netlink> {
        let socket = socket_with(Family::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Netlink(socket))
    }

    /// All answers to a request for a list, up to the first 1,024. `fixed` is its fixed part.
    pub(crate) fn ask(&self, kind: u16, fixed: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
        let mut found = Vec::new();
        self.exchange(Message::new(kind, flags, 0, 0).fixed(fixed), |_, message| {
            if found.len() < MOST {
                found.push(message.to_vec());
            }
        })?;
        Ok(found)
    }

    /// Has the host's kernel carry a request out, which has to ask for an acknowledgement.
    pub(crate) fn request(&self, request: Message) -> io::Result<()> {
        self.exchange(request, |_, _| {})
    }

    /// Sends a request and hands each answer on, up to the last one.
    fn exchange(&self, request: Message, mut answer: impl FnMut(Header, &[u8])) -> io::Result<()> {
        rustix::io::write(&self.0, &request.done())?;
        let mut buffer = vec![0; ANSWER];
        loop {
            let length = match rustix::io::read(&self.0, &mut buffer[..]) {
                Err(rustix::io::Errno::INTR) => continue,
                read => read?,
            };
            let mut rest = &buffer[..length];
            while !rest.is_empty() {
                let (header, message, after) = next(rest).ok_or(io::ErrorKind::InvalidData)?;
                rest = after;
                match i32::from(header.kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return refusal(message).map_or(Ok(()), Err),
                    libc::NLMSG_NOOP | libc::NLMSG_OVERRUN => {}
                    _ => answer(header, message),
                }
            }
        }
    }
}

/// The error that an answer of the kind NLMSG_ERROR tells; none in an acknowledgement.
fn refusal(message: &[u8]) -> Option<io::Error> {
    let errno = word(message, netlink_wire::HEADER)?.cast_signed();
    (errno != 0).then(|| io::Error::from_raw_os_error(-errno))
}

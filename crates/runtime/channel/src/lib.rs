//! Messages between our own processes: one JSON value and some descriptors per packet.
//!
//! A [`Channel`] is one end of a SOCK_SEQPACKET pair. Both directions are
//! bounded: a message longer than [`MAX_MESSAGE`] or with more descriptors
//! than [`MAX_FDS`] is refused by the sender, and cut short and refused by the
//! receiver. The receiver trusts nothing: bytes that are not a value of the
//! expected type are an error.

#![forbid(unsafe_code)]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, send, sendmsg, socket_with, socketpair,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long connecting and sending may take over a connection made by [`Channel::connect`].
const SEND_LIMIT: Duration = Duration::from_secs(60);

/// Longest message in bytes.
pub const MAX_MESSAGE: usize = 64 << 10;
/// Most descriptors with one message (Linux's own limit is 253).
pub const MAX_FDS: usize = 200;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// A socket in a directory. Its address is given relative to a descriptor: a path of any length fits then.
fn address(dir: BorrowedFd<'_>, name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))?)
}

fn unix_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Makes a socket `name` in a directory, to be given to [`accept`].
pub fn listen_in(dir: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let socket = unix_socket()?;
    bind(&socket, &address(dir, name)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The next connection. Blocks.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Channel> {
    Ok(Channel { socket: accept_with(listener, SocketFlags::CLOEXEC)? })
}

/// One end of a pair.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

impl Channel {
    /// Two ends connected to each other, closed on exec.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self { socket: a }, Self { socket: b }))
    }

    /// Connects to the socket `name` in a directory.
    pub fn connect(dir: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        Self::connect_within(dir, name, SEND_LIMIT)
    }

    /// The same; connecting, and sending each message later, take no longer than `limit`.
    pub fn connect_within(dir: BorrowedFd<'_>, name: &str, limit: Duration) -> io::Result<Self> {
        let socket = unix_socket()?;
        // A full queue of connections, or of messages, is waited for no longer than this.
        set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
        connect(&socket, &address(dir, name)?)?;
        Ok(Self { socket })
    }

    /// How long [`recv`](Self::recv) waits from now on before it fails with WouldBlock; `None` is for ever.
    pub fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        Ok(set_socket_timeout(&self.socket, Timeout::Recv, patience)?)
    }

    /// Whether the other end is closed.
    pub fn has_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0)
    }

    /// A second handle of the same end.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()? })
    }

    /// An end that was passed to this process.
    pub fn from_fd(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends a message; blocks while the other end does not read. One without descriptors takes no sendmsg(2), which a filter could not
    /// keep from naming a destination.
    pub fn send<T: Serialize>(&self, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MAX_MESSAGE || fds.len() > MAX_FDS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "message too long"));
        }
        loop {
            let sent = match fds {
                [] => send(&self.socket, &bytes, SendFlags::NOSIGNAL),
                fds => self.send_with(&bytes, fds),
            };
            match sent {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn send_with(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
        sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
    }

    /// Receives a message, or `None` once the other end is closed. Blocks.
    pub fn recv<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; MAX_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut buffers = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received,
                // A reset, told once, says that the other end closed with something of ours unread; what it had
                // sent before is still to come.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let fds: Vec<OwnedFd> = ancillary
            .drain()
            .flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
                _ => Vec::new(),
            })
            .collect();
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "message cut short"));
        }
        if received.bytes == 0 && fds.is_empty() {
            return Ok(None);
        }
        Ok(Some((serde_json::from_slice(&bytes[..received.bytes])?, fds)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_carry_descriptors() {
        let (a, b) = Channel::pair().unwrap();
        a.send(&"hello", &[a.as_fd(), a.as_fd()]).unwrap();
        let (text, fds) = b.recv::<String>().unwrap().unwrap();
        assert_eq!((text.as_str(), fds.len()), ("hello", 2));
        drop((fds, a));
        assert!(b.recv::<String>().unwrap().is_none());
    }

    #[test]
    fn a_socket_has_a_name_of_any_length() {
        let path = std::env::temp_dir().join(format!("{}-{}", "x".repeat(100), std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let dir = std::fs::File::open(&path).unwrap();
        let listener = listen_in(dir.as_fd(), "socket").unwrap();
        let client = Channel::connect(dir.as_fd(), "socket").unwrap();
        accept(listener.as_fd()).unwrap().send(&1, &[]).unwrap();
        assert_eq!(client.recv::<i32>().unwrap().unwrap().0, 1);
        std::fs::remove_dir_all(&path).unwrap();
        assert!(Channel::connect(dir.as_fd(), "socket").is_err());
    }

    #[test]
    fn patience_ends() {
        let (a, b) = Channel::pair().unwrap();
        a.set_patience(Some(Duration::from_millis(10))).unwrap();
        assert_eq!(a.recv::<()>().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        a.set_patience(None).unwrap();
        b.send(&1, &[]).unwrap();
        assert_eq!(a.recv::<i32>().unwrap().unwrap().0, 1);
    }

    #[test]
    fn garbage_is_an_error() {
        let (a, b) = Channel::pair().unwrap();
        rustix::io::write(&a, b"\xff{").unwrap();
        assert!(b.recv::<String>().is_err());
        a.send(&5, &[]).unwrap();
        assert!(b.recv::<String>().is_err());
        assert!(a.send(&"x".repeat(MAX_MESSAGE), &[]).is_err());
    }
}

//! Messages between our own processes: one JSON value and some descriptors per packet.
//!
//! A [`Channel`] is one end of a SOCK_SEQPACKET pair. Both directions are
//! bounded: a message longer than [`MAX_MESSAGE`] or with more descriptors
//! than [`MAX_FDS`] is refused by the sender, and cut short and refused by the
//! receiver. The receiver trusts nothing: bytes that are not a value of the
//! expected type are an error.

#![forbid(unsafe_code)]

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Longest message in bytes.
pub const MAX_MESSAGE: usize = 64 << 10;
/// Most descriptors with one message (Linux's own limit is 253).
pub const MAX_FDS: usize = 200;

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

    /// An end that was passed to this process.
    pub fn from_fd(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends a message; blocks while the other end does not read.
    pub fn send<T: Serialize>(&self, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MAX_MESSAGE || fds.len() > MAX_FDS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "message too long"));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        loop {
            match sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
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
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(None),
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
    fn garbage_is_an_error() {
        let (a, b) = Channel::pair().unwrap();
        rustix::io::write(&a, b"\xff{").unwrap();
        assert!(b.recv::<String>().is_err());
        a.send(&5, &[]).unwrap();
        assert!(b.recv::<String>().is_err());
        assert!(a.send(&"x".repeat(MAX_MESSAGE), &[]).is_err());
    }
}

//! Packets that carry several descriptors (SCM_RIGHTS, unix(7)).

use crate::{errno, one_fd};
use abi::Result;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors of a packet at most. The host takes 253.
pub const MAX: usize = 128;

/// A packet that was received.
#[derive(Debug)]
pub struct Packet {
    /// Bytes in the buffer; none at the end.
    pub len: usize,
    /// The descriptors that came along.
    pub fds: Vec<OwnedFd>,
    /// The packet was longer than the buffer.
    pub is_cut: bool,
    /// There were more descriptors, or the host could not give one: no number is free here.
    pub fd_is_lost: bool,
}

impl From<one_fd::Packet> for Packet {
    fn from(packet: one_fd::Packet) -> Packet {
        let one_fd::Packet { len, fd, is_cut, fd_is_lost } = packet;
        Packet { len, fds: fd.into_iter().collect(), is_cut, fd_is_lost }
    }
}

/// Sends a packet with up to [`MAX`] descriptors; EPIPE when the other end is gone, EINVAL for more.
pub fn send(channel: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if fds.len() > MAX || !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(abi::Errno::EINVAL);
    }
    let send = || sendmsg(&channel, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
    rustix::io::retry_on_intr(send).map(drop).map_err(errno)
}

/// Waits for a packet.
pub fn receive(channel: impl AsFd, buffer: &mut [u8]) -> Result<Packet> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(&channel, &mut [IoSliceMut::new(buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    });
    let received = received.map_err(errno)?;
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    };
    Ok(Packet {
        len: received.bytes.min(buffer.len()),
        fds: ancillary.drain().filter_map(rights).flatten().collect(),
        is_cut: received.flags.contains(ReturnFlags::TRUNC),
        fd_is_lost: received.flags.contains(ReturnFlags::CTRUNC),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn as_many_as_were_sent() {
        let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (a, b) = pair().unwrap();
        let mut buffer = [0; 8];
        for count in [0, 1, 2, MAX] {
            send(&a, b"packet", &vec![a.as_fd(); count]).unwrap();
            let packet = receive(&b, &mut buffer).unwrap();
            assert_eq!((packet.len, packet.fds.len(), packet.fd_is_lost), (6, count, false));
        }
        assert_eq!(send(&a, b"packet", &[a.as_fd(); MAX + 1]), Err(abi::Errno::EINVAL));
        drop(a);
        assert_eq!(receive(&b, &mut buffer).unwrap().len, 0);
    }
}

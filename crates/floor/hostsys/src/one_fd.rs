//! Packets that carry one descriptor at most (SCM_RIGHTS, unix(7)): the replies of gofers to the sentry.

use crate::errno;
use abi::Result;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A packet that was received.
#[derive(Debug)]
pub struct Packet {
    /// Bytes in the buffer; none at the end.
    pub len: usize,
    /// The descriptor that came along.
    pub fd: Option<OwnedFd>,
    /// The packet was longer than the buffer.
    pub is_cut: bool,
    /// The host could not give a descriptor: no number is free here.
    pub fd_is_lost: bool,
}

/// Whether a call waits for the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As long as it takes.
    Yes,
    /// EAGAIN in place of waiting.
    No,
}

impl Wait {
    /// The flag of the call, MSG_DONTWAIT.
    fn flag(self) -> u32 {
        if self == Wait::No { libc::MSG_DONTWAIT as u32 } else { 0 }
    }
}

/// Sends a packet, with a descriptor if there is one; EPIPE when the other end is gone.
pub fn send(channel: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<()> {
    send_or(channel, bytes, fd, Wait::Yes)
}

/// The same.
pub fn send_or(channel: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>, wait: Wait) -> Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::from_bits_retain(wait.flag());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let send = || sendmsg(&channel, &[IoSlice::new(bytes)], &mut ancillary, flags);
    rustix::io::retry_on_intr(send).map(drop).map_err(errno)
}

/// Sends a packet without a descriptor by send(2); EPIPE when the other end is gone.
pub fn tell(channel: impl AsFd, bytes: &[u8], wait: Wait) -> Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::from_bits_retain(wait.flag());
    rustix::io::retry_on_intr(|| rustix::net::send(&channel, bytes, flags)).map(drop).map_err(errno)
}

/// Waits for a packet.
pub fn receive(channel: impl AsFd, buffer: &mut [u8]) -> Result<Packet> {
    receive_or(channel, buffer, Wait::Yes)
}

/// The same.
pub fn receive_or(channel: impl AsFd, buffer: &mut [u8], wait: Wait) -> Result<Packet> {
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::from_bits_retain(wait.flag());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(&channel, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)
    });
    let received = received.map_err(errno)?;
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(Packet {
        len: received.bytes.min(buffer.len()),
        fd,
        is_cut: received.flags.contains(ReturnFlags::TRUNC),
        fd_is_lost: received.flags.contains(ReturnFlags::CTRUNC),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::Errno;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn a_descriptor_travels_with_its_packet() {
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        send(&a, b"one", Some(a.as_fd())).unwrap();
        send(&a, b"two", None).unwrap();
        let mut buffer = [0; 2];
        let one = receive(&b, &mut buffer).unwrap();
        assert_eq!((one.len, one.fd.is_some(), one.is_cut, one.fd_is_lost), (2, true, true, false));
        let mut buffer = [0; 8];
        let two = receive(&b, &mut buffer).unwrap();
        assert_eq!((&buffer[..two.len], two.fd.is_some(), two.is_cut), (&b"two"[..], false, false));
        drop((a, one));
        assert_eq!(receive(&b, &mut buffer).unwrap().len, 0);
        assert_eq!(send(&b, b"x", None), Err(Errno::EPIPE));
    }
}

//! recvmsg(2).

use crate::control;
use crate::sock::HostSocket;
use abi::{Errno, Result};
use hostsys::net;
use netproto::Kind;
use netproto::address::to_sockaddr;
use socket::{Control, Received};

/// MSG_* flags that the host takes; the socket never waits.
const FLAGS: i32 = libc::MSG_OOB | libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_ERRQUEUE;
/// Room for the control messages that the options of [`netproto::options`] ask for.
const CONTROL: usize = 512;

pub(crate) fn recv(sock: &HostSocket, buf: &mut [u8], flags: i32) -> Result<Received> {
    if let Some(received) = from_name_server(sock, buf, flags) {
        return received;
    }
    // A datagram's whole length is wanted in any case.
    let whole = if sock.kind == Kind::Stream { 0 } else { libc::MSG_TRUNC };
    let mut space = [0; CONTROL];
    let got = net::receive(&sock.fd, buf, &mut space, flags & FLAGS | whole)?;
    // With MSG_TRUNC a stream's bytes are thrown away, not copied.
    let copied = if sock.kind == Kind::Stream && flags & libc::MSG_TRUNC != 0 { 0 } else { got.len };
    Ok(Received {
        len: copied.min(buf.len()),
        full: got.len,
        addr: (sock.kind != Kind::Stream && !got.addr.is_empty()).then_some(got.addr),
        control: Control { other: control::from_bytes(&space[..got.control]), ..Control::default() },
        flags: got.flags & !libc::MSG_CMSG_CLOEXEC,
    })
}

/// What a name server answered, if the socket has asked one and there is an answer.
fn from_name_server(sock: &HostSocket, buf: &mut [u8], flags: i32) -> Option<Result<Received>> {
    let names = sock.names.lock();
    let names = names.as_ref()?;
    if flags & (libc::MSG_ERRQUEUE | libc::MSG_OOB) != 0 {
        return None;
    }
    let (server, data) = match names.receive(flags & libc::MSG_PEEK != 0) {
        Ok(received) => received,
        Err(Errno::EAGAIN) => return None,
        Err(error) => return Some(Err(error)),
    };
    let len = data.len().min(buf.len());
    buf[..len].copy_from_slice(&data[..len]);
    Some(Ok(Received {
        len,
        full: data.len(),
        addr: Some(to_sockaddr(&server)),
        flags: if len < data.len() { libc::MSG_TRUNC } else { 0 },
        ..Received::default()
    }))
}

//! sendmsg(2).

use crate::control;
use crate::sock::HostSocket;
use abi::{Errno, Result, Signal};
use hostsys::net;
use netproto::address::to_sockaddr;
use netproto::{Domain, Kind, MAX_DATA, Request};
use socket::SendRequest;
use std::net::SocketAddr;
use vfs::Caller;

/// MSG_* flags that the host takes. Others mean nothing to Linux either, but for MSG_FASTOPEN.
const FLAGS: i32 = libc::MSG_OOB
    | libc::MSG_DONTROUTE
    | libc::MSG_DONTWAIT
    | libc::MSG_EOR
    | libc::MSG_CONFIRM
    | libc::MSG_MORE;

pub(crate) fn send(sock: &HostSocket, cx: &dyn Caller, req: &mut SendRequest<'_>) -> Result<usize> {
    if req.flags & libc::MSG_FASTOPEN != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let flags = req.flags & FLAGS;
    if sock.kind == Kind::Stream {
        let sent = net::send(&sock.fd, req.data, flags);
        if sent == Err(Errno::EPIPE) && req.flags & libc::MSG_NOSIGNAL == 0 {
            cx.raise(Signal::SIGPIPE);
        }
        return sent;
    }
    let addr = req.addr.map(|bytes| destination(sock, bytes)).transpose()?;
    let server = sock.names.lock().as_ref().and_then(|names| names.peer());
    match (addr, server) {
        (None, Some(server)) => sock.names.lock().as_ref().ok_or(Errno::ENOTCONN)?.send(server, req.data),
        (None, None) if req.control.other.is_empty() => net::send(&sock.fd, req.data, flags),
        (Some(addr), _) if sock.shared.gofer.policed() => by_gofer(sock, addr, req, flags),
        // The filter that goes with a policy has no sendmsg(2): what it sends to is in memory.
        (None, _) if sock.shared.gofer.policed() => Err(Errno::EINVAL),
        (addr, _) => {
            let addr = addr.map(|addr| to_sockaddr(&addr)).unwrap_or_default();
            net::send_to(&sock.fd, req.data, &addr, &control::to_bytes(&req.control.other), flags)
        }
    }
}

/// An address for sendto(2): as for connect(2), but AF_UNSPEC stands for AF_INET.
fn destination(sock: &HostSocket, bytes: &[u8]) -> Result<SocketAddr> {
    match bytes.first_chunk() {
        Some(family)
            if sock.domain == Domain::V4 && i32::from(u16::from_ne_bytes(*family)) == libc::AF_UNSPEC =>
        {
            let mut named = bytes.to_vec();
            named[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            sock.address(&named)
        }
        // A dual-stack socket takes an IPv4 address for its mapped form.
        Some(family)
            if sock.domain == Domain::V6 && i32::from(u16::from_ne_bytes(*family)) == libc::AF_INET =>
        {
            match netproto::address::from_sockaddr(bytes) {
                Some(SocketAddr::V4(v4)) => Ok(SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())),
                _ => Err(Errno::EINVAL),
            }
        }
        _ => match sock.address(bytes) {
            Err(Errno::EAFNOSUPPORT) if sock.domain == Domain::V6 => Err(Errno::EINVAL),
            addr => addr,
        },
    }
}

/// Has the gofer send a datagram, which checks where to.
fn by_gofer(sock: &HostSocket, addr: SocketAddr, req: &SendRequest<'_>, flags: i32) -> Result<usize> {
    let id = sock.id.ok_or(Errno::EINVAL)?;
    if req.data.len() > MAX_DATA {
        return Err(Errno::EMSGSIZE);
    }
    if !req.control.other.is_empty() {
        return Err(Errno::EINVAL);
    }
    let request = Request::Send { id, flags: flags as u32, addr, data: req.data };
    let (reply, fd) = sock.shared.gofer.call(&request)?;
    sock.use_names(&reply, fd)?;
    Ok((reply.value as usize).min(req.data.len()))
}

//! Internet sockets of the host, for host mode: made by the network gofer, read and written by the sentry.
//!
//! Addresses are the bytes of a `struct sockaddr`, options those of `netproto::options` only: none of them has the host use
//! a pointer inside the value.

use crate::{check, last};
use abi::{Errno, Result};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// sizeof(struct sockaddr_storage).
const ADDRESS: usize = 128;

/// What a receive found.
#[derive(Debug, Default)]
pub struct Received {
    /// Bytes received; with MSG_TRUNC a datagram's whole length.
    pub len: usize,
    /// The sender's address; empty if the host says none.
    pub addr: Vec<u8>,
    /// Bytes of the control buffer in use.
    pub control: usize,
    /// msg_flags.
    pub flags: i32,
}

/// A non-blocking socket.
pub fn socket(domain: i32, kind: i32, protocol: i32) -> Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::socket(domain, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, protocol) };
    owned(fd)
}

fn owned(fd: i32) -> Result<OwnedFd> {
    check(fd.into())?;
    // SAFETY: the host has just made this descriptor for us; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// bind(2).
pub fn bind(fd: impl AsFd, addr: &[u8]) -> Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the pointer and length are those of a slice that lives for the call.
    check(unsafe { libc::bind(fd, addr.as_ptr().cast(), addr.len() as u32) }.into()).map(drop)
}

/// connect(2).
pub fn connect(fd: impl AsFd, addr: &[u8]) -> Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the pointer and length are those of a slice that lives for the call.
    check(unsafe { libc::connect(fd, addr.as_ptr().cast(), addr.len() as u32) }.into()).map(drop)
}

/// listen(2).
pub fn listen(fd: impl AsFd, backlog: i32) -> Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::listen(fd.as_fd().as_raw_fd(), backlog) }.into()).map(drop)
}

/// accept4(2): a non-blocking socket.
pub fn accept(fd: impl AsFd) -> Result<OwnedFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: null pointers: the host gives no address.
    owned(unsafe { libc::accept4(fd.as_fd().as_raw_fd(), ptr::null_mut(), ptr::null_mut(), flags) })
}

/// shutdown(2).
pub fn shutdown(fd: impl AsFd, how: i32) -> Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::shutdown(fd.as_fd().as_raw_fd(), how) }.into()).map(drop)
}

/// getsockname(2).
pub fn local_addr(fd: impl AsFd) -> Result<Vec<u8>> {
    named(fd, libc::getsockname)
}

/// getpeername(2).
pub fn peer_addr(fd: impl AsFd) -> Result<Vec<u8>> {
    named(fd, libc::getpeername)
}

type Naming = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

fn named(fd: impl AsFd, call: Naming) -> Result<Vec<u8>> {
    let (mut addr, mut len) = (vec![0; ADDRESS], ADDRESS as libc::socklen_t);
    // SAFETY: `len` says how long the buffer is; both live for the call.
    check(unsafe { call(fd.as_fd().as_raw_fd(), addr.as_mut_ptr().cast(), &raw mut len) }.into())?;
    addr.truncate(len as usize);
    Ok(addr)
}

/// send(2): to the peer. This and [`send_to`] never raise SIGPIPE.
pub fn send(fd: impl AsFd, data: &[u8], flags: i32) -> Result<usize> {
    let (fd, flags) = (fd.as_fd().as_raw_fd(), flags | libc::MSG_NOSIGNAL);
    loop {
        // SAFETY: the pointer and length are those of a slice that lives for the call; there is no address.
        let sent = unsafe { libc::sendto(fd, data.as_ptr().cast(), data.len(), flags, ptr::null(), 0) };
        match check(sent as i64) {
            Err(Errno::EINTR) => {}
            sent => return sent.map(|n| n as usize),
        }
    }
}

/// sendmsg(2) with an address, unless it is empty, and control messages.
pub fn send_to(fd: impl AsFd, data: &[u8], addr: &[u8], control: &[u8], flags: i32) -> Result<usize> {
    let mut iov = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let mut header = message(&mut iov);
    if !addr.is_empty() {
        header.msg_name = addr.as_ptr().cast_mut().cast();
        header.msg_namelen = addr.len() as u32;
    }
    if !control.is_empty() {
        header.msg_control = control.as_ptr().cast_mut().cast();
        header.msg_controllen = control.len();
    }
    let (fd, flags) = (fd.as_fd().as_raw_fd(), flags | libc::MSG_NOSIGNAL);
    loop {
        // SAFETY: every pointer of the header is to a slice of that length which lives for the call; the host only reads.
        match check(unsafe { libc::sendmsg(fd, &raw const header, flags) } as i64) {
            Err(Errno::EINTR) => {}
            sent => return sent.map(|n| n as usize),
        }
    }
}

/// recvmsg(2). Descriptors that come along are not for this: give a control buffer to internet sockets only.
pub fn receive(fd: impl AsFd, data: &mut [u8], control: &mut [u8], flags: i32) -> Result<Received> {
    let mut iov = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
    let mut addr = [0u8; ADDRESS];
    let mut header = message(&mut iov);
    header.msg_name = addr.as_mut_ptr().cast();
    header.msg_namelen = ADDRESS as u32;
    if !control.is_empty() {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len();
    }
    let (raw, flags) = (fd.as_fd().as_raw_fd(), flags | libc::MSG_CMSG_CLOEXEC);
    let len = loop {
        // SAFETY: every pointer of the header is to a buffer of that length which lives for the call and is ours alone.
        match check(unsafe { libc::recvmsg(raw, &raw mut header, flags) } as i64) {
            Err(Errno::EINTR) => {
                header.msg_namelen = ADDRESS as u32;
                header.msg_controllen = control.len();
            }
            received => break received? as usize,
        }
    };
    let named = (header.msg_namelen as usize).min(ADDRESS);
    Ok(Received {
        len,
        addr: addr[..named].to_vec(),
        control: header.msg_controllen.min(control.len()),
        flags: header.msg_flags,
    })
}

fn message(iov: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: plain data for which all zeroes is valid: no address, no control messages.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = iov;
    header.msg_iovlen = 1;
    header
}

/// User and group ID of the other side of a connected Unix socket (SO_PEERCRED). Its process ID may be 0, of a process that
/// cannot be seen from here, which rustix's type for it cannot hold.
pub fn peer_owner(fd: impl AsFd) -> Result<(u32, u32)> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as u32;
    let (fd, value) = (fd.as_fd().as_raw_fd(), (&raw mut cred).cast());
    // SAFETY: the host writes at most `len` bytes, the size of the local structure of integers.
    check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, value, &mut len) }.into())?;
    Ok((cred.uid, cred.gid))
}

/// getsockopt(2) of an option that is listed: its value.
pub fn option(fd: impl AsFd, level: i32, name: i32) -> Result<Vec<u8>> {
    if !netproto::options::find(level, name).is_some_and(|o| o.gets()) {
        return Err(Errno::ENOPROTOOPT);
    }
    let (mut value, mut len) = (vec![0u8; 512], 512 as libc::socklen_t);
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: `len` says how long the buffer is; both live for the call. The host writes nowhere else: the option is listed.
    check(unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut len) }.into())?;
    value.truncate(len as usize);
    Ok(value)
}

/// setsockopt(2) of an option that is listed.
pub fn set_option(fd: impl AsFd, level: i32, name: i32, value: &[u8]) -> Result<()> {
    if !netproto::options::find(level, name).is_some_and(|o| o.sets(false)) {
        return Err(Errno::ENOPROTOOPT);
    }
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the pointer and length are those of a slice that lives for the call; the option holds no pointer.
    check(unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as u32) }.into())
        .map(drop)
}

/// Requests of [`query`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// SIOCINQ: bytes to be received.
    Unread,
    /// SIOCOUTQ: bytes not yet acknowledged.
    Unsent,
    /// SIOCATMARK: at the mark of urgent data.
    AtMark,
}

/// The requests' numbers.
pub const QUERIES: [(Query, u32); 3] =
    [(Query::Unread, libc::FIONREAD as u32), (Query::Unsent, libc::TIOCOUTQ as u32), (Query::AtMark, 0x8905)];

/// An ioctl(2) that gives a number.
pub fn query(fd: impl AsFd, query: Query) -> Result<i32> {
    let (_, request) = QUERIES.into_iter().find(|(known, _)| *known == query).ok_or(Errno::ENOTTY)?;
    let mut value: libc::c_int = 0;
    debug_assert_eq!(size_of::<libc::c_int>(), 4);
    // SAFETY: each of the requests writes one int, to a local one.
    match unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request as _, &raw mut value) } {
        -1 => Err(last()),
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn bytes(text: &str) -> Vec<u8> {
        netproto::address::to_sockaddr(&text.parse::<SocketAddr>().unwrap())
    }

    #[test]
    fn datagrams_and_their_senders() {
        let a = socket(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
        let b = socket(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
        bind(&a, &bytes("127.0.0.1:0")).unwrap();
        bind(&b, &bytes("127.0.0.1:0")).unwrap();
        assert_eq!(send(&a, b"x", 0), Err(Errno::EDESTADDRREQ));
        let (from, to) = (local_addr(&a).unwrap(), local_addr(&b).unwrap());
        set_option(&b, libc::IPPROTO_IP, libc::IP_PKTINFO, &1i32.to_ne_bytes()).unwrap();
        assert_eq!(send_to(&a, b"hello", &to, &[], 0), Ok(5));
        assert_eq!(query(&b, Query::Unread), Ok(5));
        let (mut data, mut control) = ([0; 3], [0; 64]);
        let got = receive(&b, &mut data, &mut control, libc::MSG_TRUNC).unwrap();
        assert_eq!((got.len, &data, got.addr), (5, b"hel", from));
        assert!(got.control > 16 && got.flags & libc::MSG_TRUNC != 0);
        assert!(receive(&b, &mut data, &mut [], 0).is_err_and(|e| e == Errno::EAGAIN));
    }

    #[test]
    fn options_are_those_of_the_list() {
        let s = socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        set_option(&s, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1i32.to_ne_bytes()).unwrap();
        assert_eq!(option(&s, libc::IPPROTO_TCP, libc::TCP_NODELAY).unwrap(), 1i32.to_ne_bytes());
        assert_eq!(
            set_option(&s, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &[0; 16]),
            Err(Errno::ENOPROTOOPT)
        );
        assert_eq!(peer_addr(&s), Err(Errno::ENOTCONN));
    }
}

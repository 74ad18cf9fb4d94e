//! Sockets.

use super::{Entry, schemas, written};
use crate::arg::{Fd, Ptr};
use crate::sockets::socket::{Sock, read_addr};
use task::Current;
use trace_wire::messages::syscall::{Accept, SocketPair};

/// Longest address that is told: sizeof(struct sockaddr_storage).
const MAX_ADDR: u32 = 128;

/// The address in the arguments `i` and `i + 1`.
fn address(e: &Entry<'_>, i: usize) -> Vec<u8> {
    read_addr(e.c, Ptr(e.arg(i)), e.arg(i + 1) as u32).unwrap_or_default()
}

/// The address that accept(2) has written.
fn peer(c: &mut Current, args: &[u64; 6], _result: u64, m: &mut Accept) {
    written(c);
    if args[1] != 0
        && let Ok(len) = c.read_value::<u32>(args[2])
    {
        m.address = read_addr(c, Ptr(args[1]), len.min(MAX_ADDR)).unwrap_or_default();
    }
}

fn pair(c: &mut Current, args: &[u64; 6], _result: u64, m: &mut SocketPair) {
    written(c);
    if let Ok([a, b]) = c.read_value::<[i32; 2]>(args[3]) {
        (m.socket1, m.socket2) = (a, b);
    }
}

/// A socket's own address, family and type.
fn of_socket<T: Default>(e: &Entry<'_>, get: impl Fn(&dyn socket::SocketOps) -> T) -> T {
    let socket = Sock::get(e.c, Fd(e.int(0)));
    socket.as_ref().ok().and_then(|socket| socket.ops().ok()).map(get).unwrap_or_default()
}

schemas! {
    /// socket(2).
    SOCKET: Socket MESSAGE_SYSCALL_SOCKET [] |e| { domain: e.int(0), type_: e.int(1), protocol: e.int(2) };
    /// socketpair(2). The descriptors are known at the return.
    SOCKETPAIR: SocketPair MESSAGE_SYSCALL_SOCKETPAIR []
        |e| { domain: e.int(0), type_: e.int(1), protocol: e.int(2) } => pair;
    /// connect(2).
    CONNECT: Connect MESSAGE_SYSCALL_CONNECT [FD_PATH]
        |e| { fd: e.fd(0), fd_path: e.fd_path(0), address: address(e, 1) };
    /// bind(2).
    BIND: Bind MESSAGE_SYSCALL_BIND [FD_PATH]
        |e| { fd: e.int(0), fd_path: e.fd_path(0), address: address(e, 1) };
    /// accept(2). The peer's address is known at the return, if the program asks for it.
    ACCEPT: Accept MESSAGE_SYSCALL_ACCEPT [FD_PATH] |e| { fd: e.int(0), fd_path: e.fd_path(0) } => peer;
    /// accept4(2).
    ACCEPT4: Accept MESSAGE_SYSCALL_ACCEPT [FD_PATH]
        |e| { fd: e.int(0), fd_path: e.fd_path(0), flags: e.int(3) } => peer;
    /// listen(2).
    LISTEN: Listen MESSAGE_SYSCALL_LISTEN [FD_PATH] |e| {
        fd: e.int(0), fd_path: e.fd_path(0), backlog: e.int(1), address: of_socket(e, |ops| ops.local_addr()),
        socket_family: of_socket(e, |ops| ops.domain()), socket_type: of_socket(e, |ops| ops.kind())
    };
}

//! The host calls of the network gofer.

use confine::filter::{Arg, Rule, allow, allow_when};

const V4: Arg = Arg::Is(0, libc::AF_INET as u32);
const V6: Arg = Arg::Is(0, libc::AF_INET6 as u32);
const FLAGS: u32 = (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as u32;
const STREAM: Arg = Arg::Is(1, libc::SOCK_STREAM as u32 | FLAGS);
const DATAGRAM: Arg = Arg::Is(1, libc::SOCK_DGRAM as u32 | FLAGS);

/// Beside the Rust run-time's own.
pub(crate) const RULES: &[Rule] = &[
    allow_when(
        libc::SYS_socket,
        &[&[V4, STREAM], &[V4, DATAGRAM], &[V6, STREAM], &[V6, DATAGRAM]],
        "the sandbox's sockets; questions to name servers",
    ),
    allow(libc::SYS_bind, "a local address that the policy allows"),
    allow(libc::SYS_connect, "a peer that the policy allows"),
    allow(libc::SYS_listen, "on an address that the policy allows"),
    allow(libc::SYS_getsockname, "the address that is to be listened on"),
    allow_when(
        libc::SYS_socketpair,
        &[&[Arg::Is(0, libc::AF_UNIX as u32), Arg::Is(1, libc::SOCK_SEQPACKET as u32 | FLAGS)]],
        "the way over which a socket looks names up",
    ),
    allow(libc::SYS_sendmsg, "replies; datagrams whose destination the policy allows"),
    allow(libc::SYS_sendto, "questions to name servers, and their answers"),
    allow(libc::SYS_recvfrom, "requests"),
    allow(libc::SYS_recvmsg, "answers of name servers"),
    allow_when(
        libc::SYS_fcntl,
        &[&[Arg::Is(1, libc::F_DUPFD_CLOEXEC as u32)]],
        "the sandbox's copy of a socket",
    ),
    allow(libc::SYS_poll, "waiting"),
    allow(libc::SYS_ppoll, "waiting"),
    allow(libc::SYS_getrandom, "numbers of questions; hash tables"),
    allow(libc::SYS_clock_gettime, "how long names are good"),
];

//! The host calls of the gofer after it has built its trees.

use confine::filter::{Arg, Rule, allow_when};

/// MSG_CMSG_CLOEXEC and MSG_NOSIGNAL, the only flags used.
const RECV: u32 = libc::MSG_CMSG_CLOEXEC as u32;
const SEND: u32 = libc::MSG_NOSIGNAL as u32;

/// Beside the Rust run-time's own.
pub(crate) const RULES: &[Rule] = &[
    allow_when(
        libc::SYS_sendmsg,
        &[&[Arg::Is(0, 3), Arg::Is(2, SEND)]],
        "the descriptors, to its one socket",
    ),
    allow_when(
        libc::SYS_sendto,
        &[&[Arg::Is(0, 3), Arg::Is(3, SEND), Arg::IsLong(4, 0)]],
        "answers without descriptors",
    ),
    allow_when(libc::SYS_recvmsg, &[&[Arg::Is(0, 3), Arg::Is(2, RECV)]], "waiting for its socket to close"),
    allow_when(
        libc::SYS_prctl,
        &[&[Arg::Is(0, libc::PR_SET_PDEATHSIG as u32), Arg::IsLong(1, 0)]],
        "outliving the command line",
    ),
];

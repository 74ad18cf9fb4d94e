//! The calls that host mode adds: they use the host's sockets and do not make any.

use confine::filter::{Arg, Rule, allow, allow_when};
use netproto::options;

/// MSG_* flags for sending: never MSG_FASTOPEN, which connects.
const SEND: i32 = libc::MSG_OOB
    | libc::MSG_DONTROUTE
    | libc::MSG_DONTWAIT
    | libc::MSG_EOR
    | libc::MSG_CONFIRM
    | libc::MSG_MORE
    | libc::MSG_NOSIGNAL;
const OTHERS: u64 = !SEND as u32 as u64;
const SIOCATMARK: u32 = 0x8905;

/// With or without a policy.
const ALL: &[Rule] = &[
    allow_when(
        libc::SYS_sendto,
        &[&[Arg::Bits(3, OTHERS, 0), Arg::IsLong(4, 0)]],
        "data to a socket's peer; the network gofer",
    ),
    allow(libc::SYS_recvmsg, "data from sockets; the network gofer"),
    allow(libc::SYS_accept4, "connections on sockets that the network gofer has had listen"),
    allow(libc::SYS_shutdown, "one direction of a connection"),
    allow(libc::SYS_getsockname, "addresses"),
    allow(libc::SYS_getpeername, "addresses"),
    allow_when(libc::SYS_ioctl, &[&[Arg::Is(1, SIOCATMARK)]], "urgent data"),
];

/// Where everything may be reached: destinations and control messages.
const OPEN: &[Rule] =
    &[allow_when(libc::SYS_sendmsg, &[&[Arg::Bits(2, OTHERS, 0)]], "datagrams with a destination")];

/// Calls `use_them` with the rules.
pub(super) fn with_rules<T>(policed: bool, use_them: impl FnOnce(&[Rule<'_>]) -> T) -> T {
    let pair = |o: &options::SocketOption| [Arg::Is(1, o.level as u32), Arg::Is(2, o.name as u32)];
    let get: Vec<[Arg; 2]> = options::ALL.iter().filter(|o| o.gets()).map(pair).collect();
    let set: Vec<[Arg; 2]> = options::ALL.iter().filter(|o| o.sets(policed)).map(pair).collect();
    let get: Vec<&[Arg]> = get.iter().map(<[Arg; 2]>::as_slice).collect();
    let set: Vec<&[Arg]> = set.iter().map(<[Arg; 2]>::as_slice).collect();
    let mut rules = ALL.to_vec();
    rules.push(Rule { call: libc::SYS_getsockopt, when: &get, why: "options from a list" });
    rules.push(Rule { call: libc::SYS_setsockopt, when: &set, why: "options from a list" });
    if !policed {
        rules.extend(OPEN);
    }
    use_them(&rules)
}

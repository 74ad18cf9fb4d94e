//! getsockopt(2) and setsockopt(2): the options in `netproto::options` go to the host's socket.

use crate::sock::HostSocket;
use abi::{Errno, Result};
use hostsys::net;
use netproto::Kind;
use netproto::options::find;
use socket::Options;
use std::time::Duration;

const SO_RCVTIMEO_NEW: i32 = 66;
const SO_SNDTIMEO_NEW: i32 = 67;

/// Options of SOL_SOCKET that the kernel inside answers for any family.
const KEPT: &[i32] = &[
    libc::SO_TYPE,
    libc::SO_DOMAIN,
    libc::SO_PROTOCOL,
    libc::SO_ERROR,
    libc::SO_ACCEPTCONN,
    libc::SO_RCVTIMEO,
    libc::SO_SNDTIMEO,
    SO_RCVTIMEO_NEW,
    SO_SNDTIMEO_NEW,
    libc::SO_DEBUG,
    libc::SO_BSDCOMPAT,
    libc::SO_PASSCRED,
    libc::SO_LINGER,
];

/// Options that only a process with rights over the host's network may set.
const PRIVILEGED: &[i32] = &[libc::SO_SNDBUFFORCE, libc::SO_RCVBUFFORCE, libc::SO_MARK, libc::SO_BUSY_POLL];

pub(crate) fn get_common(sock: &HostSocket, name: i32) -> Option<Result<Vec<u8>>> {
    (!KEPT.contains(&name)).then(|| get(sock, libc::SOL_SOCKET, name))
}

pub(crate) fn set_common(sock: &HostSocket, name: i32, value: &[u8]) -> Option<Result<()>> {
    if KEPT.contains(&name) {
        return None;
    }
    if PRIVILEGED.contains(&name) {
        return Some(Err(Errno::EPERM));
    }
    let set = set(sock, libc::SOL_SOCKET, name, value);
    // Reads that wait for so much are the kernel's business, too.
    if name == libc::SO_RCVLOWAT && set.is_ok() { None } else { Some(set) }
}

/// The host's value. EOPNOTSUPP at the level of another protocol, ENOPROTOOPT for an option that is not listed.
pub(crate) fn get(sock: &HostSocket, level: i32, name: i32) -> Result<Vec<u8>> {
    check_level(sock, level)?;
    net::option(&sock.fd, level, name)
}

/// Sets the host's value.
pub(crate) fn set(sock: &HostSocket, level: i32, name: i32, value: &[u8]) -> Result<()> {
    check_level(sock, level)?;
    let policed = sock.shared.gofer.policed();
    match find(level, name) {
        Some(option) if option.sets(policed) => net::set_option(&sock.fd, level, name, value),
        // It would have an effect beyond what the policy says.
        Some(option) if option.sets(false) => Err(Errno::EACCES),
        _ => Err(Errno::ENOPROTOOPT),
    }
}

/// Passes on what the kernel inside keeps and the host acts on. Of SO_LINGER that is the reset: the last close(2) of the host's socket may be
/// the gofer's, and while that waits, no other socket of the sandbox gets an answer.
pub(crate) fn changed(sock: &HostSocket, options: &Options, name: i32) {
    if name == libc::SO_LINGER {
        let resets = options.linger() == Some(Duration::ZERO);
        let value = [i32::from(resets).to_ne_bytes(), [0; 4]].concat();
        // It is on the list, and the value is one that the host takes.
        let _ = net::set_option(&sock.fd, libc::SOL_SOCKET, libc::SO_LINGER, &value);
    }
}

fn check_level(sock: &HostSocket, level: i32) -> Result<()> {
    let own = match level {
        libc::IPPROTO_TCP => sock.kind == Kind::Stream,
        libc::IPPROTO_UDP => sock.kind == Kind::Datagram,
        _ => true,
    };
    if own { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

//! Unix sockets of the host, for a sentry that may make none (`--host-uds`): connections, and sockets with a name.
//!
//! A request names one of the container's trees and a path below it. The directory is opened without following links or
//! leaving the tree, and becomes the working directory; the socket is then one name in it. The mounts of the trees
//! follow no link. The gofer makes a socket of the host and nothing else, and connects it or gives it its name before the
//! sentry gets it.

use confine::filter::{Arg, Rule, allow, allow_when};
use hostsys::{net, one_fd};
use netproto::unix::{Act, MAX_REQUEST, Reply, Request};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::thread::CapabilitySet;
use spec::HostUds;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

const UNIX: Arg = Arg::Is(0, libc::AF_UNIX as u32);
const FLAGS: u32 = (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as u32;

/// What connections ask of the host beside the gofer's other rules.
pub(crate) const RULES: &[Rule] = &[
    allow(libc::SYS_poll, "waiting for requests"),
    allow(libc::SYS_ppoll, "waiting for requests"),
    allow(libc::SYS_recvfrom, "requests"),
    allow_when(libc::SYS_sendmsg, &[&[Arg::Is(2, libc::MSG_NOSIGNAL as u32)]], "answers with a descriptor"),
    allow(libc::SYS_openat2, "the directory of a socket"),
    allow(libc::SYS_fchdir, "the directory of a socket"),
    allow_when(
        libc::SYS_socket,
        &[
            &[UNIX, Arg::Is(1, libc::SOCK_STREAM as u32 | FLAGS)],
            &[UNIX, Arg::Is(1, libc::SOCK_SEQPACKET as u32 | FLAGS)],
            &[UNIX, Arg::Is(1, libc::SOCK_DGRAM as u32 | FLAGS)],
        ],
        "a connection to a Unix socket",
    ),
    allow(libc::SYS_connect, "a Unix socket below the container's directories; it makes no other sockets"),
    allow_when(
        libc::SYS_getsockopt,
        &[&[Arg::Is(1, libc::SOL_SOCKET as u32), Arg::Is(2, libc::SO_PEERCRED as u32)]],
        "the users of the other side",
    ),
];

/// The same for names.
pub(crate) const NAMING: &[Rule] = &[
    allow(libc::SYS_bind, "a name below the container's directories"),
    allow(libc::SYS_capget, "the capability for a name, which takes effect for that call alone"),
    allow(libc::SYS_capset, "the capability for a name, which takes effect for that call alone"),
];

/// The sentry's end of a new pair, and the gofer's.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Serves one request; false when there are no more.
pub(crate) fn serve(end: &OwnedFd, trees: &[OwnedFd], allowed: HostUds) -> io::Result<bool> {
    let mut bytes = [0; MAX_REQUEST + 1];
    let length = match recv(end, &mut bytes[..], RecvFlags::empty()) {
        Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(false),
        Ok((length, _)) => length.min(bytes.len()),
        Err(Errno::INTR) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    let request = Request::decode(bytes.get(..length).unwrap_or_default());
    let made = match request {
        Some(request) => make(trees, &request, allowed),
        None => Err(libc::EINVAL),
    };
    let (reply, fd) = match made {
        Ok((fd, owner)) => (Reply { errno: 0, owner }, Some(fd)),
        Err(errno) => (Reply { errno, ..Reply::default() }, None),
    };
    match one_fd::send(end, &reply.encode(), fd.as_ref().map(AsFd::as_fd)) {
        Ok(()) => Ok(true),
        Err(errno) if errno.raw() == libc::EPIPE => Ok(false),
        Err(errno) => Err(io::Error::from_raw_os_error(errno.raw())),
    }
}

/// A socket, and the users of the other side if there is one.
fn make(trees: &[OwnedFd], request: &Request<'_>, allowed: HostUds) -> Result<(OwnedFd, (u32, u32)), i32> {
    let may = match request.act {
        Act::Connect => allowed.open,
        Act::Bind => allowed.create,
    };
    if !may {
        return Err(libc::EPERM);
    }
    let tree = usize::try_from(request.tree).ok().and_then(|n| trees.get(n)).ok_or(libc::EINVAL)?;
    match request.act {
        Act::Connect => at(tree, request),
        // The kernel inside has decided whether its program may make the name.
        Act::Bind => {
            let made = || at(tree, request).map_err(abi::Errno::from_raw);
            crate::with_capabilities(CapabilitySet::DAC_OVERRIDE, made).map_err(|errno| errno.raw())
        }
    }
}

/// The socket in its directory.
fn at(tree: &OwnedFd, request: &Request<'_>) -> Result<(OwnedFd, (u32, u32)), i32> {
    let (name, opened);
    let dir = match request.path.iter().rposition(|c| *c == b'/') {
        Some(at) => {
            name = &request.path[at + 1..];
            opened = hostsys::fs::open_below(tree, &request.path[..at]).map_err(|e| e.raw())?;
            &opened
        }
        None => {
            name = request.path;
            tree
        }
    };
    rustix::process::fchdir(dir).map_err(Errno::raw_os_error)?;
    // With the NUL it fits exactly, or the host says that it does not.
    let address = [&(libc::AF_UNIX as u16).to_ne_bytes()[..], name, b"\0"].concat();
    if address.len() > size_of::<libc::sockaddr_un>() {
        return Err(libc::ENAMETOOLONG);
    }
    let socket = net::socket(libc::AF_UNIX, request.kind, 0).map_err(|e| e.raw())?;
    match request.act {
        Act::Connect => {
            net::connect(&socket, &address).map_err(|e| e.raw())?;
            let owner = net::peer_owner(&socket).map_err(|e| e.raw())?;
            Ok((socket, owner))
        }
        Act::Bind => {
            net::bind(&socket, &address).map_err(|e| e.raw())?;
            Ok((socket, (0, 0)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netproto::unix::REPLY;
    use std::os::unix::net::UnixListener;

    /// In a process's own working directory: one test, so that no other depends on it.
    #[test]
    fn sockets_below_a_tree_can_be_reached() {
        let dir = std::env::temp_dir().join(format!("ringfence-gofer-sockets-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("below")).unwrap();
        let _listener = UnixListener::bind(dir.join("below/s")).unwrap();
        std::os::unix::fs::symlink("below", dir.join("link")).unwrap();
        std::fs::write(dir.join("file"), "").unwrap();
        let trees = [OwnedFd::from(std::fs::File::open(&dir).unwrap())];
        let (ours, theirs) = pair().unwrap();
        let all = HostUds { open: true, create: true };
        let act = |act, allowed, tree, path: &[u8]| {
            let request = Request { act, tree, kind: libc::SOCK_STREAM, path };
            rustix::net::send(&ours, &request.encode(), rustix::net::SendFlags::empty()).unwrap();
            assert!(serve(&theirs, &trees, allowed).unwrap());
            let mut bytes = [0; REPLY];
            let (length, _) = recv(&ours, &mut bytes[..], RecvFlags::empty()).unwrap();
            Reply::decode(&bytes[..length]).unwrap().errno
        };
        let ask = |tree, path: &[u8]| act(Act::Connect, all, tree, path);
        assert_eq!(ask(0, b"below/s"), 0);
        assert_eq!(ask(0, b"below/t"), libc::ENOENT);
        assert_eq!(ask(0, b"file"), libc::ECONNREFUSED);
        assert_eq!(ask(0, b"link/s"), libc::ENOTDIR);
        assert_eq!(ask(0, b"../s"), libc::EINVAL);
        assert_eq!(ask(1, b"below/s"), libc::EINVAL);
        assert_eq!(ask(0, &[b'n'; 108]), libc::ENAMETOOLONG);
        let bind = |path: &[u8]| act(Act::Bind, all, 0, path);
        assert_eq!(
            (bind(b"below/new"), bind(b"below/new"), bind(b"file")),
            (0, libc::EADDRINUSE, libc::EADDRINUSE)
        );
        assert_eq!(
            (bind(b"none/new"), bind(b"link/new"), bind(b"../new")),
            (libc::ENOENT, libc::ENOTDIR, libc::EINVAL)
        );
        let only = |open| HostUds { open, create: !open };
        assert_eq!(act(Act::Bind, only(true), 0, b"below/more"), libc::EPERM);
        assert_eq!(act(Act::Connect, only(false), 0, b"below/s"), libc::EPERM);
        drop(ours);
        assert!(!serve(&theirs, &trees, all).unwrap());
        std::fs::remove_dir_all(dir).unwrap();
    }
}

//! Taking a namespace's interfaces over for the stack inside.
//!
//! The container's manager shows and checks the addresses in the namespace (`ip addr`, `docker inspect`), so they stay.
//! The routes that make them local are removed, because they make the host's own stack answer for them. Without those
//! routes, and with forwarding off, that stack silently drops packets for the addresses and answers no ARP request for
//! them. For IPv6 it still answers with their hardware address, which is the right one.

use crate::{RTMSG, ask_routes, fixed, look_here, number, refusal};
use netlink_wire::{Message, list, list_of, next};
use rustix::net::{
    AddressFamily as Family, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    recv, send, socket_with,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use spec::Interfaces;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// Docker's name server, and as /proc/net/udp shows it.
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 11);
const NAME_SERVER_HEX: &str = "0B00007F:";
/// RT_TABLE_LOCAL.
const LOCAL: u8 = 255;

/// Whether a namespace is the one that this process or the host's first one is in. Its stack serves others than the container.
fn is_shared(namespace: BorrowedFd<'_>) -> io::Result<bool> {
    let of = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let theirs = of(rustix::fs::fstat(namespace)?);
    let known = ["/proc/self/ns/net", "/proc/1/ns/net"].map(|path| rustix::fs::stat(path).map(of));
    Ok(known.contains(&Ok(theirs)))
}

/// Names of the marks of sandboxes, as /proc/net/unix shows them, and without the first character.
const MARKS: &str = "@ringfence-network-";

/// The interfaces, addresses and routes of the namespace behind `namespace`, and a packet socket for each Ethernet interface, in
/// their order; then the sandbox's mark, and if a name server like Docker's is there, a socket connected to it. From now on the
/// namespace's own stack leaves the interfaces alone. `pid` is the process that stands for the sandbox. Fails with
/// `ErrorKind::AddrInUse` if another sandbox has taken the namespace over. Needs CAP_SYS_ADMIN and CAP_NET_ADMIN over it.
pub fn take_over(namespace: BorrowedFd<'_>, pid: i32) -> io::Result<(Interfaces, Vec<OwnedFd>)> {
    if is_shared(namespace)? {
        return Err(io::Error::other("the network namespace is the host's own"));
    }
    let take = || {
        move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
        let interfaces = look_here()?;
        let ethernet = interfaces.links.iter().filter(|link| link.is_ethernet());
        let open = |link: &spec::Interface| {
            hostsys::packet::open(link.index).map_err(|e| io::Error::from_raw_os_error(e.raw()))
        };
        let mut sockets = ethernet.map(open).collect::<io::Result<Vec<_>>>()?;
        if !sockets.is_empty() {
            sockets.push(mark(pid)?);
            silence(&interfaces)?;
            sockets.extend(name_server()?);
        }
        Ok((interfaces, sockets))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, take)?;
        thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

/// Marks the caller's network namespace as that of the sandbox of `pid`, for as long as the returned socket is open: the sandbox
/// keeps it. The mark is a name in the abstract namespace of Unix sockets, which belongs to the network namespace. A sandbox that
/// has its mark already gets a socket without a name.
fn mark(pid: i32) -> io::Result<OwnedFd> {
    // The same number may stand for another process elsewhere.
    let of = std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
    let name = format!("{}{of}-{pid}", &MARKS[1..]);
    let socket = socket_with(Family::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    match bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?) {
        Ok(()) | Err(rustix::io::Errno::ADDRINUSE) => {}
        Err(error) => return Err(error.into()),
    }
    // Each of two that come at the same time sees the other's.
    let all = std::fs::read_to_string("/proc/thread-self/net/unix")?;
    match other_mark(&all, &name) {
        None => Ok(socket),
        Some(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another sandbox uses the interfaces of this network namespace",
        )),
    }
}

/// A sandbox's mark in a listing like /proc/net/unix that is not called `own`.
fn other_mark<'a>(listing: &'a str, own: &str) -> Option<&'a str> {
    let names = listing.lines().filter_map(|line| line.split_whitespace().nth(7));
    names.into_iter().find(|name| name.starts_with(MARKS) && name[1..] != *own)
}

/// A socket that is connected to the name server on the namespace's loopback interface, if there is one. Its port is another one, to
/// which rules of the packet filter lead.
fn name_server() -> io::Result<Option<OwnedFd>> {
    let listed = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap_or_default();
    if !listed
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .any(|local| local.starts_with(NAME_SERVER_HEX))
    {
        return Ok(None);
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(Family::INET, SocketType::DGRAM, flags, None)?;
    connect(&socket, &SocketAddrV4::new(NAME_SERVER, 53))?;
    Ok(Some(socket))
}

/// Keeps the stack of the caller's namespace from answering for the addresses of its Ethernet interfaces.
fn silence(interfaces: &Interfaces) -> io::Result<()> {
    // Packets for other hosts must not be sent on.
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "0")?;
    let indices: Vec<u32> = interfaces.links.iter().filter(|l| l.is_ethernet()).map(|l| l.index).collect();
    let socket = socket_with(Family::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    for route in ask_routes(&socket)? {
        if is_local(&route, &indices) {
            remove(&socket, &route)?;
        }
    }
    Ok(())
}

/// Whether a route has the stack take packets to an address of one of these interfaces.
fn is_local(route: &[u8], indices: &[u32]) -> bool {
    let Some(header) = fixed::<RTMSG>(route) else { return false };
    let out = number(list_of(route, RTMSG), libc::RTA_OIF);
    header[4] == LOCAL && header[7] == libc::RTN_LOCAL && out.is_some_and(|index| indices.contains(&index))
}

fn remove(socket: &OwnedFd, route: &[u8]) -> io::Result<()> {
    let Some(header) = fixed::<RTMSG>(route) else { return Ok(()) };
    // Only what tells the route from others: not its flags.
    let mut wanted = *header;
    wanted[8..].fill(0);
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let tells = [libc::RTA_DST, libc::RTA_OIF, libc::RTA_TABLE, libc::RTA_PRIORITY];
    let attributes = list(list_of(route, RTMSG)).filter(|attribute| tells.contains(&attribute.kind));
    let request = Message::new(libc::RTM_DELROUTE, flags, 0, 0).fixed(&wanted);
    let request = attributes.fold(request, |request, found| request.attribute(found.kind, found.value));
    send(socket, &request.done(), SendFlags::empty())?;
    let mut answer = vec![0; 4096];
    let (length, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    let (header, message, _) = next(&answer[..length]).ok_or(io::ErrorKind::InvalidData)?;
    match refusal(message).filter(|_| i32::from(header.kind) == libc::NLMSG_ERROR) {
        // Another process was quicker.
        Some(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_sandboxes() {
        let listing = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00000000 0001 01 17 @ringfence-network-4026-7\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 18\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 19 /run/ringfence-network-8\n";
        assert_eq!(other_mark(listing, "ringfence-network-4026-7"), None);
        assert_eq!(other_mark(listing, "ringfence-network-4026-8"), Some("@ringfence-network-4026-7"));
        assert_eq!(other_mark("", "x"), None);
    }
}

//! Taking a namespace's interfaces over for the stack inside.
//!
//! The container's manager shows and checks the addresses in the namespace (`ip addr`, `docker inspect`), so they stay. Rules
//! of the routing policy (ip-rule(8)) have the host's stack treat only packets of its own loopback interface, or of the TUN
//! interface that leads inside ([`inward`]), as packets for itself. With forwarding off, it silently drops what arrives by other
//! interfaces, whatever addresses they have or will get, and answers no ARP request. IPv6 groups stay its own, so that it listens
//! to routers and gets addresses from them. For IPv6 addresses it still answers with their hardware address, which is the right one.

use crate::inward::{self, HOST_SIDE};
use crate::parse::IFINFO;
use crate::rules::{Packets, look_up_own_addresses};
use crate::{Listeners, Rtnetlink, watch, within};
use netlink_wire::Message;
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily as Family, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with,
};
use rustix::process::{Pid, test_kill_process};
use spec::Interfaces;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Docker's name server. Its port is another one, to which rules of the packet filter lead.
const NAME_SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 11), 53);
/// Packet sockets for interfaces that come later. Closing one takes a grace period of the host's kernel.
pub const SPARES: usize = 4;
/// Interfaces that are used at most when a container is made.
const MOST: usize = 64;

/// What the kernel inside needs to use the interfaces of a namespace.
pub struct Handles {
    /// Tells what the namespace has.
    pub questions: Rtnetlink,
    /// Can be read when that has changed.
    pub events: OwnedFd,
    /// Marks the namespace as the sandbox's for as long as it is open.
    pub mark: OwnedFd,
    /// A datagram socket connected to where Docker has its name server, whether or not there is one.
    pub name_server: OwnedFd,
    /// Packet sockets that are not bound: one for each interface that can be used (of the first 64), and [`SPARES`] more.
    pub packet_sockets: Vec<OwnedFd>,
    /// The file of a TUN interface, with packets of the host's processes in the namespace and to them, and what tells where these
    /// take TCP connections. Without /dev/net/tun there is none.
    pub inward: Option<(OwnedFd, Listeners)>,
}

impl Handles {
    /// In the order in which they are sent.
    pub fn into_fds(self) -> Vec<OwnedFd> {
        let first = [self.questions.into(), self.events, self.mark, self.name_server];
        let last = self.inward.map(|(tun, listeners)| [listeners.into(), tun]);
        first.into_iter().chain(self.packet_sockets).chain(last.into_iter().flatten()).collect()
    }

    /// As they were sent; `None` if some are missing.
    pub fn from_fds(mut fds: Vec<OwnedFd>) -> Option<Handles> {
        // The others are sockets.
        let is_tun = |fd: &mut OwnedFd| {
            let stat = rustix::fs::fstat(&*fd);
            stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice)
        };
        let inward = match fds.pop_if(is_tun) {
            Some(tun) => Some((tun, fds.pop()?.into())),
            None => None,
        };
        let mut fds = fds.into_iter();
        let (questions, events) = (fds.next()?.into(), fds.next()?);
        let (mark, name_server) = (fds.next()?, fds.next()?);
        Some(Handles { questions, events, mark, name_server, packet_sockets: fds.collect(), inward })
    }
}

/// Whether a namespace is the one of the host's first process. Its stack serves others than the container.
fn is_hosts_own(namespace: BorrowedFd<'_>) -> io::Result<bool> {
    let of = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let theirs = of(rustix::fs::fstat(namespace)?);
    Ok(rustix::fs::stat("/proc/1/ns/net").map(of) == Ok(theirs))
}

/// Takes over the namespace behind `namespace` for the sandbox of the process `pid`: what it has now, and the handles with which
/// the kernel inside uses it and follows its changes. From now on the namespace's own stack leaves all interfaces but loopback alone,
/// those that come later included. The caller has made sure that it is not the one in which this process was started: it may be in
/// the container's by now. Needs CAP_SYS_ADMIN and CAP_NET_ADMIN over the namespace. Fails with `ErrorKind::AddrInUse` if
/// another sandbox has taken it over, and with `ErrorKind::ResourceBusy` if other programs serve or have connections there.
pub fn take_over(namespace: BorrowedFd<'_>, pid: i32) -> io::Result<(Interfaces, Handles)> {
    if is_hosts_own(namespace)? {
        return Err(io::Error::other("the network namespace is the host's own"));
    }
    within(namespace, || {
        let questions = Rtnetlink::new()?;
        loopback_up(&questions)?;
        let mark = mark(pid)?;
        refuse_others()?;
        // Without the socket of sock_diag(7) there is no way inward either.
        let inward = silence(&questions)?.zip(Listeners::new().ok());
        // What changes from here on raises an event.
        let events = watch::events()?;
        let interfaces = questions.interfaces()?;
        let used = interfaces.links.iter().filter(|link| link.link_header().is_some()).count();
        let open = || hostsys::packet::open().map_err(|e| io::Error::from_raw_os_error(e.raw()));
        let packet_sockets = (0..used.min(MOST) + SPARES).map(|_| open()).collect::<io::Result<_>>()?;
        let handles =
            Handles { questions, events, mark, name_server: name_server()?, packet_sockets, inward };
        Ok((interfaces, handles))
    })
}

/// How long the other processes of a sandbox may take to end when the first one has ended.
const ENDING: Duration = Duration::from_secs(2);

/// Names of the marks of sandboxes, as /proc/net/unix shows them, and without the first character.
const MARKS: &str = "@ringfence-network-";

/// Marks the caller's network namespace as that of the sandbox of `pid`, for as long as the returned socket is open: the sandbox
/// keeps it. The mark is a name in the abstract namespace of Unix sockets, which belongs to the network namespace.
fn mark(pid: i32) -> io::Result<OwnedFd> {
    // The same number may stand for another process elsewhere.
    let of = std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
    let name = format!("{}{of}-{pid}", &MARKS[1..]);
    let socket = socket_with(Family::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    let until = Instant::now() + ENDING;
    loop {
        // Each of two that come at the same time sees the other's.
        let all = std::fs::read_to_string("/proc/thread-self/net/unix")?;
        let Some(other) = other_mark(&all, &name) else { return Ok(socket) };
        // The mark of a sandbox that was killed stays until its last process has ended.
        let other = other.strip_prefix(&format!("{MARKS}{of}-")).and_then(|pid| pid.parse().ok());
        let lives =
            other.and_then(Pid::from_raw).is_none_or(|pid| test_kill_process(pid) != Err(Errno::SRCH));
        if lives || Instant::now() >= until {
            let message = "another sandbox uses the interfaces of this network namespace";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A sandbox's mark in a listing like /proc/net/unix that is not called `own`.
fn other_mark<'a>(listing: &'a str, own: &str) -> Option<&'a str> {
    let names = listing.lines().filter_map(|line| line.split_whitespace().nth(7));
    names.into_iter().find(|name| name.starts_with(MARKS) && name[1..] != *own)
}

/// Fails if programs use the stack of the caller's namespace by TCP, other than over loopback addresses: they would be cut off.
fn refuse_others() -> io::Result<()> {
    // Without IPv6 there is no second file of a kind.
    let read =
        |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    for (counts, sockets) in [("sockstat", "tcp"), ("sockstat6", "tcp6")] {
        // The host's kernel goes through the sockets of all namespaces for a list, which takes milliseconds.
        if counts_tcp(&read(counts))
            && let Some(address) = used_address(&read(sockets))
        {
            let message = format!("a program outside uses TCP at {address} in the network namespace");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
        }
    }
    Ok(())
}

/// Whether a text like /proc/net/sockstat counts TCP sockets that are in use.
fn counts_tcp(text: &str) -> bool {
    let mut fields = text.lines().map(|line| line.split_whitespace());
    let is_tcp = |fields: &mut std::str::SplitWhitespace<'_>| {
        matches!(fields.next(), Some("TCP:" | "TCP6:")) && fields.next() == Some("inuse")
    };
    fields.any(|mut fields| is_tcp(&mut fields) && fields.next() != Some("0"))
}

/// A local address, not one of loopback, of a socket that listens or is connected, in a listing like /proc/net/tcp.
fn used_address(listing: &str) -> Option<SocketAddr> {
    let fields = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        Some((fields.next()?.to_string(), fields.nth(1)?.to_string()))
    };
    let sockets = listing.lines().skip(1).filter_map(fields);
    // TCP_ESTABLISHED and TCP_LISTEN.
    let used = sockets.filter(|(_, state)| matches!(state.as_str(), "01" | "0A"));
    used.filter_map(|(local, _)| address(&local)).find(|address| !address.ip().to_canonical().is_loopback())
}

/// An address as /proc/net/tcp shows it: words in the byte order of the host, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    match ip.len() {
        8 => Some((Ipv4Addr::from(word(0)?), port).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Some((Ipv6Addr::from(<[u8; 16]>::try_from(words).ok()?), port).into())
        }
        _ => None,
    }
}

/// A socket that is connected to where Docker has its name server, on the namespace's loopback interface.
fn name_server() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(Family::INET, SocketType::DGRAM, flags, None)?;
    // Answers to 127.0.0.1 would go inside.
    bind(&socket, &SocketAddrV4::new(HOST_SIDE, 0))?;
    connect(&socket, &NAME_SERVER)?;
    Ok(socket)
}

/// Sets the caller's loopback interface up, as every runtime does in a new namespace.
fn loopback_up(socket: &Rtnetlink) -> io::Result<()> {
    let mut header = [0; IFINFO];
    let up = (libc::IFF_UP as u32).to_ne_bytes();
    header[4..8].copy_from_slice(&1u32.to_ne_bytes());
    header[8..12].copy_from_slice(&up);
    header[12..].copy_from_slice(&up);
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    socket.request(Message::new(libc::RTM_NEWLINK, flags, 0, 0).fixed(&header))
}

/// Keeps the stack of the caller's namespace from answering for the addresses of interfaces other than loopback, and leads what
/// processes there send to the returned TUN interface. Without one they reach nothing.
fn silence(socket: &Rtnetlink) -> io::Result<Option<OwnedFd>> {
    // Packets for other hosts must not be sent on.
    for file in ["/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"] {
        if std::fs::read_to_string(file).is_ok_and(|set| set.trim() != "0") {
            std::fs::write(file, "0")?;
        }
    }
    let unreachable = |error: io::Error| {
        log::debug!("processes of the host in the network namespace do not reach the sandbox: {error}");
    };
    let tun = inward::open(socket).map_err(unreachable).ok();
    let (loopback, groups) = (Ipv4Addr::new(127, 0, 0, 0), Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0));
    let own = Packets::by("lo");
    let (v4, v6) = match tun {
        Some(_) => {
            let inward = Packets::by(inward::NAME);
            let v4 = vec![own.clone().and_to(loopback, 8), inward.clone()];
            (v4, vec![own.and_to(Ipv6Addr::LOCALHOST, 128), inward, Packets::to(groups, 8)])
        }
        None => (vec![own.clone()], vec![own, Packets::to(groups, 8)]),
    };
    look_up_own_addresses(socket, libc::AF_INET, &v4)?;
    match look_up_own_addresses(socket, libc::AF_INET6, &v6) {
        // A host without IPv6.
        Err(error) if !matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {
            return Err(error);
        }
        _ => {}
    }
    let led = tun.as_ref().map_or(Ok(()), |_| inward::lead(socket));
    // The interface brings packets of hosts to which the table `main` has another way. Where the file cannot be written, most pass.
    let reverse = "/proc/sys/net/ipv4/conf/all/rp_filter";
    if tun.is_some() && std::fs::read_to_string(reverse).is_ok_and(|set| set.trim() != "0") {
        let _ = std::fs::write(reverse, "0").map_err(unreachable);
    }
    Ok(tun.filter(|_| led.map_err(unreachable).is_ok()))
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

    #[test]
    fn sockets_are_counted() {
        assert!(!counts_tcp(
            "sockets: used 9\nTCP: inuse 0 orphan 0 tw 3 alloc 2 mem 0\nUDP: inuse 1 mem 0\n"
        ));
        assert!(counts_tcp("sockets: used 9\nTCP: inuse 1 orphan 0 tw 3 alloc 2 mem 0\n"));
        assert!(!counts_tcp("TCP6: inuse 0\n") && counts_tcp("TCP6: inuse 2\n") && !counts_tcp(""));
    }

    #[test]
    fn sockets_that_others_use() {
        let used = |lines: &[&str]| {
            used_address(&[&["  sl  local_address rem_address   st"], lines].concat().join("\n"))
        };
        assert_eq!(used(&[]), None);
        assert_eq!(
            used(&["   0: 0B00007F:A001 00000000:0000 0A 0", "   1: 0100007F:0016 0100007F:1111 01 0"]),
            None
        );
        let found = used(&["   0: 00000000:0050 00000000:0000 0A 0"]);
        assert_eq!(found, Some("0.0.0.0:80".parse().unwrap()));
        // A connection that has ended.
        assert_eq!(used(&["   0: 0200090A:0050 0100090A:1111 06 0"]), None);
        assert_eq!(used(&["   0: 0200090A:0050 0100090A:1111 01 0"]), Some("10.9.0.2:80".parse().unwrap()));
        let v6 = "   0: 00000000000000000000000001000000:0016 0:0 0A 0";
        assert_eq!(used(&[v6]), None);
        let mapped = "   0: 0000000000000000FFFF00000100007F:0016 0:0 0A 0";
        assert_eq!(used(&[mapped]), None);
        let any = "   0: 00000000000000000000000000000000:0016 0:0 0A 0";
        assert_eq!(used(&[any]), Some("[::]:22".parse().unwrap()));
    }
}

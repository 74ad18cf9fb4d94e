//! Ancillary data: what a receiver is told of a datagram, and what a sender says of it. See ip(7), ipv6(7), socket(7).

use crate::names::{
    IPV6_2292DSTOPTS, IPV6_2292HOPLIMIT, IPV6_2292HOPOPTS, IPV6_2292PKTINFO, IPV6_2292RTHDR,
    IPV6_ORIGDSTADDR, IPV6_RECVORIGDSTADDR, SO_RCVMARK,
};
use crate::{addr, headers};
use abi::time::{Timespec, Timeval};
use abi::{Errno, Result};
use caller::UserMemory;
use ktime::{Clock, Ktime};
use lock_order::Mutex;
use netstack::Stack;
use netstack::datagram::{Datagram, Origin, QueuedError, SendControl};
use netstack::wire::extension::Extensions;
use netstack::wire::proto;
use socket::{Ancillary, NetNamespace};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use zerocopy::IntoBytes;

/// UDP_SEGMENT.
const UDP_SEGMENT: i32 = 103;
/// UDP_GRO.
const UDP_GRO: i32 = 104;

/// What a receiver may ask to be told: level, option, and its bit in [`Wants`].
const REPORTS: [(i32, i32); 22] = [
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, SO_RCVMARK),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_RECVTTL),
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
    (libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    (libc::IPPROTO_IPV6, IPV6_RECVORIGDSTADDR),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPOPTS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVDSTOPTS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVRTHDR),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPATHMTU),
    (libc::IPPROTO_IPV6, IPV6_2292PKTINFO),
    (libc::IPPROTO_IPV6, IPV6_2292HOPLIMIT),
    (libc::IPPROTO_IPV6, IPV6_2292HOPOPTS),
    (libc::IPPROTO_IPV6, IPV6_2292DSTOPTS),
    (libc::IPPROTO_IPV6, IPV6_2292RTHDR),
];

/// What a socket's reader asked to be told.
#[derive(Default)]
pub(crate) struct Wants(AtomicU32);

impl Clone for Wants {
    fn clone(&self) -> Wants {
        Wants(AtomicU32::new(self.0.load(Ordering::Relaxed)))
    }
}

impl Wants {
    fn bit(level: i32, name: i32) -> Option<u32> {
        REPORTS.iter().position(|known| *known == (level, name)).map(|place| 1 << place)
    }

    /// True when the option is one of these.
    pub(crate) fn knows(level: i32, name: i32) -> bool {
        Wants::bit(level, name).is_some()
    }

    /// Whether it is asked for.
    pub(crate) fn get(&self, level: i32, name: i32) -> bool {
        Wants::bit(level, name).is_some_and(|bit| self.0.load(Ordering::Relaxed) & bit != 0)
    }

    /// Asks for it, or no longer.
    pub(crate) fn set(&self, level: i32, name: i32, on: bool) {
        let bit = Wants::bit(level, name).unwrap_or(0);
        if on {
            self.0.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Whether readers are told when datagrams came.
    pub(crate) fn time(&self) -> bool {
        [libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS].iter().any(|name| self.get(libc::SOL_SOCKET, *name))
    }

    /// All of them as bits, for a checkpoint; [`REPORTS`] has their meaning, and only grows.
    pub(crate) fn bits(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Those of a checkpoint.
    pub(crate) fn of_bits(bits: u32) -> Wants {
        Wants(AtomicU32::new(bits & ((1 << REPORTS.len()) - 1)))
    }

    fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

fn message(level: i32, kind: i32, data: &[u8]) -> Ancillary {
    Ancillary { level, kind, data: data.to_vec() }
}

/// The wall clock at a moment of the monotonic one.
pub(crate) fn wall_time(clock: &Clock, at: Ktime) -> Timespec {
    let now = hostsys::clock::gettime_ns(libc::CLOCK_REALTIME).unwrap_or(0);
    let ago = clock.now().since(at).as_nanos() as i64;
    Timespec::from_ns(now - ago)
}

const SIOCGSTAMP: u32 = 0x8906;
const SIOCGSTAMPNS: u32 = 0x8907;
const SIOCGSTAMP_NEW: u32 = 0x8010_8906;
const SIOCGSTAMPNS_NEW: u32 = 0x8010_8907;

/// When the packet arrived that was read last.
#[derive(Default)]
pub(crate) struct Stamp(Mutex<Option<Ktime>>);

impl Stamp {
    /// A packet was read.
    pub(crate) fn note(&self, at: Ktime) {
        *self.0.lock() = Some(at);
    }

    /// When that was.
    pub(crate) fn at(&self) -> Option<Ktime> {
        *self.0.lock()
    }

    /// Answers SIOCGSTAMP and its relatives: `ENOENT` before the first packet; `None` for any other request.
    pub(crate) fn ioctl(
        &self,
        clock: &Clock,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Option<Result<u64>> {
        let nanos = match cmd {
            SIOCGSTAMP | SIOCGSTAMP_NEW => false,
            SIOCGSTAMPNS | SIOCGSTAMPNS_NEW => true,
            _ => return None,
        };
        let Some(at) = *self.0.lock() else { return Some(Err(Errno::ENOENT)) };
        let at = wall_time(clock, at);
        let bytes = match nanos {
            true => at.as_bytes().to_vec(),
            false => Timeval { sec: at.sec, usec: at.nsec / 1000 }.as_bytes().to_vec(),
        };
        Some(mem.copy_out(arg, &bytes).map(|()| 0))
    }
}

/// What the reader of a datagram is told.
pub(crate) fn of_datagram(wants: &Wants, net: &NetNamespace, d: &Datagram) -> Vec<Ancillary> {
    if !wants.any() && d.segment == 0 {
        return Vec::new();
    }
    let mut out = Vec::new();
    let of_socket = |name| wants.get(libc::SOL_SOCKET, name);
    if of_socket(libc::SO_TIMESTAMP) || of_socket(libc::SO_TIMESTAMPNS) {
        let at = wall_time(net.clock(), d.at);
        out.push(match of_socket(libc::SO_TIMESTAMPNS) {
            true => message(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, at.as_bytes()),
            false => {
                let at = Timeval { sec: at.sec, usec: at.nsec / 1000 };
                message(libc::SOL_SOCKET, libc::SO_TIMESTAMP, at.as_bytes())
            }
        });
    }
    if of_socket(libc::SO_TIMESTAMPING) {
        out.push(stamp(net.clock(), d.at));
    }
    if of_socket(libc::SO_RXQ_OVFL) && d.dropped > 0 {
        out.push(message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &d.dropped.to_ne_bytes()));
    }
    if of_socket(SO_RCVMARK) {
        out.push(message(libc::SOL_SOCKET, libc::SO_MARK, &d.mark.to_ne_bytes()));
    }
    if d.segment > 0 {
        out.push(message(libc::SOL_UDP, UDP_GRO, &i32::from(d.segment).to_ne_bytes()));
    }
    // A socket of both families is told the IPv6 way where IPv4 goes, too.
    if wants.get(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) {
        out.push(message(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &packet_info(d)));
    }
    match d.to {
        IpAddr::V4(to) => of_ipv4(wants, net.stack(), d, to, &mut out),
        IpAddr::V6(_) => of_ipv6(wants, d, &mut out),
    }
    out
}

/// `struct scm_timestamping`: by software, unused, by hardware.
pub(crate) fn stamp(clock: &Clock, at: Ktime) -> Ancillary {
    let mut times = wall_time(clock, at).as_bytes().to_vec();
    times.resize(48, 0);
    message(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &times)
}

/// `struct in6_pktinfo`.
fn packet_info(d: &Datagram) -> Vec<u8> {
    let to = match d.to {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut info = to.octets().to_vec();
    info.extend(d.iface.to_ne_bytes());
    info
}

fn of_ipv4(wants: &Wants, stack: &Stack, d: &Datagram, to: Ipv4Addr, out: &mut Vec<Ancillary>) {
    let wanted = |name| wants.get(libc::IPPROTO_IP, name);
    let mut tell = |kind, data: &[u8]| out.push(message(libc::IPPROTO_IP, kind, data));
    if wanted(libc::IP_PKTINFO) {
        let mut info = d.iface.to_ne_bytes().to_vec();
        info.extend(own_address(stack, d, to).octets());
        info.extend(to.octets());
        tell(libc::IP_PKTINFO, &info);
    }
    if wanted(libc::IP_RECVTTL) {
        tell(libc::IP_TTL, &i32::from(d.ttl).to_ne_bytes());
    }
    if wanted(libc::IP_RECVTOS) {
        tell(libc::IP_TOS, &[d.tos]);
    }
    if wanted(libc::IP_RECVORIGDSTADDR) {
        tell(libc::IP_ORIGDSTADDR, &addr::to_bytes(SocketAddr::new(d.to, d.port)));
    }
}

/// The address of this host that an answer comes from.
fn own_address(stack: &Stack, d: &Datagram, to: Ipv4Addr) -> Ipv4Addr {
    if stack.is_local(to.into()) {
        return to;
    }
    let own = stack.link(d.iface).into_iter().flat_map(|link| link.addresses());
    let mut own = own.filter_map(|address| match address.ip() {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    });
    own.next().unwrap_or(to)
}

fn of_ipv6(wants: &Wants, d: &Datagram, out: &mut Vec<Ancillary>) {
    let wanted = |name| wants.get(libc::IPPROTO_IPV6, name);
    let mut tell = |kind, data: &[u8]| out.push(message(libc::IPPROTO_IPV6, kind, data));
    if wanted(libc::IPV6_RECVHOPLIMIT) {
        tell(libc::IPV6_HOPLIMIT, &i32::from(d.ttl).to_ne_bytes());
    }
    if wanted(libc::IPV6_RECVTCLASS) {
        tell(libc::IPV6_TCLASS, &i32::from(d.tos).to_ne_bytes());
    }
    let extensions = d.extensions.as_ref().map(|(first, bytes)| headers::received(*first, bytes));
    let all = extensions.as_deref().unwrap_or_default();
    tell_extensions(&wanted, all, &mut tell);
    if wanted(IPV6_2292PKTINFO) {
        tell(IPV6_2292PKTINFO, &packet_info(d));
    }
    if wanted(IPV6_2292HOPLIMIT) {
        tell(IPV6_2292HOPLIMIT, &i32::from(d.ttl).to_ne_bytes());
    }
    tell_old_extensions(&wanted, all, &mut tell);
    if wanted(IPV6_RECVORIGDSTADDR) {
        tell(IPV6_ORIGDSTADDR, &addr::to_bytes(SocketAddr::new(d.to, d.port)));
    }
}

/// Extension headers as RFC 3542 has them: hop-by-hop options, the others in their order.
fn tell_extensions(wanted: &dyn Fn(i32) -> bool, all: &[(u8, &[u8])], tell: &mut dyn FnMut(i32, &[u8])) {
    for (kind, header) in all {
        let (asked, told) = match *kind {
            proto::HOP_BY_HOP => (libc::IPV6_RECVHOPOPTS, libc::IPV6_HOPOPTS),
            proto::DEST_OPTIONS => (libc::IPV6_RECVDSTOPTS, libc::IPV6_DSTOPTS),
            proto::ROUTING => (libc::IPV6_RECVRTHDR, libc::IPV6_RTHDR),
            _ => continue,
        };
        if wanted(asked) {
            tell(told, header);
        }
    }
}

/// Extension headers as RFC 2292 has them: hop-by-hop options, the last options for the destination before the routing header,
/// the routing header, the last options after it.
fn tell_old_extensions(wanted: &dyn Fn(i32) -> bool, all: &[(u8, &[u8])], tell: &mut dyn FnMut(i32, &[u8])) {
    let routing = all.iter().rposition(|(kind, _)| *kind == proto::ROUTING);
    let (before, after) = all.split_at(routing.unwrap_or(0));
    let last = |part: &[(u8, &[u8])], kind| {
        part.iter().rfind(|(own, _)| *own == kind).map(|(_, header)| header.to_vec())
    };
    let told = [
        (IPV6_2292HOPOPTS, last(all, proto::HOP_BY_HOP)),
        (IPV6_2292DSTOPTS, last(before, proto::DEST_OPTIONS)),
        (IPV6_2292RTHDR, last(all, proto::ROUTING)),
        (IPV6_2292DSTOPTS, last(after, proto::DEST_OPTIONS)),
    ];
    for (name, header) in told {
        if let Some(header) = header.filter(|_| wanted(name)) {
            tell(name, &header);
        }
    }
}

/// IPV6_RECVPATHMTU: a datagram that the socket sent was too large.
pub(crate) fn of_too_large(to: SocketAddrV6, mtu: u32) -> Ancillary {
    let info = headers::mtu_info(to, mtu, libc::AF_INET6 as u16);
    message(libc::IPPROTO_IPV6, libc::IPV6_PATHMTU, &info)
}

/// `struct sock_extended_err` and the address of the host that reported it: IP_RECVERR, IPV6_RECVERR.
pub(crate) fn of_error(v6: bool, e: &QueuedError) -> Ancillary {
    let mut data = e.errno.raw().to_ne_bytes().to_vec();
    data.extend([e.origin as u8, e.kind, e.code, 0]);
    data.extend(e.info.to_ne_bytes());
    data.extend(e.id.to_ne_bytes());
    let offender = e.offender.filter(|_| e.origin != Origin::Local).map(|ip| match ip {
        IpAddr::V4(v4) if v6 => SocketAddr::new(v4.to_ipv6_mapped().into(), 0),
        ip => SocketAddr::new(ip, 0),
    });
    let len = addr::to_bytes(SocketAddr::new(unspecified(v6), 0)).len();
    data.extend(offender.map_or_else(|| vec![0; len], addr::to_bytes));
    let (level, kind) = match v6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        false => (libc::IPPROTO_IP, libc::IP_RECVERR),
    };
    Ancillary { level, kind, data }
}

fn unspecified(v6: bool) -> IpAddr {
    if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// What a sender says of a datagram over IPv4 or IPv6. Messages of other levels are ignored. `privileged` says whether the sender
/// may send options for hops and destinations; `foreign` says whether the socket may send from addresses that are not
/// the host's.
pub(crate) fn of_sender(
    stack: &Stack,
    (over_v6, foreign): (bool, bool),
    messages: &[Ancillary],
    privileged: impl Fn() -> bool,
) -> Result<SendControl> {
    let mut control = SendControl::default();
    let mut extensions = Extensions::default();
    for m in messages {
        match m.level {
            libc::IPPROTO_IP if !over_v6 => say_ipv4(&mut control, m)?,
            libc::IPPROTO_IPV6 if over_v6 => match headers::say(&mut extensions, m, &privileged) {
                Some(said) => said?,
                None => say_ipv6(stack, &mut control, m)?,
            },
            libc::IPPROTO_UDP if m.kind == UDP_SEGMENT => {
                let size: [u8; 2] = m.data.as_slice().try_into().map_err(|_| Errno::EINVAL)?;
                control.segment = u16::from_ne_bytes(size);
            }
            libc::IPPROTO_UDP => return Err(Errno::EINVAL),
            _ => {}
        }
    }
    control.extensions = (!extensions.is_empty()).then(|| Arc::new(extensions));
    let nonlocal = over_v6 && stack.sysctls.ip6_nonlocal_bind.on();
    let group = |source: IpAddr| source.is_multicast() || source == Ipv4Addr::BROADCAST;
    let refused = |source: IpAddr| !stack.is_local(source) && (!foreign && !nonlocal || group(source));
    if control.source.is_some_and(refused) {
        if control.source.is_some_and(group) {
            return Err(Errno::EINVAL);
        }
        return Err(if over_v6 { Errno::EINVAL } else { Errno::ENETUNREACH });
    }
    Ok(control)
}

fn array<const N: usize>(data: &[u8], at: usize) -> Result<[u8; N]> {
    data.get(at..).and_then(<[u8]>::first_chunk).copied().ok_or(Errno::EINVAL)
}

fn small(v: i32, least: i32) -> Result<Option<u8>> {
    match v {
        -1 if least < 0 => Ok(None),
        v if v >= least => u8::try_from(v).map(Some).map_err(|_| Errno::EINVAL),
        _ => Err(Errno::EINVAL),
    }
}

fn say_ipv4(control: &mut SendControl, m: &Ancillary) -> Result<()> {
    match m.kind {
        libc::IP_PKTINFO if m.data.len() == 12 => {
            control.iface = u32::from_ne_bytes(array(&m.data, 0)?);
            let source = Ipv4Addr::from(array::<4>(&m.data, 4)?);
            control.source = (!source.is_unspecified()).then_some(source.into());
        }
        libc::IP_TTL if m.data.len() == 4 => control.ttl = small(i32::from_ne_bytes(array(&m.data, 0)?), 1)?,
        libc::IP_TOS if m.data.len() == 1 => control.tos = m.data.first().copied(),
        libc::IP_TOS if m.data.len() == 4 => control.tos = small(i32::from_ne_bytes(array(&m.data, 0)?), 0)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

fn say_ipv6(stack: &Stack, control: &mut SendControl, m: &Ancillary) -> Result<()> {
    match m.kind {
        libc::IPV6_PKTINFO | IPV6_2292PKTINFO if m.data.len() >= 20 => {
            control.iface = u32::from_ne_bytes(array(&m.data, 16)?);
            if control.iface != 0 && stack.link(control.iface).is_none() {
                return Err(Errno::ENODEV);
            }
            let source = Ipv6Addr::from(array::<16>(&m.data, 0)?);
            control.source = (!source.is_unspecified()).then_some(source.into());
        }
        libc::IPV6_HOPLIMIT | IPV6_2292HOPLIMIT if m.data.len() == 4 => {
            control.ttl = small(i32::from_ne_bytes(array(&m.data, 0)?), -1)?;
        }
        libc::IPV6_TCLASS if m.data.len() == 4 => {
            control.tos = small(i32::from_ne_bytes(array(&m.data, 0)?), -1)?;
        }
        libc::IPV6_DONTFRAG if m.data.len() == 4 => match i32::from_ne_bytes(array(&m.data, 0)?) {
            v @ (0 | 1) => control.dont_fragment = Some(v == 1),
            _ => return Err(Errno::EINVAL),
        },
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

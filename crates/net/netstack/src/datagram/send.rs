//! Sending datagrams.

use super::{DatagramSocket, Inner, Protocol, scope_id};
use crate::addr::reaches;
use crate::buf::Buf;
use crate::checksum::Sum;
use crate::frame::{Checksum, Frame, Offload, Part, Tags};
use crate::network::path::{Cast, Header, Path};
use crate::notify::Events;
use crate::options::{IpOptions, MtuDiscovery};
use crate::ports::is_any;
use crate::stamps::{self, Moment};
use crate::wire::extension::Extensions;
use crate::wire::icmp::{ECHO, ECHO6, Icmp};
use crate::wire::ip::Ipv4;
use crate::wire::ipv6::Ipv6;
use crate::wire::proto;
use crate::wire::udp::Udp;
use abi::Errno;
use ktime::Ktime;
use lock_order::{MutexGuard, rank};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Ancillary data and flags of one send.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct SendControl {
    /// `IP_PKTINFO`, `IPV6_PKTINFO`: source address
    pub source: Option<IpAddr>,
    /// `IP_PKTINFO`, `IPV6_PKTINFO`: interface, 0 for none
    pub iface: u32,
    /// `IP_TTL`, `IPV6_HOPLIMIT`
    pub ttl: Option<u8>,
    /// `IP_TOS`, `IPV6_TCLASS`
    pub tos: Option<u8>,
    /// `UDP_SEGMENT`
    pub segment: u16,
    /// `MSG_MORE`
    pub more: bool,
    /// Extension headers of IPv6 instead of the socket's (`IPV6_HOPOPTS` and its relatives)
    pub extensions: Option<Arc<Extensions>>,
    /// `IPV6_DONTFRAG`
    pub dont_fragment: Option<bool>,
    /// `SO_MARK`
    pub mark: Option<u32>,
    /// `SO_TIMESTAMPING`: what is recorded of this datagram besides what the socket's option asks for
    pub stamps: u32,
}

/// Timestamps that a sent datagram is to have in the error queue.
struct Stamps {
    /// `SOF_TIMESTAMPING_TX_*`
    wanted: u32,
    id: u32,
    /// Bytes of the datagram that come with them.
    shown: usize,
}

impl DatagramSocket {
    /// Sends a datagram (send(2), sendto(2), sendmsg(2)).
    pub fn send(
        self: &Arc<Self>,
        now: Ktime,
        data: &[u8],
        to: Option<SocketAddr>,
        control: &SendControl,
    ) -> Result<usize, Errno> {
        if let Some(error) = self.queue.lock().error.take() {
            return Err(error);
        }
        let inner = self.inner.lock();
        // Raw sockets do not look at it.
        if inner.write_shut && !self.is_raw() {
            return Err(Errno::EPIPE);
        }
        let to = self.destination(&inner, to)?;
        let more = (control.more || inner.options.cork) && self.protocol.is_udp();
        if more || inner.corked.is_some() {
            self.cork(inner, now, data, to, control, more)?;
        } else {
            self.send_and_unlock(inner, now, data, to, control)?;
        }
        Ok(data.len())
    }

    /// Sends what a cork held back.
    pub(super) fn flush_cork(self: &Arc<Self>, now: Ktime) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        let Some((data, to, control)) = inner.corked.take() else { return Ok(()) };
        self.send_and_unlock(inner, now, &data, to, &control)
    }

    /// The timestamps that the socket and the sender want of a datagram, with its number.
    fn stamps(inner: &mut Inner, control: &SendControl) -> Option<Stamps> {
        let options = &mut inner.options;
        let wanted = (options.timestamping | control.stamps) & (stamps::TX_SCHED | stamps::TX_SOFTWARE);
        if wanted == 0 {
            return None;
        }
        let counted = options.timestamping & stamps::OPT_ID != 0;
        let id = if counted { options.stamp_id } else { 0 };
        options.stamp_id = id.wrapping_add(counted.into());
        let shown = if options.timestamping & stamps::OPT_TSONLY != 0 { 0 } else { stamps::SHOWN };
        Some(Stamps { wanted, id, shown })
    }

    /// Puts the times when a datagram was scheduled and sent into the error queue (`SO_TIMESTAMPING`).
    fn note_sent(&self, now: Ktime, data: &[u8], to: SocketAddr, told: &Stamps) {
        let data = data.get(..data.len().min(told.shown)).unwrap_or_default();
        for (flag, moment) in [(stamps::TX_SCHED, Moment::Scheduled), (stamps::TX_SOFTWARE, Moment::Sent)] {
            if told.wanted & flag == 0 {
                continue;
            }
            self.queue.lock().push_error(super::QueuedError {
                errno: Errno::ENOMSG,
                origin: super::Origin::Timestamping,
                kind: 0,
                code: 0,
                info: moment as u32,
                id: told.id,
                at: Some(now),
                offender: None,
                to,
                data: self.net.links.pool.copy(data),
            });
        }
        self.notify.changed(Events::ERR);
    }

    /// Sends a datagram, gives the lock back, and does what follows.
    fn send_and_unlock(
        self: &Arc<Self>,
        mut inner: MutexGuard<'_, Inner, { rank::SOCKET }>,
        now: Ktime,
        data: &[u8],
        to: SocketAddr,
        control: &SendControl,
    ) -> Result<(), Errno> {
        let result = self.send_locked(&mut inner, now, data, to, control);
        let told = result.is_ok().then(|| Self::stamps(&mut inner, control)).flatten();
        drop(inner);
        self.finish(now);
        if let Some(told) = told {
            self.note_sent(now, data, to, &told);
        }
        result
    }

    fn cork(
        self: &Arc<Self>,
        mut inner: MutexGuard<'_, Inner, { rank::SOCKET }>,
        now: Ktime,
        data: &[u8],
        to: SocketAddr,
        control: &SendControl,
        more: bool,
    ) -> Result<(), Errno> {
        let fresh = || (self.net.buf(data.len()), to, control.clone());
        let (mut held, to, control) = inner.corked.take().unwrap_or_else(fresh);
        if held.len() + data.len() > MAX_UDP {
            inner.corked = Some((held, to, control));
            return Err(Errno::EMSGSIZE);
        }
        held.extend(data);
        if more {
            inner.corked = Some((held, to, control));
            return Ok(());
        }
        self.send_and_unlock(inner, now, &held, to, &control)
    }

    /// The destination: what the caller names, or the peer.
    fn destination(&self, inner: &Inner, to: Option<SocketAddr>) -> Result<SocketAddr, Errno> {
        let Some(to) = to else { return inner.remote.ok_or(Errno::EDESTADDRREQ) };
        let mut ip = self.accepts(inner, to.ip())?;
        reaches(inner.bound_ip, ip)?;
        if is_any(ip) {
            ip = if ip.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        }
        if self.protocol.is_udp() && to.port() == 0 {
            return Err(Errno::EINVAL);
        }
        let mut plain = SocketAddr::new(ip, to.port());
        if let SocketAddr::V6(v6) = &mut plain {
            v6.set_scope_id(scope_id(to));
        }
        Ok(plain)
    }

    fn send_locked(
        self: &Arc<Self>,
        inner: &mut Inner,
        now: Ktime,
        data: &[u8],
        to: SocketAddr,
        control: &SendControl,
    ) -> Result<(), Errno> {
        let too_long = data.len() > 65_535;
        if too_long && to.is_ipv4() {
            return Err(Errno::EMSGSIZE);
        }
        let extensions = self.extensions(inner, to, control);
        let via = extensions.as_deref().and_then(Extensions::via);
        let path = self.path(inner, now, to, via, control)?;
        // The address of a socket with a peer of IPv4 is no source for IPv6.
        if to.is_ipv6() && inner.remote.is_some_and(|peer| peer.is_ipv4()) {
            return Err(Errno::EAFNOSUPPORT);
        }
        if too_long {
            self.note_local_error(inner, Errno::EMSGSIZE, path.mtu, to);
            return Err(Errno::EMSGSIZE);
        }
        if inner.binding.is_none() && self.table().is_some() {
            let ip = inner.bound_ip;
            self.take_port(inner, ip, 0)?;
        }
        let inner = &*inner;
        let mut message =
            Message { now, path: &path, to, control, extensions: extensions.as_deref(), part: Part::Alone };
        match self.protocol {
            Protocol::Udp | Protocol::UdpLite => {
                let segment =
                    usize::from(if control.segment > 0 { control.segment } else { inner.options.segment });
                if segment == 0 || data.len() <= segment {
                    return self.send_udp(inner, &message, data);
                }
                if self.protocol == Protocol::UdpLite {
                    return Err(Errno::EIO);
                }
                // UDP_MAX_SEGMENTS
                if data.len().div_ceil(segment) > 128 {
                    return Err(Errno::EINVAL);
                }
                data.chunks(segment).enumerate().try_for_each(|(n, data)| {
                    message.part = Part::of(n);
                    self.send_udp(inner, &message, data)
                })
            }
            Protocol::Ping => self.send_ping(inner, &message, data),
            Protocol::Raw(protocol) => self.send_raw(inner, &message, data, protocol),
        }
    }

    /// The extension headers of a packet: the sender's, or else the socket's.
    fn extensions(&self, inner: &Inner, to: SocketAddr, control: &SendControl) -> Option<Arc<Extensions>> {
        let chosen = control.extensions.as_ref().or(inner.options.extensions.as_ref());
        chosen.filter(|_| to.is_ipv6()).cloned()
    }

    /// The way to a destination, from the cache when nothing has changed. `via` is the first hop of a routing header.
    fn path(
        &self,
        inner: &mut Inner,
        now: Ktime,
        to: SocketAddr,
        via: Option<Ipv6Addr>,
        control: &SendControl,
    ) -> Result<Path, Errno> {
        let plain = control.source.is_none() && control.iface == 0 && control.mark.is_none() && via.is_none();
        if plain
            && let Some(path) = &inner.path
            && path.dst == to.ip()
            && path.generation == self.net.generation()
        {
            return Ok(limited(&inner.options, path.clone()));
        }
        let mut key = self.key(inner, via.map_or(to.ip(), IpAddr::V6), scope_id(to));
        if control.iface != 0 {
            key.oif = control.iface;
        } else if key.oif == 0 && to.is_ipv6() {
            key.oif = inner.options.sticky_device;
        }
        key.src = control.source.or(key.src);
        key.mark = control.mark.unwrap_or(key.mark);
        let path = self.net.route(&key, now)?;
        if path.cast == Cast::Broadcast && !inner.options.broadcast {
            return Err(Errno::EACCES);
        }
        if plain {
            inner.path = Some(path.clone());
        }
        Ok(limited(&inner.options, path))
    }

    /// The IP fields of a packet of `len` bytes.
    fn header(&self, inner: &Inner, message: &Message<'_>, protocol: u8, len: usize) -> Header {
        let (options, path, control) = (&inner.options, message.path, message.control);
        let fits = len <= path.mtu as usize;
        Header {
            protocol,
            tos: control.tos.unwrap_or(options.tos_for(path.dst)),
            ttl: control.ttl.or(options.ttl_for(path.dst)),
            dont_fragment: match options.mtu_discovery {
                MtuDiscovery::Dont | MtuDiscovery::Omit => false,
                MtuDiscovery::Want => fits,
                MtuDiscovery::Interface => !fits,
                MtuDiscovery::Do | MtuDiscovery::Probe => true,
            },
            flow: inner.binding.map_or(0, |binding| binding.port.into()),
            flow_label: 0,
            loop_back: options.multicast_loop,
            mark: control.mark.unwrap_or(options.mark),
            owner: options.owner(),
            part: message.part,
        }
    }

    /// Puts a transport message into a packet and sends it.
    fn send_message(
        self: &Arc<Self>,
        message: &Message<'_>,
        mut header: Header,
        mut buf: Buf,
        mut offload: Offload,
    ) -> Result<(), Errno> {
        if let (Some(extensions), IpAddr::V6(target)) = (message.extensions, message.to.ip()) {
            let len = buf.len();
            header.protocol = extensions.wrap(&mut buf, header.protocol, target);
            if let Checksum::Partial { start, .. } = &mut offload.checksum {
                *start += (buf.len() - len) as u16;
            }
        }
        self.net.send_ip(message.now, message.path, &header, buf, offload)
    }

    /// Refuses a packet of `len` bytes that would be cut though the sender forbids it (`IPV6_DONTFRAG`).
    fn refuse_fragments(&self, inner: &Inner, message: &Message<'_>, len: usize) -> Result<(), Errno> {
        let forbidden = message.control.dont_fragment.unwrap_or(inner.options.dont_fragment6);
        let IpAddr::V6(to) = message.to.ip() else { return Ok(()) };
        if !forbidden || len <= message.path.mtu as usize {
            return Ok(());
        }
        // What is left for the IP header, the transport's and the data.
        let mtu = message.path.mtu.saturating_sub(message.extensions.map_or(0, Extensions::len) as u32);
        if inner.options.receive_path_mtu {
            let named = [message.control.iface, scope_id(message.to), inner.options.device];
            let iface = named.into_iter().find(|index| *index != 0).unwrap_or(inner.options.sticky_device);
            self.queue.lock().too_large = Some(super::TooLarge { mtu, to, iface });
        }
        self.note_local_error(inner, Errno::EMSGSIZE, mtu, message.to);
        Err(Errno::EMSGSIZE)
    }

    fn send_udp(self: &Arc<Self>, inner: &Inner, message: &Message<'_>, data: &[u8]) -> Result<(), Errno> {
        let &Message { path, to, .. } = message;
        let v4 = path.dst.is_ipv4();
        let ip_len = if v4 { Ipv4::LEN } else { 40 + message.extensions.map_or(0, Extensions::len) };
        self.refuse_fragments(inner, message, data.len() + Udp::LEN + ip_len)?;
        if data.len() > if v4 { MAX_UDP } else { MAX_UDP + Ipv4::LEN + 40 - ip_len } {
            if !v4 || data.len() <= MAX_PACKET as usize {
                self.note_local_error(inner, Errno::EMSGSIZE, path.mtu, to);
            }
            return Err(Errno::EMSGSIZE);
        }
        let src = inner.binding.map_or(0, |binding| binding.port);
        let lite = self.protocol == Protocol::UdpLite;
        let protocol = if lite { proto::UDP_LITE } else { proto::UDP };
        let header = self.header(inner, message, protocol, data.len() + Udp::LEN + ip_len);
        let mut buf = self.net.links.pool.copy(data);
        let mut udp = Udp::new(src, to.port(), data.len());
        let mut offload = Offload::default();
        let trusted = path.iface.features().checksum && data.len() + Udp::LEN + ip_len <= path.mtu as usize;
        if lite {
            udp = Udp::lite(src, to.port(), (path.src, to.ip()), data, inner.options.send_coverage);
        } else if path.cast == Cast::Local || trusted {
            let sum = Sum::new().pseudo(path.src, to.ip(), proto::UDP, data.len() + Udp::LEN);
            udp = udp.with_checksum(sum.partial());
            offload.checksum = Checksum::Partial { start: 0, offset: 6 };
        } else if if v4 { !inner.options.no_checksum } else { !inner.options.no_checksum6 } {
            udp = udp.sealed(path.src, to.ip(), data);
        }
        buf.push_front(udp.as_bytes());
        let result = self.send_message(message, header, buf, offload);
        match &result {
            Ok(()) => self.net.counters.udp_of(lite, path.dst).out_datagrams.bump(),
            Err(errno) => self.note_local_error(inner, *errno, path.mtu, to),
        }
        result
    }

    /// A packet that is too large is told in the error queue, too, without what was in it (ip(7), `IP_RECVERR`).
    fn note_local_error(&self, inner: &Inner, errno: Errno, mtu: u32, to: SocketAddr) {
        if errno != Errno::EMSGSIZE || !inner.options.wants_errors(to.ip()) {
            return;
        }
        // IPv4 tells the port of the socket's peer, wherever the packet went.
        let port = if to.is_ipv4() { inner.remote.map_or(0, |peer| peer.port()) } else { to.port() };
        let mut to = to;
        to.set_port(port);
        let error = super::QueuedError {
            errno,
            origin: super::Origin::Local,
            kind: 0,
            code: 0,
            info: if to.is_ipv4() { mtu.min(MAX_PACKET) } else { mtu },
            id: 0,
            at: None,
            offender: None,
            to,
            data: self.net.links.pool.copy(&[]),
        };
        let mut queue = self.queue.lock();
        queue.push_error(error);
        queue.error = None;
    }

    fn send_ping(self: &Arc<Self>, inner: &Inner, message: &Message<'_>, data: &[u8]) -> Result<(), Errno> {
        let (kind, protocol) = if self.is_v6() { (ECHO6, proto::ICMPV6) } else { (ECHO, proto::ICMP) };
        let given: &[u8; 8] = data.first_chunk().ok_or(Errno::EINVAL)?;
        if given[0] != kind || given[1] != 0 {
            return Err(Errno::EINVAL);
        }
        let len = data.len() + 40 + message.extensions.map_or(0, Extensions::len);
        self.refuse_fragments(inner, message, len)?;
        let ident = inner.binding.map_or(0, |binding| binding.port).to_be_bytes();
        let body = &data[Icmp::LEN..];
        let icmp = Icmp::new(kind, 0, [ident[0], ident[1], given[6], given[7]]);
        let mut buf = self.net.links.pool.copy(body);
        buf.push_front(icmp.sealed(message.between(), body).as_bytes());
        let header = self.header(inner, message, protocol, len);
        self.net.counters.icmp_sent(self.is_v6(), kind);
        self.send_message(message, header, buf, Offload::default())
    }

    fn send_raw(
        self: &Arc<Self>,
        inner: &Inner,
        message: &Message<'_>,
        data: &[u8],
        protocol: u8,
    ) -> Result<(), Errno> {
        let len = data.len() + 40 + message.extensions.map_or(0, Extensions::len);
        let header = self.header(inner, message, protocol, len);
        let included = inner.options.header_included || protocol == proto::RAW;
        if included {
            return match self.is_v6() {
                false => self.send_with_header(message.now, message.path, data, &header),
                true => self.send_as_it_is(message, data, &header),
            };
        }
        self.refuse_fragments(inner, message, len)?;
        let mut buf = self.net.links.pool.copy(data);
        let at = if protocol == proto::ICMPV6 { Some(2) } else { inner.options.checksum_at };
        if let Some(at) = at.filter(|_| self.is_v6()) {
            self.fill_checksum(message, &mut buf, protocol, at.into())?;
        }
        self.send_message(message, header, buf, GIVEN)
    }

    /// `IPV6_CHECKSUM` (RFC 3542 section 3.1).
    fn fill_checksum(
        &self,
        message: &Message<'_>,
        buf: &mut Buf,
        protocol: u8,
        at: usize,
    ) -> Result<(), Errno> {
        let len = buf.len();
        let field = buf.bytes_mut().get_mut(at..at + 2).ok_or(Errno::EINVAL)?;
        field.fill(0);
        let sum = Sum::new().pseudo(message.path.src, message.to.ip(), protocol, len).with(buf).finish();
        if let Some(field) = buf.bytes_mut().get_mut(at..at + 2) {
            field.copy_from_slice(&sum.to_be_bytes());
        }
        Ok(())
    }

    /// `IPV6_HDRINCL`: the sender's packet goes out as it is.
    fn send_as_it_is(
        self: &Arc<Self>,
        message: &Message<'_>,
        data: &[u8],
        header: &Header,
    ) -> Result<(), Errno> {
        if data.len() > message.path.mtu as usize {
            return Err(Errno::EMSGSIZE);
        }
        Ipv6::parse_quoted(data).ok_or(Errno::EINVAL)?;
        self.net.counters.ip6.out_requests.bump();
        let tags = Tags { mark: header.mark, owner: header.owner, ..Tags::default() };
        let frame = Frame { tags, offload: GIVEN, ..Frame::new(self.net.links.pool.copy(data)) };
        self.net.send_own(message.now, message.path, frame, header)
    }

    /// `IP_HDRINCL`: the stack fills in length, checksum, and source and identification if they are zero (raw(7)).
    fn send_with_header(
        self: &Arc<Self>,
        now: Ktime,
        path: &Path,
        data: &[u8],
        header: &Header,
    ) -> Result<(), Errno> {
        if data.len() > path.mtu as usize {
            return Err(Errno::EMSGSIZE);
        }
        let given = Ipv4::parse_quoted(data).ok_or(Errno::EINVAL)?;
        let options = data.get(Ipv4::LEN..given.header_len()).ok_or(Errno::EINVAL)?;
        let mut buf = self.net.links.pool.copy(data);
        let src = if given.src().is_unspecified() { path.src } else { given.src().into() };
        let (IpAddr::V4(src), bytes) = (src, buf.bytes_mut()) else { return Err(Errno::EINVAL) };
        bytes[2..4].copy_from_slice(&(data.len() as u16).to_be_bytes());
        if given.id.get() == 0 {
            bytes[4..6].copy_from_slice(&(self.net.ident() as u16).to_be_bytes());
        }
        bytes[10..12].fill(0);
        bytes[12..16].copy_from_slice(&src.octets());
        let sum = Sum::new().with(&bytes[..Ipv4::LEN]).with(options).finish();
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        self.net.counters.ip.out_requests.bump();
        let tags = Tags { mark: header.mark, owner: header.owner, ..Tags::default() };
        self.net.send_own(now, path, Frame { tags, offload: GIVEN, ..Frame::new(buf) }, header)
    }
}

/// What a raw socket sends has checksums of the program's own.
const GIVEN: Offload = Offload { checksum: Checksum::Given, gso: None };

/// The largest IPv4 packet.
const MAX_PACKET: u32 = 65_535;

/// Payload of the largest UDP datagram over IPv4.
const MAX_UDP: usize = 65_507;

/// A datagram on its way into packets.
struct Message<'a> {
    now: Ktime,
    path: &'a Path,
    /// The destination, which a routing header may put behind others.
    to: SocketAddr,
    control: &'a SendControl,
    extensions: Option<&'a Extensions>,
    /// The place among datagrams that are one piece for their sender.
    part: Part,
}

impl Message<'_> {
    /// What a checksum of ICMPv6 counts besides the message.
    fn between(&self) -> Option<(Ipv6Addr, Ipv6Addr)> {
        match (self.path.src, self.to.ip()) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some((src, dst)),
            _ => None,
        }
    }
}

/// What is known of the path does not count for a socket that does not want to know.
fn limited(options: &IpOptions, mut path: Path) -> Path {
    if matches!(options.mtu_discovery, MtuDiscovery::Probe | MtuDiscovery::Interface | MtuDiscovery::Omit) {
        path.mtu = path.iface.mtu();
    }
    path
}

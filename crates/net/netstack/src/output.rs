//! Output: from a transport message to frames.

use crate::addr::unspecified;
use crate::backlog::{Arrival, Way};
use crate::buf::Buf;
use crate::checksum::Sum;
use crate::frame::{Checksum, Frame, Offload, Tags, finish_checksum};
use crate::hooks::{Point, Verdict};
use crate::iface::LOOPBACK;
use crate::iface::{Iface, Kind};
use crate::neigh::{Act, Resolution};
use crate::path::{Cast, Header, Path};
use crate::route::{Hop, Key, RouteKind, choose};
use crate::stack::Stack;
use crate::time::Instant;
use crate::wire::eth::{self, Arp, Ethernet, Mac};
use crate::wire::icmp::Neighbour;
use crate::wire::ip::Ipv4;
use crate::wire::ipv6::Ipv6;
use crate::wire::proto;
use abi::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use zerocopy::IntoBytes;
use zerocopy::network_endian::U16;

/// What a route says: kind, interface, next hop, source and MTU.
type Found = (RouteKind, u32, IpAddr, Option<IpAddr>, Option<u32>);

impl Stack {
    /// Finds the way to a destination (RFC 1122 section 3.3.1, RFC 6724).
    pub fn route(&self, key: &Key, now: Instant) -> Result<Path, Errno> {
        let generation = self.generation();
        let group = key.dst.is_multicast() || key.dst == Ipv4Addr::BROADCAST;
        let own = key.dst.is_ipv4() && key.iif == 0;
        let key = &Key { oif: self.group_way(key, group && own)?, ..*key };
        let (kind, index, next_hop, source, mtu) = if group && own && key.oif != 0 {
            (RouteKind::Unicast, key.oif, key.dst, None, None)
        } else {
            match self.look_up(key, group) {
                // What is to leave by an interface has its destination on the link then, says Linux.
                Err(_) if own && key.oif != 0 => (RouteKind::Unicast, key.oif, key.dst, None, None),
                found => found?,
            }
        };
        // What the stack sends to itself needs no interface.
        let usable = |link: &Arc<Iface>| link.is_up() || kind == RouteKind::Local;
        let owner = self.link(index).filter(usable).ok_or(Errno::ENETUNREACH)?;
        let cast = match kind {
            RouteKind::Local => Cast::Local,
            RouteKind::Broadcast => Cast::Broadcast,
            _ if key.dst.is_multicast() => Cast::Multicast,
            _ if key.dst == Ipv4Addr::BROADCAST => Cast::Broadcast,
            _ => Cast::Unicast,
        };
        let iface =
            if cast == Cast::Local { self.link(LOOPBACK).ok_or(Errno::ENETUNREACH)? } else { owner.clone() };
        if own && key.src.is_some_and(|src| src.is_loopback()) && !self.may_be_loopbacks(&iface) {
            return Err(Errno::EINVAL);
        }
        let local = || (cast == Cast::Local).then_some(key.dst);
        let src = key.src.or(source).or_else(local).or_else(|| self.source(&owner, key.dst, next_hop));
        let src = match src {
            Some(src) => src,
            None if key.dst.is_ipv4() => unspecified(key.dst),
            None => return Err(Errno::EADDRNOTAVAIL),
        };
        let largest = if key.dst.is_ipv4() { 65_535 } else { u32::MAX };
        let link_mtu = if key.dst.is_ipv4() { iface.mtu() } else { iface.mtu6() };
        let link_mtu = link_mtu.min(mtu.unwrap_or(largest)).min(largest);
        let mtu = self.pmtus.read().get(key.dst, now).map_or(link_mtu, |path| path.min(link_mtu));
        Ok(Path { iface, src, dst: key.dst, next_hop, cast, mtu, generation })
    }

    /// The interface that a packet must leave by: for a group or all hosts of a link, that of the source, if there is one.
    fn group_way(&self, key: &Key, group: bool) -> Result<u32, Errno> {
        match key.src.filter(|_| group && key.oif == 0) {
            Some(src) => self.owner_of(src).map(|link| link.index).ok_or(Errno::ENETUNREACH),
            None => Ok(key.oif),
        }
    }

    /// Whether packets of loopback addresses leave by an interface.
    fn may_be_loopbacks(&self, iface: &Iface) -> bool {
        iface.index == LOOPBACK || self.routes_localnet(iface)
    }

    /// Kind, interface, next hop, source and MTU of the route to a destination.
    fn look_up(&self, key: &Key, group: bool) -> Result<Found, Errno> {
        let routes = self.routes.read();
        let route = routes.lookup(key, |_| true)?;
        let several: Vec<_> = if route.others.is_empty() { Vec::new() } else { route.hops().collect() };
        let found = (route.kind, route.iface, route.gateway, route.source, route.mtu);
        drop(routes);
        let (kind, index, gateway, source, mtu) = found;
        let (index, gateway) = self.one_of(key, &several).unwrap_or((index, gateway));
        Ok((kind, index, gateway.filter(|_| !group).unwrap_or(key.dst), source, mtu))
    }

    /// The hop that a packet takes: the same for all packets between two addresses (`fib_multipath_hash_policy` 0), of
    /// those with interfaces that are up.
    fn one_of(&self, key: &Key, hops: &[Hop]) -> Option<(u32, Option<IpAddr>)> {
        if hops.is_empty() {
            return None;
        }
        let up =
            |hop: &&Hop| self.link(hop.iface).is_some_and(|link| link.is_up() && !link.about().no_carrier);
        let named = |hop: &&Hop| key.oif == 0 || hop.iface == key.oif;
        let alive: Vec<Hop> = hops.iter().filter(named).filter(up).copied().collect();
        let hash = self.keys.hash("multipath", (key.src, key.dst)) as u32;
        choose(&alive, hash).map(|hop| (hop.iface, hop.gateway))
    }

    /// A source address of the interface, or else of any other.
    fn source(&self, iface: &Iface, dst: IpAddr, next_hop: IpAddr) -> Option<IpAddr> {
        let other = || {
            self.links()
                .iter()
                .filter(|link| link.is_up() && link.index != LOOPBACK)
                .find_map(|link| link.source_for(dst, dst))
        };
        iface.source_for(dst, next_hop).or_else(other)
    }

    /// Sends a transport message. Checksum and segmentation descriptors count from the start of `buf`.
    pub(crate) fn send_ip(
        self: &Arc<Self>,
        now: Instant,
        path: &Path,
        header: &Header,
        mut buf: Buf,
        offload: Offload,
    ) -> Result<(), Errno> {
        self.counters.ip_of(path.dst).out_requests.bump();
        let group = path.cast == Cast::Multicast;
        let len = buf.len();
        let ip_len = match (path.src, path.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                if len + Ipv4::LEN > 65_535 {
                    return Err(Errno::EMSGSIZE);
                }
                let mut ip =
                    Ipv4::new(src, dst, header.protocol, len).fragment(0, false, header.dont_fragment);
                ip.tos = header.tos;
                ip.ttl =
                    header.ttl.unwrap_or(if group { 1 } else { self.sysctls.ip_default_ttl.get() as u8 });
                ip.id = U16::new(self.ident() as u16);
                buf.push_front(ip.sealed().as_bytes());
                Ipv4::LEN
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                if len > 65_535 {
                    return Err(Errno::EMSGSIZE);
                }
                let mut ip = Ipv6::new(src, dst, header.protocol, len).class(header.tos, header.flow_label);
                ip.hop_limit =
                    header.ttl.unwrap_or(if group { 1 } else { self.sysctls.ip6_hop_limit.get() as u8 });
                buf.push_front(ip.as_bytes());
                Ipv6::LEN
            }
            _ => return Err(Errno::EINVAL),
        };
        let tags = Tags { mark: header.mark, owner: header.owner, ..Tags::default() };
        self.send_own(now, path, Frame { buf, offload: offload.shifted(ip_len), tags }, header)
    }

    /// Sends a TCP header on behalf of a packet filter: the answer to a segment that it refuses.
    pub fn send_segment(
        self: &Arc<Self>,
        now: Instant,
        (src, dst): (IpAddr, IpAddr),
        mut segment: [u8; 20],
        tags: Tags,
    ) {
        let key = Key { src: Some(src), mark: tags.mark, ..Key::to(dst) };
        let Ok(path) = self.route(&key, now) else { return };
        segment[16..18].fill(0);
        let sum = Sum::new().pseudo(src, dst, proto::TCP, segment.len()).with(&segment).finish();
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut buf = self.pool.copy(&segment);
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut ip = Ipv4::new(src, dst, proto::TCP, segment.len()).fragment(0, false, true);
                ip.ttl = self.sysctls.ip_default_ttl.get() as u8;
                buf.push_front(ip.sealed().as_bytes());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut ip = Ipv6::new(src, dst, proto::TCP, segment.len());
                ip.hop_limit = self.sysctls.ip6_hop_limit.get() as u8;
                buf.push_front(ip.as_bytes());
            }
            _ => return,
        }
        self.counters.ip_of(dst).out_requests.bump();
        let header = Header { protocol: proto::TCP, mark: tags.mark, ..Header::default() };
        let _ = self.send_own(now, &path, Frame { tags, ..Frame::new(buf) }, &header);
    }

    /// Sends a packet of this host that has its IP header. The filter sees it; a changed destination or mark is routed anew.
    pub(crate) fn send_own(
        self: &Arc<Self>,
        now: Instant,
        path: &Path,
        mut frame: Frame,
        header: &Header,
    ) -> Result<(), Errno> {
        if !self.is_hooked() {
            return self.send_packet(now, path, frame, header);
        }
        match self.pass(now, Point::Output, None, Some(&path.iface), &mut frame) {
            Verdict::Accept => {}
            Verdict::Drop => return Err(Errno::EPERM),
            Verdict::Stolen => return Ok(()),
        }
        let Some((src, dst)) = addresses(&frame.buf) else { return Err(Errno::EINVAL) };
        let mark = frame.tags.mark;
        if dst == path.dst && mark == header.mark {
            return self.send_packet(now, path, frame, header);
        }
        let path = self.route(&Key { src: Some(src), tos: header.tos, mark, ..Key::to(dst) }, now)?;
        self.send_packet(now, &path, frame, header)
    }

    /// Sends a packet that has its IP header.
    pub(crate) fn send_packet(
        self: &Arc<Self>,
        now: Instant,
        path: &Path,
        mut frame: Frame,
        header: &Header,
    ) -> Result<(), Errno> {
        match self.pass(now, Point::PostRouting, None, Some(&path.iface), &mut frame) {
            Verdict::Accept => {}
            Verdict::Drop => return Err(Errno::EPERM),
            Verdict::Stolen => return Ok(()),
        }
        // What goes to the loopback interface comes back by itself.
        let group = matches!(path.cast, Cast::Multicast | Cast::Broadcast);
        let loops = group && header.loop_back && path.iface.index != LOOPBACK;
        if loops && (path.cast == Cast::Broadcast || path.iface.is_member(path.dst)) {
            self.loop_frame(header.flow, &path.iface, frame.clone());
        }
        if frame.buf.len() as u32 > path.mtu && frame.offload.gso.is_none() {
            return self.send_fragments(now, path, frame, header);
        }
        self.send_frame(now, &path.iface, path.next_hop, path.cast, frame, header.flow);
        Ok(())
    }

    fn send_fragments(
        self: &Arc<Self>,
        now: Instant,
        path: &Path,
        mut frame: Frame,
        header: &Header,
    ) -> Result<(), Errno> {
        if header.dont_fragment {
            self.counters.ip_of(path.dst).frag_fails.bump();
            return Err(Errno::EMSGSIZE);
        }
        finish_checksum(&mut frame);
        let pieces = crate::fragment::split(&self.pool, &frame.buf, path.mtu as usize, self.ident());
        let counters = self.counters.ip_of(path.dst);
        let pieces = pieces.ok_or(Errno::EMSGSIZE).inspect_err(|_| counters.frag_fails.bump())?;
        counters.frag_oks.bump();
        let tags = &frame.tags;
        for buf in pieces {
            counters.frag_creates.bump();
            let frame = Frame { tags: tags.clone(), ..Frame::new(buf) };
            self.send_frame(now, &path.iface, path.next_hop, path.cast, frame, header.flow);
        }
        Ok(())
    }

    /// Hands a packet to an interface.
    pub(crate) fn send_frame(
        self: &Arc<Self>,
        now: Instant,
        iface: &Arc<Iface>,
        next_hop: IpAddr,
        cast: Cast,
        mut frame: Frame,
        flow: u32,
    ) {
        if next_hop.is_ipv6() && iface.disables_v6() {
            return self.counters.ip6.out_discards.bump();
        }
        if iface.fifo().is_some_and(|fifo| fifo.limit == 0) {
            return iface.counters.tx_dropped.bump();
        }
        let features = iface.features();
        let offloads = if next_hop.is_ipv4() { features.tso4 } else { features.tso6 };
        if frame.offload.gso.is_some() && !offloads && iface.kind != Kind::Loopback {
            for part in crate::gso::cut(&frame) {
                self.send_frame(now, iface, next_hop, cast, part, flow);
            }
            return;
        }
        match iface.kind {
            Kind::Loopback => {
                self.tap(now, iface, &frame, true);
                self.loop_frame(flow, iface, frame);
            }
            Kind::Tunnel => {
                finish_unless_offloaded(iface, &mut frame);
                self.tap(now, iface, &frame, true);
                iface.transmit(frame);
            }
            Kind::Ethernet => {
                finish_unless_offloaded(iface, &mut frame);
                match cast {
                    Cast::Broadcast => self.send_ethernet(now, iface, Mac::BROADCAST, frame),
                    Cast::Multicast => self.send_ethernet(now, iface, Mac::of_group(next_hop), frame),
                    _ => self.send_resolved(now, iface, next_hop, frame),
                }
            }
        }
    }

    pub(crate) fn loop_frame(&self, flow: u32, iface: &Arc<Iface>, mut frame: Frame) {
        if frame.offload.checksum == Checksum::Unknown {
            frame.offload.checksum = Checksum::Valid;
        }
        // The packet leaves its socket here; mark and connection stay.
        frame.tags.owner = None;
        iface.counters.tx_packets.bump();
        iface.counters.tx_bytes.add(frame.buf.len() as u64);
        if !self.backlog.push(flow, Arrival { iface: iface.clone(), frame, way: Way::In }) {
            iface.counters.rx_dropped.bump();
        }
    }

    fn send_resolved(self: &Arc<Self>, now: Instant, iface: &Arc<Iface>, next_hop: IpAddr, frame: Frame) {
        let key = (iface.index, next_hop);
        let quick = self.neighbours.read().quick(&key, now, &self.sysctls);
        if let Some(mac) = quick {
            return self.send_ethernet(now, iface, mac, frame);
        }
        let resolution = self.change_neighbours(|all| all.resolve(key, frame, now, &self.sysctls));
        match resolution {
            Resolution::Send(frame, mac) => self.send_ethernet(now, iface, mac, frame),
            Resolution::Queued(true) => self.solicit(now, iface, next_hop, None),
            Resolution::Queued(false) => {}
        }
    }

    pub(crate) fn send_ethernet(&self, now: Instant, iface: &Iface, dst: Mac, mut frame: Frame) {
        let v6 = frame.buf.first().is_some_and(|first| first >> 4 == 6);
        let kind = U16::new(if v6 { eth::IPV6 } else { eth::IPV4 });
        frame.buf.push_front(Ethernet { dst, src: iface.mac(), kind }.as_bytes());
        self.tap(now, iface, &frame, true);
        iface.transmit(frame);
    }

    /// Sends frames that waited for a neighbour's hardware address.
    pub fn send_waiting(
        self: &Arc<Self>,
        now: Instant,
        iface: &Iface,
        mac: Mac,
        waiting: impl IntoIterator<Item = Frame>,
    ) {
        waiting.into_iter().for_each(|frame| self.send_ethernet(now, iface, mac, frame));
        self.finish(now);
    }

    /// Asks for a neighbour's hardware address, `to` one or to everybody.
    pub(crate) fn solicit(&self, now: Instant, iface: &Arc<Iface>, target: IpAddr, to: Option<Mac>) {
        let Some(src) = iface.source_for(target, target) else { return };
        match (src, target) {
            (IpAddr::V4(src), IpAddr::V4(target)) => {
                let arp = Arp::new(true, (iface.mac(), src), (Mac::default(), target));
                self.send_arp(now, iface, to.unwrap_or(Mac::BROADCAST), arp);
            }
            (IpAddr::V6(src), IpAddr::V6(target)) => {
                let dst = if to.is_some() { target } else { crate::addr::solicited_node(target) };
                let message = Neighbour { target, mac: Some(iface.mac()), flags: 0 }.emit(true, src, dst);
                self.send_discovery(now, iface, to.unwrap_or(Mac::of_group(dst.into())), src, dst, &message);
            }
            _ => {}
        }
    }

    pub(crate) fn send_arp(&self, now: Instant, iface: &Iface, to: Mac, arp: Arp) {
        let mut buf = self.buf(64);
        buf.extend(Ethernet { dst: to, src: iface.mac(), kind: U16::new(eth::ARP) }.as_bytes());
        buf.extend(arp.as_bytes());
        let frame = Frame::new(buf);
        self.tap(now, iface, &frame, true);
        iface.transmit(frame);
    }

    /// Sends a neighbour discovery message; those have hop limit 255 (RFC 4861 section 3.1).
    pub(crate) fn send_discovery(
        &self,
        now: Instant,
        iface: &Iface,
        to: Mac,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        message: &[u8],
    ) {
        let mut ip = Ipv6::new(src, dst, proto::ICMPV6, message.len());
        ip.hop_limit = 255;
        let mut buf = self.pool.copy(message);
        buf.push_front(ip.as_bytes());
        self.counters.icmp6.out_msgs.bump();
        self.send_ethernet(now, iface, to, Frame::new(buf));
    }

    pub(crate) fn expire_neighbours(self: &Arc<Self>, now: Instant) {
        let acts = self.change_neighbours(|all| all.expire(now, &self.sysctls));
        for act in acts {
            match act {
                Act::Solicit((index, ip), to) => {
                    if let Some(iface) = self.link(index) {
                        self.solicit(now, &iface, ip, to);
                    }
                }
                Act::Unreachable(_, frames) => {
                    frames.into_iter().for_each(|frame| self.host_unreachable(now, frame.buf));
                }
            }
        }
    }
}

/// Source and destination of a packet.
fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    if packet.first()? >> 4 == 4 {
        let ip = Ipv4::parse_quoted(packet)?;
        return Some((ip.src().into(), ip.dst().into()));
    }
    let ip = Ipv6::parse_quoted(packet)?;
    Some((ip.src().into(), ip.dst().into()))
}

fn finish_unless_offloaded(iface: &Iface, frame: &mut Frame) {
    if !iface.features().checksum {
        finish_checksum(frame);
    }
}

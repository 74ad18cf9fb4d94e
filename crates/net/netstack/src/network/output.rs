//! Output: from a transport message to frames.

use super::headers::Headers;
use super::hooks::{Point, Verdict};
use super::layer::Network;
use super::path::{Cast, Header, Path};
use super::route::{Hop, Key, RouteKind, choose};
use crate::addr::unspecified;
use crate::buf::Buf;
use crate::device::iface::{Iface, Kind, LOOPBACK};
use crate::device::transmit::{loop_back, transmit};
use crate::frame::{Frame, Offload, Tags, finish_checksum};
use crate::wire::eth::Mac;
use crate::wire::ip::Ipv4;
use crate::wire::ipv6::Ipv6;
use abi::Errno;
use ktime::Ktime;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use zerocopy::IntoBytes;
use zerocopy::network_endian::U16;

/// What a route says: kind, interface, next hop, source and MTU.
type RouteChoice = (RouteKind, u32, IpAddr, Option<IpAddr>, Option<u32>);

impl Network {
    /// Finds the way to a destination (RFC 1122 section 3.3.1, RFC 6724).
    pub fn route(&self, key: &Key, now: Ktime) -> Result<Path, Errno> {
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
    fn look_up(&self, key: &Key, group: bool) -> Result<RouteChoice, Errno> {
        let routes = self.tables.routes.read();
        let route = routes.lookup(key, |_| true)?;
        let several: Vec<_> = if route.others.is_empty() { Vec::new() } else { route.hops().collect() };
        let gateway = route.gateway.filter(|_| !route.own_gateway);
        let found = (route.kind, route.iface, gateway, route.source, route.mtu);
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
        choose(&alive, hash).map(|hop| (hop.iface, hop.next()))
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
        &self,
        now: Ktime,
        path: &Path,
        header: &Header,
        buf: Buf,
        offload: Offload,
    ) -> Result<(), Errno> {
        let tags = Tags { mark: header.mark, owner: header.owner, part: header.part, ..Tags::default() };
        self.send_tagged(now, path, header, (buf, offload), tags)
    }

    /// The same for a message of a known connection.
    pub(crate) fn send_tagged(
        &self,
        now: Ktime,
        path: &Path,
        header: &Header,
        (mut buf, offload): (Buf, Offload),
        tags: Tags,
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
        self.send_own(now, path, Frame { buf, offload: offload.shifted(ip_len), tags }, header)
    }

    /// Sends a packet of this host that has its IP header. The filter sees it; a changed destination or mark is routed anew.
    pub(crate) fn send_own(
        &self,
        now: Ktime,
        path: &Path,
        mut frame: Frame,
        header: &Header,
    ) -> Result<(), Errno> {
        if !self.is_hooked() {
            return self.send_packet(now, path, None, frame, header);
        }
        // A filter cannot judge what has no sound headers.
        let Some(mut headers) = Headers::read(&frame.buf) else {
            return self.send_packet(now, path, None, frame, header);
        };
        match self.pass(now, Point::Output, None, Some(&path.iface), &mut headers, &mut frame) {
            Verdict::Accept => {}
            Verdict::Drop => return Err(Errno::EPERM),
            Verdict::Stolen => return Ok(()),
        }
        if headers.changed {
            headers = Headers::read(&frame.buf).ok_or(Errno::EINVAL)?;
        }
        let (dst, mark) = (headers.info.dst, frame.tags.mark);
        if dst == path.dst && mark == header.mark {
            return self.send_packet(now, path, Some(headers), frame, header);
        }
        let src = Some(headers.info.src);
        let path = self.route(&Key { src, tos: header.tos, mark, ..Key::to(dst) }, now)?;
        self.send_packet(now, &path, Some(headers), frame, header)
    }

    /// Sends a packet that has its IP header. `headers` are what is known of it from the points before.
    pub(crate) fn send_packet(
        &self,
        now: Ktime,
        path: &Path,
        headers: Option<Headers>,
        mut frame: Frame,
        header: &Header,
    ) -> Result<(), Errno> {
        if self.is_hooked()
            && let Some(mut headers) = headers.or_else(|| Headers::read(&frame.buf))
        {
            match self.pass(now, Point::PostRouting, None, Some(&path.iface), &mut headers, &mut frame) {
                Verdict::Accept => {}
                Verdict::Drop => return Err(Errno::EPERM),
                Verdict::Stolen => return Ok(()),
            }
        }
        self.counters.traffic_of(path.dst).sent(path.cast, frame.buf.len());
        // What goes to the loopback interface comes back by itself.
        let group = matches!(path.cast, Cast::Multicast | Cast::Broadcast);
        let loops = group && header.loop_back && path.iface.index != LOOPBACK;
        if loops && (path.cast == Cast::Broadcast || path.iface.is_member(path.dst)) {
            loop_back(header.flow, &path.iface, frame.clone());
        }
        if frame.buf.len() as u32 > path.mtu && frame.offload.gso.is_none() {
            return self.send_fragments(now, path, frame, header);
        }
        self.send_frame(now, &path.iface, path.next_hop, path.cast, frame, header.flow);
        Ok(())
    }

    fn send_fragments(
        &self,
        now: Ktime,
        path: &Path,
        mut frame: Frame,
        header: &Header,
    ) -> Result<(), Errno> {
        if header.dont_fragment {
            self.counters.ip_of(path.dst).frag_fails.bump();
            return Err(Errno::EMSGSIZE);
        }
        finish_checksum(&mut frame);
        let pieces = super::fragment::split(&self.links.pool, &frame.buf, path.mtu as usize, self.ident());
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
        &self,
        now: Ktime,
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
                self.taps.show(now, iface, &frame, true);
                loop_back(flow, iface, frame);
            }
            Kind::Tunnel => {
                finish_unless_offloaded(iface, &mut frame);
                self.taps.show(now, iface, &frame, true);
                transmit(iface, frame);
            }
            Kind::Ethernet => {
                finish_unless_offloaded(iface, &mut frame);
                match cast {
                    Cast::Broadcast => self.send_ethernet(now, iface, Mac::BROADCAST, frame),
                    Cast::Multicast => self.send_ethernet(now, iface, Mac::of_group(next_hop), frame),
                    _ if !iface.resolves() => self.send_ethernet(now, iface, iface.mac(), frame),
                    _ => self.send_resolved(now, iface, next_hop, frame),
                }
            }
        }
    }
}

fn finish_unless_offloaded(iface: &Iface, frame: &mut Frame) {
    if !iface.features().checksum {
        finish_checksum(frame);
    }
}

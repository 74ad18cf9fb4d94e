//! Input: from a frame to the protocol that it is for.

use crate::buf::Buf;
use crate::fragment::Outcome;
use crate::frame::{Checksum, Frame};
use crate::hooks::{Point, Verdict};
use crate::icmp::Problem;
use crate::iface::LOOPBACK;
use crate::iface::{Iface, Kind};
use crate::neigh::Learnt;
use crate::path::{Cast, Header};
use crate::received::Packet;
use crate::route::{Key, RouteKind};
use crate::stack::Stack;
use crate::time::Instant;
use crate::wire::eth::{self, Arp, Ethernet, Mac};
use crate::wire::extension::{self, Fate};
use crate::wire::icmp::{Icmp, NEIGHBOUR_SOLICIT, Neighbour, OVERRIDE, SOLICITED, quoted};
use crate::wire::ip::{IpInfo, Ipv4};
use crate::wire::ipv6::{Chain, Ipv6, walk};
use crate::wire::proto;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

impl Stack {
    /// Takes a frame from an interface. Each tag of a VLAN and each bridge is one more step, never one more level of calls.
    pub(crate) fn frame_input(self: &Arc<Self>, now: Instant, iface: &Arc<Iface>, frame: Frame) {
        let mut next = self.one_input(now, iface, frame);
        while let Some((iface, frame)) = next {
            next = self.one_input(now, &iface, frame);
        }
    }

    /// The same up to the next interface, which is to take what is returned.
    fn one_input(
        self: &Arc<Self>,
        now: Instant,
        iface: &Arc<Iface>,
        frame: Frame,
    ) -> Option<(Arc<Iface>, Frame)> {
        if iface.is_up() {
            self.tap(now, iface, &frame, false);
        }
        match iface.master() {
            Some(bridge) if iface.is_up() => {
                iface.counters.rx_packets.bump();
                iface.counters.rx_bytes.add(frame.buf.len() as u64);
                let (own, frame) = self.bridge_input(&bridge, now, iface, frame)?;
                self.tap(now, &own, &frame, false);
                self.link_input(now, &own, frame)
            }
            _ => self.link_input(now, iface, frame),
        }
    }

    fn link_input(
        self: &Arc<Self>,
        now: Instant,
        iface: &Arc<Iface>,
        frame: Frame,
    ) -> Option<(Arc<Iface>, Frame)> {
        iface.counters.rx_packets.bump();
        iface.counters.rx_bytes.add(frame.buf.len() as u64);
        if !iface.is_up() {
            iface.counters.rx_dropped.bump();
            return None;
        }
        let tagged = iface.kind == Kind::Ethernet
            && Ethernet::parse(&frame.buf).is_some_and(|header| header.kind.get() == eth::VLAN);
        if tagged {
            return self.vlan_input(iface, frame);
        }
        self.packet_input(now, iface, frame);
        None
    }

    /// Takes a frame without a tag.
    fn packet_input(self: &Arc<Self>, now: Instant, iface: &Arc<Iface>, mut frame: Frame) {
        let kind = if iface.kind == Kind::Ethernet {
            let Some(header) = Ethernet::parse(&frame.buf) else { return iface.counters.rx_errors.bump() };
            if header.dst.is_multicast() {
                iface.counters.multicast.bump();
            } else if header.dst != iface.mac() {
                return;
            }
            frame.buf.trim_front(Ethernet::LEN);
            header.kind.get()
        } else if frame.buf.first().is_some_and(|first| first >> 4 == 6) {
            eth::IPV6
        } else {
            eth::IPV4
        };
        match kind {
            eth::IPV4 => self.ipv4_input(now, iface, frame),
            eth::IPV6 => self.ipv6_input(now, iface, frame),
            eth::ARP if iface.kind == Kind::Ethernet => self.arp_input(now, iface, &frame.buf),
            _ => iface.counters.rx_dropped.bump(),
        }
    }

    fn arp_input(self: &Arc<Self>, now: Instant, iface: &Arc<Iface>, bytes: &[u8]) {
        let Some(arp) = Arp::parse(bytes) else { return };
        let (sender, target) = (arp.sender(), arp.target());
        if arp.sender_mac.is_multicast()
            || sender.is_multicast()
            || target.is_multicast()
            || target.is_loopback()
        {
            return;
        }
        let ours = self.is_local(target.into());
        if !sender.is_unspecified() {
            let to_us = !arp.is_request() && ours;
            let learnt = Learnt { solicited: to_us, replace: true, create: arp.is_request() && ours };
            self.learn(now, iface, sender.into(), arp.sender_mac, learnt);
        }
        if arp.is_request() && ours {
            let reply = Arp::new(false, (iface.mac(), target), (arp.sender_mac, sender));
            self.send_arp(now, iface, arp.sender_mac, reply);
        }
    }

    pub(crate) fn learn(&self, now: Instant, iface: &Arc<Iface>, ip: IpAddr, mac: Mac, how: Learnt) {
        let gc = self.sysctls.neigh_gc_thresh.size();
        let key = (iface.index, ip);
        let waiting = self.change_neighbours(|all| all.learn(key, mac, how, now, gc));
        waiting.into_iter().for_each(|frame| self.send_ethernet(now, iface, mac, frame));
    }

    fn ipv4_input(self: &Arc<Self>, now: Instant, iface: &Arc<Iface>, mut frame: Frame) {
        self.counters.ip.in_receives.bump();
        let Some(header) = Ipv4::parse(&frame.buf) else { return self.counters.ip.in_hdr_errors.bump() };
        frame.buf.truncate(header.total_len());
        let (src, dst) = (header.src(), header.dst());
        let looped = iface.index == LOOPBACK || self.routes_localnet(iface);
        let bad_source = src.is_multicast() || src.is_broadcast() || (src.is_loopback() && !looped);
        if bad_source || (dst.is_loopback() && !looped) {
            return self.counters.ip.in_addr_errors.bump();
        }
        let fragment = header.offset() > 0 || header.more_fragments();
        if self.is_hooked() {
            if fragment {
                return self.fragment_input(now, iface, frame);
            }
            if self.pass(now, Point::PreRouting, Some(iface), None, &mut frame) != Verdict::Accept {
                return;
            }
        }
        let Some(header) = Ipv4::parse(&frame.buf) else { return self.counters.ip.in_hdr_errors.bump() };
        let (src, dst) = (header.src(), header.dst());
        // A rule may not lead packets from outside to what listens on loopback alone.
        let misled = dst.is_loopback() && !looped;
        if misled || iface.index != LOOPBACK && !self.is_way_back(iface, src, frame.tags.mark) {
            return self.counters.ip.in_addr_errors.bump();
        }
        let info = IpInfo {
            src: src.into(),
            dst: dst.into(),
            protocol: header.protocol,
            ttl: header.ttl,
            tos: header.tos,
            header_len: header.header_len(),
        };
        let Some(cast) = self.cast_of(iface, &info, frame.tags.mark) else {
            return self.forward(now, iface, &info, frame);
        };
        if fragment {
            return self.fragment_input(now, iface, frame);
        }
        self.accept(now, iface, info, cast, frame);
    }

    /// Hands a packet for this host to its protocol, unless the filter drops it.
    fn accept(
        self: &Arc<Self>,
        now: Instant,
        iface: &Arc<Iface>,
        mut info: IpInfo,
        cast: Cast,
        mut frame: Frame,
    ) {
        if self.is_hooked() {
            if self.pass(now, Point::Input, Some(iface), None, &mut frame) != Verdict::Accept {
                return;
            }
            // Rules may have changed the header, and may have left its checksum wrong: as on Linux nothing looks at
            // that again.
            let Some(changed) = quoted(&frame.buf, info.dst.is_ipv6()) else {
                return self.counters.ip_of(info.dst).in_hdr_errors.bump();
            };
            info = changed.info;
        }
        let verified = !matches!(frame.offload.checksum, Checksum::Unknown | Checksum::Given);
        let mark = frame.tags.mark;
        self.deliver(Packet { now, iface, info, verified, cast, mark, buf: frame.buf });
    }

    fn ipv6_input(self: &Arc<Self>, now: Instant, iface: &Arc<Iface>, mut frame: Frame) {
        self.counters.ip6.in_receives.bump();
        if iface.disables_v6() {
            return self.counters.ip6.in_discards.bump();
        }
        let Some(header) = Ipv6::parse(&frame.buf) else { return self.counters.ip6.in_hdr_errors.bump() };
        frame.buf.truncate(Ipv6::LEN + header.payload_len());
        let (src, dst) = (header.src(), header.dst());
        let looped = iface.index == LOOPBACK;
        let local_only = |ip: Ipv6Addr| ip.is_loopback() || (ip.is_multicast() && ip.octets()[1] & 0xf == 1);
        if src.is_multicast() || ((src.is_loopback() || local_only(dst)) && !looped) || dst.is_unspecified() {
            return self.counters.ip6.in_addr_errors.bump();
        }
        let whole = |chain: Chain| chain.fragment.is_none_or(|f| f.offset() == 0 && !f.more_fragments());
        if self.is_hooked() {
            if !walk(header.next, &frame.buf[Ipv6::LEN..]).is_some_and(whole) {
                return self.fragment_input(now, iface, frame);
            }
            if self.pass(now, Point::PreRouting, Some(iface), None, &mut frame) != Verdict::Accept {
                return;
            }
        }
        let Some(header) = Ipv6::parse(&frame.buf) else { return self.counters.ip6.in_hdr_errors.bump() };
        let (src, dst) = (header.src(), header.dst());
        let Some(chain) = walk(header.next, &frame.buf[Ipv6::LEN..]) else {
            return self.counters.ip6.in_hdr_errors.bump();
        };
        let info = IpInfo {
            src: src.into(),
            dst: dst.into(),
            protocol: chain.protocol,
            ttl: header.hop_limit,
            tos: header.traffic_class(),
            header_len: Ipv6::LEN + chain.len,
        };
        let cast = self.cast_of(iface, &info, frame.tags.mark);
        if chain.len > 0
            && let fate =
                extension::inspect(header.next, &frame.buf[Ipv6::LEN..info.header_len], cast.is_some())
            && fate != Fate::Pass
        {
            self.counters.ip6.in_hdr_errors.bump();
            let packet = Packet {
                now,
                iface,
                info,
                verified: true,
                cast: cast.unwrap_or(Cast::Unicast),
                mark: frame.tags.mark,
                buf: frame.buf,
            };
            return self.header_problem(&packet, fate);
        }
        let Some(cast) = cast else { return self.forward(now, iface, &info, frame) };
        match chain.fragment {
            Some(fragment) if fragment.offset() > 0 || fragment.more_fragments() => {
                self.fragment_input(now, iface, frame);
            }
            _ => {
                self.accept(now, iface, info, cast, frame);
            }
        }
    }

    /// Tells the sender of a packet what is wrong with its extension headers, if it is to be told.
    fn header_problem(self: &Arc<Self>, packet: &Packet<'_>, fate: Fate) {
        let Fate::Problem { at, option, to_groups } = fate else { return };
        let pointer = (Ipv6::LEN + at) as u32;
        match option {
            true => self.icmp_problem(packet, Problem::Option { pointer, to_groups }),
            false => self.icmp_problem(packet, Problem::Parameter { pointer }),
        }
    }

    /// How the packet is for this host, if it is.
    fn cast_of(&self, iface: &Iface, info: &IpInfo, mark: u32) -> Option<Cast> {
        if info.dst.is_multicast() {
            return Some(Cast::Multicast).filter(|_| iface.is_member(info.dst));
        }
        if info.dst == Ipv4Addr::BROADCAST {
            return Some(Cast::Broadcast);
        }
        let key = Key { src: Some(info.src), iif: iface.index, tos: info.tos, mark, ..Key::to(info.dst) };
        let routes = self.routes.read();
        match routes.lookup(&key, |_| true).ok()?.kind {
            RouteKind::Local => Some(Cast::Local),
            RouteKind::Broadcast => Some(Cast::Broadcast),
            _ => None,
        }
    }

    /// Sends a packet of others on (RFC 1812 section 5.2).
    fn forward(self: &Arc<Self>, now: Instant, iface: &Arc<Iface>, info: &IpInfo, mut frame: Frame) {
        let v4 = info.dst.is_ipv4();
        let enabled = if v4 { self.forwards4(iface) } else { self.sysctls.ip6_forward.on() };
        let link_local = crate::addr::scope(info.dst) == crate::addr::Scope::Link;
        if !enabled || info.dst.is_multicast() || link_local {
            return self.counters.ip_of(info.dst).in_addr_errors.bump();
        }
        let packet = Packet {
            now,
            iface,
            info: *info,
            verified: true,
            cast: Cast::Unicast,
            mark: frame.tags.mark,
            buf: frame.buf.clone(),
        };
        if info.ttl <= 1 {
            return self.icmp_problem(&packet, Problem::TimeExceeded);
        }
        let mark = frame.tags.mark;
        let key = Key { src: Some(info.src), iif: iface.index, tos: info.tos, mark, ..Key::to(info.dst) };
        let Ok(path) = self.route(&key, now) else {
            return self.icmp_problem(&packet, Problem::NoRoute);
        };
        let dont_fragment = !v4 || Ipv4::parse(&frame.buf).is_some_and(|header| header.dont_fragment());
        if crate::gso::wire_len(&frame) > path.mtu as usize && dont_fragment {
            return self.icmp_problem(&packet, Problem::TooBig { mtu: path.mtu });
        }
        drop(packet);
        if self.pass(now, Point::Forward, Some(iface), Some(&path.iface), &mut frame) != Verdict::Accept {
            return;
        }
        lower_ttl(&mut frame.buf, v4);
        self.counters.ip_of(info.dst).forwarded.bump();
        let header = Header { dont_fragment, ..Header::default() };
        let _ = self.send_packet(now, &path, frame, &header);
    }

    fn fragment_input(self: &Arc<Self>, now: Instant, iface: &Arc<Iface>, frame: Frame) {
        let Frame { buf: packet, tags, .. } = frame;
        let packet = &packet;
        let v4 = packet.first().is_some_and(|first| first >> 4 == 4);
        let counters = if v4 { &self.counters.ip } else { &self.counters.ip6 };
        counters.reasm_reqds.bump();
        let time = if v4 { &self.sysctls.ipfrag_time } else { &self.sysctls.ip6frag_time };
        let keep = Duration::from_secs(time.size() as u64);
        let mut table = self.reassembly.lock();
        let outcome = table.add(&self.pool, packet, now, keep, self.sysctls.ipfrag_high_thresh.size());
        self.arm_reassembly(table.deadline());
        drop(table);
        match outcome {
            Outcome::Waiting => {}
            Outcome::Bad => counters.reasm_fails.bump(),
            Outcome::Whole(buf) => {
                counters.reasm_oks.bump();
                // Each level of fragments in fragments would be a level of this function's recursion.
                if is_fragmented(&buf) {
                    return counters.in_hdr_errors.bump();
                }
                let frame = Frame { tags, ..Frame::new(buf) };
                if v4 {
                    self.ipv4_input(now, iface, frame);
                } else {
                    self.ipv6_input(now, iface, frame);
                }
            }
        }
    }

    pub(crate) fn expire_fragments(self: &Arc<Self>, now: Instant) {
        let mut table = self.reassembly.lock();
        let expired = table.expire(now);
        self.arm_reassembly(table.deadline());
        drop(table);
        for packet in expired {
            let v4 = packet.first.as_ref().is_none_or(|first| first.first().is_some_and(|b| b >> 4 == 4));
            let counters = if v4 { &self.counters.ip } else { &self.counters.ip6 };
            counters.reasm_timeout.bump();
            counters.reasm_fails.bump();
            if let Some(first) = packet.first {
                self.reassembly_timeout(now, first);
            }
        }
    }

    /// Hands a packet to its protocol.
    fn deliver(self: &Arc<Self>, packet: Packet<'_>) {
        self.counters.ip_of(packet.info.dst).in_delivers.bump();
        let raw = self.raw_input(&packet);
        match packet.info.protocol {
            proto::UDP | proto::UDP_LITE => self.udp_input(&packet),
            proto::TCP => self.tcp_input(&packet),
            proto::ICMP if packet.info.dst.is_ipv4() => self.icmp_input(&packet),
            proto::ICMPV6 if packet.info.dst.is_ipv6() => self.icmp_input(&packet),
            proto::IGMP => self.igmp_input(&packet),
            proto::NONE => {}
            _ if raw => {}
            _ => {
                self.counters.ip_of(packet.info.dst).in_unknown_protos.bump();
                self.icmp_problem(&packet, Problem::NoProtocol);
            }
        }
    }

    /// Neighbour solicitations and advertisements (RFC 4861 section 7.2).
    pub(crate) fn discovery_input(self: &Arc<Self>, packet: &Packet<'_>, header: &Icmp) {
        let body = packet.payload().get(Icmp::LEN..).unwrap_or_default();
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (packet.info.src, packet.info.dst) else { return };
        let sound = packet.info.ttl == 255 && header.code == 0 && packet.iface.kind == Kind::Ethernet;
        let Some(message) = Neighbour::parse(header, body).filter(|_| sound) else { return };
        let (now, iface) = (packet.now, packet.iface);
        if header.kind != NEIGHBOUR_SOLICIT {
            if self.duplicate_found(iface, message.target) {
                return;
            }
            if let Some(mac) = message.mac {
                let (solicited, replace) = (message.flags & SOLICITED != 0, message.flags & OVERRIDE != 0);
                let learnt = Learnt { solicited, replace, create: false };
                self.learn(now, iface, message.target.into(), mac, learnt);
            }
            return;
        }
        let probe = src.is_unspecified();
        if probe && self.duplicate_found(iface, message.target) || !iface.has_address(message.target.into()) {
            return;
        }
        if let Some(mac) = message.mac.filter(|_| !probe) {
            self.learn(now, iface, src.into(), mac, Learnt { solicited: false, replace: true, create: true });
        }
        let to = if probe { Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1) } else { src };
        let flags = OVERRIDE | if probe { 0 } else { SOLICITED };
        let reply = Neighbour { target: message.target, mac: Some(iface.mac()), flags };
        let bytes = reply.emit(false, message.target, to);
        let mac = message.mac.filter(|_| !probe).unwrap_or(Mac::of_group(to.into()));
        if probe || message.mac.is_some() || dst.is_multicast() {
            self.send_discovery(now, iface, mac, message.target, to, &bytes);
        } else if let Some(mac) = self.neighbours.read().quick(&(iface.index, src.into()), now, &self.sysctls)
        {
            self.send_discovery(now, iface, mac, message.target, to, &bytes);
        }
    }
}

/// True for an IPv6 packet with a fragment header.
fn is_fragmented(packet: &[u8]) -> bool {
    let header = Ipv6::parse(packet);
    let chain = header.and_then(|header| walk(header.next, packet.get(Ipv6::LEN..)?));
    chain.is_some_and(|chain| chain.fragment.is_some())
}

/// Takes one from TTL or hop limit and repairs IPv4's checksum.
fn lower_ttl(buf: &mut Buf, v4: bool) {
    let bytes = buf.bytes_mut();
    if !v4 {
        if let Some(hop_limit) = bytes.get_mut(7) {
            *hop_limit = hop_limit.saturating_sub(1);
        }
        return;
    }
    let len = bytes.first().map_or(0, |first| usize::from(first & 0xf) * 4);
    let Some(header) = bytes.get_mut(..len).filter(|header| header.len() >= Ipv4::LEN) else { return };
    header[8] = header[8].saturating_sub(1);
    header[10..12].fill(0);
    let sum = crate::checksum::Sum::new().with(header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

//! Input: from a frame to the packet, if it is for this host; packets for others are forwarded.
//!
//! The headers of a packet are read once; what the packet filter has changed is read again.

use super::fragment::Outcome;
use super::headers::Headers;
use super::hooks::{Point, Verdict};
use super::icmp::Problem;
use super::layer::Network;
use super::path::{Cast, Header};
use super::received::Packet;
use super::route::{Key, RouteKind};
use crate::buf::Buf;
use crate::device::iface::{Iface, Kind, LOOPBACK};
use crate::frame::{Checksum, Frame, Part};
use crate::wire::eth::{self, Ethernet};
use crate::wire::extension::{self, Fate};
use crate::wire::ip::{IpInfo, Ipv4};
use crate::wire::ipv6::{Ipv6, walk};
use ktime::Ktime;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

impl Network {
    /// Takes a frame that the device layer carried up to an interface. Returns the packet, if it is for this host.
    pub(crate) fn input(&self, now: Ktime, iface: Arc<Iface>, mut frame: Frame) -> Option<Packet> {
        let kind = if iface.kind == Kind::Ethernet {
            let Some(header) = Ethernet::parse(&frame.buf) else {
                iface.counters.rx_errors.bump();
                return None;
            };
            if header.dst.is_multicast() {
                iface.counters.multicast.bump();
            } else if header.dst != iface.mac() {
                return None;
            }
            frame.buf.trim_front(Ethernet::LEN);
            header.kind.get()
        } else if frame.buf.first().is_some_and(|first| first >> 4 == 6) {
            eth::IPV6
        } else {
            eth::IPV4
        };
        match kind {
            eth::IPV4 => return self.ipv4_input(now, iface, frame),
            eth::IPV6 => return self.ipv6_input(now, iface, frame),
            eth::ARP if iface.kind == Kind::Ethernet => self.arp_input(now, &iface, &frame.buf),
            _ => iface.counters.rx_dropped.bump(),
        }
        None
    }

    fn ipv4_input(&self, now: Ktime, iface: Arc<Iface>, mut frame: Frame) -> Option<Packet> {
        let counters = &self.counters.ip;
        counters.in_receives.bump();
        let Some(mut header) = Ipv4::parse(&frame.buf) else {
            counters.in_hdr_errors.bump();
            return None;
        };
        self.counters.traffic.received(header.total_len(), header.tos);
        frame.buf.truncate(header.total_len());
        let (src, dst) = (header.src(), header.dst());
        let looped = iface.index == LOOPBACK || self.routes_localnet(&iface);
        let bad_source = src.is_multicast() || src.is_broadcast() || (src.is_loopback() && !looped);
        if bad_source || (dst.is_loopback() && !looped) {
            counters.in_addr_errors.bump();
            return None;
        }
        let fragment = header.offset() > 0 || header.more_fragments();
        let mut headers = Headers::of_v4(&header);
        if self.is_hooked() {
            if fragment {
                let whole = self.reassemble(now, frame, true)?;
                return self.ipv4_input(now, iface, whole);
            }
            if !self.passes(now, Point::PreRouting, (Some(&iface), None), &mut headers, &mut frame) {
                return None;
            }
            if headers.changed {
                let Some(changed) = Ipv4::parse(&frame.buf) else {
                    counters.in_hdr_errors.bump();
                    return None;
                };
                (header, headers) = (changed, Headers::of_v4(&changed));
            }
        }
        let info = headers.info;
        // A rule may not lead packets from outside to what listens on loopback alone.
        let misled = header.dst().is_loopback() && !looped;
        if misled || iface.index != LOOPBACK && !self.is_way_back(&iface, header.src(), frame.tags.mark) {
            counters.in_addr_errors.bump();
            return None;
        }
        let Some(cast) = self.cast_of(&iface, &info, frame.tags.mark) else {
            self.forward(now, &iface, headers, header.dont_fragment(), frame);
            return None;
        };
        if fragment {
            let whole = self.reassemble(now, frame, true)?;
            return self.ipv4_input(now, iface, whole);
        }
        self.accept(now, iface, headers, cast, frame)
    }

    /// The packet of a frame for this host, unless the filter drops it.
    fn accept(
        &self,
        now: Ktime,
        iface: Arc<Iface>,
        mut headers: Headers,
        cast: Cast,
        mut frame: Frame,
    ) -> Option<Packet> {
        if self.is_hooked() {
            if !self.passes(now, Point::Input, (Some(&iface), None), &mut headers, &mut frame) {
                return None;
            }
            // Rules may have left a checksum wrong: as on Linux nothing looks at that again.
            if headers.changed {
                let Some(changed) = Headers::read(&frame.buf) else {
                    self.counters.ip_of(headers.info.dst).in_hdr_errors.bump();
                    return None;
                };
                headers = changed;
            }
        }
        let verified = !matches!(frame.offload.checksum, Checksum::Unknown | Checksum::Given);
        let (mark, part) = (frame.tags.mark, frame.tags.part);
        self.counters.ip_of(headers.info.dst).in_delivers.bump();
        self.counters.traffic_of(headers.info.dst).accepted(cast, frame.buf.len());
        let (info, flow) = (headers.info, frame.tags.flow);
        Some(Packet { now, iface, info, verified, cast, mark, flow, part, buf: frame.buf })
    }

    fn ipv6_input(&self, now: Ktime, iface: Arc<Iface>, mut frame: Frame) -> Option<Packet> {
        let counters = &self.counters.ip6;
        counters.in_receives.bump();
        if iface.disables_v6() {
            counters.in_discards.bump();
            return None;
        }
        let Some(mut header) = Ipv6::parse(&frame.buf) else {
            counters.in_hdr_errors.bump();
            return None;
        };
        frame.buf.truncate(Ipv6::LEN + header.payload_len());
        self.counters.traffic6.received(frame.buf.len(), header.traffic_class());
        let (src, dst) = (header.src(), header.dst());
        let looped = iface.index == LOOPBACK;
        let local_only = |ip: Ipv6Addr| ip.is_loopback() || (ip.is_multicast() && ip.octets()[1] & 0xf == 1);
        if src.is_multicast() || ((src.is_loopback() || local_only(dst)) && !looped) || dst.is_unspecified() {
            counters.in_addr_errors.bump();
            return None;
        }
        let mut chain = walk(header.next, &frame.buf[Ipv6::LEN..]);
        if self.is_hooked() {
            let whole =
                chain.filter(|chain| chain.fragment.is_none_or(|f| f.offset() == 0 && !f.more_fragments()));
            let Some(known) = whole else {
                let whole = self.reassemble(now, frame, false)?;
                return self.ipv6_input(now, iface, whole);
            };
            let mut headers = Headers::of_v6(&header, &known);
            if !self.passes(now, Point::PreRouting, (Some(&iface), None), &mut headers, &mut frame) {
                return None;
            }
            if headers.changed {
                let Some(changed) = Ipv6::parse(&frame.buf) else {
                    counters.in_hdr_errors.bump();
                    return None;
                };
                (header, chain) = (changed, walk(changed.next, &frame.buf[Ipv6::LEN..]));
            }
        }
        let Some(chain) = chain else {
            counters.in_hdr_errors.bump();
            return None;
        };
        let headers = Headers::of_v6(&header, &chain);
        let info = headers.info;
        let cast = self.cast_of(&iface, &info, frame.tags.mark);
        if chain.len > 0
            && let fate =
                extension::inspect(header.next, &frame.buf[Ipv6::LEN..info.header_len], cast.is_some())
            && fate != Fate::Pass
        {
            counters.in_hdr_errors.bump();
            let (cast, mark, flow) = (cast.unwrap_or(Cast::Unicast), frame.tags.mark, frame.tags.flow);
            let (part, buf) = (Part::Alone, frame.buf);
            self.header_problem(
                &Packet { now, iface, info, verified: true, cast, mark, flow, part, buf },
                fate,
            );
            return None;
        }
        let Some(cast) = cast else {
            self.forward(now, &iface, headers, true, frame);
            return None;
        };
        match chain.fragment {
            Some(fragment) if fragment.offset() > 0 || fragment.more_fragments() => {
                let whole = self.reassemble(now, frame, false)?;
                self.ipv6_input(now, iface, whole)
            }
            _ => self.accept(now, iface, headers, cast, frame),
        }
    }

    /// Tells the sender of a packet what is wrong with its extension headers, if it is to be told.
    fn header_problem(&self, packet: &Packet, fate: Fate) {
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
        let routes = self.tables.routes.read();
        match routes.lookup(&key, |_| true).ok()?.kind {
            RouteKind::Local => Some(Cast::Local),
            RouteKind::Broadcast => Some(Cast::Broadcast),
            _ => None,
        }
    }

    /// Sends a packet of others on (RFC 1812 section 5.2).
    fn forward(
        &self,
        now: Ktime,
        iface: &Arc<Iface>,
        mut headers: Headers,
        dont_fragment: bool,
        mut frame: Frame,
    ) {
        let info = headers.info;
        let v4 = info.dst.is_ipv4();
        let enabled = if v4 { self.forwards4(iface) } else { self.sysctls.ip6_forward.on() };
        let link_local = crate::addr::scope(info.dst) == crate::addr::Scope::Link;
        if !enabled || info.dst.is_multicast() || link_local {
            return self.counters.ip_of(info.dst).in_addr_errors.bump();
        }
        let mark = frame.tags.mark;
        let refuse = |frame: Frame, problem| {
            let (iface, cast, buf) = (iface.clone(), Cast::Unicast, frame.buf);
            let (flow, part) = (frame.tags.flow, Part::Alone);
            let packet = Packet { now, iface, info, verified: true, cast, mark, flow, part, buf };
            self.icmp_problem(&packet, problem);
        };
        if info.ttl <= 1 {
            return refuse(frame, Problem::TimeExceeded);
        }
        let key = Key { src: Some(info.src), iif: iface.index, tos: info.tos, mark, ..Key::to(info.dst) };
        let Ok(path) = self.route(&key, now) else { return refuse(frame, Problem::NoRoute) };
        if crate::gso::wire_len(&frame) > path.mtu as usize && dont_fragment {
            return refuse(frame, Problem::TooBig { mtu: path.mtu });
        }
        let ways = (Some(&**iface), Some(&*path.iface));
        if !self.passes(now, Point::Forward, ways, &mut headers, &mut frame) {
            return;
        }
        lower_ttl(&mut frame.buf, v4);
        headers.info.ttl = headers.info.ttl.saturating_sub(1);
        self.counters.ip_of(info.dst).forwarded.bump();
        let header = Header { dont_fragment, ..Header::default() };
        let headers = Some(headers).filter(|headers| !headers.changed);
        let _ = self.send_packet(now, &path, headers, frame, &header);
    }

    fn passes(
        &self,
        now: Ktime,
        point: Point,
        (input, output): (Option<&Iface>, Option<&Iface>),
        headers: &mut Headers,
        frame: &mut Frame,
    ) -> bool {
        self.pass(now, point, input, output, headers, frame) == Verdict::Accept
    }

    /// Takes a fragment. Returns the whole packet, if it was the last one that was missing.
    fn reassemble(&self, now: Ktime, frame: Frame, v4: bool) -> Option<Frame> {
        let Frame { buf: packet, tags, .. } = frame;
        let counters = if v4 { &self.counters.ip } else { &self.counters.ip6 };
        counters.reasm_reqds.bump();
        let time = if v4 { &self.sysctls.ipfrag_time } else { &self.sysctls.ip6frag_time };
        let keep = Duration::from_secs(time.size() as u64);
        let mut table = self.reassembly.lock();
        let limit = self.sysctls.ipfrag_high_thresh.size();
        let outcome = table.add(&self.links.pool, &packet, now, keep, limit);
        self.arm_reassembly(table.deadline());
        drop(table);
        match outcome {
            Outcome::Waiting => None,
            Outcome::Bad => {
                counters.reasm_fails.bump();
                None
            }
            Outcome::Whole(buf) => {
                counters.reasm_oks.bump();
                // Each level of fragments in fragments would be a level of this function's recursion.
                if is_fragmented(&buf) {
                    counters.in_hdr_errors.bump();
                    return None;
                }
                Some(Frame { tags, ..Frame::new(buf) })
            }
        }
    }

    pub(crate) fn expire_fragments(&self, now: Ktime) {
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

//! Hardware addresses of neighbours: ARP (RFC 826) and neighbour discovery (RFC 4861 section 7), and frames to them.

use super::layer::Network;
use super::neigh::{Learnt, Resolution};
use super::path::Cast;
use super::received::Packet;
use crate::device::iface::{Iface, Kind};
use crate::device::transmit::transmit;
use crate::frame::Frame;
use crate::wire::eth::{self, Arp, Ethernet, Mac};
use crate::wire::icmp::{Icmp, NEIGHBOUR_SOLICIT, Neighbour, OVERRIDE, SOLICITED};
use crate::wire::ipv6::Ipv6;
use crate::wire::proto;
use ktime::Ktime;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use zerocopy::IntoBytes;
use zerocopy::network_endian::U16;

impl Network {
    pub(crate) fn send_resolved(&self, now: Ktime, iface: &Arc<Iface>, next_hop: IpAddr, frame: Frame) {
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

    pub(crate) fn send_ethernet(&self, now: Ktime, iface: &Iface, dst: Mac, mut frame: Frame) {
        let v6 = frame.buf.first().is_some_and(|first| first >> 4 == 6);
        let kind = U16::new(if v6 { eth::IPV6 } else { eth::IPV4 });
        frame.buf.push_front(Ethernet { dst, src: iface.mac(), kind }.as_bytes());
        self.taps.show(now, iface, &frame, true);
        transmit(iface, frame);
    }

    /// Asks for a neighbour's hardware address: the host `to`, or all hosts of the link.
    pub(crate) fn solicit(&self, now: Ktime, iface: &Arc<Iface>, target: IpAddr, to: Option<Mac>) {
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

    pub(crate) fn send_arp(&self, now: Ktime, iface: &Iface, to: Mac, arp: Arp) {
        let mut buf = self.buf(64);
        buf.extend(Ethernet { dst: to, src: iface.mac(), kind: U16::new(eth::ARP) }.as_bytes());
        buf.extend(arp.as_bytes());
        let frame = Frame::new(buf);
        self.taps.show(now, iface, &frame, true);
        transmit(iface, frame);
    }

    /// Sends a neighbour discovery message; those have hop limit 255 (RFC 4861 section 3.1).
    pub(crate) fn send_discovery(
        &self,
        now: Ktime,
        iface: &Iface,
        to: Mac,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        message: &[u8],
    ) {
        let mut ip = Ipv6::new(src, dst, proto::ICMPV6, message.len());
        ip.hop_limit = 255;
        let mut buf = self.links.pool.copy(message);
        buf.push_front(ip.as_bytes());
        self.counters.icmp_sent(true, message.first().copied().unwrap_or(0));
        self.counters
            .traffic6
            .sent(if dst.is_multicast() { Cast::Multicast } else { Cast::Unicast }, buf.len());
        self.send_ethernet(now, iface, to, Frame::new(buf));
    }

    pub(crate) fn arp_input(&self, now: Ktime, iface: &Arc<Iface>, bytes: &[u8]) {
        let Some(arp) = Arp::parse(bytes).filter(|_| iface.resolves()) else { return };
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

    pub(crate) fn learn(&self, now: Ktime, iface: &Arc<Iface>, ip: IpAddr, mac: Mac, how: Learnt) {
        let gc = self.sysctls.neigh_gc_thresh.size();
        let key = (iface.index, ip);
        let waiting = self.change_neighbours(|all| all.learn(key, mac, how, now, gc));
        waiting.into_iter().for_each(|frame| self.send_ethernet(now, iface, mac, frame));
    }

    /// Neighbour solicitations and advertisements (RFC 4861 section 7.2).
    pub(crate) fn discovery_input(&self, packet: &Packet, header: &Icmp) {
        let body = packet.payload().get(Icmp::LEN..).unwrap_or_default();
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (packet.info.src, packet.info.dst) else { return };
        let sound = packet.info.ttl == 255 && header.code == 0 && packet.iface.kind == Kind::Ethernet;
        let Some(message) = Neighbour::parse(header, body).filter(|_| sound) else { return };
        let (now, iface) = (packet.now, &packet.iface);
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

//! Datagrams and errors that arrive.

use super::queue::{Datagram, Origin, QueuedError};
use super::table::Program;
use super::{DatagramSocket, Datagrams, Protocol};
use crate::checksum::Sum;
use crate::frame::Part;
use crate::network::icmp::Problem;
use crate::network::path::Cast;
use crate::network::received::Packet;
use crate::notify::Events;
use crate::wire::icmp::{Icmp, Quoted, SocketError};
use crate::wire::proto;
use crate::wire::udp::Udp;
use ktime::Ktime;
use std::net::{IpAddr, SocketAddr};

impl Datagrams {
    /// Takes a datagram of UDP or UDP-Lite for this host.
    pub(crate) fn udp_input(&self, packet: &Packet) {
        let lite = packet.info.protocol == proto::UDP_LITE;
        let counters = self.net.counters.udp_of(lite, packet.info.dst);
        let table = if lite { &self.udp_lite } else { &self.udp };
        let (bytes, src, dst) = (packet.payload(), packet.info.src, packet.info.dst);
        let parsed = match lite {
            true => Udp::parse_lite(bytes),
            false => Udp::parse(bytes).map(|(header, payload)| (header, payload, bytes.len())),
        };
        let Some((header, payload, coverage)) = parsed else { return counters.in_errors.bump() };
        // Over IPv6 a checksum must be there, unless the socket takes datagrams without one (UDP_NO_CHECK6_RX).
        let unsealed = !lite && !packet.verified && dst.is_ipv6() && header.is_unsealed();
        let sound = match lite {
            true => header.lite_checksum_ok(src, dst, bytes, coverage),
            false => packet.verified || unsealed || header.checksum_ok(src, dst, bytes),
        };
        if !sound {
            counters.in_csum_errors.bump();
            return counters.in_errors.bump();
        }
        let partial = (coverage < bytes.len()).then_some(coverage);
        let from = SocketAddr::new(src, header.src());
        let to = SocketAddr::new(dst, header.dst());
        let start = packet.info.header_len + Udp::LEN;
        let datagram = Datagram {
            data: packet.buf.slice(start, start + payload.len()),
            from,
            to: packet.info.dst,
            port: header.dst(),
            iface: packet.iface.index,
            ttl: packet.info.ttl,
            tos: packet.info.tos,
            mark: packet.mark,
            at: packet.now,
            seen: false,
            dropped: 0,
            extensions: packet.extensions(),
            segment: 0,
        };
        if matches!(packet.cast, Cast::Broadcast | Cast::Multicast) {
            for socket in table.find_all(to, from, packet.iface.index) {
                let refuses = unsealed && !socket.inner.lock().options.accept_no_checksum6;
                if refuses || !socket.takes_coverage(partial) {
                    continue;
                }
                let Some(datagram) = socket.filtered(packet.payload(), Udp::LEN, &datagram) else { continue };
                if packet.cast == Cast::Broadcast || socket.hears(to.ip(), from.ip(), packet.iface.index) {
                    socket.deliver(datagram);
                }
            }
            return;
        }
        let choose = |program: Option<&Program>, count: usize| {
            let chosen = program.map(|program| program.accept(payload)).filter(|number| *number < count);
            chosen.unwrap_or_else(|| (self.net.keys.hash("reuseport", (from, to)) % count as u64) as usize)
        };
        match table.find(to, from, packet.iface.index, choose) {
            Some(socket) if !socket.takes_coverage(partial) => counters.in_errors.bump(),
            Some(socket) if unsealed && !socket.inner.lock().options.accept_no_checksum6 => {
                counters.in_csum_errors.bump();
                counters.in_errors.bump();
            }
            None if unsealed => {
                counters.in_csum_errors.bump();
                counters.in_errors.bump();
            }
            Some(socket) => match socket.filtered(packet.payload(), Udp::LEN, &datagram) {
                Some(datagram) => socket.deliver_part(datagram, packet.part),
                None => counters.in_errors.bump(),
            },
            None => {
                counters.no_ports.bump();
                self.net.icmp_problem(packet, Problem::NoPort);
            }
        }
    }

    /// Hands a copy to each raw socket that wants the packet; true when there was one.
    pub(crate) fn raw_input(&self, packet: &Packet) -> bool {
        let sockets = self.raw.read();
        let mut taken = false;
        for socket in sockets.iter().filter(|socket| socket.wants(packet)) {
            taken = true;
            if !packet.verified && !socket.checksum_ok(packet) {
                continue;
            }
            // IPv4 sockets see the IP header, IPv6 sockets do not (raw(7), ipv6(7)).
            let skip = if socket.is_v6() { packet.info.header_len } else { 0 };
            let datagram = packet.datagram(skip, 0);
            if let Some(datagram) = socket.filtered(&datagram.data, 0, &datagram) {
                socket.deliver(datagram);
            }
        }
        taken
    }

    /// Hands an echo reply to the ping socket with its identifier.
    pub(crate) fn ping_input(&self, packet: &Packet, header: &Icmp) {
        let table = if packet.info.dst.is_ipv6() { &self.ping6 } else { &self.ping };
        let from = SocketAddr::new(packet.info.src, 0);
        let to = SocketAddr::new(packet.info.dst, header.ident());
        if let Some(socket) = table.find(to, from, packet.iface.index, |_, _| 0) {
            socket.deliver(packet.datagram(packet.info.header_len, header.ident()));
        }
    }

    /// Hands an ICMP error to the datagram socket that sent the packet; true when there is one.
    pub(crate) fn error(
        &self,
        now: Ktime,
        quote: &Quoted<'_>,
        error: &SocketError,
        kind: (u8, u8),
        offender: IpAddr,
    ) -> bool {
        let info = &quote.info;
        let port = |at: usize| quote.payload.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
        let (table, src, dst) = match info.protocol {
            proto::UDP => (&self.udp, port(0), port(2)),
            proto::UDP_LITE => (&self.udp_lite, port(0), port(2)),
            proto::ICMP => (&self.ping, port(4), 0),
            proto::ICMPV6 => (&self.ping6, port(4), 0),
            _ => return self.raw_error(quote, error),
        };
        let (local, remote) = (SocketAddr::new(info.src, src), SocketAddr::new(info.dst, dst));
        let Some(socket) = table.find(local, remote, 0, |_, _| 0) else {
            return self.raw_error(quote, error);
        };
        if let Some(mtu) = error.mtu {
            self.net.learn_mtu(now, info.dst, mtu);
        }
        socket.fail(quote, error, kind, offender, remote);
        true
    }

    /// Raw sockets learn of errors only with a peer.
    fn raw_error(&self, quote: &Quoted<'_>, error: &SocketError) -> bool {
        let sockets = self.raw.read();
        let concerned = sockets.iter().filter(|socket| {
            socket.protocol == Protocol::Raw(quote.info.protocol)
                && socket.inner.lock().remote.is_some_and(|remote| remote.ip() == quote.info.dst)
        });
        let mut found = false;
        for socket in concerned {
            found = true;
            if error.fatal {
                socket.queue.lock().error = Some(error.errno);
                socket.notify.changed(Events::ERR);
            }
        }
        found
    }
}

impl Packet {
    /// The packet as a datagram, without its first `skip` bytes.
    fn datagram(&self, skip: usize, port: u16) -> Datagram {
        Datagram {
            data: self.buf.slice(skip, self.buf.len()),
            from: SocketAddr::new(self.info.src, 0),
            to: self.info.dst,
            port,
            iface: self.iface.index,
            ttl: self.info.ttl,
            tos: self.info.tos,
            mark: self.mark,
            at: self.now,
            seen: false,
            dropped: 0,
            extensions: self.extensions(),
            segment: 0,
        }
    }
}

impl DatagramSocket {
    /// `IPV6_CHECKSUM`: whether the packet adds up, for a raw socket of IPv6 that has the kernel look. That of ICMPv6 always has.
    fn checksum_ok(&self, packet: &Packet) -> bool {
        let icmp = self.protocol == Protocol::Raw(proto::ICMPV6);
        if !self.is_v6() || !icmp && self.inner.lock().options.checksum_at.is_none() {
            return true;
        }
        let (info, payload) = (&packet.info, packet.payload());
        Sum::new().pseudo(info.src, info.dst, info.protocol, payload.len()).with(payload).finish() == 0
    }

    /// Queues a datagram; one that follows another of its piece is joined to that one for a socket with `UDP_GRO`.
    fn deliver_part(&self, datagram: Datagram, part: Part) {
        if part == Part::Next && self.inner.lock().options.gro && self.queue.lock().join(&datagram) {
            self.net.counters.udp_of(false, datagram.to).in_datagrams.bump();
            return;
        }
        self.deliver(datagram);
    }

    fn deliver(&self, datagram: Datagram) {
        let udp = self.protocol.is_udp();
        let counters = self.net.counters.udp_of(self.protocol == Protocol::UdpLite, datagram.to);
        if self.queue.lock().push(datagram) {
            if udp {
                counters.in_datagrams.bump();
            }
            self.notify.changed(Events::IN);
        } else if udp {
            counters.rcvbuf_errors.bump();
            counters.in_errors.bump();
        }
    }

    /// True unless the checksum of a datagram of UDP-Lite covers less than the reader wants (`UDPLITE_RECV_CSCOV`). `partial` is how
    /// much it covers, when that is not everything.
    fn takes_coverage(&self, partial: Option<usize>) -> bool {
        let Some(covered) = partial else { return true };
        let wanted = self.inner.lock().options.receive_coverage;
        wanted.is_none_or(|least| least != 0 && covered >= least.into())
    }

    /// A datagram as the filter leaves it: the filter sees `whole`, of which the first `header` bytes are always kept.
    fn filtered(&self, whole: &[u8], header: usize, datagram: &Datagram) -> Option<Datagram> {
        let kept = self.admits(whole);
        if kept == 0 && !whole.is_empty() {
            return None;
        }
        let mut datagram = datagram.clone();
        datagram.data.truncate(kept.saturating_sub(header));
        Some(datagram)
    }

    /// True when the socket receives what a source sends to a group.
    fn hears(&self, group: IpAddr, source: IpAddr, iface: u32) -> bool {
        let inner = self.inner.lock();
        let own = inner.memberships.iter().find(|m| m.group == group && m.iface == iface);
        own.map_or(inner.options.multicast_all, |membership| membership.hears(source))
    }

    /// True when a raw socket receives a packet.
    fn wants(&self, packet: &Packet) -> bool {
        let Protocol::Raw(protocol) = self.protocol else { return false };
        if self.is_v6() != packet.info.dst.is_ipv6() || (protocol != packet.info.protocol) {
            return false;
        }
        let inner = self.inner.lock();
        if matches!(protocol, proto::ICMP | proto::ICMPV6)
            && let Some(&kind) = packet.payload().first()
            && inner.options.icmp_filter[usize::from(kind) / 32] & (1 << (kind % 32)) != 0
        {
            return false;
        }
        let device = inner.options.device == 0 || inner.options.device == packet.iface.index;
        let remote = inner.remote.is_none_or(|remote| remote.ip() == packet.info.src);
        device && remote && inner.binding.is_none_or(|binding| binding.covers(packet.info.dst))
    }

    /// An ICMP error about a datagram of this socket (RFC 1122 section 4.1.3.3, ip(7)).
    fn fail(
        &self,
        quote: &Quoted<'_>,
        error: &SocketError,
        kind: (u8, u8),
        offender: IpAddr,
        to: SocketAddr,
    ) {
        let inner = self.inner.lock();
        let (wanted, connected) = (inner.options.wants_errors(to.ip()), inner.remote.is_some());
        drop(inner);
        let told = wanted || (error.fatal && connected);
        if !told {
            return;
        }
        let mut queue = self.queue.lock();
        if wanted {
            let origin = if to.is_ipv4() { Origin::Icmp } else { Origin::Icmp6 };
            let skip = if self.protocol.is_udp() { Udp::LEN } else { 0 };
            queue.push_error(QueuedError {
                errno: error.errno,
                origin,
                kind: kind.0,
                code: kind.1,
                info: error.mtu.unwrap_or(0),
                id: 0,
                at: None,
                offender: Some(offender),
                to,
                data: self.net.links.pool.copy(quote.payload.get(skip..).unwrap_or_default()),
            });
        } else {
            queue.error = Some(error.errno);
        }
        drop(queue);
        self.notify.changed(Events::ERR | Events::IN);
    }
}

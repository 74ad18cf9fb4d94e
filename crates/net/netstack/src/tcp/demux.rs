//! From packets to connections and listeners, and the answers that belong to neither.

use super::arrival::Arrival;
use super::conn::{Emit, State};
use super::emit::Packets;
use super::handshake::Answer;
use super::input::Verdict;
use super::socket::{Inner, Tcp, TcpSocket, is_reset};
use super::table::Program;
use crate::chain::{Blocks, Span};
use crate::network::path::Cast;
use crate::network::received::Packet;
use crate::network::route::Key;
use crate::notify::Events;
use crate::wire::icmp::{Quoted, SocketError};
use crate::wire::seq::Seq;
use crate::wire::tcp::{self, Flags, Segment};
use abi::Errno;
use ktime::Ktime;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// ICMP errors that end a half-open connection, beside those that end every connection.
const ENDS_HANDSHAKE: [Errno; 3] = [Errno::EHOSTUNREACH, Errno::ENETUNREACH, Errno::EPROTO];

impl Tcp {
    /// Takes a TCP segment for this host.
    pub(crate) fn input(&self, packet: &Packet) {
        let counters = &self.net.counters.tcp;
        counters.in_segs.bump();
        if packet.cast != Cast::Local {
            return;
        }
        let bytes = packet.payload();
        if !packet.verified && !tcp::checksum_ok(packet.info.src, packet.info.dst, bytes) {
            counters.in_csum_errors.bump();
            return counters.in_errs.bump();
        }
        let Some((seg, len)) = Segment::parse(bytes) else { return counters.in_errs.bump() };
        let data = Span::of(&packet.buf, packet.info.header_len + len);
        let local = SocketAddr::new(packet.info.dst, seg.dst);
        let remote = SocketAddr::new(packet.info.src, seg.src);
        let arrival = Arrival {
            now: packet.now,
            tuple: (local, remote),
            seg: &seg,
            bytes,
            data,
            congested: packet.info.congested(),
            device: packet.iface.index,
            ttl: packet.info.ttl,
        };
        if let Some(socket) = self.table.find(&arrival.tuple) {
            match socket.segment_input(&arrival) {
                Verdict::Done => {
                    if seg.flags.contains(Flags::ACK) {
                        self.confirm(packet);
                    }
                    return;
                }
                Verdict::Reset => return self.reset(&arrival),
                Verdict::Reopen => {}
            }
        }
        self.listener_input(&arrival);
    }

    fn listener_input(&self, arrival: &Arrival<'_>) {
        let (local, remote) = arrival.tuple;
        let choose = |program: Option<&Program>, count: usize| {
            let payload = arrival.data.bytes();
            let chosen = program.map(|program| program.accept(payload)).filter(|number| *number < count);
            let hash = || (self.net.keys.hash("reuseport", arrival.tuple) % count as u64) as usize;
            chosen.unwrap_or_else(hash)
        };
        let Some((chosen, others)) = self.table.find_listener(local, remote, arrival.device, choose) else {
            return self.reset(arrival);
        };
        // A half-open connection stays with the listener that the program chose for its SYN.
        let has_request = |one: &Arc<TcpSocket>| {
            one.inner.lock().listener.as_ref().is_some_and(|l| l.requests.contains_key(&arrival.tuple))
        };
        let begins = arrival.seg.flags.contains(Flags::SYN) && !arrival.seg.flags.contains(Flags::ACK);
        let known = others.iter().find(|one| !begins && has_request(one));
        let listener = known.cloned().unwrap_or(chosen);
        let mut inner = listener.inner.lock();
        if !TcpSocket::listens(&inner) {
            drop(inner);
            return self.reset(arrival);
        }
        if arrival.came_too_far(&inner.conn.options.ip) {
            return self.net.counters.tcp.min_ttl_drop.bump();
        }
        let Some(arrival) = arrival.passed(inner.filter.as_ref()) else { return };
        let arrival = &arrival;
        let answer = listener.listener_input(&mut inner, arrival);
        listener.settle(&mut inner);
        drop(inner);
        match answer {
            Answer::Nothing => {}
            Answer::Reset => self.reset(arrival),
            Answer::Taken => listener.tell(Events::IN),
            Answer::Child(child) => {
                // The listener's filter has seen the segment.
                if child.process(&mut child.inner.lock(), arrival) == Verdict::Reset {
                    self.reset(arrival);
                }
                listener.tell(Events::IN);
            }
        }
    }

    /// Traffic from a peer shows that its neighbour entry is right.
    fn confirm(&self, packet: &Packet) {
        if packet.iface.kind == crate::device::iface::Kind::Ethernet {
            self.net.neighbours.read().confirm(&(packet.iface.index, packet.info.src), packet.now);
        }
    }

    /// Answers a segment that belongs to no connection (RFC 9293 section 3.5.2).
    fn reset(&self, arrival: &Arrival<'_>) {
        if is_reset(arrival.seg) {
            return;
        }
        let (local, remote) = arrival.tuple;
        let key = Key { src: Some(local.ip()), ..Key::to(remote.ip()) };
        let scoped = crate::addr::scope(remote.ip()) == crate::addr::Scope::Link;
        let key = Key { oif: if scoped { arrival.device } else { 0 }, ..key };
        let Ok(path) = self.net.route(&key, arrival.now) else { return };
        let seg = arrival.seg;
        let reply = if seg.flags.contains(Flags::ACK) {
            Segment { seq: seg.ack, flags: Flags::RST, ..Segment::default() }
        } else {
            let ack = seg.seq + seg.occupies(arrival.data.len());
            Segment { seq: Seq(0), ack, flags: Flags::RST | Flags::ACK, ..Segment::default() }
        };
        self.net.counters.tcp.out_rsts.bump();
        self.net.counters.tcp.out_segs.bump();
        let mut packets = Packets {
            net: &self.net,
            path: Some(&path),
            local,
            remote,
            tos: 0,
            ttl: None,
            dont_fragment: true,
            mark: 0,
            owner: None,
            now: arrival.now,
        };
        packets.emit(&reply, &Blocks::new(), u32::MAX, false);
    }

    /// Hands an ICMP error to the connection that sent the packet; true when there is one.
    pub(crate) fn error(&self, now: Ktime, quote: &Quoted<'_>, error: &SocketError) -> bool {
        let Some(&[a, b, c, d, e, f, g, h]) = quote.payload.first_chunk() else { return false };
        let local = SocketAddr::new(quote.info.src, u16::from_be_bytes([a, b]));
        let remote = SocketAddr::new(quote.info.dst, u16::from_be_bytes([c, d]));
        let seq = Seq(u32::from_be_bytes([e, f, g, h]));
        let Some(socket) = self.table.find(&(local, remote)) else {
            let listener = self.table.find_listener(local, remote, 0, |_, _| 0);
            let forget = |listener: Arc<TcpSocket>| {
                let mut inner = listener.inner.lock();
                let ends = error.fatal || local.is_ipv4() && ENDS_HANDSHAKE.contains(&error.errno);
                inner.listener.as_mut().is_some_and(|l| ends && l.forget(&(local, remote), seq))
            };
            return listener.is_some_and(|(chosen, others)| {
                if others.is_empty() { forget(chosen) } else { others.into_iter().any(forget) }
            });
        };
        let mut inner = socket.inner.lock();
        let known =
            inner.conn.is_outstanding(seq) || (seq == inner.conn.nxt && inner.conn.state != State::Closed);
        if !known {
            self.net.counters.tcp.out_of_window_icmps.bump();
        }
        if let Some(mtu) = error.mtu {
            if known && (quote.info.dst.is_ipv6() || mtu >= 68) {
                drop(inner);
                self.net.learn_mtu(now, quote.info.dst, mtu);
                socket.path_changed(now);
            }
            return known;
        }
        socket.run(&mut inner, now, |conn, cx| conn.on_icmp(cx, seq, error.errno, error.fatal));
        known
    }

    /// Connections in the table, in TIME-WAIT, and orphans: what /proc/net/sockstat shows.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let load = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (self.table.len(), load(&self.table.time_waits), load(&self.table.orphans))
    }
}

impl TcpSocket {
    /// Takes a segment for a connection.
    fn segment_input(&self, arrival: &Arrival<'_>) -> Verdict {
        let mut inner = self.inner.lock();
        if arrival.came_too_far(&inner.conn.options.ip) {
            self.stack.net.counters.tcp.min_ttl_drop.bump();
            return Verdict::Done;
        }
        // In TIME-WAIT Linux has no socket any more, and so no filter.
        let filter = inner.filter.as_ref().filter(|_| inner.conn.state != State::TimeWait);
        let Some(arrival) = arrival.passed(filter) else { return Verdict::Done };
        self.process(&mut inner, &arrival)
    }

    fn process(&self, inner: &mut Inner, arrival: &Arrival<'_>) -> Verdict {
        self.run(inner, arrival.now, |conn, cx| {
            let verdict = conn.on_segment(cx, arrival.seg, arrival.data, arrival.congested);
            conn.tune_receive_buffer(cx);
            verdict
        })
    }

    /// The path became narrower: what is too large is sent again (RFC 1191 section 6.4).
    fn path_changed(&self, now: Ktime) {
        let mut inner = self.inner.lock();
        self.run(&mut inner, now, |conn, cx| conn.resize(cx));
    }
}

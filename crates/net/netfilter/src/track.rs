//! Connection tracking of packets: each finds its connection before rules of table mangle see it; a new connection enters the table when
//! its first packet has passed all rules.

use crate::chain::{Chain, priority};
use crate::packet::{Packet, UDP_LITE, tuple_of};
use conntrack::tcp::Kind;
use conntrack::{Direction, Flow, Outcome, State, Status, Transport};
use netstack::checksum::Sum;
use netstack::hooks::{Point, Verdict};
use netstack::wire::icmp::{self, Icmp};
use netstack::wire::proto;
use std::sync::Arc;

/// The chains that track, by point and priority.
pub(crate) fn chains() -> [(Point, i32, Arc<dyn Chain>); 4] {
    let (track, confirm): (Arc<dyn Chain>, Arc<dyn Chain>) = (Arc::new(Track), Arc::new(Confirm));
    [
        (Point::PreRouting, priority::CONNTRACK, track.clone()),
        (Point::Output, priority::CONNTRACK, track),
        (Point::Input, priority::CONFIRM, confirm.clone()),
        (Point::PostRouting, priority::CONFIRM, confirm),
    ]
}

struct Track;

impl Chain for Track {
    fn run(&self, packet: &mut Packet<'_>) -> Verdict {
        // Loopback traffic was tracked on its way out; a rule may have exempted the packet.
        if !matches!(packet.tags.flow, Flow::None) || packet.fragment != 0 {
            return Verdict::Accept;
        }
        if packet.point == Point::PreRouting && packet.is_unchecked() {
            if !has_valid_checksum(packet) {
                return Verdict::Accept;
            }
            packet.set_checked();
        }
        if let Some(related) = related(packet) {
            packet.tags.flow = related;
            return Verdict::Accept;
        }
        let (Some(tuple), Some(seen)) = (packet.tuple(), seen(packet)) else { return Verdict::Accept };
        match packet.netfilter.connections.packet(&tuple, seen, packet.millis()) {
            Outcome::Flow(flow) => {
                packet.tags.flow = flow;
                Verdict::Accept
            }
            Outcome::Full => Verdict::Drop,
        }
    }
}

/// What the table must know of the transport header; `None` for packets that no connection has.
fn seen(packet: &Packet<'_>) -> Option<Transport> {
    let payload = packet.payload();
    match packet.info.protocol {
        proto::TCP => {
            let header = payload.get(..20)?;
            let len = usize::from(header[12] >> 4) * 4;
            (len >= 20 && len <= payload.len()).then_some(())?;
            Kind::of(header[13]).map(Transport::Tcp)
        }
        proto::UDP | UDP_LITE => payload.get(..8).map(|_| Transport::Udp),
        proto::ICMP | proto::ICMPV6 => payload.get(..8).map(|_| Transport::Icmp),
        _ => Some(Transport::Other),
    }
}

/// An ICMP error is a packet of the connection that it quotes.
fn related(packet: &Packet<'_>) -> Option<Flow> {
    let v6 = packet.info.src.is_ipv6();
    let (kind, body) = (*packet.payload().first()?, packet.payload().get(Icmp::LEN..)?);
    if !is_error(packet.info.protocol, v6, kind) {
        return None;
    }
    let quote = icmp::quoted(body, v6)?;
    // The quoted packet went the other way.
    let inner = tuple_of(&quote.info, quote.payload)?.inverse()?;
    let (entry, direction) = packet.netfilter.connections.lookup(&inner, packet.millis())?;
    Some(Flow::Tracked { entry, direction, state: State::Related })
}

/// True for ICMP errors, which quote a packet.
pub(crate) fn is_error(protocol: u8, v6: bool, kind: u8) -> bool {
    match protocol {
        proto::ICMP if !v6 => matches!(kind, 3 | 4 | 5 | 11 | 12),
        proto::ICMPV6 if v6 => kind < 128,
        _ => false,
    }
}

fn has_valid_checksum(packet: &Packet<'_>) -> bool {
    let (info, payload) = (&packet.info, packet.payload());
    let pseudo = || Sum::new().pseudo(info.src, info.dst, info.protocol, payload.len());
    match info.protocol {
        proto::TCP | proto::ICMPV6 => pseudo().with(payload).is_valid(),
        proto::UDP if payload.get(6..8) == Some(&[0, 0]) => info.src.is_ipv4(),
        proto::UDP => pseudo().with(payload).is_valid(),
        proto::ICMP => Sum::new().with(payload).is_valid(),
        _ => true,
    }
}

struct Confirm;

impl Chain for Confirm {
    fn run(&self, packet: &mut Packet<'_>) -> Verdict {
        let Flow::Tracked { entry, direction: Direction::Original, state } = &packet.tags.flow else {
            return Verdict::Accept;
        };
        if *state == State::Related || entry.has(Status::CONFIRMED) || entry.has(Status::DYING) {
            return Verdict::Accept;
        }
        let Err(other) = packet.netfilter.connections.confirm(entry) else { return Verdict::Accept };
        // Two first packets of one connection at once: the second one joins the first. Another connection that NAT gave the same
        // addresses keeps them.
        if other.original != entry.original || other.reply() != entry.reply() {
            return Verdict::Drop;
        }
        packet.tags.flow = Flow::Tracked { entry: other, direction: Direction::Original, state: State::New };
        Verdict::Accept
    }
}

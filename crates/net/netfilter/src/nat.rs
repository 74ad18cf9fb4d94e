//! Network address translation.
//!
//! The first packet of a connection decides: a rule calls [`setup`], which chooses addresses and ports that no other connection has, and
//! stores them as the connection's reply tuple. Every packet of either direction is then rewritten from the tuples.

use crate::chain::{Chain, NatChains, priority};
use crate::checksum::updated;
use crate::packet::{Packet, UDP_LITE, has_translated_ports};
use conntrack::{Direction, Entry, Flow, State, Status, Tuple};
use netstack::LOOPBACK;
use netstack::checksum::Sum;
use netstack::hooks::{Point, Verdict};
use netstack::wire::icmp::Icmp;
use netstack::wire::ip::Ipv4;
use netstack::wire::ipv6::{Ipv6, walk};
use netstack::wire::proto;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Ports that are tried for a connection before one is taken that may clash.
const ATTEMPTS: u32 = 128;

/// Which side of the first packet is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manip {
    /// The source.
    Src,
    /// The destination.
    Dst,
}

impl Manip {
    /// What a point translates; `None` at Forward.
    pub fn at(point: Point) -> Option<Manip> {
        match point {
            Point::PreRouting | Point::Output => Some(Manip::Dst),
            Point::PostRouting | Point::Input => Some(Manip::Src),
            Point::Forward => None,
        }
    }

    fn done(self) -> Status {
        match self {
            Manip::Src => Status::SRC_NAT_DONE,
            Manip::Dst => Status::DST_NAT_DONE,
        }
    }

    fn changed(self) -> Status {
        match self {
            Manip::Src => Status::SRC_NAT,
            Manip::Dst => Status::DST_NAT,
        }
    }

    fn opposite(self) -> Manip {
        match self {
            Manip::Src => Manip::Dst,
            Manip::Dst => Manip::Src,
        }
    }
}

/// What a connection's address and port may become (`struct nf_nat_range2`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First and last address; unchanged if absent.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// First and last port (or ICMP identifier); chosen if absent.
    pub ports: Option<(u16, u16)>,
    /// The port that becomes the first one (`NF_NAT_RANGE_PROTO_OFFSET`); the others keep their distance.
    pub base_port: Option<u16>,
    /// Ports are chosen at random.
    pub random: bool,
    /// A client keeps its address for all destinations.
    pub persistent: bool,
}

impl Range {
    /// One address.
    pub fn address(ip: IpAddr) -> Range {
        Range { addresses: Some((ip, ip)), ..Range::default() }
    }

    fn holds_address(&self, ip: IpAddr) -> bool {
        self.addresses
            .is_none_or(|(first, last)| first.is_ipv4() == ip.is_ipv4() && first <= ip && ip <= last)
    }

    fn holds_port(&self, port: u16) -> bool {
        self.ports.is_none_or(|(first, last)| (first..=last).contains(&port))
    }
}

/// True when a connection's packets are rewritten.
pub fn is_translated(entry: &Entry) -> bool {
    entry.has(Status::SRC_NAT) || entry.has(Status::DST_NAT)
}

/// Decides on one side of the packet's connection. The packet itself is rewritten when its point's chains have run. Drops packets
/// that have no connection, or no address of their family in the range.
pub fn setup(packet: &mut Packet<'_>, manip: Manip, range: &Range) -> Verdict {
    let Some((entry, _, _)) = packet.connection() else { return Verdict::Drop };
    let entry = entry.clone();
    if entry.has(Status::CONFIRMED) || entry.has(manip.done()) {
        return Verdict::Accept;
    }
    if range.addresses.is_some_and(|(first, last)| {
        first.is_ipv4() != entry.original.src.is_ipv4() || last.is_ipv4() != first.is_ipv4()
    }) {
        return Verdict::Drop;
    }
    // What the packet looks like now; the other side may have been decided on already.
    let Some(current) = entry.reply().inverse() else { return Verdict::Drop };
    let chosen = choose(packet, &entry, &current, manip, range);
    if chosen != current {
        let Some(reply) = chosen.inverse() else { return Verdict::Drop };
        entry.set_reply(reply);
        entry.set(manip.changed());
    }
    entry.set(manip.done());
    Verdict::Accept
}

/// A tuple of the range that no other connection answers to, if there is one.
fn choose(packet: &Packet<'_>, entry: &Entry, current: &Tuple, manip: Manip, range: &Range) -> Tuple {
    let taken = |tuple: &Tuple| {
        let reply = tuple.inverse();
        reply.is_none_or(|reply| packet.netfilter.connections.is_taken(&reply, entry, packet.millis()))
    };
    let mut tuple = *current;
    let (ip, port) = side(&mut tuple, manip);
    let fits = range.holds_address(*ip) && (!has_variable_port(current, manip) || range.holds_port(*port));
    if manip == Manip::Src && !range.random && fits && !taken(current) {
        return *current;
    }
    *ip = choose_address(packet, current, manip, range);
    if !range.random {
        let (_, port) = side(&mut tuple, manip);
        let single = range.ports.is_some_and(|(first, last)| first == last);
        if range.holds_port(*port) && range.base_port.is_none() && (single || !taken(&tuple)) {
            return tuple;
        }
    }
    choose_port(packet, tuple, manip, range, taken)
}

/// Address and port of the side that changes.
fn side(tuple: &mut Tuple, manip: Manip) -> (&mut IpAddr, &mut u16) {
    match manip {
        // The identifier of an ICMP query is the same on both sides.
        Manip::Dst if tuple.is_icmp() => (&mut tuple.dst, &mut tuple.src_port),
        Manip::Src => (&mut tuple.src, &mut tuple.src_port),
        Manip::Dst => (&mut tuple.dst, &mut tuple.dst_port),
    }
}

fn has_variable_port(tuple: &Tuple, manip: Manip) -> bool {
    has_translated_ports(tuple.protocol) || (tuple.is_icmp() && manip == Manip::Src)
}

fn choose_address(packet: &Packet<'_>, tuple: &Tuple, manip: Manip, range: &Range) -> IpAddr {
    let own = if manip == Manip::Src { tuple.src } else { tuple.dst };
    let Some((first, last)) = range.addresses else { return own };
    let salt = if range.persistent { None } else { Some(tuple.dst) };
    let hash = packet.netfilter.hash(("address", tuple.src, salt.filter(|_| manip == Manip::Src)));
    match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let (low, high) = (first.to_bits(), last.to_bits());
            let count = u64::from(high.saturating_sub(low)) + 1;
            Ipv4Addr::from_bits(low.saturating_add((hash % count) as u32)).into()
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            let (low, high) = (first.to_bits(), last.to_bits());
            let count = high.saturating_sub(low).saturating_add(1);
            Ipv6Addr::from_bits(low.saturating_add(u128::from(hash) % count)).into()
        }
        _ => own,
    }
}

fn choose_port(
    packet: &Packet<'_>,
    mut tuple: Tuple,
    manip: Manip,
    range: &Range,
    taken: impl Fn(&Tuple) -> bool,
) -> Tuple {
    if !has_variable_port(&tuple, manip) {
        return tuple;
    }
    let own = *side(&mut tuple, manip).1;
    let (first, last) = match range.ports {
        Some((first, last)) => (first.min(last), last.max(first)),
        // A service's port is not changed without being told so.
        None if manip == Manip::Dst => return tuple,
        None if tuple.is_icmp() => (0, u16::MAX),
        None => match own {
            ..512 => (1, 511),
            512..1024 => (600, 1023),
            1024.. => (1024, u16::MAX),
        },
    };
    let count = u32::from(last - first) + 1;
    let start = match range.base_port {
        Some(base) => u32::from(own.wrapping_sub(base)),
        None if range.random || manip == Manip::Src => packet.netfilter.random() as u32,
        None => packet.netfilter.hash(("port", tuple)) as u32,
    };
    for n in 0..ATTEMPTS.min(count) {
        let port = first + (start.wrapping_add(n) % count) as u16;
        *side(&mut tuple, manip).1 = port;
        if !taken(&tuple) {
            break;
        }
    }
    tuple
}

/// Source translation to the address of the interface that the packet leaves by. Drops the packet when it has none.
pub fn masquerade(packet: &mut Packet<'_>, range: &Range) -> Verdict {
    let Some(own) = packet.output.and_then(|link| link.source_for(packet.info.dst, packet.info.dst)) else {
        return Verdict::Drop;
    };
    setup(packet, Manip::Src, &Range { addresses: Some((own, own)), ..*range })
}

/// Destination translation to this host: loopback for its own packets, else an address of the interface that received the packet.
pub fn redirect(packet: &mut Packet<'_>, range: &Range) -> Verdict {
    let v4 = packet.info.src.is_ipv4();
    let own = match (packet.point, packet.input) {
        (Point::Output, _) if v4 => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        (Point::Output, _) => Some(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        (_, Some(link)) if link.index == LOOPBACK && packet.info.dst.is_loopback() => Some(packet.info.dst),
        (_, Some(link)) => link.addresses().iter().map(|a| a.ip()).find(|ip| ip.is_ipv4() == v4),
        _ => None,
    };
    let Some(own) = own else { return Verdict::Drop };
    setup(packet, Manip::Dst, &Range { addresses: Some((own, own)), ..*range })
}

/// The chains that translate.
pub(crate) fn chains(deciding: &Arc<NatChains>) -> [(Point, i32, Arc<dyn Chain>); 4] {
    let chain: Arc<dyn Chain> = Arc::new(Translate(deciding.clone()));
    [
        (Point::PreRouting, priority::NAT_DST, chain.clone()),
        (Point::Output, priority::NAT_DST, chain.clone()),
        (Point::PostRouting, priority::NAT_SRC, chain.clone()),
        (Point::Input, priority::NAT_SRC, chain),
    ]
}

/// Rewrites packets as their connections say; the chains decide on new connections.
struct Translate(Arc<NatChains>);

impl Chain for Translate {
    fn run(&self, packet: &mut Packet<'_>) -> Verdict {
        let Flow::Tracked { entry, direction, state } = packet.tags.flow.clone() else {
            return Verdict::Accept;
        };
        let Some(manip) = Manip::at(packet.point) else { return Verdict::Accept };
        if state == State::New && !entry.has(Status::CONFIRMED) && !entry.has(manip.done()) {
            let done = |_: &Packet<'_>| entry.has(manip.done());
            let verdict = self.0.run(packet, done);
            if verdict != Verdict::Accept {
                return verdict;
            }
            if !entry.has(manip.done()) {
                // No rule: the packet stays as it is, unless another connection has its tuple.
                let verdict = setup(packet, manip, &Range::default());
                if verdict != Verdict::Accept {
                    return verdict;
                }
            }
        }
        rewrite(packet, &entry, direction, state, manip);
        Verdict::Accept
    }
}

/// Rewrites one side of a packet as its connection says.
fn rewrite(packet: &mut Packet<'_>, entry: &Entry, direction: Direction, state: State, manip: Manip) {
    let decided = if direction == Direction::Original { manip } else { manip.opposite() };
    if !entry.has(decided.changed()) {
        return;
    }
    // What packets of this direction look like when they leave.
    let Some(target) = entry.tuple(direction.opposite()).inverse() else { return };
    if state == State::Related && matches!(packet.info.protocol, proto::ICMP | proto::ICMPV6) {
        rewrite_error(packet, &target, manip);
        return;
    }
    match manip {
        Manip::Src => packet.set_src(target.src),
        Manip::Dst => packet.set_dst(target.dst),
    };
    match manip {
        _ if target.is_icmp() => packet.write(packet.info.header_len + 4, &target.src_port.to_be_bytes()),
        _ if !has_translated_ports(target.protocol) => true,
        Manip::Src => packet.set_src_port(target.src_port),
        Manip::Dst => packet.set_dst_port(target.dst_port),
    };
}

/// Rewrites an ICMP error: the packet that it quotes went the other way, so the other side of that one changes, and the error's own.
fn rewrite_error(packet: &mut Packet<'_>, target: &Tuple, manip: Manip) {
    let at = packet.info.header_len + Icmp::LEN;
    let bytes = packet.raw_mut();
    if let Some(quoted) = bytes.get_mut(at..) {
        // The quoted packet is of the opposite direction: its source is this direction's destination.
        let (ip, port) = match manip {
            Manip::Dst => (target.dst, target.dst_port),
            Manip::Src => (target.src, target.src_port),
        };
        rewrite_quoted(quoted, manip.opposite(), ip, if target.is_icmp() { target.src_port } else { port });
    }
    match manip {
        Manip::Dst => {
            packet.set_dst(target.dst);
        }
        // An error comes from the host that found it; only the translated host's own errors take its address.
        Manip::Src => {
            packet.set_src(target.src);
        }
    }
    let (info, partial) = (packet.info, packet.is_partial());
    let Some(message) = packet.raw_mut().get_mut(info.header_len..).filter(|m| m.len() >= 4 && !partial)
    else {
        return;
    };
    message[2..4].fill(0);
    let mut sum = Sum::new();
    if info.protocol == proto::ICMPV6 {
        sum = sum.pseudo(info.src, info.dst, info.protocol, message.len());
    }
    let sum = sum.with(message).finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
}

/// Changes one side of a quoted packet; its transport header may be cut off.
fn rewrite_quoted(quoted: &mut [u8], side: Manip, ip: IpAddr, port: u16) {
    let (header_len, protocol, address) = match (ip, Ipv4::parse_quoted(quoted), Ipv6::parse_quoted(quoted)) {
        (IpAddr::V4(v4), Some(header), _) => {
            let at = if side == Manip::Src { 12 } else { 16 };
            let new = v4.octets();
            let old: [u8; 4] = quoted[at..at + 4].try_into().unwrap_or_default();
            quoted[at..at + 4].copy_from_slice(&new);
            let sum = updated(u16::from_be_bytes([quoted[10], quoted[11]]), &old, &new);
            quoted[10..12].copy_from_slice(&sum.to_be_bytes());
            (header.header_len(), header.protocol, (old.to_vec(), new.to_vec()))
        }
        (IpAddr::V6(v6), _, Some(header)) => {
            let Some(chain) = walk(header.next, &quoted[Ipv6::LEN..]) else { return };
            let at = if side == Manip::Src { 8 } else { 24 };
            let (old, new) = (quoted[at..at + 16].to_vec(), v6.octets());
            quoted[at..at + 16].copy_from_slice(&new);
            (Ipv6::LEN + chain.len, chain.protocol, (old, new.to_vec()))
        }
        _ => return,
    };
    let Some(transport) = quoted.get_mut(header_len..) else { return };
    let icmp = matches!(protocol, proto::ICMP | proto::ICMPV6);
    let place = match side {
        _ if icmp => 4,
        Manip::Src => 0,
        Manip::Dst => 2,
    };
    let sum_at = match protocol {
        proto::TCP => 16,
        proto::UDP | UDP_LITE => 6,
        _ => 2,
    };
    if !icmp && !has_translated_ports(protocol) {
        return;
    }
    let Some(field) = transport.get_mut(place..place + 2) else { return };
    let old_port = [field[0], field[1]];
    field.copy_from_slice(&port.to_be_bytes());
    let Some(field) = transport.get_mut(sum_at..sum_at + 2) else { return };
    let mut sum = u16::from_be_bytes([field[0], field[1]]);
    if protocol == proto::UDP && sum == 0 {
        return;
    }
    sum = updated(sum, &old_port, &port.to_be_bytes());
    if protocol != proto::ICMP {
        sum = updated(sum, &address.0, &address.1);
    }
    field.copy_from_slice(&sum.to_be_bytes());
}

//! Fragmentation and reassembly (RFC 791 section 3.2, RFC 8200 section 4.5, RFC 5722).
//!
//! Packets with overlapping fragments are dropped whole. Memory is bounded: the oldest incomplete packet goes first.

use crate::buf::{Buf, Pool};
use crate::wire::ip::Ipv4;
use crate::wire::ipv6::{Fragment, Ipv6, walk};
use crate::wire::proto;
use ktime::Ktime;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// Fragments of one packet.
const MAX_PIECES: usize = 256;

/// Cuts a packet into fragments of at most `mtu` bytes.
pub(crate) fn split(pool: &Pool, packet: &Buf, mtu: usize, id: u32) -> Option<Vec<Buf>> {
    match packet.first()? >> 4 {
        4 => split4(pool, packet, mtu),
        _ => split6(pool, packet, mtu, id),
    }
}

fn split4(pool: &Pool, packet: &Buf, mtu: usize) -> Option<Vec<Buf>> {
    let (header, _) = Ipv4::read_from_prefix(packet).ok()?;
    let payload = packet.get(header.header_len()..)?;
    let step = mtu.checked_sub(Ipv4::LEN)? & !7;
    if step == 0 {
        return None;
    }
    let count = payload.len().div_ceil(step);
    let pieces = payload.chunks(step).enumerate().map(|(n, chunk)| {
        let offset = header.offset() + n * step;
        let more = header.more_fragments() || n + 1 < count;
        let mut ip =
            Ipv4::new(header.src(), header.dst(), header.protocol, chunk.len()).fragment(offset, more, false);
        (ip.tos, ip.ttl, ip.id) = (header.tos, header.ttl, header.id);
        let mut buf = pool.copy(chunk);
        buf.push_front(ip.sealed().as_bytes());
        buf
    });
    Some(pieces.collect())
}

fn split6(pool: &Pool, packet: &Buf, mtu: usize, id: u32) -> Option<Vec<Buf>> {
    let header = Ipv6::parse(packet)?;
    let all = packet.get(Ipv6::LEN..)?;
    let (len, last) = unfragmentable(header.next, all)?;
    let (mut before, payload) = (all.get(..len)?.to_vec(), all.get(len..)?);
    let (mut first, mut next) = (proto::FRAGMENT, header.next);
    if let Some(place) = before.get_mut(last).filter(|_| len > 0) {
        (first, next) = (header.next, std::mem::replace(place, proto::FRAGMENT));
    }
    let step = mtu.max(1280).checked_sub(Ipv6::LEN + len + Fragment::LEN)? & !7;
    if step == 0 {
        return None;
    }
    let count = payload.len().div_ceil(step);
    let pieces = payload.chunks(step).enumerate().map(|(n, chunk)| {
        let fragment = Fragment::new(next, n * step, n + 1 < count, id);
        let mut ip = Ipv6::new(header.src(), header.dst(), first, len + chunk.len() + Fragment::LEN);
        ip = ip.class(header.traffic_class(), 0);
        ip.hop_limit = header.hop_limit;
        let mut buf = pool.copy(chunk);
        buf.push_front(fragment.as_bytes());
        buf.push_front(&before);
        buf.push_front(ip.as_bytes());
        buf
    });
    Some(pieces.collect())
}

/// The extension headers that every fragment of a packet has: their length, and where the last one begins.
fn unfragmentable(first: u8, payload: &[u8]) -> Option<(usize, usize)> {
    let (mut kind, mut len, mut last, mut routed) = (first, 0, 0, false);
    loop {
        match kind {
            proto::HOP_BY_HOP if len == 0 => {}
            proto::ROUTING => routed = true,
            proto::DEST_OPTIONS if !routed => {}
            _ => return Some((len, last)),
        }
        let (&next, &units) = (payload.get(len)?, payload.get(len + 1)?);
        (kind, last, len) = (next, len, len + (usize::from(units) + 1) * 8);
    }
}

/// What fragments of one packet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    src: IpAddr,
    dst: IpAddr,
    id: u32,
    protocol: u8,
}

#[derive(Debug)]
struct Piece {
    offset: usize,
    data: Buf,
}

#[derive(Debug)]
struct Partial {
    deadline: Ktime,
    /// By offset, without overlap.
    pieces: Vec<Piece>,
    /// Bytes of the whole payload, once the last fragment is there.
    total: Option<usize>,
    bytes: usize,
    /// The packet with offset 0, for the error message when time is over.
    first: Option<Buf>,
    /// The strongest congestion mark of all fragments (RFC 3168 section 5.3).
    ecn: u8,
}

/// What a fragment led to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The whole packet, with a header that says so.
    Whole(Buf),
    /// More are needed.
    Waiting,
    /// Malformed or overlapping; the packet is dropped.
    Bad,
}

/// An expired packet.
#[derive(Debug)]
pub(crate) struct Expired {
    /// Its first fragment, if that arrived: the sender is told.
    pub(crate) first: Option<Buf>,
}

/// Incomplete packets.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    partial: HashMap<Key, Partial>,
    /// Oldest first.
    order: VecDeque<(Ktime, Key)>,
    bytes: usize,
}

impl Reassembly {
    /// Memory in use.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&self) -> Option<Ktime> {
        self.order.front().map(|(at, _)| *at)
    }

    /// Adds a fragment: a whole IP packet that says that it is one.
    pub(crate) fn add(
        &mut self,
        pool: &Pool,
        packet: &Buf,
        now: Ktime,
        keep: Duration,
        limit: usize,
    ) -> Outcome {
        let Some((key, piece, more, ecn)) = read(packet) else { return Outcome::Bad };
        let len = piece.data.len();
        let bad = (more && len % 8 != 0) || piece.offset + len > 65_535 || len == 0;
        if bad {
            return Outcome::Bad;
        }
        let size = piece.data.truesize();
        while self.bytes + size > limit {
            if self.drop_oldest().is_none() {
                return Outcome::Bad;
            }
        }
        if !self.partial.contains_key(&key) {
            self.order.push_back((now.plus(keep), key));
        }
        let fresh = || Partial {
            deadline: now.plus(keep),
            pieces: Vec::new(),
            total: None,
            bytes: 0,
            first: None,
            ecn: 0,
        };
        let partial = self.partial.entry(key).or_insert_with(fresh);
        partial.ecn = strongest(partial.ecn, ecn);
        if piece.offset == 0 {
            partial.first = Some(packet.clone());
        }
        match partial.insert(piece, more) {
            Some(true) => {
                self.bytes += size;
                partial.bytes += size;
            }
            Some(false) => return Outcome::Waiting,
            None => {
                self.remove(&key);
                return Outcome::Bad;
            }
        }
        if !partial.is_whole() {
            return Outcome::Waiting;
        }
        match self.remove(&key) {
            Some(partial) => join(pool, &key, &partial, packet).map_or(Outcome::Bad, Outcome::Whole),
            None => Outcome::Bad,
        }
    }

    /// Takes expired packets.
    pub(crate) fn expire(&mut self, now: Ktime) -> Vec<Expired> {
        let mut expired = Vec::new();
        while self.deadline().is_some_and(|at| at <= now)
            && let Some(partial) = self.drop_oldest()
        {
            expired.push(Expired { first: partial.first });
        }
        expired
    }

    fn drop_oldest(&mut self) -> Option<Partial> {
        let (_, key) = *self.order.front()?;
        self.remove(&key)
    }

    fn remove(&mut self, key: &Key) -> Option<Partial> {
        let partial = self.partial.remove(key)?;
        self.bytes = self.bytes.saturating_sub(partial.bytes);
        // Nearly always near the front or the back.
        if let Some(place) = self.order.iter().position(|(at, other)| other == key && *at == partial.deadline)
        {
            self.order.remove(place);
        }
        Some(partial)
    }
}

impl Partial {
    /// Adds a piece: `Some(false)` for an exact duplicate, `None` for an overlap.
    fn insert(&mut self, piece: Piece, more: bool) -> Option<bool> {
        let end = piece.offset + piece.data.len();
        if !more {
            if self.total.is_some_and(|total| total != end) {
                return None;
            }
            self.total = Some(end);
        }
        if self.total.is_some_and(|total| end > total) || self.pieces.len() >= MAX_PIECES {
            return None;
        }
        let place = self.pieces.partition_point(|old| old.offset < piece.offset);
        if let Some(next) = self.pieces.get(place) {
            if next.offset == piece.offset && next.data.len() == piece.data.len() {
                return Some(false);
            }
            if next.offset < end {
                return None;
            }
        }
        if let Some(before) = place.checked_sub(1).and_then(|place| self.pieces.get(place))
            && before.offset + before.data.len() > piece.offset
        {
            return None;
        }
        // The last piece may not lie before one that came earlier.
        if self.total.is_some_and(|total| self.pieces.last().is_some_and(|p| p.offset + p.data.len() > total))
        {
            return None;
        }
        self.pieces.insert(place, piece);
        Some(true)
    }

    fn is_whole(&self) -> bool {
        let sum: usize = self.pieces.iter().map(|piece| piece.data.len()).sum();
        self.total == Some(sum)
    }
}

/// Key, payload, more-fragments flag and congestion bits of a fragment.
fn read(packet: &Buf) -> Option<(Key, Piece, bool, u8)> {
    if packet.first()? >> 4 == 4 {
        let header = Ipv4::parse(packet)?;
        let key = Key {
            src: header.src().into(),
            dst: header.dst().into(),
            id: header.id.get().into(),
            protocol: header.protocol,
        };
        let data = packet.slice(header.header_len(), header.total_len());
        return Some((key, Piece { offset: header.offset(), data }, header.more_fragments(), header.tos & 3));
    }
    let header = Ipv6::parse(packet)?;
    let chain = walk(header.next, packet.get(Ipv6::LEN..)?)?;
    let fragment = chain.fragment?;
    let key = Key { src: header.src().into(), dst: header.dst().into(), id: fragment.id.get(), protocol: 0 };
    let data = packet.slice(Ipv6::LEN + chain.len, Ipv6::LEN + header.payload_len());
    Some((
        key,
        Piece { offset: fragment.offset(), data },
        fragment.more_fragments(),
        header.traffic_class() & 3,
    ))
}

/// Puts the pieces together. Headers come from the fragment that completed the packet; protocol and address are the same in all.
fn join(pool: &Pool, key: &Key, partial: &Partial, last: &Buf) -> Option<Buf> {
    let total = partial.total?;
    let mut whole = pool.get(total);
    partial.pieces.iter().for_each(|piece| whole.extend(&piece.data));
    if key.src.is_ipv4() {
        let old = Ipv4::parse(last)?;
        if total + Ipv4::LEN > 65_535 {
            return None;
        }
        let mut ip = Ipv4::new(old.src(), old.dst(), old.protocol, total);
        (ip.tos, ip.ttl, ip.id) = ((old.tos & !3) | partial.ecn, old.ttl, old.id);
        whole.push_front(ip.sealed().as_bytes());
    } else {
        // The headers before the fragment header are those of the fragment with offset 0.
        let head = partial.first.as_ref().unwrap_or(last);
        let old = Ipv6::parse(head)?;
        let headers = head.get(Ipv6::LEN..)?;
        let chain = walk(old.next, headers)?;
        let (len, place) = unfragmentable(old.next, headers)?;
        let mut first = chain.protocol;
        if len > 0 && len + Fragment::LEN == chain.len && total + len <= 65_535 {
            let mut before = headers.get(..len)?.to_vec();
            first = old.next;
            *before.get_mut(place)? = chain.protocol;
            whole.push_front(&before);
        } else if chain.len > Fragment::LEN {
            return None;
        }
        let mut ip = Ipv6::new(old.src(), old.dst(), first, whole.len());
        ip = ip.class((old.traffic_class() & !3) | partial.ecn, 0);
        ip.hop_limit = old.hop_limit;
        whole.push_front(ip.as_bytes());
    }
    Some(whole)
}

fn strongest(a: u8, b: u8) -> u8 {
    if a == 3 || b == 3 { 3 } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use zerocopy::network_endian::U16;

    const KEEP: Duration = Duration::from_secs(30);

    fn packet(pool: &Pool, v6: bool, len: usize, id: u16) -> Buf {
        let payload: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
        let mut buf = pool.copy(&payload);
        if v6 {
            let ip = Ipv6::new("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap(), 17, len);
            buf.push_front(ip.as_bytes());
        } else {
            let mut ip = Ipv4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, len);
            ip.id = U16::new(id);
            buf.push_front(ip.sealed().as_bytes());
        }
        buf
    }

    #[test]
    fn any_order_gives_the_packet() {
        let (pool, mut random) = (Pool::new(), Random::new(2));
        for round in 0..200 {
            let mut whole = packet(&pool, round % 2 == 0, 1 + random.below(20_000) as usize, round);
            if round % 4 == 0 {
                // Options of two kinds: every fragment has them.
                whole.trim_front(Ipv6::LEN);
                whole.push_front(&[60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0]);
                let (src, dst) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
                let ip = Ipv6::new(src, dst, proto::HOP_BY_HOP, whole.len());
                whole.push_front(ip.as_bytes());
            }
            let mut pieces = split(&pool, &whole, 1500, 77).unwrap();
            assert!(pieces.iter().all(|piece| piece.len() <= 1500));
            for n in (1..pieces.len()).rev() {
                pieces.swap(n, random.below(n as u64 + 1) as usize);
            }
            let mut table = Reassembly::default();
            let Some((last, rest)) = pieces.split_last() else { unreachable!() };
            for piece in rest {
                for _ in 0..2 {
                    assert!(matches!(table.add(&pool, piece, Ktime::ZERO, KEEP, 1 << 20), Outcome::Waiting));
                }
            }
            let Outcome::Whole(got) = table.add(&pool, last, Ktime::ZERO, KEEP, 1 << 20) else {
                panic!("round {round}")
            };
            let header = if round % 2 == 0 { Ipv6::LEN } else { Ipv4::LEN };
            assert_eq!(got[header..], whole[header..]);
            assert_eq!((table.bytes(), table.deadline()), (0, None));
        }
    }

    #[test]
    fn overlaps_are_dropped_and_memory_is_bounded() {
        let (pool, mut random, mut table) = (Pool::new(), Random::new(4), Reassembly::default());
        let whole = packet(&pool, false, 4000, 1);
        let pieces = split(&pool, &whole, 1500, 0).unwrap();
        let other = split(&pool, &whole, 1000, 0).unwrap();
        assert!(matches!(table.add(&pool, &pieces[0], Ktime::ZERO, KEEP, 1 << 20), Outcome::Waiting));
        assert!(matches!(table.add(&pool, &other[1], Ktime::ZERO, KEEP, 1 << 20), Outcome::Bad));
        assert_eq!(table.bytes(), 0);
        for n in 0..5000 {
            let whole = packet(&pool, false, 3000, n);
            let pieces = split(&pool, &whole, 600, 0).unwrap();
            let piece = &pieces[random.below(pieces.len() as u64) as usize];
            table.add(&pool, piece, Ktime::from_millis(n.into()), KEEP, 100_000);
            assert!(table.bytes() <= 100_000);
        }
        assert!(!table.expire(Ktime::from_millis(100_000)).is_empty());
        assert_eq!((table.bytes(), table.partial.len()), (0, 0));
    }
}

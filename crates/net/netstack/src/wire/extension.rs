//! Extension headers of IPv6: those that a sender adds (RFC 3542), and what those of a packet ask of this host (RFC 8200
//! section 4).

use super::proto;
use crate::buf::Buf;
use std::net::Ipv6Addr;

/// The extension headers that a sender adds to its packets: `IPV6_HOPOPTS`, `IPV6_RTHDRDSTOPTS`, `IPV6_RTHDR` and
/// `IPV6_DSTOPTS` (ipv6(7), RFC 3542). Each is a whole header, or empty; its first byte is filled in when it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Extensions {
    /// Hop-by-hop options.
    pub hop: Vec<u8>,
    /// Destination options before the routing header. They are sent only when there is one.
    pub before_routing: Vec<u8>,
    /// A segment routing header (RFC 8754).
    pub routing: Vec<u8>,
    /// Destination options.
    pub destination: Vec<u8>,
}

/// Where the addresses of a segment routing header begin.
const SEGMENTS: usize = 8;

impl Extensions {
    /// True without any header.
    pub fn is_empty(&self) -> bool {
        self.hop.is_empty()
            && self.before_routing.is_empty()
            && self.routing.is_empty()
            && self.destination.is_empty()
    }

    /// Whether saved ones are such as a program can set: of whole units, and not longer than a header can be.
    pub(crate) fn check(&self) -> bool {
        const LONGEST: usize = 2048;
        let headers = [&self.hop, &self.before_routing, &self.routing, &self.destination];
        let whole = headers.iter().all(|header| header.len() <= LONGEST && header.len().is_multiple_of(8));
        whole && (self.routing.is_empty() || is_segment_routing(&self.routing))
    }

    /// Bytes on the wire.
    pub(crate) fn len(&self) -> usize {
        let before = if self.routing.is_empty() { 0 } else { self.before_routing.len() };
        self.hop.len() + before + self.routing.len() + self.destination.len()
    }

    /// The first hop that a routing header names.
    pub(crate) fn via(&self) -> Option<Ipv6Addr> {
        let at = SEGMENTS + 16 * usize::from(*self.routing.get(3)?);
        self.routing.get(at..)?.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes))
    }

    /// Puts the headers before a message of `protocol`, which is for `target` in the end; gives the first header's number.
    pub(crate) fn wrap(&self, buf: &mut Buf, protocol: u8, target: Ipv6Addr) -> u8 {
        let mut next = protocol;
        let mut push = |number: u8, header: &[u8]| {
            if !header.is_empty() {
                buf.push_front(header);
                if let Some(first) = buf.bytes_mut().first_mut() {
                    *first = std::mem::replace(&mut next, number);
                }
            }
        };
        push(proto::DEST_OPTIONS, &self.destination);
        if !self.routing.is_empty() {
            let mut header = self.routing.clone();
            if let Some(last) = header.get_mut(SEGMENTS..SEGMENTS + 16) {
                last.copy_from_slice(&target.octets());
            }
            push(proto::ROUTING, &header);
            push(proto::DEST_OPTIONS, &self.before_routing);
        }
        push(proto::HOP_BY_HOP, &self.hop);
        next
    }
}

/// True for a segment routing header that a sender may use.
pub fn is_segment_routing(header: &[u8]) -> bool {
    let Some(&[_, units, kind, left, last, ..]) = header.first_chunk::<8>() else { return false };
    let known = kind == 4 && (usize::from(units) + 1) * 8 == header.len() && left <= last;
    if !known || usize::from(last) + 1 > usize::from(units) / 2 {
        return false;
    }
    // Type, length, value: up to the end of the header.
    let mut rest = header.get(SEGMENTS + 16 * (usize::from(last) + 1)..).unwrap_or_default();
    while !rest.is_empty() {
        let Some(&[_, len]) = rest.first_chunk::<2>() else { return false };
        let Some(after) = rest.get(2 + usize::from(len)..) else { return false };
        rest = after;
    }
    true
}

/// What becomes of a packet with extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its payload is handled.
    Pass,
    /// It is dropped.
    Drop,
    /// It is dropped, and its sender is told where the problem is, counted from the first extension header. An option says
    /// whether that also holds for packets to groups.
    Problem { at: usize, option: bool, to_groups: bool },
}

/// Options in one header, padding not counted (`max_hbh_opts_number`, `max_dst_opts_number`).
const MAX_OPTIONS: usize = 8;
/// Router alert (RFC 2711).
const ROUTER_ALERT: u8 = 5;

/// Looks at the extension headers of a packet; `first` is the number of the first one. Options for the destination and routing
/// headers count when the packet is for this host.
pub(crate) fn inspect(first: u8, headers: &[u8], local: bool) -> Fate {
    let (mut kind, mut at) = (first, 0);
    loop {
        let Some(rest) = headers.get(at..) else { return Fate::Drop };
        let (Some(&next), Some(&units)) = (rest.first(), rest.get(1)) else { return Fate::Pass };
        let Some(header) = rest.get(..(usize::from(units) + 1) * 8) else { return Fate::Pass };
        let fate = match kind {
            proto::HOP_BY_HOP => options(header, true),
            proto::DEST_OPTIONS if local => options(header, false),
            proto::ROUTING if local => routing(header),
            proto::DEST_OPTIONS | proto::ROUTING => Fate::Pass,
            _ => return Fate::Pass,
        };
        match fate {
            Fate::Pass => {}
            Fate::Drop => return Fate::Drop,
            Fate::Problem { at: inside, option, to_groups } => {
                return Fate::Problem { at: at + inside, option, to_groups };
            }
        }
        (kind, at) = (next, at + header.len());
    }
}

/// This host is the last hop or none: it does not send packets on for a routing header. Segment routing (`seg6_enabled`) and
/// RFC 6554 (`rpl_seg_enabled`) are off.
fn routing(header: &[u8]) -> Fate {
    match (header.get(2), header.get(3)) {
        (Some(3 | 4), _) => Fate::Drop,
        (_, Some(0)) => Fate::Pass,
        _ => Fate::Problem { at: 2, option: false, to_groups: false },
    }
}

/// Options as RFC 8200 section 4.2 has them. Padding is at most seven bytes of zeros.
fn options(header: &[u8], hop: bool) -> Fate {
    let (mut at, mut count, mut padding) = (2, 0, 0);
    while let Some(&kind) = header.get(at) {
        let len = match kind {
            0 => 1,
            _ => 2 + header.get(at + 1).copied().map_or(usize::MAX / 2, usize::from),
        };
        let Some(option) = header.get(at..at + len) else { return Fate::Drop };
        if kind <= 1 {
            padding += len;
            if padding > 7 || option.iter().skip(2).any(|byte| *byte != 0) {
                return Fate::Drop;
            }
        } else {
            (count, padding) = (count + 1, 0);
            let known = hop && kind == ROUTER_ALERT && len == 4;
            match kind >> 6 {
                _ if count > MAX_OPTIONS => return Fate::Drop,
                _ if known => {}
                0 => {}
                1 => return Fate::Drop,
                action => return Fate::Problem { at, option: true, to_groups: action == 2 },
            }
        }
        at += len;
    }
    Fate::Pass
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Pool;

    #[test]
    fn headers_are_chained() {
        let target: Ipv6Addr = "2001:db8::9".parse().unwrap();
        let mut routing = vec![0, 4, 4, 1, 1, 0, 0, 0];
        routing.extend([0; 16]);
        routing.extend([7; 16]);
        assert!(is_segment_routing(&routing));
        let all = Extensions {
            hop: vec![0, 0, 5, 2, 0, 0, 1, 0],
            before_routing: vec![0, 0, 1, 4, 0, 0, 0, 0],
            routing,
            destination: vec![0, 0, 1, 4, 0, 0, 0, 0],
        };
        assert_eq!(all.via(), Some(Ipv6Addr::from([7; 16])));
        let mut buf = Pool::new().copy(b"data");
        assert_eq!(all.wrap(&mut buf, 17, target), 0);
        assert_eq!(buf.len(), all.len() + 4);
        assert_eq!((buf[0], buf[8], buf[16], buf[56]), (60, 43, 60, 17));
        assert_eq!(buf[24..40], target.octets());
        // Without a routing header nothing comes before it.
        let none = Extensions { routing: Vec::new(), ..all };
        let mut buf = Pool::new().copy(b"data");
        assert_eq!((none.wrap(&mut buf, 17, target), buf.len(), none.len()), (0, 20, 16));
        assert_eq!((buf[0], buf[8]), (60, 17));
    }

    #[test]
    fn any_bytes_are_headers_of_some_kind() {
        let mut random = crate::testing::Random::new(7);
        for _ in 0..20_000 {
            let len = random.below(64) as usize;
            let bytes: Vec<u8> = (0..len).map(|_| (random.below(5) * random.below(52)) as u8).collect();
            let first = [0, 43, 60, 17][random.below(4) as usize];
            inspect(first, &bytes, random.below(2) == 0);
            if is_segment_routing(&bytes) {
                let all = Extensions { routing: bytes.clone(), ..Extensions::default() };
                assert!(all.via().is_some());
                all.wrap(&mut Pool::new().copy(b"data"), 17, Ipv6Addr::LOCALHOST);
            }
        }
    }

    #[test]
    fn unknown_options_do_what_their_number_says() {
        let of = |kind: u8| [17, 0, kind, 4, 0, 0, 0, 0];
        assert_eq!(inspect(60, &of(0x1e), true), Fate::Pass);
        assert_eq!(inspect(60, &of(0x5e), true), Fate::Drop);
        assert_eq!(inspect(60, &of(0x9e), true), Fate::Problem { at: 2, option: true, to_groups: true });
        assert_eq!(inspect(60, &of(0xde), true), Fate::Problem { at: 2, option: true, to_groups: false });
        // A host that sends the packet on does not look at what is for the destination.
        assert_eq!(inspect(60, &of(0xde), false), Fate::Pass);
        assert_eq!(inspect(0, &of(0xde), false), Fate::Problem { at: 2, option: true, to_groups: false });
        assert_eq!(inspect(60, &[17, 0, 1, 4, 0, 0, 9, 0], true), Fate::Drop);
        assert_eq!(inspect(60, &[17, 0, 1, 5, 0, 0, 0, 0], true), Fate::Drop);
        assert_eq!(
            inspect(43, &[17, 0, 0, 1, 0, 0, 0, 0], true),
            Fate::Problem { at: 2, option: false, to_groups: false }
        );
        assert_eq!(inspect(43, &[17, 0, 0, 0, 0, 0, 0, 0], true), Fate::Pass);
        assert_eq!(inspect(43, &[17, 0, 4, 0, 0, 0, 0, 0], true), Fate::Drop);
    }
}

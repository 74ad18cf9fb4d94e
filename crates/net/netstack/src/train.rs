//! Datagrams that their sender gave in one piece (`UDP_SEGMENT`), for devices that take them in one frame and cut them.
//! Pure.

use crate::checksum::Sum;
use crate::frame::{Checksum, Frame, Part};
use crate::vnet::{self, ETHERNET, HEADER};
use crate::wire::{eth, proto};

/// Datagrams in one frame at most. Older kernels take no more (UDP_MAX_SEGMENTS).
pub const MOST: usize = 64;
/// Bytes of a UDP header.
const UDP: usize = 8;
/// Bytes of the longest packet.
const LONGEST: usize = 65_535;

/// Frames with an Ethernet header that can leave as one.
pub struct Train {
    frames: Vec<Frame>,
    /// Bytes of the headers of a frame; 0 when it takes no other.
    headers: usize,
    /// Payload bytes of each datagram but the last.
    size: usize,
    /// Payload bytes of all.
    bytes: usize,
}

impl Train {
    /// A train of one frame, which may be any frame.
    pub fn new(frame: Frame) -> Train {
        let headers = headers(&frame).unwrap_or(0);
        let size = frame.buf.len() - headers;
        Train { frames: vec![frame], headers, size, bytes: size }
    }

    /// Whether a frame is the next of this train.
    pub fn takes(&self, next: &Frame) -> bool {
        let Some(last) = self.frames.last().filter(|_| self.headers > 0) else { return false };
        // Only the last datagram may be shorter.
        last.buf.len() - self.headers == self.size
            && self.frames.len() < MOST
            && next.buf.len() <= self.headers + self.size
            && self.headers - usize::from(ETHERNET) + self.bytes + next.buf.len()
                - self.headers.min(next.buf.len())
                <= LONGEST
            && next.tags.part == Part::Next
            && headers(next) == Some(self.headers)
            && same_flow(&last.buf[..self.headers], &next.buf[..self.headers])
    }

    /// Adds a frame that [`takes`](Self::takes) allows.
    pub fn push(&mut self, next: Frame) {
        self.bytes += next.buf.len() - self.headers;
        self.frames.push(next);
    }

    /// The frames.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The frames again.
    pub fn into_frames(self) -> Vec<Frame> {
        self.frames
    }

    /// The virtio-net header and the headers of one frame for all.
    pub fn head(&self) -> ([u8; HEADER], Vec<u8>) {
        let first = &self.frames[0];
        let mut head = first.buf[..self.headers].to_vec();
        let (ip, udp) = (usize::from(ETHERNET), self.headers - UDP);
        let length = |from: usize| (self.headers - from + self.bytes) as u16;
        if head[ip] >> 4 == 4 {
            head[ip + 2..ip + 4].copy_from_slice(&length(ip).to_be_bytes());
            head[ip + 10..ip + 12].fill(0);
            let sum = Sum::new().with(&head[ip..udp]).finish();
            head[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            head[ip + 4..ip + 6].copy_from_slice(&length(udp).to_be_bytes());
        }
        head[udp + 4..udp + 6].copy_from_slice(&length(udp).to_be_bytes());
        // The length is part of the pseudo header.
        let more = (self.bytes - self.size) as u16;
        let sum = Sum::new().with(&head[udp + 6..udp + 8]).with(&more.to_be_bytes()).partial();
        head[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
        let mut header = vnet::encode(&first.buf, ETHERNET, &first.offload);
        vnet::mark_datagrams(&mut header, self.headers as u16, self.size as u16);
        (header, head)
    }

    /// What the frames hold behind their headers.
    pub fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().map(|frame| &frame.buf[self.headers..])
    }
}

/// Bytes of the headers of a frame that can be part of a train.
fn headers(frame: &Frame) -> Option<usize> {
    let Checksum::Partial { start, offset: 6 } = frame.offload.checksum else { return None };
    let (ip, start) = (usize::from(ETHERNET), usize::from(start));
    let kind: [u8; 2] = frame.buf.get(12..14)?.try_into().ok()?;
    let plain = match u16::from_be_bytes(kind) {
        eth::IPV4 => {
            start == 20 && frame.buf.get(ip) == Some(&0x45) && frame.buf.get(ip + 9) == Some(&proto::UDP)
        }
        eth::IPV6 => start == 40 && frame.buf.get(ip + 6) == Some(&proto::UDP),
        _ => false,
    };
    let headers = ip + start + UDP;
    (plain && frame.tags.part != Part::Alone && frame.offload.gso.is_none() && frame.buf.len() > headers)
        .then_some(headers)
}

/// Whether headers are the same but for lengths, checksums and the number of the packet.
fn same_flow(a: &[u8], b: &[u8]) -> bool {
    let (ip, udp) = (usize::from(ETHERNET), a.len() - UDP);
    let differ: [std::ops::Range<usize>; 2] =
        if a[ip] >> 4 == 4 { [ip + 2..ip + 6, ip + 10..ip + 12] } else { [ip + 4..ip + 6, 0..0] };
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .enumerate()
            .all(|(n, (x, y))| x == y || n >= udp + 4 || differ.iter().any(|range| range.contains(&n)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Pool;
    use crate::frame::{Offload, finish_checksum};
    use crate::wire::ip::Ipv4;
    use crate::wire::ipv6::Ipv6;
    use crate::wire::udp::Udp;
    use std::net::IpAddr;
    use zerocopy::IntoBytes;

    /// A datagram of a train with a partial checksum.
    fn frame(v6: bool, port: u16, data: &[u8]) -> Frame {
        let ends: [IpAddr; 2] = if v6 {
            ["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()]
        } else {
            ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()]
        };
        let len = data.len() + UDP;
        let mut buf = Pool::new().copy(data);
        let sum = Sum::new().pseudo(ends[0], ends[1], proto::UDP, len).partial();
        buf.push_front(Udp::new(7, port, data.len()).with_checksum(sum).as_bytes());
        let ip = match ends {
            [IpAddr::V4(a), IpAddr::V4(b)] => {
                buf.push_front(Ipv4::new(a, b, proto::UDP, len).sealed().as_bytes());
                20
            }
            [IpAddr::V6(a), IpAddr::V6(b)] => {
                buf.push_front(Ipv6::new(a, b, proto::UDP, len).as_bytes());
                40
            }
            _ => unreachable!(),
        };
        let kind = if v6 { eth::IPV6 } else { eth::IPV4 };
        buf.push_front(&[&[2; 12][..], &kind.to_be_bytes()].concat());
        let checksum = Checksum::Partial { start: ip, offset: 6 };
        let mut frame = Frame::with(buf, Offload { checksum, gso: None });
        frame.tags.part = Part::Next;
        frame
    }

    /// What the host makes of it: the datagrams, cut by the other direction's code.
    #[test]
    fn a_train_is_cut_into_what_it_was() {
        for v6 in [false, true] {
            let data: Vec<u8> = (0..=254).collect();
            let mut train = Train::new(frame(v6, 9, &data[..100]));
            for part in [&data[100..200], &data[200..]] {
                let next = frame(v6, 9, part);
                assert!(train.takes(&next));
                train.push(next);
            }
            assert!(!train.takes(&frame(v6, 9, &[1; 55])), "one is shorter");
            let (header, mut whole) = train.head();
            let ip = if v6 { 40 } else { 20 };
            assert_eq!(header[1], 5);
            assert_eq!(u16::from_ne_bytes([header[2], header[3]]), 14 + ip + 8);
            assert_eq!(u16::from_ne_bytes([header[4], header[5]]), 100);
            train.payloads().for_each(|part| whole.extend(part));
            let parts = vnet::cut_datagrams(&header, &whole, ETHERNET).unwrap();
            let lengths: Vec<usize> =
                parts.iter().map(|part| part.len() - 14 - usize::from(ip) - 8).collect();
            assert_eq!(lengths, [100, 100, 55]);
            for (part, frame) in parts.iter().zip(train.frames()) {
                assert_eq!(part[14 + usize::from(ip) + 8..], frame.buf[14 + usize::from(ip) + 8..]);
            }
            // The sum of the whole is what the host begins with.
            let mut packet = Frame::with(Pool::new().copy(&whole), train.frames()[0].offload);
            packet.buf.trim_front(14);
            finish_checksum(&mut packet);
            let udp = &packet.buf[usize::from(ip)..];
            let ends: (IpAddr, IpAddr) = if v6 {
                ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap())
            } else {
                ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())
            };
            assert!(Sum::new().pseudo(ends.0, ends.1, proto::UDP, udp.len()).with(udp).is_valid());
            assert!(v6 || Sum::new().with(&packet.buf[..20]).is_valid());
        }
    }

    #[test]
    fn what_does_not_travel_together() {
        for v6 in [false, true] {
            let first = || Train::new(frame(v6, 9, &[1; 1000]));
            assert!(!first().takes(&frame(v6, 10, &[1; 1000])), "another port");
            assert!(!first().takes(&frame(!v6, 9, &[1; 1000])), "another family");
            assert!(!first().takes(&frame(v6, 9, &[1; 1001])), "a longer one");
            assert!(!first().takes(&frame(v6, 9, &[])), "nothing");
            let mut other = frame(v6, 9, &[1; 1000]);
            other.tags.part = Part::First;
            assert!(!first().takes(&other), "another piece");
            other.tags.part = Part::Alone;
            assert!(!first().takes(&other) && !Train::new(other).takes(&frame(v6, 9, &[1; 1000])));
            let mut long = first();
            while long.takes(&frame(v6, 9, &[1; 1000])) {
                long.push(frame(v6, 9, &[1; 1000]));
            }
            assert_eq!(long.frames().len(), MOST);
            let mut large = Train::new(frame(v6, 9, &[1; 9000]));
            while large.takes(&frame(v6, 9, &[1; 9000])) {
                large.push(frame(v6, 9, &[1; 9000]));
            }
            assert_eq!(large.frames().len(), 7);
        }
    }
}

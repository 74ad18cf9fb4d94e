//! TCP headers and options (RFC 9293 section 3.1, RFC 7323, RFC 2018, RFC 7413).

use crate::checksum::Sum;
use crate::wire::seq::Seq;
use std::net::IpAddr;

bitflags::bitflags! {
    /// Control bits.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    #[serde(from = "u8", into = "u8")]
    pub struct Flags: u8 {
        /// No more data from the sender.
        const FIN = 1;
        /// Synchronises sequence numbers.
        const SYN = 2;
        /// Resets the connection.
        const RST = 4;
        /// Delivers what has arrived.
        const PSH = 8;
        /// The acknowledgement number counts.
        const ACK = 16;
        /// The urgent pointer counts.
        const URG = 32;
        /// ECN echo.
        const ECE = 64;
        /// Congestion window reduced.
        const CWR = 128;
    }
}

impl From<u8> for Flags {
    fn from(bits: u8) -> Flags {
        Flags::from_bits_truncate(bits)
    }
}

impl From<Flags> for u8 {
    fn from(flags: Flags) -> u8 {
        flags.bits()
    }
}

/// A range of sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Range {
    /// First number.
    pub start: Seq,
    /// The number after the last.
    pub end: Seq,
}

/// Up to four ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sacks {
    list: [Range; 4],
    len: u8,
}

impl Sacks {
    /// Appends a range; a fifth is left out.
    pub fn push(&mut self, range: Range) {
        if let Some(place) = self.list.get_mut(usize::from(self.len)) {
            *place = range;
            self.len += 1;
        }
    }

    /// The ranges.
    pub fn as_slice(&self) -> &[Range] {
        &self.list[..usize::from(self.len).min(4)]
    }

    /// Keeps the first `n`.
    pub fn truncate(&mut self, n: usize) {
        self.len = self.len.min(n as u8);
    }
}

/// A Fast Open cookie; empty asks for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cookie {
    bytes: [u8; 16],
    len: u8,
    /// It comes in the experimental option that was used before the number of RFC 7413 was assigned.
    pub experimental: bool,
}

impl Cookie {
    /// A cookie from bytes: none, or 4 to 16 of even number.
    pub fn new(bytes: &[u8]) -> Option<Cookie> {
        if !matches!(bytes.len(), 0 | 4..=16) || bytes.len() % 2 == 1 {
            return None;
        }
        let mut cookie = Cookie { bytes: [0; 16], len: bytes.len() as u8, experimental: false };
        cookie.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(cookie)
    }

    /// The cookie in the experimental option.
    pub fn of_experiment(self) -> Cookie {
        Cookie { experimental: true, ..self }
    }

    /// The cookie in the option that another came in.
    pub fn like(self, other: &Cookie) -> Cookie {
        Cookie { experimental: other.experimental, ..self }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(16)]
    }
}

/// The options that the stack knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Options {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale.
    pub wscale: Option<u8>,
    /// SACK permitted.
    pub sack_permitted: bool,
    /// Timestamp value and echo.
    pub timestamps: Option<(u32, u32)>,
    /// SACK ranges.
    pub sacks: Sacks,
    /// Fast Open cookie.
    pub fast_open: Option<Cookie>,
}

/// A TCP header with its options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Segment {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Sequence number.
    pub seq: Seq,
    /// Acknowledgement number.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window, not scaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options.
    pub options: Options,
}

/// Bytes without options.
pub const LEN: usize = 20;

/// Longest header.
pub const MAX_LEN: usize = 60;

impl Segment {
    /// Reads a header; returns it and its length. Checksum: see [`checksum_ok`].
    pub fn parse(bytes: &[u8]) -> Option<(Segment, usize)> {
        let fixed: &[u8; LEN] = bytes.first_chunk()?;
        let len = usize::from(fixed[12] >> 4) * 4;
        let options = bytes.get(LEN..len)?;
        let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let long = |at: usize| Seq(u32::from(word(at)) << 16 | u32::from(word(at + 2)));
        let segment = Segment {
            src: word(0),
            dst: word(2),
            seq: long(4),
            ack: long(8),
            flags: Flags::from_bits_retain(fixed[13]),
            window: word(14),
            urgent: word(18),
            options: parse_options(options, fixed[13] & Flags::SYN.bits() != 0),
        };
        Some((segment, len))
    }

    /// Writes the header without a checksum; returns its length.
    pub fn emit(&self, out: &mut [u8; MAX_LEN]) -> usize {
        let mut at = Writer { out, at: LEN };
        at.options(&self.options, self.flags.contains(Flags::SYN));
        let len = at.at;
        out[0..2].copy_from_slice(&self.src.to_be_bytes());
        out[2..4].copy_from_slice(&self.dst.to_be_bytes());
        out[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        out[12] = ((len / 4) as u8) << 4;
        out[13] = self.flags.bits();
        out[14..16].copy_from_slice(&self.window.to_be_bytes());
        out[16..18].fill(0);
        out[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        len
    }

    /// Sequence numbers that the segment occupies, `payload` bytes included.
    pub fn occupies(&self, payload: usize) -> u32 {
        let control = self.flags.contains(Flags::SYN) as u32 + self.flags.contains(Flags::FIN) as u32;
        (payload as u32).wrapping_add(control)
    }
}

/// True when the checksum of a segment (header and payload) is right.
pub fn checksum_ok(src: IpAddr, dst: IpAddr, bytes: &[u8]) -> bool {
    Sum::new().pseudo(src, dst, super::proto::TCP, bytes.len()).with(bytes).is_valid()
}

fn parse_options(mut bytes: &[u8], syn: bool) -> Options {
    let mut options = Options::default();
    while let Some(&kind) = bytes.first() {
        if kind == 0 {
            break;
        }
        if kind == 1 {
            bytes = &bytes[1..];
            continue;
        }
        let len = usize::from(bytes.get(1).copied().unwrap_or(0));
        let Some(body) = bytes.get(2..len) else { break };
        parse_option(&mut options, kind, body, syn);
        bytes = &bytes[len..];
    }
    options
}

fn parse_option(options: &mut Options, kind: u8, body: &[u8], syn: bool) {
    let long = |at: usize| -> u32 {
        body.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes)
    };
    match (kind, body.len()) {
        (2, 2) if syn => options.mss = Some(u16::from_be_bytes([body[0], body[1]])).filter(|&mss| mss > 0),
        (3, 1) if syn => options.wscale = Some(body[0].min(14)),
        (4, 0) if syn => options.sack_permitted = true,
        (5, 8 | 16 | 24 | 32) if !syn => {
            for at in (0..body.len()).step_by(8) {
                options.sacks.push(Range { start: Seq(long(at)), end: Seq(long(at + 4)) });
            }
        }
        (8, 8) => options.timestamps = Some((long(0), long(4))),
        (34, _) if syn => options.fast_open = Cookie::new(body),
        (254, 2..) if syn && body[..2] == EXPERIMENT => {
            let cookie = Cookie::new(&body[2..]);
            options.fast_open = cookie.map(Cookie::of_experiment);
        }
        _ => {}
    }
}

/// Says that option 254 is about Fast Open (RFC 7413 section 4.1.1).
const EXPERIMENT: [u8; 2] = [0xf9, 0x89];

struct Writer<'a> {
    out: &'a mut [u8; MAX_LEN],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        if let Some(room) = self.out.get_mut(self.at..self.at + bytes.len()) {
            room.copy_from_slice(bytes);
            self.at += bytes.len();
        }
    }

    /// Writes options in the order that Linux uses, each padded to four bytes.
    fn options(&mut self, options: &Options, syn: bool) {
        if let Some(mss) = options.mss.filter(|_| syn) {
            let [a, b] = mss.to_be_bytes();
            self.put(&[2, 4, a, b]);
        }
        let sack = syn && options.sack_permitted;
        if let Some((value, echo)) = options.timestamps {
            self.put(if sack { &[4, 2, 8, 10] } else { &[1, 1, 8, 10] });
            self.put(&value.to_be_bytes());
            self.put(&echo.to_be_bytes());
        } else if sack {
            self.put(&[1, 1, 4, 2]);
        }
        if let Some(scale) = options.wscale.filter(|_| syn) {
            self.put(&[1, 3, 3, scale]);
        }
        if let Some(cookie) = options.fast_open.as_ref().filter(|_| syn) {
            let bytes = cookie.as_slice();
            if cookie.experimental {
                self.put(&[254, 4 + bytes.len() as u8]);
                self.put(&EXPERIMENT);
            } else {
                self.put(&[34, 2 + bytes.len() as u8]);
            }
            self.put(bytes);
            while !self.at.is_multiple_of(4) {
                self.put(&[1]);
            }
        }
        let room = (MAX_LEN - self.at).saturating_sub(4) / 8;
        let sacks = &options.sacks.as_slice()[..options.sacks.as_slice().len().min(room)];
        if !sacks.is_empty() {
            self.put(&[1, 1, 5, 2 + 8 * sacks.len() as u8]);
            for range in sacks {
                self.put(&range.start.0.to_be_bytes());
                self.put(&range.end.0.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn headers_survive_the_wire() {
        let mut sacks = Sacks::default();
        sacks.push(Range { start: Seq(1), end: Seq(5) });
        sacks.push(Range { start: Seq(u32::MAX), end: Seq(7) });
        let data = Segment {
            src: 1,
            dst: 2,
            seq: Seq(3),
            ack: Seq(4),
            flags: Flags::ACK | Flags::PSH,
            window: 5,
            urgent: 6,
            options: Options { timestamps: Some((8, 9)), sacks, ..Options::default() },
        };
        let syn = Segment {
            flags: Flags::SYN,
            options: Options {
                mss: Some(1460),
                wscale: Some(7),
                sack_permitted: true,
                timestamps: Some((1, 0)),
                fast_open: Cookie::new(&[1; 8]),
                ..Options::default()
            },
            ..data
        };
        for segment in [data, syn] {
            let mut bytes = [0; MAX_LEN];
            let len = segment.emit(&mut bytes);
            assert_eq!(Segment::parse(&bytes[..len]), Some((segment, len)));
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic() {
        let mut random = Random::new(9);
        for _ in 0..100_000 {
            let bytes: Vec<u8> = (0..random.below(70)).map(|_| random.next() as u8).collect();
            if let Some((segment, len)) = Segment::parse(&bytes) {
                assert!(len <= bytes.len() && segment.options.sacks.as_slice().len() <= 4);
            }
        }
    }
}

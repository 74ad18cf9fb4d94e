//! Netlink messages as bytes: a header, a fixed part, and attributes, all aligned to four bytes.

use std::net::IpAddr;

/// Length of `struct nlmsghdr`.
pub(super) const HEADER: usize = 16;

/// `struct nlmsghdr` of a request, without its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) seq: u32,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn align(len: usize) -> usize {
    (len + 3) & !3
}

/// The next message in `bytes`: its header, all of its bytes, and what follows. `None` at the end or where the
/// length makes no sense.
pub(super) fn next(bytes: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let len = word(bytes, 0)? as usize;
    if len < HEADER || len > bytes.len() {
        return None;
    }
    let header = Header { kind: half(bytes, 4)?, flags: half(bytes, 6)?, seq: word(bytes, 8)? };
    Some((header, &bytes[..len], bytes.get(align(len)..).unwrap_or_default()))
}

/// SOCK_DIAG_BY_FAMILY.
const DIAG: u16 = 20;

/// Whether a request asks for all that there is. For rtnetlink and sock_diag one of the two flags of NLM_F_DUMP says so.
pub(super) fn dumps(header: &Header) -> bool {
    let flags = i32::from(header.flags) & libc::NLM_F_DUMP;
    let gets = header.kind % 4 == 2 || header.kind == DIAG;
    if gets { flags != 0 } else { flags == libc::NLM_F_DUMP }
}

/// Whether `bytes` are one request, which asks for a dump.
pub(super) fn is_one_dump(bytes: &[u8]) -> bool {
    next(bytes).is_some_and(|(header, _, rest)| rest.is_empty() && dumps(&header))
}

/// The bits of an attribute's kind that say how its value is encoded.
const ENCODING: u16 = 0xc000;

/// The value of an attribute behind a fixed part of `fixed` bytes.
pub(super) fn attribute(message: &[u8], fixed: usize, wanted: u16) -> Option<&[u8]> {
    find(message.get(HEADER + align(fixed)..)?, wanted)
}

/// The value of an attribute in a list of them, as a message or another attribute holds it.
pub(super) fn find(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (len, kind) = (half(rest, 0)? as usize, half(rest, 2)?);
        let value = rest.get(4..len)?;
        if kind & !ENCODING == wanted {
            return Some(value);
        }
        rest = rest.get(align(len)..)?;
    }
}

/// The kinds of all attributes behind a fixed part of `fixed` bytes, without the bits that say how a value is encoded.
pub(super) fn attributes(message: &[u8], fixed: usize) -> impl Iterator<Item = u16> {
    kinds(message.get(HEADER + align(fixed)..).unwrap_or_default())
}

/// The attributes in a list, each with its kind.
pub(super) fn list(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (len, kind) = (half(rest, 0)? as usize, half(rest, 2)?);
        let value = rest.get(4..len)?;
        rest = rest.get(align(len)..).unwrap_or_default();
        Some((kind & !ENCODING, value))
    })
}

/// The kinds of the attributes in a list.
pub(super) fn kinds(mut rest: &[u8]) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        let (len, kind) = (half(rest, 0)? as usize, half(rest, 2)?);
        rest.get(4..len)?;
        rest = rest.get(align(len)..).unwrap_or_default();
        Some(kind & !ENCODING)
    })
}

/// An attribute as the value of another one holds it.
pub(super) fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = (4 + value.len() as u16).to_ne_bytes().to_vec();
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(align(out.len()), 0);
    out
}

/// A message in the making.
#[derive(Clone)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn new(kind: u16, flags: u16, seq: u32, port: u32) -> Message {
        let mut out = vec![0; 4];
        out.extend(kind.to_ne_bytes());
        out.extend(flags.to_ne_bytes());
        out.extend(seq.to_ne_bytes());
        out.extend(port.to_ne_bytes());
        Message(out)
    }

    /// Adds to the fixed part.
    pub(super) fn fixed(mut self, bytes: &[u8]) -> Message {
        self.0.extend(bytes);
        self.0.resize(align(self.0.len()), 0);
        self
    }

    pub(super) fn attribute(mut self, kind: u16, value: &[u8]) -> Message {
        self.0.extend((4 + value.len() as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.fixed(value)
    }

    pub(super) fn number(self, kind: u16, value: u32) -> Message {
        self.attribute(kind, &value.to_ne_bytes())
    }

    pub(super) fn text(self, kind: u16, value: &str) -> Message {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    pub(super) fn done(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

/// The bytes of an address.
pub(super) fn bytes_of(ip: &IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// AF_INET or AF_INET6.
pub(super) fn family_of(ip: &IpAddr) -> i32 {
    if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

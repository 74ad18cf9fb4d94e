//! Netlink messages as bytes (netlink(7)): a header, a fixed part, and attributes, all aligned to four bytes.
//!
//! Readers take any bytes: a list ends at the first attribute whose length makes no sense.

#![forbid(unsafe_code)]

/// Length of `struct nlmsghdr`.
pub const HEADER: usize = 16;
/// Length of `struct nlattr`, the header of an attribute.
pub const ATTRIBUTE: usize = 4;
/// The bits of an attribute's kind that say how its value is encoded.
const ENCODING: u16 = 0xc000;

/// `struct nlmsghdr` of a message, without length and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the message is.
    pub kind: u16,
    /// `NLM_F_*`
    pub flags: u16,
    /// Sequence number.
    pub seq: u32,
}

/// An attribute of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its kind, without the bits that say how the value is encoded.
    pub kind: u16,
    /// Offset of its header in the list.
    pub at: usize,
    /// Its value.
    pub value: &'a [u8],
}

/// The number at an offset, in the byte order of the host.
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|half| u16::from_ne_bytes(*half))
}

/// The next offset at which a message or an attribute may begin.
pub fn align(len: usize) -> usize {
    (len + 3) & !3
}

/// The next message in `bytes`: its header, all of its bytes, and what follows. `None` at the end or where the
/// length makes no sense.
pub fn next(bytes: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let len = word(bytes, 0)? as usize;
    if len < HEADER || len > bytes.len() {
        return None;
    }
    let header = Header { kind: half(bytes, 4)?, flags: half(bytes, 6)?, seq: word(bytes, 8)? };
    Some((header, &bytes[..len], bytes.get(align(len)..).unwrap_or_default()))
}

/// The attributes in a list of them, as a message or another attribute holds it.
pub fn list(bytes: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..)?;
        let (len, kind) = (half(rest, 0)? as usize, half(rest, 2)?);
        let attribute = Attribute { kind: kind & !ENCODING, at, value: rest.get(ATTRIBUTE..len)? };
        at += align(len);
        Some(attribute)
    })
}

/// The value of the first attribute of a kind in a list.
pub fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    list(bytes).find(|attribute| attribute.kind == wanted).map(|attribute| attribute.value)
}

/// The list of attributes behind a fixed part of `fixed` bytes.
pub fn list_of(message: &[u8], fixed: usize) -> &[u8] {
    message.get(HEADER + align(fixed)..).unwrap_or_default()
}

/// Adds an attribute. A value that is too long is cut.
pub fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(ATTRIBUTE + value.len()).unwrap_or(u16::MAX);
    out.extend(len.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(&value[..usize::from(len) - ATTRIBUTE]);
    out.resize(align(out.len()), 0);
}

/// A message in the making.
#[derive(Clone, Debug)]
pub struct Message(Vec<u8>);

impl Message {
    /// A header alone.
    pub fn new(kind: u16, flags: u16, seq: u32, port: u32) -> Message {
        let mut out = vec![0; 4];
        out.extend(kind.to_ne_bytes());
        out.extend(flags.to_ne_bytes());
        out.extend(seq.to_ne_bytes());
        out.extend(port.to_ne_bytes());
        Message(out)
    }

    /// Adds to the fixed part.
    #[must_use]
    pub fn fixed(mut self, bytes: &[u8]) -> Message {
        self.0.extend(bytes);
        self.0.resize(align(self.0.len()), 0);
        self
    }

    /// Adds an attribute.
    #[must_use]
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Message {
        put(&mut self.0, kind, value);
        self
    }

    /// Adds an attribute with a number in the byte order of the host.
    #[must_use]
    pub fn number(self, kind: u16, value: u32) -> Message {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Adds an attribute with a string, which a NUL ends.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Message {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// The bytes of the message.
    pub fn done(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut inner = Vec::new();
        put(&mut inner, 9, &[1, 2]);
        put(&mut inner, 8 | ENCODING, &[]);
        let bytes =
            Message::new(16, 5, 7, 0).fixed(&[1; 6]).text(3, "lo").number(4, 70).attribute(5, &inner).done();
        let (header, message, rest) = next(&bytes).unwrap();
        assert_eq!((header, rest.len()), (Header { kind: 16, flags: 5, seq: 7 }, 0));
        let attributes = list_of(message, 6);
        assert_eq!(find(attributes, 3), Some(&b"lo\0"[..]));
        assert_eq!(find(attributes, 4).and_then(|value| word(value, 0)), Some(70));
        let inner: Vec<_> =
            list(find(attributes, 5).unwrap()).map(|a| (a.kind, a.at, a.value.len())).collect();
        assert_eq!(inner, [(9, 0, 2), (8, 8, 0)]);
        assert_eq!(find(attributes, 6), None);
    }

    #[test]
    fn nonsense_ends_the_list() {
        for bytes in [&[][..], &[1], &[3, 0, 1, 0], &[9, 0, 1, 0, 1, 2, 3], &[0, 0, 0, 0], &[255; 64]] {
            assert_eq!(list(bytes).count(), 0, "{bytes:?}");
            assert_eq!(next(bytes), None);
        }
    }

    #[test]
    fn long_values_are_cut() {
        let mut out = Vec::new();
        put(&mut out, 1, &[7; 1 << 17]);
        assert_eq!(
            list(&out).map(|a| a.value.len()).collect::<Vec<_>>(),
            [usize::from(u16::MAX) - ATTRIBUTE]
        );
    }
}

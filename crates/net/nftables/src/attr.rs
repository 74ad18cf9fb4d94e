//! Netlink attributes of nf_tables: read from a request of a program, and written into an answer. Their numbers are big-endian, and
//! a refusal names the attribute that is to blame. The format itself is of the crate `netlink_wire`.

use abi::Errno;
use netlink_wire::ATTRIBUTE;

/// An item of a list.
pub(crate) const NFTA_LIST_ELEM: u16 = 1;

/// A refused request: the error number, and which attribute is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Error number.
    pub errno: Errno,
    /// Offset of the attribute in the message (`NLMSGERR_ATTR_OFFS`).
    pub at: Option<u32>,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure { errno, at: None }
    }
}

/// Result of a request.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Names a failure's attribute unless it names one itself.
pub(crate) trait Blame<T> {
    fn blame(self, at: u32) -> Result<T>;
}

impl<T, E: Into<Failure>> Blame<T> for std::result::Result<T, E> {
    fn blame(self, at: u32) -> Result<T> {
        self.map_err(|error| {
            let failure = error.into();
            Failure { at: failure.at.or(Some(at)), ..failure }
        })
    }
}

/// An attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attr<'a> {
    pub kind: u16,
    /// Offset in the message.
    pub at: u32,
    pub data: &'a [u8],
}

impl<'a> Attr<'a> {
    /// The attributes inside.
    pub fn nested(&self) -> Attrs<'a> {
        Attrs { bytes: self.data, at: self.at + ATTRIBUTE as u32 }
    }
    fn array<const N: usize>(&self) -> Result<[u8; N]> {
        self.data.first_chunk().copied().ok_or(Failure { errno: Errno::ERANGE, at: Some(self.at) })
    }
    pub fn be16(&self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }
    pub fn be32(&self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }
    pub fn be64(&self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }
    pub fn byte(&self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }
    /// A string of fewer than `max` bytes; a NUL ends it.
    pub fn text(&self, max: usize) -> Result<&'a [u8]> {
        let bare = self.data.strip_suffix(&[0]).unwrap_or(self.data);
        if bare.len() >= max {
            return Err(Failure { errno: Errno::ERANGE, at: Some(self.at) });
        }
        let end = bare.iter().position(|byte| *byte == 0).unwrap_or(bare.len());
        Ok(&bare[..end])
    }
    /// Bytes, `max` at most.
    pub fn bytes(&self, max: usize) -> Result<&'a [u8]> {
        match self.data.len() <= max {
            true => Ok(self.data),
            false => Err(Failure { errno: Errno::ERANGE, at: Some(self.at) }),
        }
    }
}

/// Attributes side by side. Of several of one kind the last counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attrs<'a> {
    bytes: &'a [u8],
    at: u32,
}

impl<'a> Attrs<'a> {
    /// Those in `bytes`, which begin at offset `at` of the message.
    pub fn new(bytes: &'a [u8], at: u32) -> Attrs<'a> {
        Attrs { bytes, at }
    }

    /// All of them, up to one with an impossible length.
    pub fn iter(self) -> impl Iterator<Item = Attr<'a>> {
        let Attrs { bytes, at } = self;
        netlink_wire::list(bytes).map(move |netlink_wire::Attribute { kind, at: offset, value }| Attr {
            kind,
            at: at + offset as u32,
            data: value,
        })
    }

    pub fn get(self, kind: u16) -> Option<Attr<'a>> {
        self.iter().filter(|attr| attr.kind == kind).last()
    }
    /// One that must be there.
    pub fn need(self, kind: u16) -> Result<Attr<'a>> {
        self.get(kind).ok_or(Errno::EINVAL.into())
    }
    pub fn has(self, kind: u16) -> bool {
        self.get(kind).is_some()
    }
    pub fn be32(self, kind: u16) -> Result<Option<u32>> {
        self.get(kind).map(|attr| attr.be32()).transpose()
    }
    pub fn be64(self, kind: u16) -> Result<Option<u64>> {
        self.get(kind).map(|attr| attr.be64()).transpose()
    }
}

/// Attributes in the making, behind whatever stands before them.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub Vec<u8>);

impl Writer {
    pub fn put(&mut self, kind: u16, value: &[u8]) {
        netlink_wire::put(&mut self.0, kind, value);
    }
    pub fn byte(&mut self, kind: u16, value: u8) {
        self.put(kind, &[value]);
    }
    pub fn be16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_be_bytes());
    }
    pub fn be32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }
    pub fn be64(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_be_bytes());
    }
    /// A string, with the NUL that ends it.
    pub fn text(&mut self, kind: u16, value: &[u8]) {
        let mut bytes = Vec::with_capacity(value.len() + 1);
        bytes.extend(value);
        bytes.push(0);
        self.put(kind, &bytes);
    }
    /// An attribute of attributes.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Writer)) {
        let start = self.0.len();
        self.put(kind, &[]);
        fill(self);
        let len = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        self.0[start..start + 2].copy_from_slice(&len.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut out = Writer::default();
        out.be32(1, 7);
        out.text(2, b"name");
        out.nest(3, |out| out.be16(9, 80));
        let attrs = Attrs::new(&out.0, 20);
        assert_eq!(attrs.be32(1), Ok(Some(7)));
        assert_eq!(attrs.need(2).unwrap().text(5), Ok(&b"name"[..]));
        assert_eq!(attrs.need(2).unwrap().text(4).unwrap_err().errno, Errno::ERANGE);
        let nest = attrs.need(3).unwrap();
        assert_eq!((nest.at, nest.nested().need(9).unwrap().at), (20 + 8 + 12, 20 + 8 + 12 + 4));
        assert_eq!(nest.nested().need(9).unwrap().be16(), Ok(80));
        assert_eq!(nest.nested().need(9).unwrap().be32().unwrap_err().errno, Errno::ERANGE);
    }
}

//! The operations that follow when everything is staged: a list on disk. Each operation may be repeated.
//!
//! An operation has its length, its kind, its parts and an authentication code. A container that writes to the
//! directory may put a journal there. So the code uses a key that is kept elsewhere ([`crate::proof`]) and includes the
//! operation's place in the list. An operation is not used before its code has been checked. The last entry ends the
//! list.

use crate::disk::Xattrs;
use overlay_diff::{Meta, is_name};
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};

/// One operation. Paths are relative to the directory that is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// The staged object of this number gets this name, whatever had it.
    Put { path: Vec<u8>, number: u64 },
    /// The object at `of` gets another name, whatever had it.
    Link { path: Vec<u8>, of: Vec<u8> },
    /// The name goes, with all that is below it.
    Remove { path: Vec<u8> },
    /// The object gets these attributes.
    Attributes { path: Vec<u8>, meta: Meta, xattrs: Xattrs },
    /// The regular file gets the content of the staged one of this number.
    Content { path: Vec<u8>, number: u64 },
}

impl Op {
    /// The path that it is about.
    pub(crate) fn path(&self) -> &[u8] {
        match self {
            Op::Put { path, .. } | Op::Link { path, .. } | Op::Remove { path } => path,
            Op::Attributes { path, .. } | Op::Content { path, .. } => path,
        }
    }
}

/// Longest operation: the bounds of its parts together.
const LONGEST: usize = (64 << 10) * 2 + overlay_diff::XATTRS_MAX * 2 + 4096;

/// Bytes of a key.
pub(crate) const KEY: usize = 32;
/// Bytes of a code.
const CODE: usize = 16;
/// The kind of the last entry.
const END: u8 = 6;

/// What makes the codes of a journal, one after the other.
struct Seal {
    key: [u8; KEY],
    next: u64,
}

impl Seal {
    fn new(key: &[u8; KEY]) -> Seal {
        Seal { key: *key, next: 0 }
    }

    /// The code of the next entry. The hash is taken twice, each time with the key, so that none can be lengthened.
    fn code(&mut self, entry: &[u8]) -> [u8; CODE] {
        let inner =
            Sha256::new().chain_update(self.key).chain_update(self.next.to_le_bytes()).chain_update(entry);
        let outer = Sha256::new().chain_update(self.key).chain_update(inner.finalize()).finalize();
        self.next += 1;
        let mut code = [0; CODE];
        code.copy_from_slice(&outer[..CODE]);
        code
    }
}

fn bytes(out: &mut Vec<u8>, part: &[u8]) {
    out.extend((part.len() as u32).to_le_bytes());
    out.extend(part);
}

/// Writes a journal.
pub(crate) struct Writer<W: Write> {
    to: W,
    seal: Seal,
}

impl<W: Write> Writer<W> {
    /// To `to`, with the codes of this key.
    pub(crate) fn new(to: W, key: &[u8; KEY]) -> Self {
        Self { to, seal: Seal::new(key) }
    }

    /// Writes an operation.
    pub(crate) fn write(&mut self, op: &Op) -> io::Result<()> {
        self.entry(&encode(op))
    }

    /// Writes the last entry.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.entry(&[END])?;
        self.to.flush()
    }

    fn entry(&mut self, entry: &[u8]) -> io::Result<()> {
        self.to.write_all(&(entry.len() as u32).to_le_bytes())?;
        self.to.write_all(entry)?;
        self.to.write_all(&self.seal.code(entry))
    }
}

fn encode(op: &Op) -> Vec<u8> {
    let mut out = Vec::new();
    match op {
        Op::Put { path, number } | Op::Content { path, number } => {
            out.push(if matches!(op, Op::Put { .. }) { 1 } else { 2 });
            bytes(&mut out, path);
            out.extend(number.to_le_bytes());
        }
        Op::Link { path, of } => {
            out.push(3);
            bytes(&mut out, path);
            bytes(&mut out, of);
        }
        Op::Remove { path } => {
            out.push(4);
            bytes(&mut out, path);
        }
        Op::Attributes { path, meta, xattrs } => {
            out.push(5);
            bytes(&mut out, path);
            for word in [meta.mode, meta.uid, meta.gid, meta.atime.1, meta.mtime.1] {
                out.extend(word.to_le_bytes());
            }
            for long in [meta.rdev, meta.size, meta.atime.0 as u64, meta.mtime.0 as u64] {
                out.extend(long.to_le_bytes());
            }
            for (name, value) in xattrs {
                bytes(&mut out, name);
                bytes(&mut out, value);
            }
        }
    }
    out
}

/// Reads a journal.
pub(crate) struct Reader<R: Read> {
    from: R,
    seal: Seal,
}

impl<R: Read> Reader<R> {
    /// From `from`, which has to have the codes of this key.
    pub(crate) fn new(from: R, key: &[u8; KEY]) -> Self {
        Self { from, seal: Seal::new(key) }
    }

    /// Reads the next operation; nothing at the end. InvalidData for what is not from the writer with the same key.
    pub(crate) fn read(&mut self) -> io::Result<Option<Op>> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the journal of a write-back is damaged");
        let cut =
            |error: io::Error| if error.kind() == io::ErrorKind::UnexpectedEof { wrong() } else { error };
        let mut len = [0; 4];
        self.from.read_exact(&mut len).map_err(cut)?;
        let len = u32::from_le_bytes(len) as usize;
        if !(1..=LONGEST).contains(&len) {
            return Err(wrong());
        }
        let (mut entry, mut code) = (vec![0; len], [0; CODE]);
        self.from.read_exact(&mut entry).map_err(cut)?;
        self.from.read_exact(&mut code).map_err(cut)?;
        if self.seal.code(&entry) != code {
            return Err(wrong());
        }
        if entry == [END] { Ok(None) } else { parse(&entry).map(Some).ok_or_else(wrong) }
    }
}

fn parse(mut rest: &[u8]) -> Option<Op> {
    let [kind] = *take(&mut rest, 1)? else { return None };
    let path = string(&mut rest)?;
    let fits = path.is_empty() || path.split(|byte| *byte == b'/').all(is_name);
    if !fits || path.is_empty() && kind != 5 {
        return None;
    }
    let op = match kind {
        1 => Op::Put { path, number: long(&mut rest)? },
        2 => Op::Content { path, number: long(&mut rest)? },
        3 => {
            let of = string(&mut rest)?;
            of.split(|byte| *byte == b'/').all(is_name).then_some(Op::Link { path, of })?
        }
        4 => Op::Remove { path },
        5 => {
            let [mode, uid, gid, asec, msec] = [(); 5].map(|()| word(&mut rest));
            let [rdev, size, atime, mtime] = [(); 4].map(|()| long(&mut rest));
            let (atime, mtime) = ((atime? as i64, asec?), (mtime? as i64, msec?));
            let meta = Meta { mode: mode?, uid: uid?, gid: gid?, rdev: rdev?, size: size?, atime, mtime };
            let mut xattrs = Vec::new();
            while !rest.is_empty() {
                xattrs.push((string(&mut rest)?, string(&mut rest)?));
            }
            Op::Attributes { path, meta, xattrs }
        }
        _ => return None,
    };
    rest.is_empty().then_some(op)
}

fn take<'a>(rest: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(n)?;
    *rest = left;
    Some(taken)
}

fn word(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(rest, 4)?.try_into().ok()?))
}

fn long(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take(rest, 8)?.try_into().ok()?))
}

fn string(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let len = usize::try_from(word(rest)?).ok()?;
    take(rest, len).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY_A: [u8; KEY] = [1; KEY];

    fn sample() -> Vec<Op> {
        vec![
            Op::Put { path: b"a/b".to_vec(), number: 1 },
            Op::Attributes {
                path: Vec::new(),
                meta: Meta::default(),
                xattrs: vec![(b"user.x".to_vec(), b"v".to_vec())],
            },
            Op::Remove { path: b"c".to_vec() },
            Op::Link { path: b"d".to_vec(), of: b"a/b".to_vec() },
            Op::Content { path: b"e".to_vec(), number: 2 },
        ]
    }

    fn written(key: &[u8; KEY]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, key);
        sample().iter().for_each(|op| writer.write(op).unwrap());
        writer.end().unwrap();
        out
    }

    /// The operations that are read, and whether the end was.
    fn read(bytes: &[u8], key: &[u8; KEY]) -> (Vec<Op>, bool) {
        let (mut reader, mut ops) = (Reader::new(bytes, key), Vec::new());
        loop {
            match reader.read() {
                Ok(Some(op)) => ops.push(op),
                Ok(None) => return (ops, true),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                    return (ops, false);
                }
            }
        }
    }

    #[test]
    fn only_the_key_s_own_journal_is_read() {
        let bytes = written(&KEY_A);
        assert_eq!(read(&bytes, &KEY_A), (sample(), true));
        assert_eq!(read(&bytes, &[2; KEY]), (Vec::new(), false));
        assert_eq!(read(b"", &KEY_A), (Vec::new(), false));
        // Nothing that differs anywhere is taken, from there on.
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            let (ops, whole) = read(&other, &KEY_A);
            assert!(!whole && sample().starts_with(&ops) && ops.len() < 6, "{at}");
            assert!(!read(&bytes[..at], &KEY_A).1, "{at}");
        }
        // An entry in another place is none.
        let first = 4 + encode(&sample()[0]).len() + CODE;
        let moved = [&bytes[first..], &bytes[..first]].concat();
        assert_eq!(read(&moved, &KEY_A), (Vec::new(), false));
    }
}

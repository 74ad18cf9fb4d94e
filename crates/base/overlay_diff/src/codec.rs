//! The bytes of a record: its kind, numbers in little-endian order, byte strings with their length before them.

use crate::{DATA_MAX, Kind, Meta, Node, Record, State, TARGET_MAX, VALUE_MAX, is_name};

impl Record<'_> {
    /// Appends the record's bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Node(node) => {
                let (state, shared) = match node.state {
                    State::Kept => (0, false),
                    State::Changed => (1, false),
                    State::Rewritten { shared } => (2, shared),
                    State::New => (3, false),
                    State::Link => (4, false),
                };
                out.extend([1, state, u8::from(shared) | u8::from(node.hides) << 1]);
                let Meta { mode, uid, gid, rdev, size, atime, mtime } = node.meta;
                for word in [mode, uid, gid, atime.1, mtime.1] {
                    out.extend(word.to_le_bytes());
                }
                for long in [node.id, rdev, size, atime.0 as u64, mtime.0 as u64] {
                    out.extend(long.to_le_bytes());
                }
                string(out, node.name);
                string(out, node.target);
            }
            Record::Xattr { name, value } => {
                out.push(2);
                string(out, name);
                string(out, value);
            }
            Record::Data { offset, bytes } => {
                out.push(3);
                out.extend(offset.to_le_bytes());
                string(out, bytes);
            }
            Record::Removed { name } => {
                out.push(4);
                string(out, name);
            }
            Record::Up => out.push(5),
            Record::End => out.push(6),
            Record::Abort => out.push(7),
            Record::Omitted { count } => {
                out.push(8);
                out.extend(count.to_le_bytes());
            }
        }
    }

    /// A record from exactly these bytes; `None` when they are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Record<'_>> {
        let mut cursor = Cursor(bytes);
        let record = match cursor.byte()? {
            1 => Record::Node(node(&mut cursor)?),
            2 => {
                let (name, value) = (cursor.string()?, cursor.string()?);
                let fits = (1..=crate::NAME_MAX).contains(&name.len()) && value.len() <= VALUE_MAX;
                (fits && !name.contains(&0)).then_some(Record::Xattr { name, value })?
            }
            3 => {
                let (offset, bytes) = (cursor.long()?, cursor.string()?);
                (1..=DATA_MAX).contains(&bytes.len()).then_some(Record::Data { offset, bytes })?
            }
            4 => {
                let name = cursor.string()?;
                is_name(name).then_some(Record::Removed { name })?
            }
            5 => Record::Up,
            6 => Record::End,
            7 => Record::Abort,
            8 => {
                let count = cursor.long()?;
                (count > 0).then_some(Record::Omitted { count })?
            }
            _ => return None,
        };
        cursor.0.is_empty().then_some(record)
    }
}

fn node<'a>(cursor: &mut Cursor<'a>) -> Option<Node<'a>> {
    let (state, flags) = (cursor.byte()?, cursor.byte()?);
    let [mode, uid, gid, asec, msec] = [(); 5].map(|()| cursor.word());
    let [id, rdev, size, atime, mtime] = [(); 5].map(|()| cursor.long());
    let nanoseconds = |n: Option<u32>| n.filter(|n| *n < 1_000_000_000);
    let meta = Meta {
        mode: mode?,
        uid: uid?,
        gid: gid?,
        rdev: rdev?,
        size: size?,
        atime: (atime? as i64, nanoseconds(asec)?),
        mtime: (mtime? as i64, nanoseconds(msec)?),
    };
    let (id, name, target) = (id?, cursor.string()?, cursor.string()?);
    let shared = flags & 1 != 0;
    let state = match state {
        0 => State::Kept,
        1 => State::Changed,
        2 => State::Rewritten { shared },
        3 => State::New,
        4 => State::Link,
        _ => return None,
    };
    let kind = Kind::of_mode(meta.mode)?;
    let flags_fit = flags <= 3 && (!shared || matches!(state, State::Rewritten { .. }));
    let target_fits = match kind {
        Kind::Symlink => (1..=TARGET_MAX).contains(&target.len()) && !target.contains(&0),
        _ => target.is_empty(),
    };
    let fits = match (state, kind) {
        (State::Kept, kind) => kind == Kind::Directory,
        (State::Rewritten { .. }, kind) => kind == Kind::Regular,
        (State::Link, kind) => kind != Kind::Directory && id != 0,
        _ => true,
    };
    // No user and no group is -1: it stands for "no change" in chown(2).
    let bounds = meta.size <= i64::MAX as u64 && meta.uid != u32::MAX && meta.gid != u32::MAX;
    let named = name.is_empty() || is_name(name);
    let hides = flags & 2 != 0;
    (flags_fit && target_fits && fits && bounds && named).then_some(Node {
        name,
        state,
        hides,
        id,
        meta,
        target,
    })
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.word()?;
        self.take(usize::try_from(len).ok()?)
    }
}

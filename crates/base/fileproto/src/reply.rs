//! Replies.

use crate::wire::{Reader, Writer};
use crate::{
    ATTR, Handle, Header, MAX_COMPONENTS, MAX_LOOK, MAX_MESSAGE, MAX_NAME, MAX_VALUE, is_name, operation,
};
use abi::stat::{Attr, StatFs};

/// Bytes of the longest entry of a listing.
pub const MAX_ENTRY: usize = ENTRY + MAX_NAME + ATTR;
/// Bytes of the shortest, without its name: inode number, kind, whether attributes follow, length of the name.
const ENTRY: usize = 8 + 1 + 1 + 4;
/// Highest error number.
const MAX_ERRNO: u32 = 4095;

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Inode number.
    pub ino: u64,
    /// DT_*.
    pub kind: u8,
    /// The name; never `.` or `..`.
    pub name: Vec<u8>,
    /// Attributes of the object, if they were asked for and the object is still there.
    pub attr: Option<Attr>,
}

impl Entry {
    /// Bytes in the message.
    pub fn size(&self) -> usize {
        ENTRY + self.name.len() + if self.attr.is_some() { ATTR } else { 0 }
    }
}

/// What has one of the names of a [`crate::Request::Look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing that can be looked at: this error number, which is not 0.
    Failed(i32),
    /// An object.
    Object {
        /// Its attributes.
        attr: Attr,
        /// The next one of the reply's descriptors is its.
        placed: bool,
    },
}

/// What the gofer answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`crate::Request::Attach`].
    Attached {
        /// The gofer's version.
        version: u32,
        /// The tree's root, not 0.
        root: Handle,
        /// Its attributes.
        attr: Attr,
        /// Figures of its file system.
        statfs: StatFs,
    },
    /// To [`crate::Request::Walk`].
    Walked {
        /// Attributes of the directory where the path begins.
        own: Attr,
        /// Attributes of each component in order, as far as the walk came. A component that is no directory ends the
        /// walk.
        attrs: Vec<Attr>,
        /// Why it ended before the last component, or 0. ENOTDIR, also for symbolic links, when more components
        /// follow the last one of `attrs`; of that one they are told. Also set, with attributes of all components,
        /// when the last one is a directory that could not be kept (EMFILE, ENFILE).
        errno: u32,
        /// A handle of the directory at the end, or 0.
        handle: Handle,
    },
    /// Attributes: to [`crate::Request::Stat`], [`crate::Request::Make`] and [`crate::Request::SetAttr`].
    Attr(Attr),
    /// With a descriptor: to [`crate::Request::Open`], [`crate::Request::OpenDirectory`], [`crate::Request::Create`]
    /// and [`crate::Request::CreateUnnamed`].
    ///
    /// Device, inode number, mode, links, owner, size and time of creation are those of the object; the rest may be
    /// zeros.
    Opened(Attr),
    /// To [`crate::Request::ReadLink`].
    Link {
        /// Attributes of the link.
        attr: Attr,
        /// Its text.
        text: Vec<u8>,
    },
    /// To [`crate::Request::List`].
    Entries {
        /// Where to go on, 0 at the end. Never 0 for a directory with more names, which come with the next request.
        next: u64,
        /// Some names, none of them `.` or `..`. May be empty before the end, too.
        entries: Vec<Entry>,
    },
    /// To [`crate::Request::GetXattr`], [`crate::Request::ListXattr`] and [`crate::Request::Mark`].
    Bytes(Vec<u8>),
    /// To [`crate::Request::StatFs`].
    StatFs(StatFs),
    /// To [`crate::Request::Look`]: in the order of the names.
    Looked(Vec<Found>),
    /// To all others.
    Done,
    /// The operation failed with this error number, which is not 0.
    Failed(i32),
}

impl Reply {
    /// As bytes.
    pub fn encode(&self, sequence: u32, operation: u16) -> Vec<u8> {
        let mut w = Writer::new(Header { sequence, operation, processor: 0 });
        match self {
            Reply::Failed(errno) => w.u32(*errno as u32),
            _ => w.u32(0),
        }
        match self {
            Reply::Failed(_) | Reply::Done => {}
            Reply::Attached { version, root, attr, statfs } => {
                w.u32(*version);
                w.u64(*root);
                w.attr(attr);
                w.statfs(statfs);
            }
            Reply::Walked { own, attrs, errno, handle } => {
                w.attr(own);
                w.u64(*handle);
                w.u32(*errno);
                w.u32(u32::try_from(attrs.len()).unwrap_or(u32::MAX));
                for attr in attrs {
                    w.attr(attr);
                }
            }
            Reply::Attr(attr) | Reply::Opened(attr) => w.attr(attr),
            Reply::Link { attr, text } => {
                w.attr(attr);
                w.bytes(text);
            }
            Reply::Entries { next, entries } => {
                w.u64(*next);
                w.u32(u32::try_from(entries.len()).unwrap_or(u32::MAX));
                for Entry { ino, kind, name, attr } in entries {
                    w.u64(*ino);
                    w.u8(*kind);
                    w.u8(attr.is_some().into());
                    w.bytes(name);
                    if let Some(attr) = attr {
                        w.attr(attr);
                    }
                }
            }
            Reply::Bytes(bytes) => w.bytes(bytes),
            Reply::StatFs(statfs) => w.statfs(statfs),
            Reply::Looked(found) => {
                w.u32(u32::try_from(found.len()).unwrap_or(u32::MAX));
                for found in found {
                    match found {
                        Found::Failed(errno) => w.u32(*errno as u32),
                        Found::Object { attr, placed } => {
                            w.u32(0);
                            w.u32((*placed).into());
                            w.attr(attr);
                        }
                    }
                }
            }
        }
        w.0
    }

    /// The reply to the request with this sequence and operation; nothing for what is none.
    pub fn decode(bytes: &[u8], sequence: u32, operation: u16) -> Option<Reply> {
        let (header, mut r) = Reader::new(bytes)?;
        if header != (Header { sequence, operation, processor: 0 }) {
            return None;
        }
        let r = &mut r;
        let reply = match r.u32()? {
            0 => fields(r, operation)?,
            errno @ 1..=MAX_ERRNO => Reply::Failed(errno as i32),
            _ => return None,
        };
        r.end()?;
        Some(reply)
    }
}

fn fields(r: &mut Reader<'_>, operation: u16) -> Option<Reply> {
    Some(match operation {
        operation::ATTACH => {
            let (version, root) = (r.u32()?, r.u64().filter(|root| *root != 0)?);
            Reply::Attached { version, root, attr: r.attr()?, statfs: r.statfs()? }
        }
        operation::WALK => {
            let own = r.attr()?;
            let (handle, errno, count) = (r.u64()?, r.u32()?, r.u32()?);
            let count = usize::try_from(count).ok().filter(|count| *count <= MAX_COMPONENTS)?;
            if errno > MAX_ERRNO || (errno != 0 && handle != 0) || r.0.len() != count * ATTR {
                return None;
            }
            Reply::Walked { own, attrs: (0..count).map(|_| r.attr()).collect::<Option<_>>()?, errno, handle }
        }
        operation::STAT | operation::MAKE | operation::SET_ATTR => Reply::Attr(r.attr()?),
        operation::OPEN
        | operation::OPEN_DIRECTORY
        | operation::CREATE
        | operation::CREATE_UNNAMED
        | operation::OPEN_AGAIN => Reply::Opened(r.attr()?),
        operation::READ_LINK | operation::READ_LINK_AGAIN => {
            Reply::Link { attr: r.attr()?, text: r.text()?.to_vec() }
        }
        operation::LIST => {
            let (next, count) = (r.u64()?, usize::try_from(r.u32()?).ok()?);
            if count > MAX_MESSAGE / ENTRY {
                return None;
            }
            let entries = (0..count).map(|_| entry(r)).collect::<Option<_>>()?;
            Reply::Entries { next, entries }
        }
        operation::GET_XATTR | operation::LIST_XATTR | operation::MARK => {
            Reply::Bytes(r.bytes(MAX_VALUE)?.to_vec())
        }
        operation::STAT_FS => Reply::StatFs(r.statfs()?),
        operation::LOOK => {
            let count = usize::try_from(r.u32()?).ok().filter(|count| *count <= MAX_LOOK)?;
            let found = |_| match r.u32()? {
                0 => Some(Found::Object { placed: r.bool()?, attr: r.attr()? }),
                errno @ 1..=MAX_ERRNO => Some(Found::Failed(errno as i32)),
                _ => None,
            };
            Reply::Looked((0..count).map(found).collect::<Option<_>>()?)
        }
        operation::CHANNEL
        | operation::LINK
        | operation::UNLINK
        | operation::RENAME
        | operation::SET_XATTR
        | operation::REMOVE_XATTR
        | operation::CLOSE => Reply::Done,
        _ => return None,
    })
}

fn entry(r: &mut Reader<'_>) -> Option<Entry> {
    let (ino, kind) = (r.u64()?, r.u8()?);
    let has_attr = match r.u8()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let name = r.bytes(MAX_NAME).filter(|name| is_name(name))?.to_vec();
    Some(Entry { ino, kind, name, attr: if has_attr { Some(r.attr()?) } else { None } })
}

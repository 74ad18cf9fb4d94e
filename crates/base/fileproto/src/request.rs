//! Requests.

use crate::wire::{Reader, Writer};
use crate::{Handle, Header, MAX_CLOSE, MAX_LOOK, MAX_NAME, MAX_PATH, MAX_VALUE, is_path, is_xattr_name};
use abi::time::Timespec;

/// Mode and owner of a new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Permission bits, at most 07777.
    pub mode: u32,
    /// User ID; u32::MAX leaves it as it comes.
    pub uid: u32,
    /// Group ID; u32::MAX leaves it as it comes.
    pub gid: u32,
}

/// How an object is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// O_PATH: a place, also of a symbolic link.
    Place,
    /// O_RDONLY.
    Read,
    /// O_WRONLY.
    Write,
    /// O_RDWR.
    ReadWrite,
    /// O_RDONLY of a directory.
    Directory,
}

impl Access {
    const ALL: [Access; 5] =
        [Access::Place, Access::Read, Access::Write, Access::ReadWrite, Access::Directory];
}

/// Which object the sender expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Device of the file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

/// The object of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A directory that the gofer has open.
    Directory(Handle),
    /// The object with a name; ESTALE where it is another one than expected.
    Named {
        /// The directory it is in.
        dir: Handle,
        /// Its name.
        name: &'a [u8],
        /// What it is to be.
        key: Key,
    },
    /// The object behind the descriptor in the message.
    Descriptor,
}

/// What kind of object is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A directory.
    Directory,
    /// A FIFO.
    Fifo,
    /// A socket without a listener.
    Socket,
    /// The character device 0:0, a whiteout of overlayfs.
    Whiteout,
    /// A symbolic link with this text.
    Symlink(&'a [u8]),
}

/// What becomes of a time stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// It stays.
    #[default]
    Keep,
    /// It becomes the present.
    Now,
    /// It becomes this.
    At(Timespec),
}

/// Attributes that change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Permission bits, at most 07777.
    pub mode: Option<u32>,
    /// User ID; u32::MAX is no change, as for chown(2).
    pub uid: Option<u32>,
    /// Group ID; u32::MAX is no change.
    pub gid: Option<u32>,
    /// Size in bytes, at most `i64::MAX`.
    pub size: Option<u64>,
    /// Last access.
    pub atime: SetTime,
    /// Last change of the content.
    pub mtime: SetTime,
}

/// An object that gets another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// The one with a name.
    Named {
        /// The directory it is in.
        dir: Handle,
        /// Its name.
        name: &'a [u8],
    },
    /// The regular file behind the descriptor in the message.
    Descriptor,
}

/// The numbers of the operations.
#[expect(missing_docs, reason = "each is described at its request")]
pub mod operation {
    pub const ATTACH: u16 = 1;
    pub const CHANNEL: u16 = 2;
    pub const WALK: u16 = 3;
    pub const STAT: u16 = 4;
    pub const OPEN: u16 = 5;
    pub const OPEN_DIRECTORY: u16 = 6;
    pub const CREATE: u16 = 7;
    pub const CREATE_UNNAMED: u16 = 8;
    pub const MAKE: u16 = 9;
    pub const LINK: u16 = 10;
    pub const UNLINK: u16 = 11;
    pub const RENAME: u16 = 12;
    pub const READ_LINK: u16 = 13;
    pub const LIST: u16 = 14;
    pub const SET_ATTR: u16 = 15;
    pub const GET_XATTR: u16 = 16;
    pub const SET_XATTR: u16 = 17;
    pub const LIST_XATTR: u16 = 18;
    pub const REMOVE_XATTR: u16 = 19;
    pub const STAT_FS: u16 = 20;
    pub const MARK: u16 = 21;
    pub const CLOSE: u16 = 22;
    pub const LOOK: u16 = 23;
    pub const OPEN_AGAIN: u16 = 24;
    pub const READ_LINK_AGAIN: u16 = 25;
}

/// What the kernel inside asks for. Symbolic links are never followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// The first request of a connection. [`crate::Reply::Attached`].
    Attach {
        /// [`crate::VERSION`].
        version: u32,
    },
    /// One more channel. [`crate::Reply::Done`] with a descriptor.
    Channel,
    /// The attributes of the objects along a path. [`crate::Reply::Walked`].
    Walk {
        /// Where the path begins.
        dir: Handle,
        /// Names with `/` between them.
        path: &'a [u8],
        /// Whether a directory at the end gets a handle.
        keep: bool,
    },
    /// The attributes of a directory. [`crate::Reply::Attr`].
    Stat {
        /// Which one.
        dir: Handle,
    },
    /// Opens an object. [`crate::Reply::Opened`] with a descriptor.
    Open {
        /// The directory it is in.
        dir: Handle,
        /// Its name.
        name: &'a [u8],
        /// How it is opened.
        access: Access,
    },
    /// Opens a directory for reading. [`crate::Reply::Opened`] with a descriptor.
    OpenDirectory {
        /// Which one.
        dir: Handle,
    },
    /// Makes a regular file and opens it for reading and writing; EEXIST when the name is there.
    /// [`crate::Reply::Opened`] with a descriptor.
    Create {
        /// The directory it gets into.
        dir: Handle,
        /// Its name.
        name: &'a [u8],
        /// Its mode and owner.
        rights: Rights,
    },
    /// Makes a regular file without a name (O_TMPFILE) and opens it for reading and writing. [`crate::Reply::Opened`]
    /// with a descriptor.
    CreateUnnamed {
        /// A directory of the file system that it gets into.
        dir: Handle,
        /// Its mode and owner.
        rights: Rights,
    },
    /// Makes an object of another kind. [`crate::Reply::Attr`].
    Make {
        /// The directory it gets into.
        dir: Handle,
        /// Its name.
        name: &'a [u8],
        /// What it is.
        kind: Kind<'a>,
        /// Its mode and owner; a symbolic link has only an owner.
        rights: Rights,
    },
    /// Gives an object another name. [`crate::Reply::Done`].
    Link {
        /// The object.
        from: Source<'a>,
        /// The directory of the new name.
        dir: Handle,
        /// The new name.
        name: &'a [u8],
    },
    /// Removes a name. [`crate::Reply::Done`].
    Unlink {
        /// The directory it is in.
        dir: Handle,
        /// The name.
        name: &'a [u8],
        /// Whether it is that of a directory (AT_REMOVEDIR).
        directory: bool,
    },
    /// Renames an object. [`crate::Reply::Done`].
    Rename {
        /// The directory of the old name.
        from_dir: Handle,
        /// The old name.
        from: &'a [u8],
        /// The directory of the new name.
        to_dir: Handle,
        /// The new name.
        to: &'a [u8],
        /// Those of renameat2(2).
        flags: u32,
    },
    /// The text of a symbolic link. [`crate::Reply::Link`].
    ReadLink {
        /// The directory it is in.
        dir: Handle,
        /// Its name.
        name: &'a [u8],
    },
    /// The names in a directory. [`crate::Reply::Entries`].
    List {
        /// Which directory.
        dir: Handle,
        /// 0 for the start, or `next` of the reply before.
        cookie: u64,
        /// Whether the attributes of the objects are wanted.
        attributes: bool,
    },
    /// Changes attributes: the size first, then the owner, the mode and the times. [`crate::Reply::Attr`], as they are
    /// afterwards.
    SetAttr {
        /// The object.
        target: Target<'a>,
        /// What changes.
        changes: Changes,
    },
    /// The value of an extended attribute. [`crate::Reply::Bytes`].
    GetXattr {
        /// The object.
        target: Target<'a>,
        /// The attribute's name.
        name: &'a [u8],
    },
    /// Sets an extended attribute. [`crate::Reply::Done`].
    SetXattr {
        /// The object.
        target: Target<'a>,
        /// The attribute's name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// Those of setxattr(2).
        flags: u32,
    },
    /// The names of the extended attributes, each with a NUL behind it. [`crate::Reply::Bytes`].
    ListXattr {
        /// The object.
        target: Target<'a>,
    },
    /// Removes an extended attribute. [`crate::Reply::Done`].
    RemoveXattr {
        /// The object.
        target: Target<'a>,
        /// The attribute's name.
        name: &'a [u8],
    },
    /// The figures of the file system that a directory is in. [`crate::Reply::StatFs`].
    StatFs {
        /// Which directory.
        dir: Handle,
    },
    /// Marks an object in the group of fanotify(7) that is the message's descriptor, or takes the mark back.
    /// [`crate::Reply::Bytes`]: the object's handle as events have it.
    Mark {
        /// The object; not [`Target::Descriptor`].
        target: Target<'a>,
        /// Those events.
        mask: u64,
        /// Whether the mark is taken back.
        remove: bool,
    },
    /// Closes directories; unknown handles are passed over. [`crate::Reply::Done`].
    Close {
        /// At most [`MAX_CLOSE`].
        handles: Vec<Handle>,
    },
    /// The attributes of several objects in a directory. [`crate::Reply::Looked`].
    Look {
        /// Which directory.
        dir: Handle,
        /// Whether O_PATH descriptors of the regular files are wanted.
        places: bool,
        /// Their names, 1 to [`MAX_LOOK`].
        names: Vec<&'a [u8]>,
    },
    /// Opens the regular file behind the descriptor in the message once more, whatever has become of its names.
    /// [`crate::Reply::Opened`] with a descriptor.
    OpenAgain {
        /// How it is opened: for reading, writing or both.
        access: Access,
    },
    /// The text of the symbolic link behind the descriptor in the message. [`crate::Reply::Link`].
    ReadLinkAgain,
}

/// The header of a message.
pub fn header(bytes: &[u8]) -> Option<Header> {
    Reader::new(bytes).map(|(header, _)| header)
}

impl Request<'_> {
    /// Its number.
    pub fn operation(&self) -> u16 {
        match self {
            Request::Attach { .. } => operation::ATTACH,
            Request::Channel => operation::CHANNEL,
            Request::Walk { .. } => operation::WALK,
            Request::Stat { .. } => operation::STAT,
            Request::Open { .. } => operation::OPEN,
            Request::OpenDirectory { .. } => operation::OPEN_DIRECTORY,
            Request::Create { .. } => operation::CREATE,
            Request::CreateUnnamed { .. } => operation::CREATE_UNNAMED,
            Request::Make { .. } => operation::MAKE,
            Request::Link { .. } => operation::LINK,
            Request::Unlink { .. } => operation::UNLINK,
            Request::Rename { .. } => operation::RENAME,
            Request::ReadLink { .. } => operation::READ_LINK,
            Request::List { .. } => operation::LIST,
            Request::SetAttr { .. } => operation::SET_ATTR,
            Request::GetXattr { .. } => operation::GET_XATTR,
            Request::SetXattr { .. } => operation::SET_XATTR,
            Request::ListXattr { .. } => operation::LIST_XATTR,
            Request::RemoveXattr { .. } => operation::REMOVE_XATTR,
            Request::StatFs { .. } => operation::STAT_FS,
            Request::Mark { .. } => operation::MARK,
            Request::Close { .. } => operation::CLOSE,
            Request::Look { .. } => operation::LOOK,
            Request::OpenAgain { .. } => operation::OPEN_AGAIN,
            Request::ReadLinkAgain => operation::READ_LINK_AGAIN,
        }
    }

    /// As bytes, from a sender that does not say on which processor it waits.
    pub fn encode(&self, sequence: u32) -> Vec<u8> {
        self.encode_on(sequence, 0)
    }

    /// The same; `processor`: see [`Header`].
    pub fn encode_on(&self, sequence: u32, processor: u16) -> Vec<u8> {
        let mut w = Writer::new(Header { sequence, operation: self.operation(), processor });
        match self {
            Request::Attach { version } => w.u32(*version),
            Request::Channel | Request::ReadLinkAgain => {}
            Request::Walk { dir, path, keep } => {
                w.u64(*dir);
                w.u32((*keep).into());
                w.bytes(path);
            }
            Request::Stat { dir } | Request::OpenDirectory { dir } | Request::StatFs { dir } => w.u64(*dir),
            Request::Open { dir, name, access } => {
                w.u64(*dir);
                w.u32(*access as u32);
                w.bytes(name);
            }
            Request::Create { dir, name, rights } => {
                w.u64(*dir);
                write_rights(&mut w, *rights);
                w.bytes(name);
            }
            Request::CreateUnnamed { dir, rights } => {
                w.u64(*dir);
                write_rights(&mut w, *rights);
            }
            Request::Make { dir, name, kind, rights } => {
                w.u64(*dir);
                write_rights(&mut w, *rights);
                let (number, text) = match *kind {
                    Kind::Directory => (0, None),
                    Kind::Fifo => (1, None),
                    Kind::Socket => (2, None),
                    Kind::Whiteout => (3, None),
                    Kind::Symlink(text) => (4, Some(text)),
                };
                w.u32(number);
                w.bytes(name);
                if let Some(text) = text {
                    w.bytes(text);
                }
            }
            Request::Link { from, dir, name } => {
                w.u64(*dir);
                w.bytes(name);
                match from {
                    Source::Named { dir, name } => {
                        w.u32(0);
                        w.u64(*dir);
                        w.bytes(name);
                    }
                    Source::Descriptor => w.u32(1),
                }
            }
            Request::Unlink { dir, name, directory } => {
                w.u64(*dir);
                w.u32((*directory).into());
                w.bytes(name);
            }
            Request::Rename { from_dir, from, to_dir, to, flags } => {
                w.u64(*from_dir);
                w.u64(*to_dir);
                w.u32(*flags);
                w.bytes(from);
                w.bytes(to);
            }
            Request::ReadLink { dir, name } => {
                w.u64(*dir);
                w.bytes(name);
            }
            Request::List { dir, cookie, attributes } => {
                w.u64(*dir);
                w.u64(*cookie);
                w.u32((*attributes).into());
            }
            Request::SetAttr { target, changes } => {
                write_target(&mut w, target);
                write_changes(&mut w, changes);
            }
            Request::GetXattr { target, name } | Request::RemoveXattr { target, name } => {
                write_target(&mut w, target);
                w.bytes(name);
            }
            Request::SetXattr { target, name, value, flags } => {
                write_target(&mut w, target);
                w.u32(*flags);
                w.bytes(name);
                w.bytes(value);
            }
            Request::ListXattr { target } => write_target(&mut w, target),
            Request::Mark { target, mask, remove } => {
                write_target(&mut w, target);
                w.u64(*mask);
                w.u32((*remove).into());
            }
            Request::Close { handles } => {
                w.u32(u32::try_from(handles.len()).unwrap_or(u32::MAX));
                for handle in handles {
                    w.u64(*handle);
                }
            }
            Request::Look { dir, places, names } => {
                w.u64(*dir);
                w.u32((*places).into());
                w.u32(u32::try_from(names.len()).unwrap_or(u32::MAX));
                names.iter().for_each(|name| w.bytes(name));
            }
            Request::OpenAgain { access } => w.u32(*access as u32),
        }
        w.0
    }
}

impl<'a> Request<'a> {
    /// Header and request from bytes; nothing for what is no request.
    pub fn decode(bytes: &'a [u8]) -> Option<(Header, Request<'a>)> {
        let (header, mut r) = Reader::new(bytes)?;
        let r = &mut r;
        let request = match header.operation {
            operation::ATTACH => Request::Attach { version: r.u32()? },
            operation::CHANNEL => Request::Channel,
            operation::WALK => {
                let (dir, keep) = (r.u64()?, r.bool()?);
                Request::Walk { dir, path: r.bytes(MAX_PATH).filter(|path| is_path(path))?, keep }
            }
            operation::STAT => Request::Stat { dir: r.u64()? },
            operation::OPEN => {
                let (dir, access) = (r.u64()?, access(r)?);
                Request::Open { dir, name: r.name()?, access }
            }
            operation::OPEN_DIRECTORY => Request::OpenDirectory { dir: r.u64()? },
            operation::CREATE => {
                let (dir, rights) = (r.u64()?, rights(r)?);
                Request::Create { dir, name: r.name()?, rights }
            }
            operation::CREATE_UNNAMED => Request::CreateUnnamed { dir: r.u64()?, rights: rights(r)? },
            operation::MAKE => {
                let (dir, rights, kind, name) = (r.u64()?, rights(r)?, r.u32()?, r.name()?);
                let kind = match kind {
                    0 => Kind::Directory,
                    1 => Kind::Fifo,
                    2 => Kind::Socket,
                    3 => Kind::Whiteout,
                    4 => Kind::Symlink(r.text()?),
                    _ => return None,
                };
                Request::Make { dir, name, kind, rights }
            }
            operation::LINK => {
                let (dir, name) = (r.u64()?, r.name()?);
                let from = match r.u32()? {
                    0 => Source::Named { dir: r.u64()?, name: r.name()? },
                    1 => Source::Descriptor,
                    _ => return None,
                };
                Request::Link { from, dir, name }
            }
            operation::UNLINK => {
                let (dir, directory) = (r.u64()?, r.bool()?);
                Request::Unlink { dir, name: r.name()?, directory }
            }
            operation::RENAME => {
                let (from_dir, to_dir, flags) = (r.u64()?, r.u64()?, r.u32()?);
                Request::Rename { from_dir, from: r.name()?, to_dir, to: r.name()?, flags }
            }
            operation::READ_LINK => Request::ReadLink { dir: r.u64()?, name: r.name()? },
            operation::LIST => Request::List { dir: r.u64()?, cookie: r.u64()?, attributes: r.bool()? },
            operation::SET_ATTR => Request::SetAttr { target: target(r)?, changes: changes(r)? },
            operation::GET_XATTR => Request::GetXattr { target: target(r)?, name: xattr_name(r)? },
            operation::SET_XATTR => {
                let (target, flags) = (target(r)?, r.u32()?);
                Request::SetXattr { target, name: xattr_name(r)?, value: r.bytes(MAX_VALUE)?, flags }
            }
            operation::LIST_XATTR => Request::ListXattr { target: target(r)? },
            operation::REMOVE_XATTR => Request::RemoveXattr { target: target(r)?, name: xattr_name(r)? },
            operation::STAT_FS => Request::StatFs { dir: r.u64()? },
            operation::MARK => Request::Mark { target: target(r)?, mask: r.u64()?, remove: r.bool()? },
            operation::CLOSE => {
                let count = usize::try_from(r.u32()?).ok().filter(|count| *count <= MAX_CLOSE)?;
                Request::Close { handles: (0..count).map(|_| r.u64()).collect::<Option<_>>()? }
            }
            operation::LOOK => {
                let (dir, places, count) = (r.u64()?, r.bool()?, usize::try_from(r.u32()?).ok()?);
                if !(1..=MAX_LOOK).contains(&count) {
                    return None;
                }
                Request::Look { dir, places, names: (0..count).map(|_| r.name()).collect::<Option<_>>()? }
            }
            operation::OPEN_AGAIN => Request::OpenAgain { access: access(r)? },
            operation::READ_LINK_AGAIN => Request::ReadLinkAgain,
            _ => return None,
        };
        r.end()?;
        Some((header, request))
    }
}

fn access(r: &mut Reader<'_>) -> Option<Access> {
    Access::ALL.get(usize::try_from(r.u32()?).ok()?).copied()
}

fn write_rights(w: &mut Writer, Rights { mode, uid, gid }: Rights) {
    for value in [mode, uid, gid] {
        w.u32(value);
    }
}

fn rights(r: &mut Reader<'_>) -> Option<Rights> {
    Some(Rights { mode: r.mode()?, uid: r.u32()?, gid: r.u32()? })
}

fn xattr_name<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
    r.bytes(MAX_NAME).filter(|name| is_xattr_name(name))
}

fn write_target(w: &mut Writer, target: &Target<'_>) {
    match target {
        Target::Directory(dir) => {
            w.u32(0);
            w.u64(*dir);
        }
        Target::Named { dir, name, key } => {
            w.u32(1);
            w.u64(*dir);
            w.u64(key.dev);
            w.u64(key.ino);
            w.bytes(name);
        }
        Target::Descriptor => w.u32(2),
    }
}

fn target<'a>(r: &mut Reader<'a>) -> Option<Target<'a>> {
    match r.u32()? {
        0 => Some(Target::Directory(r.u64()?)),
        1 => {
            let (dir, key) = (r.u64()?, Key { dev: r.u64()?, ino: r.u64()? });
            Some(Target::Named { dir, name: r.name()?, key })
        }
        2 => Some(Target::Descriptor),
        _ => None,
    }
}

/// Bits of the word that says which changes follow: mode, user ID, group ID and size; then two bits for each time.
const MODE: u32 = 1;
const UID: u32 = 2;
const GID: u32 = 4;
const SIZE: u32 = 8;
const ATIME: u32 = 4;
const MTIME: u32 = 6;
const ALL_CHANGES: u32 = 0xff;

fn write_changes(w: &mut Writer, changes: &Changes) {
    let Changes { mode, uid, gid, size, atime, mtime } = *changes;
    let bit = |there: bool, bit: u32| if there { bit } else { 0 };
    let time = |time: SetTime, at: u32| match time {
        SetTime::Keep => 0,
        SetTime::Now => 1 << at,
        SetTime::At(_) => 2 << at,
    };
    let rights = bit(mode.is_some(), MODE) | bit(uid.is_some(), UID) | bit(gid.is_some(), GID);
    w.u32(rights | bit(size.is_some(), SIZE) | time(atime, ATIME) | time(mtime, MTIME));
    for value in [mode, uid, gid].into_iter().flatten() {
        w.u32(value);
    }
    if let Some(size) = size {
        w.u64(size);
    }
    for time in [atime, mtime] {
        if let SetTime::At(time) = time {
            w.time(time);
        }
    }
}

fn changes(r: &mut Reader<'_>) -> Option<Changes> {
    let given = r.u32().filter(|given| given & !ALL_CHANGES == 0)?;
    let has = |bit: u32| given & bit != 0;
    let mode = if has(MODE) { Some(r.mode()?) } else { None };
    let uid = if has(UID) { Some(r.u32()?) } else { None };
    let gid = if has(GID) { Some(r.u32()?) } else { None };
    let size = if has(SIZE) { Some(r.size()?) } else { None };
    let mut time = |at: u32| match given >> at & 3 {
        0 => Some(SetTime::Keep),
        1 => Some(SetTime::Now),
        2 => r.time().map(SetTime::At),
        _ => None,
    };
    let (atime, mtime) = (time(ATIME)?, time(MTIME)?);
    Some(Changes { mode, uid, gid, size, atime, mtime })
}

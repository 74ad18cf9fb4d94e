//! The differences between an overlay and the layers below it, as a stream of records. The kernel inside writes the
//! stream, processes outside read it.
//!
//! The stream is a walk of the tree. A [`Node`] names an object of the current directory. The node of a directory
//! enters it, [`Record::Up`] leaves it. Extended attributes ([`Record::Xattr`]) and content ([`Record::Data`]) follow
//! the node that they belong to. The first node is the root, without a name. [`Record::End`] is last: a stream without
//! it is incomplete. A writer that cannot finish ends the stream with [`Record::Abort`].
//!
//! A reader trusts nothing. [`Reader`] checks each record by itself and its place in the walk: a name is one component
//! of a path, lengths and depth are bounded, content lies within the size, a link refers to an object that came
//! before.

#![forbid(unsafe_code)]

mod codec;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use serde::{Deserialize, Serialize};

pub use reader::Reader;
pub use writer::Writer;

/// Longest name of an object, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link.
pub const TARGET_MAX: usize = 4095;
/// Most bytes of one [`Record::Data`].
pub const DATA_MAX: usize = 128 << 10;
/// Longest value of an extended attribute.
pub const VALUE_MAX: usize = 64 << 10;
/// Most bytes of names and values of one object's extended attributes.
pub const XATTRS_MAX: usize = 2 << 20;
/// Longest path of an object, from the root on and without a `/` before it.
pub const PATH_MAX: usize = 64 << 10;
/// Most directories below each other.
pub const DEPTH_MAX: usize = 1024;
/// Most objects with several names.
pub const SHARED_MAX: usize = 1 << 20;
/// Longest record.
pub(crate) const FRAME_MAX: usize = DATA_MAX + 64;

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Names: there is no content in it.
    List,
    /// A layer: all content of each regular file in it, whether that has changed or not.
    Layer,
    /// To be carried out on the uppermost layer, which shows the changes afterwards: content that is not there yet.
    WriteBack,
}

/// Types of objects, as in the upper bits of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    Char,
    /// A block device.
    Block,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
}

impl Kind {
    /// The type in a mode; `None` for a number that is none.
    pub fn of_mode(mode: u32) -> Option<Kind> {
        Some(match mode & 0o170000 {
            0o100000 => Kind::Regular,
            0o040000 => Kind::Directory,
            0o120000 => Kind::Symlink,
            0o020000 => Kind::Char,
            0o060000 => Kind::Block,
            0o010000 => Kind::Fifo,
            0o140000 => Kind::Socket,
            _ => return None,
        })
    }
}

/// How an object differs from what the layers have under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not at all: a directory on the way to what does.
    Kept,
    /// The same object with other attributes; of a directory, with other names.
    Changed,
    /// The same regular file with other content. With `shared` it has names besides this one in the
    /// layers, which show the new content as well.
    Rewritten {
        /// It has several names in the layers.
        shared: bool,
    },
    /// Not there, or something else: all that is below it follows.
    New,
    /// One more name of the object of this [`Node::id`], which came before.
    Link,
}

/// Attributes of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device.
    pub rdev: u64,
    /// Bytes of a regular file.
    pub size: u64,
    /// Last access: seconds, nanoseconds.
    pub atime: (i64, u32),
    /// Last change of the content.
    pub mtime: (i64, u32),
}

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// Its name in the current directory; empty for the root.
    pub name: &'a [u8],
    /// How it differs.
    pub state: State,
    /// The layers have another object of that name.
    pub hides: bool,
    /// A number for an object that may have further names; 0 for others.
    pub id: u64,
    /// Attributes, for a [`State::Link`] too.
    pub meta: Meta,
    /// Where a symbolic link leads; empty for others.
    pub target: &'a [u8],
}

impl Node<'_> {
    /// Its type.
    pub fn kind(&self) -> Kind {
        // Checked where it came in.
        Kind::of_mode(self.meta.mode).unwrap_or(Kind::Regular)
    }

    /// Whether content may follow.
    pub fn has_content(&self) -> bool {
        self.kind() == Kind::Regular && self.state != State::Link
    }
}

/// One step of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// An object. A directory, unless it is [`State::Link`], is entered by it.
    Node(Node<'a>),
    /// An extended attribute of the last node. One that is not [`State::Link`] has all that there are.
    Xattr {
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// Content of the last node, which is a regular file; what no record has is a hole.
    Data {
        /// Where it begins.
        offset: u64,
        /// At least one byte.
        bytes: &'a [u8],
    },
    /// The layers have an object of that name in the current directory, which is gone.
    Removed {
        /// Its name.
        name: &'a [u8],
    },
    /// The current directory is done: back to its parent.
    Up,
    /// So many objects, or attributes of some, are left out of the stream because its bounds do not allow them. Comes in
    /// the root, at most once.
    Omitted {
        /// How many; not 0.
        count: u64,
    },
    /// The root is done.
    End,
    /// There is no more, though the root is not done: something went wrong.
    Abort,
}

/// Whether bytes can be the name of an object in a directory.
pub fn is_name(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

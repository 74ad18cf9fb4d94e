//! A tree in memory as plain data, and back, for a checkpoint.
//!
//! [`Tree::of`] finds the nodes and says what they are, [`Tree::write`] adds the content of files, [`TreeState::restore`]
//! makes a tree the same that was built from the same specification. Nodes are known by their inode numbers.
//!
//! A node of an overlay that is *in place* ([`NodeState::below`]) has the name in the layers that it started with. It is
//! found there again, and the state has only what differs; a node in place that does not differ is not in the state. All
//! other nodes are in the state as a whole. Nothing may change meanwhile.

mod restore;
mod save;
#[cfg(test)]
mod tests;

pub use save::Tree;

use crate::content::ContentState;
use abi::time::Timespec;
use serde::{Deserialize, Serialize};

/// A tree as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeState {
    /// Device number of the instance. A restored one may have another.
    pub dev: u64,
    /// The next inode number.
    pub next: u64,
    /// The root's inode number.
    pub root: u64,
    /// The nodes. Those that no name leads to are open.
    pub nodes: Vec<NodeState>,
}

/// A node as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// Inode number.
    pub ino: u64,
    /// It is found in the layers by its name.
    pub below: bool,
    /// Something differs from the layers.
    pub changed: bool,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device.
    pub rdev: u64,
    /// Names.
    pub nlink: u64,
    /// Times of access, change of content and change of attributes.
    pub times: [Timespec; 3],
    /// Time of creation.
    pub created: Option<Timespec>,
    /// Extended attributes; `None` for those of the layers.
    pub xattrs: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    /// The access list and the default one.
    pub acls: [AclState; 2],
    /// What it holds.
    pub body: BodyState,
}

/// An access control list as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AclState {
    /// That of the layers, if there is one.
    Below,
    /// None.
    None,
    /// As an extended attribute.
    List(Vec<u8>),
}

/// What a node holds, as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BodyState {
    /// A directory.
    Dir(DirState),
    /// A regular file; `None` for content that is still the layers'.
    File(Option<ContentState>),
    /// A symbolic link.
    Link(Vec<u8>),
    /// A device, FIFO or socket.
    Special,
}

/// A directory as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirState {
    /// Names that differ from the layers, and those of nodes in place that the state has.
    pub entries: Vec<EntryState>,
    /// The next offset to be given out.
    pub next: u64,
    /// It was removed.
    pub dead: bool,
}

/// A name as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryState {
    /// The name.
    pub name: Vec<u8>,
    /// The node's number; `None` for a name of the layers that was removed.
    pub node: Option<u64>,
    /// Its offset in the directory; 0 for a name of the layers.
    pub offset: u64,
    /// The layers have another object of that name.
    pub hides: bool,
}

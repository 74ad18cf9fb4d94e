//! Traits for the lower objects that a tree in memory is a view of until it is changed. The crate `rootfs_overlay` implements
//! them.
//!
//! Key types: [`Layers`], [`LowerInode`], [`LowerDir`], [`LowerFile`], and [`View`], which a node is made from. Invariant:
//! lower objects do not change. A lower directory may be called with the lock of a node's names held.

use crate::fs::TmpFs;
pub use crate::lower_file::LowerFile;
use crate::node::Node;
use abi::Result;
use abi::stat::Attr;
use rights::acl::{Acl, AclKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use vfs::{Caller, DirEntry};

/// Extended attributes by name.
pub type XattrMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// The read-only trees below an instance.
pub trait Layers: Send + Sync {
    /// Type of the file system as in /proc/filesystems.
    fn kind(&self) -> &'static str;
    /// Its magic number in statfs(2).
    fn magic(&self) -> i64;
    /// Another process answers lookups in one of them ([`vfs::DirInode::looks_ahead`]).
    fn looks_ahead(&self) -> bool;
    /// An inode with several names in the layers differs from them now: it is to be found under each of its names for as long
    /// as it has one. Called without locks.
    fn changed(&self, node: Arc<Node>);
    /// The last name of an inode is gone.
    fn unlinked(&self, node: &Node);
    /// The last mount is gone: let go of cycles.
    fn unmounted(&self);
}

/// The inode that a node starts as.
pub trait LowerInode: Send + Sync {
    /// Size in bytes of a symbolic link.
    fn size(&self) -> u64;
    /// Target of a symbolic link.
    fn readlink(&self, cx: &dyn Caller) -> Result<Vec<u8>>;
    /// All extended attributes but the access control lists.
    fn xattrs(&self, cx: &dyn Caller) -> Result<XattrMap>;
    /// An access control list.
    fn acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>>;
}

/// A directory that a node starts as.
pub trait LowerDir: Send + Sync {
    /// The node for a name; several names of one inode give one node. ENOENT.
    fn find(&self, cx: &dyn Caller, fs: &Arc<TmpFs>, name: &[u8]) -> Result<Arc<Node>>;
    /// See [`vfs::DirInode::look_ahead`].
    fn look_ahead(&self, _path: &[u8]) {}
    /// See [`vfs::DirInode::looked`].
    fn looked(&self) {}
    /// All names.
    fn list(&self, cx: &dyn Caller) -> Result<Arc<[DirEntry]>>;
}

/// What a node starts as, by type.
pub enum LowerBody {
    /// A directory.
    Dir(Box<dyn LowerDir>),
    /// A regular file.
    File(Box<dyn LowerFile>),
    /// A symbolic link.
    Link,
    /// A device, FIFO or socket.
    Special,
}

/// A node's start.
pub struct View {
    /// Attributes.
    pub attr: Attr,
    /// Inode number; a new one when absent.
    pub ino: Option<u64>,
    /// Content or names.
    pub body: LowerBody,
    /// The rest.
    pub inode: Box<dyn LowerInode>,
}

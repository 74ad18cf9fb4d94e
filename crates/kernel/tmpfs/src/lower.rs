//! Traits for the lower objects that a tree in memory is a view of until it is changed. The crate `overlay` implements
//! them.

use crate::fs::TmpFs;
use crate::node::Node;
use abi::Result;
use abi::stat::Attr;
use hostsys::memfd::CopyArea;
use rights::acl::{Acl, AclKind};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vfs::{Caller, DirEntry, Loan, MapRequest, Mapping};

/// Extended attributes by name.
pub type XattrMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// The read-only trees below an instance.
pub trait Layers: Send + Sync {
    /// Type of the file system as in /proc/filesystems.
    fn kind(&self) -> &'static str;
    /// Its magic number in statfs(2).
    fn magic(&self) -> i64;
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
    /// All names.
    fn list(&self, cx: &dyn Caller) -> Result<Arc<[DirEntry]>>;
}

/// The content that a regular file starts with.
pub trait LowerFile: Send + Sync {
    /// 512-byte blocks.
    fn blocks(&self) -> u64;
    /// Opens now, so that a failure shows in open(2).
    fn probe(&self, cx: &dyn Caller) -> Result<()>;
    /// Reads at `off`.
    fn read(&self, cx: &dyn Caller, buf: &mut [u8], off: u64) -> Result<usize>;
    /// See [`vfs::FileOps::read_to`].
    fn read_to(&self, cx: &dyn Caller, to: &CopyArea<'_>, len: usize, off: u64) -> Option<Result<usize>>;
    /// SEEK_DATA (`data`) or SEEK_HOLE from `off`.
    fn seek(&self, cx: &dyn Caller, off: u64, data: bool) -> Result<u64>;
    /// A mapping that cannot write.
    fn map(&self, cx: &dyn Caller, req: &MapRequest) -> Result<Mapping>;
    /// See [`vfs::MapOps::lend`].
    fn lend(&self, cx: &dyn Caller, off: u64, len: usize) -> Option<Loan>;
    /// See [`vfs::MapOps::image`]; nothing before it is opened.
    fn image(&self) -> Option<(u64, u64)>;
    /// See [`vfs::MapOps::image_fd`].
    fn image_fd(&self) -> Option<Arc<OwnedFd>>;
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

/// Drops nodes below `root` that are not in use and that are still as the layers have them.
pub(crate) fn trim(root: Arc<Node>) {
    let mut todo = vec![root];
    let mut order = Vec::new();
    // Of files with several names: under how many they are known.
    let mut names = HashMap::new();
    while let Some(n) = todo.pop() {
        if let Some(d) = n.names() {
            for n in d.lock().nodes() {
                if n.is_dir() {
                    todo.push(n.clone());
                } else if n.shared_below {
                    *names.entry(n.ino).or_insert(0) += 1;
                }
            }
            order.push(n);
        }
    }
    // Children come after their parents, so going backwards forgets leaves first.
    while let Some(n) = order.pop() {
        if let Some(d) = n.names() {
            d.lock().forget_clean(&names);
        }
    }
}

//! A tree of host files.
//!
//! Key type: [`HostFs`], which implements `vfs::FileSystem`. Neighbours: `node` has the inodes; `files` has what all trees
//! of a kernel share. Locks: the tables of nodes and of device numbers, leaves. A checkpoint can keep the path of the root
//! and the mode; nodes are found again.

use crate::files::HostFiles;
use crate::node::Node;
use crate::unix::TreeSockets;
use crate::watches::Coherence;
use abi::stat::StatFs;
use abi::time::Timespec;
use abi::{Errno, Result};
use hosttree::DirectoryRef;
use lock_order::Mutex;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use vfs::inode::{InternalFs, InternalInode};
use vfs::{FileSystem, InodeRef};

/// How a tree is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// No other process changes it and we only read it: everything is cached for good.
    Exclusive,
    /// Others on the host change it: everything is asked for again.
    Shared,
}

/// What in a shared tree is the host's: what connects to programs outside the sandbox, and which users can own files.
#[derive(Default)]
pub struct Outward {
    /// Opening a FIFO reaches the host's other end of it.
    pub fifos: bool,
    /// connect(2) reaches sockets of the host.
    pub sockets: Option<TreeSockets>,
    /// The mount maps owners: these users and groups can own files, ranges of (first, count).
    pub owners: Option<[Vec<(u32, u32)>; 2]>,
}

/// A tree of host files.
pub struct HostFs {
    pub(crate) home: Arc<HostFiles>,
    pub(crate) mode: Mode,
    pub(crate) readonly: bool,
    pub(crate) coherence: Coherence,
    /// Counts our own changes. Code that learns the attributes of a new node can so notice changes that it may have
    /// missed.
    pub(crate) writes: AtomicU64,
    /// What connects to programs outside.
    pub(crate) outward: Outward,
    pub(crate) top: DirectoryRef,
    root: Mutex<Option<Arc<Node>>>,
    /// Nodes in use of a shared tree by (host device, inode number), so that one file is one inode.
    pub(crate) nodes: read_biased_lock::RwLock<HashMap<(u64, u64), Weak<Node>>>,
    /// Name and options of the host's file system, as far as statfs(2) tells.
    kind: (&'static str, String),
    /// The host's file system says when an object was made, so that a new one under an old number is noticed.
    dated: bool,
    /// If the tree is an overlay: when its upper layer was made. What is older lies below. Programs cannot change the
    /// time at which an object was made.
    pub(crate) layer_made: Option<Timespec>,
}

impl HostFs {
    /// The tree below a directory. `exclusive`: the tree does not change while we run,
    /// neither by us nor by others. Otherwise it is shared with the host.
    pub fn new(home: &Arc<HostFiles>, root: DirectoryRef, exclusive: bool) -> Result<Arc<HostFs>> {
        HostFs::with(home, root, exclusive, Coherence::Strict, Outward::default(), false)
    }

    /// A tree shared with the host that follows its changes as exactly as `coherence` says.
    pub fn shared(
        home: &Arc<HostFiles>,
        root: DirectoryRef,
        coherence: Coherence,
        outward: Outward,
    ) -> Result<Arc<HostFs>> {
        HostFs::with(home, root, false, coherence, outward, false)
    }

    /// A tree that is an overlay of the host. Its upper layer was made for the container, after the lower ones.
    pub fn layered(
        home: &Arc<HostFiles>,
        root: DirectoryRef,
        exclusive: bool,
        coherence: Coherence,
    ) -> Result<Arc<HostFs>> {
        HostFs::with(home, root, exclusive, coherence, Outward::default(), true)
    }

    fn with(
        home: &Arc<HostFiles>,
        root: DirectoryRef,
        exclusive: bool,
        coherence: Coherence,
        outward: Outward,
        layered: bool,
    ) -> Result<Arc<HostFs>> {
        let mode = if exclusive { Mode::Exclusive } else { Mode::Shared };
        let attr = root.attr()?;
        if !attr.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        let kind = root.statfs().map_or(("ext4", String::new()), |s| kind(&s));
        let fs = Arc::new(HostFs {
            home: home.clone(),
            kind,
            mode,
            readonly: exclusive,
            coherence,
            writes: AtomicU64::new(0),
            outward,
            top: root,
            root: Mutex::new(None),
            nodes: read_biased_lock::RwLock::default(),
            dated: attr.btime.is_some(),
            // The root is the upper layer's own directory.
            layer_made: attr.btime.filter(|_| layered),
        });
        let node = Node::new(&fs, None, b"", attr, None);
        *fs.root.lock() = Some(node);
        if mode == Mode::Shared {
            home.add_tree(&fs);
        }
        Ok(fs)
    }

    /// This user and this group can own files. EOVERFLOW.
    pub(crate) fn check_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let Some([users, groups]) = &self.outward.owners else { return Ok(()) };
        let among = |ranges: &[(u32, u32)], id: u32| {
            ranges.iter().any(|(first, count)| id.checked_sub(*first).is_some_and(|n| n < *count))
        };
        let mapped = uid.is_none_or(|uid| among(users, uid)) && gid.is_none_or(|gid| among(groups, gid));
        if mapped { Ok(()) } else { Err(Errno::EOVERFLOW) }
    }

    /// Files that were open for reading stay so for a while.
    pub(crate) fn keeps_warm(&self) -> bool {
        self.mode == Mode::Shared && self.coherence == Coherence::Lagging
    }

    /// Descriptors tell attributes of files, because a question to a gofer costs more.
    pub(crate) fn keeps_places(&self) -> bool {
        self.mode == Mode::Shared && self.coherence == Coherence::Strict && self.top.is_another_process()
    }

    /// Directories are watched for what others change.
    pub(crate) fn is_watched(&self) -> bool {
        self.mode == Mode::Shared && self.coherence != Coherence::Unwatched
    }

    /// Takes note of what others have changed.
    pub(crate) fn settle(&self) {
        if self.is_watched() {
            self.home.watches.settle(self.coherence);
        }
    }
}

/// What /proc/mounts says of a file system of the host. One without a name here counts as a local disk's.
fn kind(s: &StatFs) -> (&'static str, String) {
    match s.f_type as u64 {
        0x0102_1994 if s.f_blocks == 0 => ("tmpfs", String::new()),
        0x0102_1994 => ("tmpfs", format!("size={}k", s.f_blocks.saturating_mul(s.f_bsize as u64) / 1024)),
        0x794c_7630 => ("overlay", String::new()),
        0x5846_5342 => ("xfs", String::new()),
        0x9123_683e => ("btrfs", String::new()),
        0x6969 => ("nfs", String::new()),
        0x6573_5546 => ("fuse", String::new()),
        0x2fc1_2fc1 => ("zfs", String::new()),
        _ => ("ext4", String::new()),
    }
}

impl FileSystem for HostFs {
    fn is_of_host(&self) -> bool {
        true
    }
    fn is_layer(&self) -> bool {
        true
    }
    fn opens_by_handle(&self) -> bool {
        self.dated
    }
    fn kind(&self) -> &'static str {
        self.kind.0
    }
    fn options(&self) -> String {
        self.kind.1.clone()
    }
    fn root(&self) -> InodeRef {
        match &*self.root.lock() {
            Some(r) => r.clone(),
            None => Arc::new(InternalInode::new(0, InternalFs::Anon, 0o600, 0, 0)),
        }
    }
    fn statfs(&self) -> Result<StatFs> {
        self.top.statfs()
    }
    fn revalidate(&self) -> bool {
        self.mode == Mode::Shared
    }
    fn confirms(&self) -> bool {
        self.mode == Mode::Shared && self.dated
    }
    fn unmounted(&self) {
        let root = self.root.lock().take();
        drop(root);
    }
}

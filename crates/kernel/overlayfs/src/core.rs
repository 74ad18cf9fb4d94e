//! An instance: its layers, the rights that it uses, and the inodes in use.

use crate::layers::{Layer, LayerFs, address};
use crate::node::{Key, Node};
use abi::stat::StatFs;
use abi::{Errno, Result};
use caller::quota::Charge;
use lock_order::Mutex;
use rights::{Cap, Credentials};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vfs::inode::{InternalFs, InternalInode};
use vfs::{As, Caller, Dentry, FileSystem, InodeRef, Path, Vfs};

/// OVERLAYFS_SUPER_MAGIC.
const MAGIC: i64 = 0x794c_7630;

/// An instance of overlayfs.
pub(crate) struct Core {
    pub me: OnceLock<Weak<Core>>,
    pub vfs: Arc<Vfs>,
    pub upper: Option<Layer>,
    pub lower: Vec<Layer>,
    /// Where things are made that then move into the upper layer.
    pub work: Option<Path>,
    /// The file systems of the layers.
    pub filesystems: Vec<LayerFs>,
    pub dev: u64,
    pub depth: u32,
    /// The most images that lie below one of its layers.
    pub images: u32,
    /// The rights that count below.
    pub creds: Arc<Credentials>,
    /// What the names of its own extended attributes begin with.
    pub prefix: &'static [u8],
    /// The upper layer cannot keep them.
    pub markless: bool,
    pub volatile: bool,
    /// Others change a layer: names are looked up each time.
    pub revalidates: bool,
    pub options: String,
    /// Tops of layers, which must not be met inside of a lower one.
    pub traps: HashSet<usize>,
    /// Nodes in use.
    pub nodes: Mutex<HashMap<Key, Weak<Node>>>,
    pub root: Mutex<Weak<Node>>,
    pub next_ino: AtomicU64,
    pub next_temp: AtomicU64,
    /// What the layers and the text of the options are charged as.
    pub _charges: Vec<Charge>,
}

impl Core {
    pub fn this(&self) -> Result<Arc<Core>> {
        self.me.get().and_then(Weak::upgrade).ok_or(Errno::ESTALE)
    }

    /// The caller with the rights of the mounter.
    pub fn over<'a>(&self, cx: &'a dyn Caller) -> As<'a> {
        As::new(cx, &self.creds)
    }

    /// All layers are of one file system, so that inode numbers are unique.
    pub fn is_same_fs(&self) -> bool {
        self.filesystems.len() == 1
    }

    /// The upper layer; EROFS.
    pub fn upper(&self) -> Result<&Layer> {
        self.upper.as_ref().ok_or(Errno::EROFS)
    }

    /// The work directory; EROFS.
    pub fn work(&self) -> Result<&Path> {
        self.work.as_ref().ok_or(Errno::EROFS)
    }

    /// Whether the mounter may do anything with directories of all layers.
    pub fn mounter_is_root(&self) -> bool {
        self.depth == 1 && self.creds.capable(Cap::DAC_OVERRIDE)
    }

    /// A fresh name in the work directory.
    pub fn temp_name(&self) -> Vec<u8> {
        format!("#{:x}", self.next_temp.fetch_add(1, Ordering::Relaxed)).into_bytes()
    }

    /// Whether what was found in a lower layer is the top of another one.
    pub fn is_trap(&self, dentry: &Arc<Dentry>) -> bool {
        self.traps.contains(&address(&dentry.inode))
    }

    /// Which of the file systems has this device number.
    pub fn fs_of(&self, dev: u64) -> Option<usize> {
        self.filesystems.iter().position(|f| f.dev == dev)
    }
}

impl FileSystem for Core {
    fn kind(&self) -> &'static str {
        "overlay"
    }
    fn content_is_elsewhere(&self) -> bool {
        true
    }
    fn root(&self) -> InodeRef {
        let mut root = self.root.lock();
        if let Some(known) = root.upgrade() {
            return known;
        }
        match self.this() {
            Ok(core) => {
                let new = Node::root(&core);
                *root = Arc::downgrade(&new);
                new
            }
            // The instance is not in use any more.
            Err(_) => Arc::new(InternalInode::new(0, InternalFs::Anon, 0o600, 0, 0)),
        }
    }
    fn statfs(&self) -> Result<StatFs> {
        let top = self.upper.as_ref().or(self.lower.first()).ok_or(Errno::EIO)?;
        let below = top.mount.fs().statfs()?;
        Ok(StatFs { f_type: MAGIC, ..below })
    }
    fn sync(&self) -> Result<()> {
        match &self.upper {
            Some(upper) if !self.volatile => upper.mount.fs().sync(),
            _ => Ok(()),
        }
    }
    fn revalidate(&self) -> bool {
        self.revalidates
    }
    fn stack_depth(&self) -> u32 {
        self.depth
    }
    fn images_below(&self) -> u32 {
        self.images
    }
    fn is_layer(&self) -> bool {
        true
    }
    fn is_fixed(&self) -> bool {
        self.upper.is_none()
    }
    fn options(&self) -> String {
        self.options.clone()
    }
}

//! A mounted image.

use crate::image::{Inode, MAGIC, Source, Super};
use crate::node::Node;
use crate::options::Options;
use abi::stat::StatFs;
use abi::{Errno, Result};
use lock_order::Mutex;
use loopdev::Image;
use rights::acl::{Acl, AclKind};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use tmpfs::{MemFiles, TmpFs};
use vfs::{Caller, FileSystem, InodeRef};

/// Bytes of memory that mapped files of one file system take.
const MAPPED: u64 = 2 << 30;

/// The image, read on behalf of a caller.
pub(crate) struct Reading<'a>(pub &'a Image, pub &'a dyn Caller);

impl Source for Reading<'_> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(self.1, at, buf)
    }
}

/// An inode with its access control lists.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub inode: Inode,
    pub acls: [Option<Arc<Acl>>; 2],
}

/// A file system.
pub(crate) struct ErofsFs {
    me: Weak<ErofsFs>,
    pub image: Image,
    pub sb: Super,
    pub dev: u64,
    pub options: Options,
    root: Loaded,
    /// Inodes in use, so that all names of one lead to one node.
    nodes: Mutex<HashMap<u64, Weak<Node>>>,
    memory: Arc<MemFiles>,
    /// Holds what is mapped.
    mapped: OnceLock<Arc<dyn FileSystem>>,
}

/// Reads an inode and its lists.
fn load(from: &dyn Source, sb: &Super, nid: u64, options: Options) -> Result<Loaded> {
    let inode = sb.inode(from, nid)?;
    let mut acls = [None, None];
    if options.acl && inode.mode & libc::S_IFMT != libc::S_IFLNK {
        let mut parsed = Ok(());
        sb.xattrs(from, &inode, &mut |name, value| {
            if let Some(kind) = AclKind::of_xattr(&name) {
                match Acl::from_xattr(value).and_then(|acl| {
                    acl.as_ref().map_or(Ok(()), Acl::validate)?;
                    Ok(acl)
                }) {
                    Ok(acl) => acls[usize::from(kind == AclKind::Default)] = acl.map(Arc::new),
                    Err(e) => parsed = Err(e),
                }
            }
            parsed.is_ok()
        })?;
        parsed?;
    }
    Ok(Loaded { inode, acls })
}

impl ErofsFs {
    pub fn new(
        cx: &dyn Caller,
        image: Image,
        options: Options,
        memory: &Arc<MemFiles>,
    ) -> Result<Arc<ErofsFs>> {
        let from = Reading(&image, cx);
        let sb = Super::read(&from)?;
        let root = load(&from, &sb, sb.root, options)?;
        if root.inode.mode & libc::S_IFMT != libc::S_IFDIR {
            return Err(Errno::EUCLEAN);
        }
        let dev = image.device_number().unwrap_or_else(|| cx.resources().device_numbers.alloc());
        Ok(Arc::new_cyclic(|me| ErofsFs {
            me: me.clone(),
            image,
            sb,
            dev,
            options,
            root,
            nodes: Mutex::default(),
            memory: memory.clone(),
            mapped: OnceLock::new(),
        }))
    }

    /// Where mapped files have their bytes.
    pub fn mapped(&self) -> &Arc<dyn FileSystem> {
        self.mapped.get_or_init(|| {
            let options = tmpfs::Options { size: Some(MAPPED), mode: 0o700, ..tmpfs::Options::default() };
            TmpFs::new(&self.memory, options)
        })
    }

    /// The inode of this number.
    pub fn node(&self, cx: &dyn Caller, nid: u64) -> Result<Arc<Node>> {
        if let Some(known) = self.known(nid) {
            return Ok(known);
        }
        let loaded = load(&Reading(&self.image, cx), &self.sb, nid, self.options)?;
        self.keep(loaded).ok_or(Errno::EIO)
    }

    fn known(&self, nid: u64) -> Option<Arc<Node>> {
        self.nodes.lock().get(&nid).and_then(Weak::upgrade)
    }

    /// The one node of an inode that was read. `None` when the file system is not in use any more.
    fn keep(&self, loaded: Loaded) -> Option<Arc<Node>> {
        let nid = loaded.inode.nid;
        let new = Node::new(self.me.upgrade()?, loaded);
        // A node that another thread made meanwhile. A node that is not needed is dropped without the lock, because its
        // drop takes the lock.
        let mut nodes = self.nodes.lock();
        let known = nodes.get(&nid).and_then(Weak::upgrade);
        if known.is_none() {
            nodes.insert(nid, Arc::downgrade(&new));
        }
        drop(nodes);
        Some(known.unwrap_or(new))
    }

    /// A node goes.
    pub fn gone(&self, node: &Node) {
        let mut nodes = self.nodes.lock();
        if nodes.get(&node.inode.nid).is_some_and(|known| std::ptr::eq(known.as_ptr(), node)) {
            nodes.remove(&node.inode.nid);
        }
    }
}

impl FileSystem for ErofsFs {
    fn kind(&self) -> &'static str {
        "erofs"
    }
    fn content_is_elsewhere(&self) -> bool {
        true
    }
    fn root(&self) -> InodeRef {
        let known = self.known(self.sb.root).or_else(|| self.keep(self.root.clone()));
        known.unwrap_or_else(|| unreachable!("somebody calls it"))
    }
    fn statfs(&self) -> Result<StatFs> {
        let (low, high) = self.sb.uuid.split_at(8);
        let word = |b: &[u8], at: usize| b[at..at + 4].iter().rev().fold(0u32, |n, &b| n << 8 | u32::from(b));
        let id = |at: usize| (word(low, at) ^ word(high, at)) as i32;
        Ok(StatFs {
            f_type: MAGIC.into(),
            f_bsize: 1 << self.sb.block_bits,
            f_blocks: self.sb.blocks,
            f_files: u64::MAX,
            f_ffree: u64::MAX.wrapping_sub(self.sb.inodes),
            f_fsid: [id(0), id(4)],
            f_namelen: 255,
            f_frsize: 1 << self.sb.block_bits,
            ..StatFs::default()
        })
    }
    fn is_layer(&self) -> bool {
        true
    }
    fn is_fixed(&self) -> bool {
        true
    }
    fn stays_read_only(&self) -> bool {
        true
    }
    fn images_below(&self) -> u32 {
        self.image.images_below()
    }
    fn options(&self) -> String {
        let word = |on: bool, name: &str| if on { name.to_owned() } else { format!("no{name}") };
        format!("{},{}", word(self.options.user_xattr, "user_xattr"), word(self.options.acl, "acl"))
    }
}

//! The layers as a whole: identities of their inodes, and the nodes that start as them.

use crate::dir::Merged;
use crate::file::File;
use abi::stat::Attr;
use abi::{Errno, Result};
use ranked::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tmpfs::lower::{Layers, LowerBody, LowerInode, View, XattrMap};
use tmpfs::{Node, TmpFs};
use vfs::dentry::{S_IFDIR, S_IFLNK, S_IFREG};
use vfs::{Caller, InodeRef};

/// Magic number of overlayfs in statfs(2).
const OVERLAYFS_SUPER_MAGIC: i64 = 0x794c_7630;

/// Bits of an inode number that the layers' own numbers have, where there are several devices.
const INO_BITS: u32 = 48;

/// The layers of one overlay.
pub(crate) struct Stack {
    me: Weak<Stack>,
    /// Devices of the layers' roots, each once. Inode numbers of the first are used as they are.
    devices: Vec<u64>,
    /// Inodes with several names, by (device, number): what was changed under one name must be found under another that
    /// nobody has looked up yet.
    links: Mutex<HashMap<(u64, u64), Arc<Node>>>,
}

impl Stack {
    /// The layers with these roots. ENOTDIR.
    pub fn new(roots: &[InodeRef]) -> Result<Arc<Stack>> {
        let mut devices = Vec::new();
        for root in roots {
            let attr = root.attr()?;
            if !attr.is_dir() {
                return Err(Errno::ENOTDIR);
            }
            if !devices.contains(&attr.dev) {
                devices.push(attr.dev);
            }
        }
        Ok(Arc::new_cyclic(|me| Stack { me: me.clone(), devices, links: Mutex::default() }))
    }

    /// The number under which an inode shows: its own, with the layers' device above it. `None` for inodes of file systems
    /// mounted below a layer, and for numbers that leave no room.
    pub fn ino(&self, dev: u64, ino: u64) -> Option<u64> {
        let device = self.devices.iter().position(|known| *known == dev)? as u64;
        match device {
            0 => Some(ino),
            _ if ino >> INO_BITS == 0 && device < 1 << (63 - INO_BITS) => Some(ino | device << INO_BITS),
            _ => None,
        }
    }

    /// The node for inodes of one name: a file, or directories to be merged, the uppermost first.
    pub fn node(&self, fs: &Arc<TmpFs>, inodes: Vec<InodeRef>) -> Result<Arc<Node>> {
        let view = self.view(inodes)?;
        let key = (view.attr.dev, view.attr.ino);
        if view.attr.nlink <= 1 || view.attr.is_dir() {
            return Ok(Node::view(fs.clone(), view));
        }
        if let Some(node) = self.links.lock().get(&key) {
            return Ok(node.clone());
        }
        // Made with the lock free; who comes second takes the first one's.
        let node = Node::view(fs.clone(), view);
        Ok(self.links.lock().entry(key).or_insert(node).clone())
    }

    /// What a node for these inodes starts as.
    pub fn view(&self, inodes: Vec<InodeRef>) -> Result<View> {
        let top = inodes.first().ok_or(Errno::ENOENT)?.clone();
        let mut attr = top.attr()?;
        let body = match attr.file_type() {
            S_IFDIR => {
                // As overlayfs: what is counted there are names of one layer.
                if inodes.len() > 1 {
                    attr.nlink = 1;
                }
                let stack = self.me.upgrade().ok_or(Errno::ESTALE)?;
                LowerBody::Dir(Box::new(Merged::new(stack, inodes)))
            }
            S_IFREG => LowerBody::File(Box::new(File::new(top.clone(), attr.blocks))),
            S_IFLNK => LowerBody::Link,
            _ => LowerBody::Special,
        };
        Ok(View { attr, ino: self.ino(attr.dev, attr.ino), body, inode: Box::new(Lower(top)) })
    }
}

impl Layers for Stack {
    fn kind(&self) -> &'static str {
        "overlay"
    }
    fn magic(&self) -> i64 {
        OVERLAYFS_SUPER_MAGIC
    }
    fn unmounted(&self) {
        let links = std::mem::take(&mut *self.links.lock());
        drop(links);
    }
}

/// A character device with number 0: the name is removed.
pub(crate) fn is_whiteout(attr: &Attr) -> bool {
    attr.file_type() == libc::S_IFCHR && attr.rdev == 0
}

/// An inode of a layer.
struct Lower(InodeRef);

impl LowerInode for Lower {
    fn size(&self) -> u64 {
        self.0.attr().map_or(0, |a| a.size)
    }
    fn readlink(&self, cx: &dyn Caller) -> Result<Vec<u8>> {
        self.0.as_link().ok_or(Errno::EINVAL)?.readlink(cx)
    }
    fn xattrs(&self, cx: &dyn Caller) -> Result<XattrMap> {
        let mut map = XattrMap::new();
        let Some(xattrs) = self.0.as_xattrs() else { return Ok(map) };
        let names = match xattrs.list_xattr(cx) {
            Err(Errno::EOPNOTSUPP) => return Ok(map),
            names => names?,
        };
        for name in names {
            // The attributes of a host overlay are not the image's.
            if !name.starts_with(b"trusted.overlay.")
                && let Ok(value) = xattrs.get_xattr(cx, &name)
            {
                map.insert(name, value);
            }
        }
        Ok(map)
    }
}

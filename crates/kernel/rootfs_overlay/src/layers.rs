//! The layers as a whole: identities of their inodes, and the nodes that start as them.

use crate::dir::Merged;
use crate::file::File;
use abi::stat::{Attr, S_IFDIR, S_IFLNK, S_IFREG};
use abi::{Errno, Result};
use lock_order::Mutex;
use rights::acl::{Acl, AclKind};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tmpfs::lower::{Layers, LowerBody, LowerInode, View, XattrMap};
use tmpfs::{Node, TmpFs};
use vfs::{Caller, DirInode, InodeRef};

/// Magic number of overlayfs in statfs(2).
const OVERLAYFS_SUPER_MAGIC: i64 = 0x794c_7630;

/// Bits of an inode number that the layers' own numbers have, where there are several devices.
const INO_BITS: u32 = 48;

/// The layers of one overlay.
pub(crate) struct Stack {
    me: Weak<Stack>,
    /// Names in the root that begin with this are not shown.
    hidden: Option<Vec<u8>>,
    /// Devices of the layers' roots, each once. Inode numbers of the first are used as they are.
    devices: Vec<u64>,
    /// Another process answers lookups in one of them.
    looks_ahead: bool,
    links: Mutex<Links>,
}

/// Inodes with several names: a change under one name must be found under another name that has not been looked up yet.
#[derive(Default)]
struct Links {
    /// By device and number below. One that is as in the layers may be forgotten.
    nodes: HashMap<(u64, u64), Weak<Node>>,
    /// Keys of `nodes` by the number shown.
    keys: HashMap<u64, (u64, u64)>,
    /// Those that differ from the layers, by the number shown.
    changed: HashMap<u64, Arc<Node>>,
}

impl Links {
    /// Forgets what is gone, when there is much of it.
    fn prune(&mut self) {
        if self.nodes.len() >= 1024 && self.nodes.len().is_power_of_two() {
            let nodes = &mut self.nodes;
            nodes.retain(|_, node| node.strong_count() != 0);
            self.keys.retain(|_, key| nodes.contains_key(key));
        }
    }
}

impl Stack {
    /// The layers with these roots, which show no names that begin with `hidden`. ENOTDIR.
    pub fn new(roots: &[InodeRef], hidden: Option<Vec<u8>>) -> Result<Arc<Stack>> {
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
        let looks_ahead = roots.iter().filter_map(|root| root.as_dir()).any(DirInode::looks_ahead);
        Ok(Arc::new_cyclic(|me| Stack {
            me: me.clone(),
            hidden,
            devices,
            looks_ahead,
            links: Mutex::default(),
        }))
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
        if let Some(node) = self.links.lock().nodes.get(&key).and_then(Weak::upgrade) {
            return Ok(node);
        }
        // Made with the lock free; the second thread takes the node of the first.
        let node = Node::view(fs.clone(), view);
        let mut links = self.links.lock();
        if let Some(first) = links.nodes.get(&key).and_then(Weak::upgrade) {
            drop(links);
            return Ok(first);
        }
        links.prune();
        links.nodes.insert(key, Arc::downgrade(&node));
        links.keys.insert(node.ino(), key);
        Ok(node)
    }

    /// What a node for these inodes starts as.
    pub fn view(&self, inodes: Vec<InodeRef>) -> Result<View> {
        self.view_of(inodes, None)
    }

    /// The same for the roots.
    pub fn root(&self, inodes: Vec<InodeRef>) -> Result<View> {
        self.view_of(inodes, self.hidden.clone())
    }

    fn view_of(&self, inodes: Vec<InodeRef>, hidden: Option<Vec<u8>>) -> Result<View> {
        let top = inodes.first().ok_or(Errno::ENOENT)?.clone();
        let mut attr = top.attr()?;
        let body = match attr.file_type() {
            S_IFDIR => {
                // As overlayfs: what is counted there are names of one layer.
                if inodes.len() > 1 {
                    attr.nlink = 1;
                }
                let stack = self.me.upgrade().ok_or(Errno::ESTALE)?;
                LowerBody::Dir(Box::new(Merged::new(stack, inodes, hidden)))
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
    fn looks_ahead(&self) -> bool {
        self.looks_ahead
    }
    fn changed(&self, node: Arc<Node>) {
        self.links.lock().changed.insert(node.ino(), node);
    }
    fn unlinked(&self, node: &Node) {
        let mut links = self.links.lock();
        if let Some(key) = links.keys.remove(&node.ino()) {
            links.nodes.remove(&key);
        }
        let gone = links.changed.remove(&node.ino());
        // Dropping it may free blocks of a store.
        drop(links);
        drop(gone);
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
                && AclKind::of_xattr(&name).is_none()
                && let Ok(value) = xattrs.get_xattr(cx, &name)
            {
                map.insert(name, value);
            }
        }
        Ok(map)
    }
    fn acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        self.0.as_acls().map_or(Ok(None), |acls| acls.acl(kind))
    }
}

//! An inode of an instance: its objects below, and the look-up of names.

use crate::core::Core;
use crate::layers::{Layer, address};
use crate::listing::Listing;
use crate::marks::{Opaque, Origin};
use abi::stat::Attr;
use abi::{Errno, Result};
use lock_order::{Mutex, rank};
use namei::stack;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vfs::attach::Attachments;
use vfs::{Caller, Dentry, InodeRef, Path};

/// An object of a lower layer.
#[derive(Clone)]
pub(crate) struct Lower {
    /// Which layer, counted from the top.
    pub layer: usize,
    pub dentry: Arc<Dentry>,
}

/// What a node is found by while it is in use.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// Its topmost object, by its address.
    Object(usize),
    /// Its directory's node, by its address, and its name there.
    Name(usize, Box<[u8]>),
}

/// What a name stands for.
#[derive(Default)]
pub(crate) struct LayerObjects {
    pub upper: Option<Arc<Dentry>>,
    /// Topmost first; more than one, or one below an upper object, for directories alone.
    pub lower: Vec<Lower>,
}

impl LayerObjects {
    /// The topmost object; ENOENT.
    pub fn top(&self) -> Result<&Arc<Dentry>> {
        self.upper.as_ref().or(self.lower.first().map(|l| &l.dentry)).ok_or(Errno::ENOENT)
    }

    /// No lower layer has a part in it.
    pub fn is_pure_upper(&self) -> bool {
        self.lower.is_empty()
    }

    /// What the node for `name` in `dir` is found by. A lower object with several names has a node for each: each gets a copy of
    /// its own.
    fn key(&self, dir: &Node, name: &[u8]) -> Result<Key> {
        let top = self.top()?;
        let one = self.upper.is_some() || top.is_dir() || top.inode.attr()?.nlink == 1;
        Ok(if one { Key::Object(address(&top.inode)) } else { Key::Name(dir.address(), Box::from(name)) })
    }
}

/// A directory and a name in it.
type Place = (Weak<Node>, Box<[u8]>);

/// An inode.
pub(crate) struct Node {
    pub me: Weak<Node>,
    pub core: Arc<Core>,
    pub kind: u32,
    /// The object of the upper layer, from when there is one.
    pub upper: OnceLock<Arc<Dentry>>,
    /// The objects of lower layers, topmost first.
    pub lower: Vec<Lower>,
    /// What the upper object is a copy of, if it is the only one.
    pub origin: OnceLock<Origin>,
    /// Of what is not in the upper layer yet: its directory and its name there. It does not move before it is copied up.
    place: Mutex<Option<Place>>,
    /// What it is found by, until it is copied up.
    key: Option<Key>,
    /// Inode number of a directory, where layers are of several file systems.
    ino: u64,
    /// Held while it is copied up.
    pub copying: Mutex<(), { rank::DIRECTORY }>,
    /// Counts the changes of a directory's names.
    pub version: AtomicU64,
    /// What open directories share of its names.
    pub listing: Mutex<Weak<Listing>>,
    pub attachments: Attachments,
}

impl Node {
    /// The top of an instance.
    pub fn root(core: &Arc<Core>) -> Arc<Node> {
        let lower = core.lower.iter().enumerate();
        let lower = lower.map(|(layer, l)| Lower { layer, dentry: l.root().clone() }).collect();
        let upper = core.upper.as_ref().map(|u| u.root().clone());
        Node::with(core, (None, None), libc::S_IFDIR, LayerObjects { upper, lower }, None)
    }

    fn with(
        core: &Arc<Core>,
        (place, key): (Option<Place>, Option<Key>),
        kind: u32,
        found: LayerObjects,
        origin: Option<Origin>,
    ) -> Arc<Node> {
        let numbered = kind == libc::S_IFDIR && !core.is_same_fs();
        let ino = if numbered { core.next_ino.fetch_add(1, Ordering::Relaxed) } else { 0 };
        Arc::new_cyclic(|me: &Weak<Node>| Node {
            me: me.clone(),
            core: core.clone(),
            kind,
            upper: found.upper.map(OnceLock::from).unwrap_or_default(),
            lower: found.lower,
            origin: origin.map(OnceLock::from).unwrap_or_default(),
            place: Mutex::new(place),
            key,
            ino,
            copying: Mutex::default(),
            version: AtomicU64::new(0),
            listing: Mutex::default(),
            attachments: Attachments::default(),
        })
    }

    /// The node for what was found as `name`. While one is in use, it is found again, so that what hangs on it is.
    pub fn of(&self, over: &dyn Caller, name: &[u8], found: LayerObjects) -> Result<Arc<Node>> {
        let kind = found.top()?.kind;
        let key = found.key(self, name)?;
        let place = || Some((self.me.clone(), Box::from(name)));
        let known = self.core.nodes.lock().get(&key).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.is_at(&key, self)) {
            if known.upper.get().is_none() {
                // The directory's own node may be another one by now.
                *known.place.lock() = place();
            }
            return Ok(known);
        }
        let origin = found.upper.as_ref().and_then(|upper| self.core.origin(over, &upper.inode));
        let place = if found.upper.is_none() { place() } else { None };
        let new = Node::with(&self.core, (place, Some(key.clone())), kind, found, origin);
        let mut nodes = self.core.nodes.lock();
        // Dropped after the lock, as it takes the lock when it goes.
        let met = nodes.get(&key).and_then(Weak::upgrade);
        let other = met.as_ref().filter(|met| met.is_at(&key, self)).cloned();
        if other.is_none() {
            nodes.insert(key, Arc::downgrade(&new));
        }
        drop(nodes);
        Ok(other.unwrap_or(new))
    }

    /// Whether what was found by `key` in `dir` is meant: the address may be a former node's.
    fn is_at(&self, key: &Key, dir: &Node) -> bool {
        let here = |place: &Place| Weak::ptr_eq(&place.0, &dir.me);
        matches!(key, Key::Object(_)) || self.place.lock().as_ref().is_some_and(here)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// It has been copied up.
    pub fn enter_copy(&self, upper: Arc<Dentry>, origin: Option<Origin>) {
        self.core.nodes.lock().insert(Key::Object(address(&upper.inode)), self.me.clone());
        if let Some(origin) = origin {
            let _ = self.origin.set(origin);
        }
        let _ = self.upper.set(upper);
    }

    pub fn this(&self) -> Result<Arc<Node>> {
        self.me.upgrade().ok_or(Errno::ESTALE)
    }

    /// The node behind an inode of this instance; EXDEV.
    pub fn behind<'a>(&self, inode: &'a InodeRef) -> Result<&'a Node> {
        let node = inode.as_any().downcast_ref::<Node>().ok_or(Errno::EXDEV)?;
        if Arc::ptr_eq(&node.core, &self.core) { Ok(node) } else { Err(Errno::EXDEV) }
    }

    /// Its directory and its name, before it is copied up.
    pub fn place(&self) -> Result<(Arc<Node>, Box<[u8]>)> {
        let place = self.place.lock();
        let (dir, name) = place.as_ref().ok_or(Errno::ESTALE)?;
        Ok((dir.upgrade().ok_or(Errno::ESTALE)?, name.clone()))
    }

    /// The object that is read and shown.
    pub fn real(&self) -> &Arc<Dentry> {
        match (self.upper.get(), self.lower.first()) {
            (Some(upper), _) => upper,
            (None, Some(lower)) => &lower.dentry,
            // Nothing is made without either.
            (None, None) => unreachable!("a node stands for something"),
        }
    }

    /// The layer of [`Node::real`].
    fn real_layer(&self) -> Option<&Layer> {
        match self.upper.get() {
            Some(_) => self.core.upper.as_ref(),
            None => self.core.lower.get(self.lower.first()?.layer),
        }
    }

    /// Whether it is a directory with parts in several layers.
    pub fn is_merged(&self) -> bool {
        self.lower.len() + usize::from(self.upper.get().is_some()) > 1 && self.kind == libc::S_IFDIR
    }

    /// No lower layer has a part in it.
    pub fn is_pure_upper(&self) -> bool {
        self.lower.is_empty()
    }

    /// A name in it has changed.
    pub fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Attributes. Device and inode number stay the same across copying up, as far as Linux keeps them.
    pub fn attributes(&self) -> Result<Attr> {
        let mut a = self.real().inode.attr()?;
        let own = Origin { fs: self.real_layer().map_or(0, |l| l.fs), ino: a.ino };
        let shown = self.origin.get().copied().unwrap_or(own);
        let same = self.core.is_same_fs();
        a.dev = self.core.dev;
        a.ino = shown.ino;
        if a.is_dir() {
            if !same {
                a.ino = self.ino;
            }
            if self.is_merged() {
                a.nlink = 1;
            }
        } else if !same {
            a.dev = self.core.filesystems.get(shown.fs).map_or(a.dev, |f| f.shown);
        }
        Ok(a)
    }

    /// What `name` stands for in this directory. ENOENT; ELOOP where a lower layer leads into another layer.
    pub fn find(&self, over: &dyn Caller, name: &[u8]) -> Result<LayerObjects> {
        let core = &self.core;
        let mut found = LayerObjects::default();
        if let (Some(dir), Some(layer)) = (self.upper.get(), &core.upper)
            && let Some(dentry) = present(stack::find(over, dir, name))?
        {
            if core.is_whiteout(over, layer, &dentry)? {
                return Err(Errno::ENOENT);
            }
            let below = self.goes_on(over, layer, &dentry, self.lower.is_empty())?;
            found.upper = Some(dentry);
            if !below {
                return Ok(found);
            }
        }
        for (i, dir) in self.lower.iter().enumerate() {
            let Some(layer) = core.lower.get(dir.layer) else { continue };
            let Some(dentry) = present(stack::find(over, &dir.dentry, name))? else { continue };
            if core.is_trap(&dentry) {
                return Err(Errno::ELOOP);
            }
            if core.is_whiteout(over, layer, &dentry)? {
                break;
            }
            let first = found.upper.is_none() && found.lower.is_empty();
            // A directory hides files of its name; a file is all there is.
            if !dentry.is_dir() && !first {
                break;
            }
            let below = self.goes_on(over, layer, &dentry, i + 1 == self.lower.len())?;
            found.lower.push(Lower { layer: dir.layer, dentry });
            if !below {
                break;
            }
        }
        found.top()?;
        Ok(found)
    }

    /// Whether what layers below have of an object shows: of a directory, unless it is opaque or in the `last` layer. EPERM for what
    /// has its content or its place elsewhere.
    fn goes_on(&self, over: &dyn Caller, layer: &Layer, object: &Arc<Dentry>, last: bool) -> Result<bool> {
        if !object.is_dir() {
            self.core.check_complete(over, object)?;
            return Ok(false);
        }
        if last {
            return Ok(false);
        }
        match self.core.opacity(over, &object.inode) {
            Opaque::Yes => return Ok(false),
            Opaque::XWhiteouts => layer.set_xwhiteouts(),
            Opaque::No => {}
        }
        self.core.check_complete(over, object)?;
        Ok(true)
    }

    /// Whether a lower layer has `name`, so that it would show if the upper layer had nothing.
    pub fn is_below(&self, over: &dyn Caller, name: &[u8]) -> Result<bool> {
        for dir in &self.lower {
            let Some(layer) = self.core.lower.get(dir.layer) else { continue };
            if let Some(dentry) = present(stack::find(over, &dir.dentry, name))? {
                return Ok(!self.core.is_whiteout(over, layer, &dentry)?);
            }
        }
        Ok(false)
    }

    /// Whether the upper layer has a whiteout for `name`; `dir` is this directory there. EEXIST for anything else.
    pub fn is_whited_out(&self, over: &dyn Caller, dir: &Path, name: &[u8]) -> Result<bool> {
        match present(stack::find(over, &dir.dentry, name))? {
            None => Ok(false),
            Some(dentry) if self.core.is_whiteout(over, self.core.upper()?, &dentry)? => Ok(true),
            Some(_) => Err(Errno::EEXIST),
        }
    }
}

/// `None` for what is not there.
fn present(found: Result<Arc<Dentry>>) -> Result<Option<Arc<Dentry>>> {
    match found {
        Ok(dentry) => Ok(Some(dentry)),
        Err(Errno::ENOENT | Errno::ENAMETOOLONG) => Ok(None),
        Err(e) => Err(e),
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let copy = self.upper.get().map(|upper| Key::Object(address(&upper.inode)));
        let mut nodes = self.core.nodes.lock();
        for key in self.key.take().into_iter().chain(copy) {
            // Another node may have taken its place.
            if nodes.get(&key).is_some_and(|known| known.strong_count() == 0) {
                nodes.remove(&key);
            }
        }
    }
}

//! The walk that reports the differences between a tree and the layers below it; see crate [`changes`].
//!
//! Directories are entered one after the other, without recursion. No lock is held while a record is passed on. The
//! caller stops the programs meanwhile; otherwise a concurrent change may or may not be reported.
//!
//! A node is *in place* while it has the same name in the same directory as in the layers. Only for a node in place can
//! the stream refer to the layers' object instead of sending all of it. When the layers will be changed (a write-back),
//! a node that is not in place first copies the content that it still has below, because the kernel uses it after the
//! layers have changed.

use crate::content::Need;
use crate::fs::TmpFs;
use crate::node::{Body, Item, Node};
use abi::{Errno, PAGE_SIZE as PAGE, Result};
use overlay_diff::{
    DATA_MAX, DEPTH_MAX, Meta, PATH_MAX, Purpose, Record, SHARED_MAX, State, TARGET_MAX, XATTRS_MAX,
};
use rights::acl::AclKind;
use std::collections::HashSet;
use std::sync::Arc;
use vfs::{AclInode, Caller, InodeRef, LinkInode, XattrInode};

/// Takes the records. An error ends the walk.
pub type Sink<'a> = dyn FnMut(&Record<'_>) -> Result<()> + 'a;

/// A directory on the way.
struct Level {
    node: Arc<Node>,
    name: Arc<[u8]>,
    items: std::vec::IntoIter<(Arc<[u8]>, Item)>,
    /// Its node has been told.
    told: bool,
    /// Bytes of its path and a `/` behind it.
    path: usize,
}

/// Tells the changes of the overlay that has `root` as its root. What lies too deep for a stream is left out, and
/// counted there. EOPNOTSUPP when that is no overlay, otherwise what `sink` or the layers say.
pub fn tell(cx: &dyn Caller, root: &InodeRef, purpose: Purpose, sink: &mut Sink<'_>) -> Result<()> {
    let root = Node::of(root).and_then(|node| node.me.upgrade()).ok_or(Errno::EOPNOTSUPP)?;
    if !root.fs.has_layers() || !root.is_dir() {
        return Err(Errno::EOPNOTSUPP);
    }
    if purpose == Purpose::WriteBack {
        root.fs.settle_orphans(cx)?;
    }
    Walk { cx, purpose, sink, named: HashSet::new(), levels: Vec::new(), omitted: 0 }.run(root)
}

struct Walk<'a, 'b> {
    cx: &'a dyn Caller,
    purpose: Purpose,
    sink: &'a mut Sink<'b>,
    /// Numbers of nodes with several names that were told.
    named: HashSet<u64>,
    levels: Vec<Level>,
    /// Objects and attributes that are not told.
    omitted: u64,
}

impl Walk<'_, '_> {
    fn run(mut self, root: Arc<Node>) -> Result<()> {
        let state = if root.is_clean_itself() { State::Kept } else { State::Changed };
        self.tell_node(&root, b"", state, false, false)?;
        self.enter(root, Arc::from(&b""[..]), true, true)?;
        while let Some(level) = self.levels.last_mut() {
            match level.items.next() {
                Some((name, item)) => self.item(name, item)?,
                None => {
                    let told = level.told;
                    self.levels.pop();
                    if told && !self.levels.is_empty() {
                        (self.sink)(&Record::Up)?;
                    }
                }
            }
        }
        if self.omitted != 0 {
            (self.sink)(&Record::Omitted { count: self.omitted })?;
        }
        (self.sink)(&Record::End)
    }

    /// Whether a stream can have a name of the current directory.
    fn fits(&self, name: &[u8], is_dir: bool) -> bool {
        let before = self.levels.last().map_or(0, |level| level.path);
        before + name.len() <= PATH_MAX && !(is_dir && self.levels.len() >= DEPTH_MAX)
    }

    fn item(&mut self, name: Arc<[u8]>, item: Item) -> Result<()> {
        let is_dir =
            matches!(&item, Item::Kept(node) | Item::New(node) | Item::Hiding(node) if node.is_dir());
        if !self.fits(&name, is_dir) {
            self.omitted += 1;
            return Ok(());
        }
        let (node, state, hides) = match item {
            Item::Gone => {
                self.tell_way()?;
                return (self.sink)(&Record::Removed { name: &name });
            }
            Item::Kept(node) => {
                let Some(state) = node.state_in_place() else {
                    // Nothing of its own, but there may be changes below.
                    return if node.is_dir() { self.enter(node, name, true, false) } else { Ok(()) };
                };
                (node, state, false)
            }
            Item::New(node) => (node, State::New, false),
            Item::Hiding(node) => (node, State::New, true),
        };
        self.tell_way()?;
        let in_place = state != State::New;
        // Those beyond the bound are told as if each name were another object.
        let has_room = self.named.len() < SHARED_MAX || self.named.contains(&node.ino);
        let shared = !node.is_dir() && node.has_other_names() && has_room;
        if shared && !self.named.insert(node.ino) {
            return self.tell_node(&node, &name, State::Link, hides, true);
        }
        if !in_place && self.purpose == Purpose::WriteBack {
            node.own_content(self.cx)?;
        }
        self.tell_node(&node, &name, state, hides, shared)?;
        match (self.purpose, state) {
            (Purpose::List, _) | (Purpose::WriteBack, State::Changed) => {}
            _ => self.tell_content(&node)?,
        }
        if node.is_dir() { self.enter(node, name, in_place, true) } else { Ok(()) }
    }

    fn enter(&mut self, node: Arc<Node>, name: Arc<[u8]>, in_place: bool, told: bool) -> Result<()> {
        if !in_place {
            node.look_everything_up(self.cx, self.purpose == Purpose::WriteBack)?;
        }
        let mut items = Vec::new();
        if let Some(names) = node.names() {
            let mut names = names.lock();
            items = names.items(in_place);
            if in_place && self.purpose == Purpose::WriteBack {
                names.written_back();
            }
        }
        items.sort_by(|a, b| a.0.cmp(&b.0));
        let path = match self.levels.last() {
            Some(above) => above.path + name.len() + 1,
            None => 0,
        };
        self.levels.push(Level { node, name, items: items.into_iter(), told, path });
        Ok(())
    }

    /// Tells the directories that lead here, if they have not been.
    fn tell_way(&mut self) -> Result<()> {
        for at in 0..self.levels.len() {
            let level = &mut self.levels[at];
            if !std::mem::replace(&mut level.told, true) {
                let (node, name) = (level.node.clone(), level.name.clone());
                self.tell_node(&node, &name, State::Kept, false, false)?;
            }
        }
        Ok(())
    }

    fn tell_node(&mut self, node: &Node, name: &[u8], state: State, hides: bool, shared: bool) -> Result<()> {
        let a = node.attributes();
        let target = if a.is_symlink() { node.readlink(self.cx)? } else { Vec::new() };
        if target.len() > TARGET_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let time = |t: abi::time::Timespec| (t.sec, u32::try_from(t.nsec).unwrap_or(0));
        let meta = Meta {
            mode: a.mode,
            uid: a.uid,
            gid: a.gid,
            rdev: a.rdev,
            size: if a.file_type() == libc::S_IFREG { a.size } else { 0 },
            atime: time(a.atime),
            mtime: time(a.mtime),
        };
        let id = if shared { node.ino } else { 0 };
        (self.sink)(&Record::Node(overlay_diff::Node { name, state, hides, id, meta, target: &target }))?;
        if state == State::Link { Ok(()) } else { self.tell_xattrs(node) }
    }

    fn tell_xattrs(&mut self, node: &Node) -> Result<()> {
        let mut left = XATTRS_MAX;
        for kind in [AclKind::Access, AclKind::Default] {
            if let Some(acl) = node.acl(kind)? {
                let value = acl.to_xattr();
                left = left.saturating_sub(kind.xattr().len() + value.len());
                (self.sink)(&Record::Xattr { name: kind.xattr(), value: &value })?;
            }
        }
        for name in node.list_xattr(self.cx)? {
            if AclKind::of_xattr(&name).is_none() {
                let value = node.get_xattr(self.cx, &name)?;
                let Some(rest) = left.checked_sub(name.len() + value.len()) else {
                    self.omitted += 1;
                    continue;
                };
                left = rest;
                (self.sink)(&Record::Xattr { name: &name, value: &value })?;
            }
        }
        Ok(())
    }

    fn tell_content(&mut self, node: &Node) -> Result<()> {
        let Body::File(content) = &node.body else { return Ok(()) };
        let mut buf = vec![0; DATA_MAX];
        let mut off = 0;
        loop {
            let got = {
                let content = content.read();
                off = match content.lower() {
                    None => match content.seek(self.cx, off, true) {
                        Ok(data) => data,
                        Err(Errno::ENXIO) => return Ok(()),
                        Err(e) => return Err(e),
                    },
                    Some(_) => off,
                };
                content.read(self.cx, &mut buf, off)?
            };
            if got == 0 {
                return Ok(());
            }
            // Zeros are holes as well.
            for (n, page) in buf[..got].chunks(DATA_MAX.min(16 * PAGE as usize)).enumerate() {
                if page.iter().any(|byte| *byte != 0) {
                    let offset = off + (n * 16 * PAGE as usize) as u64;
                    (self.sink)(&Record::Data { offset, bytes: page })?;
                }
            }
            off += got as u64;
        }
    }
}

impl Node {
    /// How a node in place differs; `None` when it does not.
    fn state_in_place(&self) -> Option<State> {
        let content_changed = match &self.body {
            Body::File(content) => content.read().lower().is_none(),
            _ => false,
        };
        match (content_changed, self.is_clean_itself()) {
            (true, _) => Some(State::Rewritten { shared: self.shared_below }),
            (false, false) => Some(State::Changed),
            (false, true) => None,
        }
    }

    /// Takes content that is still the layers' to the overlay, while the layers are still as they were.
    pub(crate) fn own_content(&self, cx: &dyn Caller) -> Result<()> {
        if let Body::File(content) = &self.body
            && content.read().lower().is_some()
        {
            self.own_xattrs(cx)?;
            content.write().own(cx, &self.fs.storage, Need::Change)?;
        }
        Ok(())
    }

    /// Looks up every name of a directory that is not in place. With `for_good` the layers are not asked again.
    pub(crate) fn look_everything_up(&self, cx: &dyn Caller, for_good: bool) -> Result<()> {
        let Some(names) = self.names() else { return Ok(()) };
        let unseen = names.lock().unseen(cx)?;
        for name in unseen {
            match names.lock().find(cx, &self.fs, &name) {
                Ok(_) | Err(Errno::ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
        if for_good {
            names.lock().settle();
        }
        Ok(())
    }
}

impl TmpFs {
    /// Files that have lost their names, and are in use, take the content that they still have below.
    fn settle_orphans(&self, cx: &dyn Caller) -> Result<()> {
        let orphans = std::mem::take(&mut *self.orphans.lock());
        for orphan in orphans.iter().filter_map(|orphan| orphan.upgrade()) {
            orphan.own_content(cx)?;
        }
        Ok(())
    }
}

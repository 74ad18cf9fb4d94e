//! Plain data to a tree.
//!
//! The tree was built from the same specification: it has the layers, and what the specification made in it. Its nodes
//! that mounts are on stay the same objects. Plain data is hostile input: each name and each node comes once.

use super::{AclState, BodyState, DirState, EntryState, NodeState, TreeState};
use crate::content::Content;
use crate::node::{Body, Entry, Node, Restored, link_pages};
use abi::stat::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use abi::{Errno, Result};
use image::PageSource;
use rights::acl::{Acl, AclKind};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use vfs::{Caller, InodeRef};

/// Longest name.
const NAME_MOST: usize = 255;
/// Longest target of a symbolic link.
const TARGET_MOST: usize = 4095;

impl TreeState {
    /// Makes the tree that has `root` as its root this one. `held` says which inodes must stay the same objects, as mounts
    /// are on them. Gives the nodes by their numbers of before. The error is a sentence for the user.
    pub fn restore(
        &self,
        cx: &dyn Caller,
        root: &InodeRef,
        held: &dyn Fn(&InodeRef) -> bool,
        pages: &dyn PageSource,
    ) -> Result<HashMap<u64, InodeRef>, String> {
        let root = Node::of(root).and_then(|node| node.me.upgrade()).ok_or("not a tree in memory")?;
        let mut states = HashMap::with_capacity(self.nodes.len());
        for node in &self.nodes {
            if states.insert(node.ino, node).is_some() {
                return Err(format!("two files with the number {}", node.ino));
            }
        }
        // A page belongs in one place, so all files together are no larger than the file of pages.
        let extents = self.nodes.iter().flat_map(|node| match &node.body {
            BodyState::File(Some(content)) => &*content.pages,
            _ => &[],
        });
        if extents.fold(0, |all: u64, extent| all.saturating_add(extent.len)) > pages.len() {
            return Err("more content than the image has".into());
        }
        let mut made =
            Making { cx, states, held, nodes: HashMap::new(), used: HashSet::new(), names: HashMap::new() };
        made.run(&root, self.root)?;
        root.fs.raise_ino(self.next);
        for node in &self.nodes {
            let Some(there) = made.nodes.get(&node.ino).cloned() else { continue };
            made.fill(&there, node, pages).map_err(|error| format!("file number {}: {error}", node.ino))?;
        }
        Ok(made.nodes.into_iter().map(|(ino, node)| (ino, node as InodeRef)).collect())
    }
}

struct Making<'a> {
    cx: &'a dyn Caller,
    states: HashMap<u64, &'a NodeState>,
    held: &'a dyn Fn(&InodeRef) -> bool,
    nodes: HashMap<u64, Arc<Node>>,
    /// Numbers of nodes that were there, and stay.
    used: HashSet<u64>,
    /// How many names nodes have that were made here.
    names: HashMap<u64, u32>,
}

impl<'a> Making<'a> {
    fn dir(&self, ino: u64) -> Result<&'a DirState, String> {
        match self.states.get(&ino).map(|state| &state.body) {
            Some(BodyState::Dir(dir)) => Ok(dir),
            _ => Err(format!("number {ino} is no directory")),
        }
    }

    fn run(&mut self, root: &Arc<Node>, ino: u64) -> Result<(), String> {
        self.dir(ino)?;
        self.nodes.insert(ino, root.clone());
        self.used.insert(root.ino);
        if root.lower.is_some() {
            self.find_below(ino)?;
        }
        self.make_below(vec![ino])?;
        // What no name leads to.
        let mut left: Vec<u64> =
            self.states.keys().copied().filter(|ino| !self.nodes.contains_key(ino)).collect();
        left.sort_unstable();
        for ino in left {
            if self.nodes.contains_key(&ino) {
                continue;
            }
            let Some(state) = self.states.get(&ino).copied() else { continue };
            let node = self.make(root, state)?;
            let is_dir = node.is_dir();
            self.nodes.insert(ino, node);
            if is_dir {
                self.make_below(vec![ino])?;
            }
        }
        Ok(())
    }

    /// Finds the nodes in place, from the root down.
    fn find_below(&mut self, root: u64) -> Result<(), String> {
        let mut todo = vec![root];
        while let Some(ino) = todo.pop() {
            let Some(dir) = self.nodes.get(&ino).cloned() else { continue };
            for entry in &self.dir(ino)?.entries {
                let Some(child) = entry.node.filter(|_| entry.offset == 0) else { continue };
                let state = self.states.get(&child).ok_or("a name without a file")?;
                let shown = || String::from_utf8_lossy(&entry.name).into_owned();
                check_name(&entry.name)?;
                let names = dir.names().ok_or("a name below a file")?;
                let node = names
                    .lock()
                    .find(self.cx, &dir.fs, &entry.name)
                    .map_err(|error| format!("{} of the layers below: {error}", shown()))?;
                if !state.below || node.lower.is_none() || kind(node.mode()) != kind(state.mode) {
                    return Err(format!("{} is another file in the layers below", shown()));
                }
                match self.nodes.get(&child) {
                    Some(known) if Arc::ptr_eq(known, &node) && !node.is_dir() => {}
                    Some(_) => return Err(format!("{} is two files", shown())),
                    None => {
                        if node.is_dir() {
                            todo.push(child);
                        }
                        self.used.insert(node.ino);
                        self.nodes.insert(child, node);
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes all other nodes that these directories lead to.
    fn make_below(&mut self, mut todo: Vec<u64>) -> Result<(), String> {
        while let Some(ino) = todo.pop() {
            let Some(dir) = self.nodes.get(&ino).cloned() else { continue };
            for entry in &self.dir(ino)?.entries {
                check_name(&entry.name)?;
                let Some(child) = entry.node else { continue };
                if entry.offset == 0 {
                    // In place.
                    if self.nodes.get(&child).is_some_and(|node| node.is_dir()) {
                        todo.push(child);
                    }
                    continue;
                }
                let state = *self.states.get(&child).ok_or("a name without a file")?;
                let names = self.names.entry(child).or_default();
                *names = names.saturating_add(1);
                match self.nodes.get(&child) {
                    Some(known) if known.is_dir() => return Err(format!("directory {child} has two names")),
                    Some(_) => {}
                    None => {
                        let there = self.there(&dir, entry, state)?;
                        let node = match there {
                            Some(node) => node,
                            None => self.make(&dir, state)?,
                        };
                        if node.is_dir() {
                            todo.push(child);
                        }
                        self.nodes.insert(child, node);
                    }
                }
            }
        }
        Ok(())
    }

    /// The node of now that becomes the one of before: one that mounts are on, or the same object.
    fn there(
        &mut self,
        dir: &Node,
        entry: &EntryState,
        state: &NodeState,
    ) -> Result<Option<Arc<Node>>, String> {
        let Some(node) = dir.names().and_then(|names| names.lock().known(&entry.name)) else {
            return Ok(None);
        };
        let inode: InodeRef = node.clone();
        let same = kind(node.mode()) == kind(state.mode) && node.rdev == state.rdev && node.lower.is_none();
        if same && (node.ino == state.ino || (self.held)(&inode)) && self.used.insert(node.ino) {
            return Ok(Some(node));
        }
        if (self.held)(&inode) {
            return Err(format!("{} is a mount point of another type", String::from_utf8_lossy(&entry.name)));
        }
        Ok(None)
    }

    /// A new node in the instance of `home`.
    fn make(&self, home: &Node, state: &NodeState) -> Result<Arc<Node>, String> {
        if state.below {
            return Err(format!("no name leads to number {} in the layers below", state.ino));
        }
        let body = match &state.body {
            BodyState::Dir(_) => Body::dir(None, 3),
            BodyState::File(_) => Body::file(Content::empty()),
            BodyState::Link(target) if target.len() <= TARGET_MOST => Body::link(target.clone()),
            BodyState::Link(_) => return Err("a symbolic link that is too long".into()),
            BodyState::Special => Body::Special,
        };
        let right = match kind(state.mode) {
            S_IFDIR => matches!(body, Body::Dir(_)),
            S_IFREG => matches!(body, Body::File(_)),
            S_IFLNK => matches!(body, Body::Link(_)),
            libc::S_IFIFO | libc::S_IFSOCK | libc::S_IFCHR | libc::S_IFBLK => matches!(body, Body::Special),
            _ => false,
        };
        if !right {
            return Err(format!("number {} is not what its mode says", state.ino));
        }
        home.fs.charge_inode().map_err(|error| format!("file system in memory: {error}"))?;
        if let BodyState::Link(target) = &state.body {
            home.fs.storage.pages.recharge(0, link_pages(target.len()));
        }
        Ok(Node::restored(home.fs.clone(), body, &attributes(state)))
    }

    /// Gives a node the content and the attributes of plain data.
    fn fill(&self, node: &Arc<Node>, state: &NodeState, pages: &dyn PageSource) -> Result<()> {
        match (&state.body, &node.body) {
            (BodyState::Dir(saved), Body::Dir(names)) => {
                let mut entries = Vec::with_capacity(saved.entries.len());
                for entry in &saved.entries {
                    let node = entry
                        .node
                        .map(|ino| self.nodes.get(&ino).cloned().ok_or(Errno::ENOENT))
                        .transpose()?;
                    let there = match node {
                        None => Entry::Whiteout,
                        Some(node) if entry.hides => Entry::Hiding(node, entry.offset),
                        Some(node) => Entry::Node(node, entry.offset),
                    };
                    entries.push((Arc::from(&*entry.name), there));
                }
                let gone = names.lock().restore(entries, saved.next, saved.dead)?;
                drop(gone);
            }
            (BodyState::File(None), Body::File(content)) => {
                if content.read().lower().is_none() {
                    return Err(Errno::EINVAL);
                }
            }
            (BodyState::File(Some(saved)), Body::File(content)) => {
                let mut content = content.write();
                content.release(&node.fs.storage);
                *content = Content::empty();
                content.restore(self.cx, &node.fs.storage, saved, pages)?;
            }
            (BodyState::Link(_), Body::Link(_)) | (BodyState::Special, Body::Special) => {}
            _ => return Err(Errno::EINVAL),
        }
        for (kind, list) in [AclKind::Access, AclKind::Default].into_iter().zip(&state.acls) {
            match list {
                AclState::Below => {}
                AclState::None => node.restore_acl(kind, None)?,
                AclState::List(list) => node.restore_acl(kind, Acl::from_xattr(list)?.map(Arc::new))?,
            }
        }
        let names = self.names.get(&state.ino).copied().unwrap_or(0);
        node.restore_attributes(&attributes(state), self.xattrs(state)?, names);
        Ok(())
    }

    fn xattrs(&self, state: &NodeState) -> Result<Option<BTreeMap<Vec<u8>, Vec<u8>>>> {
        let Some(saved) = &state.xattrs else { return Ok(None) };
        let fits = |(name, value): &(Vec<u8>, Vec<u8>)| {
            (1..=NAME_MOST).contains(&name.len()) && value.len() <= 65536 && !name.contains(&0)
        };
        if !saved.iter().all(fits) {
            return Err(Errno::EINVAL);
        }
        Ok(Some(saved.iter().cloned().collect()))
    }
}

fn attributes(state: &NodeState) -> Restored {
    Restored {
        ino: state.ino,
        mode: state.mode,
        uid: state.uid,
        gid: state.gid,
        rdev: state.rdev,
        nlink: state.nlink,
        times: state.times,
        created: state.created,
        changed: state.changed,
    }
}

fn kind(mode: u32) -> u32 {
    mode & S_IFMT
}

fn check_name(name: &[u8]) -> Result<(), String> {
    let good = (1..=NAME_MOST).contains(&name.len())
        && !matches!(name, b"." | b"..")
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    if good { Ok(()) } else { Err(format!("a name that cannot be: {:?}", String::from_utf8_lossy(name))) }
}

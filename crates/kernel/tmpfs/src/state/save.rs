//! A tree to plain data.

use super::{AclState, BodyState, DirState, EntryState, NodeState, TreeState};
use crate::content::ContentState;
use crate::fs::TmpFs;
use crate::node::{Body, Entry, Node, Xattrs};
use abi::{Errno, Result};
use image::PageSink;
use rights::acl::AclKind;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{AclInode, Caller, InodeRef, LinkInode};

/// A node on the way, and whether it is in place.
struct Found {
    node: Arc<Node>,
    in_place: bool,
}

/// A tree that was found, without the content of its files.
pub struct Tree {
    state: TreeState,
    /// The nodes of the state, in its order.
    nodes: Vec<Arc<Node>>,
}

impl Tree {
    /// The device number of the instance that an inode belongs to; `None` for an inode of another file system.
    pub fn dev(inode: &InodeRef) -> Option<u64> {
        Some(Node::of(inode)?.fs.dev)
    }

    /// The tree that has `root` as its root, with the nodes `others` of the same instance, which names need not lead to.
    /// Nodes that are not in place take what they still have in the layers. The error is a sentence for the user.
    pub fn of(cx: &dyn Caller, root: &InodeRef, others: &[InodeRef]) -> Result<Tree, String> {
        let of = |inode| Node::of(inode).and_then(|node: &Node| node.me.upgrade());
        let root = of(root).ok_or("not a tree in memory")?;
        let mut walk = Walk { cx, fs: root.fs.clone(), found: Vec::new(), known: HashMap::new() };
        walk.run(root.clone(), others.iter().filter_map(of))
            .map_err(|e| format!("file system in memory: {e}"))?;
        let wanted: HashSet<u64> = others.iter().filter_map(of).map(|node| node.ino).collect();
        walk.state(&root, &wanted)
    }

    /// Bytes of the files that are not holes, about.
    pub fn bytes(&self) -> u64 {
        self.nodes.iter().map(|node| node.attributes().blocks.saturating_mul(512)).sum()
    }

    /// Writes the content of the files, and gives all as plain data.
    pub fn write(mut self, cx: &dyn Caller, to: &dyn PageSink) -> Result<TreeState> {
        for (state, node) in self.state.nodes.iter_mut().zip(&self.nodes) {
            if let (BodyState::File(Some(saved)), Body::File(content)) = (&mut state.body, &node.body) {
                *saved = content.read().state(cx, to)?.ok_or(Errno::EIO)?;
            }
        }
        Ok(self.state)
    }
}

struct Walk<'a> {
    cx: &'a dyn Caller,
    fs: Arc<TmpFs>,
    /// Parents before children.
    found: Vec<Found>,
    /// Places in `found` by number.
    known: HashMap<u64, usize>,
}

impl Walk<'_> {
    fn run(&mut self, root: Arc<Node>, others: impl Iterator<Item = Arc<Node>>) -> Result<()> {
        let in_place = root.lower.is_some();
        self.find(root, in_place)?;
        for other in others {
            if !Arc::ptr_eq(&other.fs, &self.fs) {
                return Err(Errno::EXDEV);
            }
            // One that the walk finds by a name below may be in place all the same.
            if !self.known.contains_key(&other.ino) {
                self.find(other, false)?;
            }
        }
        // Directories have taken their names already.
        for Found { node, in_place } in &self.found {
            if !in_place && node.lower.is_some() {
                if node.shared_below {
                    return Err(Errno::EMLINK);
                }
                node.own_xattrs(self.cx)?;
                node.own_content(self.cx)?;
            }
        }
        Ok(())
    }

    /// Finds a node, and what is below it.
    fn find(&mut self, top: Arc<Node>, in_place: bool) -> Result<()> {
        self.add(top, in_place)?;
        let mut at = self.found.len() - 1;
        while let Some(Found { node, in_place }) = self.found.get(at) {
            let (node, in_place) = (node.clone(), *in_place);
            at += 1;
            let Some(names) = node.names() else { continue };
            if !in_place && node.lower.is_some() {
                node.look_everything_up(self.cx, true)?;
            }
            let children: Vec<(Arc<Node>, bool)> = names
                .lock()
                .entries()
                .filter_map(|(_, entry)| match entry {
                    Entry::Node(node, offset) => Some((node.clone(), in_place && *offset == 0)),
                    Entry::Hiding(node, _) => Some((node.clone(), false)),
                    Entry::Whiteout => None,
                })
                .collect();
            for (child, in_place) in children {
                self.add(child, in_place)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, node: Arc<Node>, in_place: bool) -> Result<()> {
        let at = *self.known.entry(node.ino).or_insert(self.found.len());
        match self.found.get_mut(at) {
            None => self.found.push(Found { node, in_place }),
            // Two objects with one number: a mount below a layer.
            Some(known) if !Arc::ptr_eq(&known.node, &node) => return Err(Errno::EOVERFLOW),
            // It is found by the name that it started with.
            Some(known) => known.in_place |= in_place,
        }
        Ok(())
    }

    /// The state: of nodes in place those that differ, and what leads to such.
    fn state(self, root: &Arc<Node>, wanted: &HashSet<u64>) -> Result<Tree, String> {
        let mut kept: HashSet<u64> = HashSet::new();
        // Children come after their parents, so going backwards knows them first.
        for Found { node, in_place } in self.found.iter().rev() {
            let content = matches!(&node.body, Body::File(content) if content.read().lower().is_none());
            let names = || {
                node.names().is_some_and(|names| {
                    names.lock().entries().any(|(_, entry)| match entry {
                        Entry::Node(child, 0) => kept.contains(&child.ino),
                        _ => true,
                    })
                })
            };
            if !in_place || content || !node.is_clean_itself() || wanted.contains(&node.ino) || names() {
                kept.insert(node.ino);
            }
        }
        kept.insert(root.ino);
        let mut tree = Tree {
            state: TreeState {
                dev: self.fs.dev,
                next: self.fs.next_ino(),
                root: root.ino,
                nodes: Vec::with_capacity(kept.len()),
            },
            nodes: Vec::with_capacity(kept.len()),
        };
        for Found { node, in_place } in &self.found {
            if kept.contains(&node.ino) {
                let state = node_state(self.cx, node, *in_place, &kept)
                    .map_err(|error| format!("file system in memory: {error}"))?;
                tree.state.nodes.push(state);
                tree.nodes.push(node.clone());
            }
        }
        Ok(tree)
    }
}

fn node_state(cx: &dyn Caller, node: &Node, in_place: bool, kept: &HashSet<u64>) -> Result<NodeState> {
    let below = in_place && node.lower.is_some();
    let attr = node.attributes();
    let acl = |kind| -> Result<AclState> {
        if below && node.has_lower_acl(kind) {
            return Ok(AclState::Below);
        }
        Ok(node.acl(kind)?.map_or(AclState::None, |acl| AclState::List(acl.to_xattr())))
    };
    let acls = [acl(AclKind::Access)?, acl(AclKind::Default)?];
    let body = match &node.body {
        Body::Dir(names) => {
            let names = names.lock();
            let own = if below { None } else { Some(names.offsets_of_lower()) };
            let mut entries: Vec<EntryState> = names
                .entries()
                .filter_map(|(name, entry)| {
                    let name = name.to_vec();
                    let (node, offset, hides) = match entry {
                        Entry::Whiteout if below => (None, 0, true),
                        Entry::Whiteout => return None,
                        Entry::Node(child, 0) if below => {
                            return kept.contains(&child.ino).then(|| EntryState {
                                name,
                                node: Some(child.ino),
                                offset: 0,
                                hides: false,
                            });
                        }
                        Entry::Node(child, 0) => {
                            (Some(child.ino), own.as_ref()?.get(&*name).copied().unwrap_or(3), false)
                        }
                        Entry::Node(child, offset) => (Some(child.ino), *offset, false),
                        Entry::Hiding(child, offset) => (Some(child.ino), *offset, below),
                    };
                    Some(EntryState { name, node, offset, hides })
                })
                .collect();
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            BodyState::Dir(DirState { entries, next: names.end(), dead: names.dead })
        }
        Body::File(content) => {
            let own = content.read().lower().is_none();
            BodyState::File(own.then(ContentState::default))
        }
        Body::Link(_) => BodyState::Link(node.readlink(cx)?),
        Body::Special => BodyState::Special,
    };
    let meta = node.meta.lock();
    Ok(NodeState {
        ino: node.ino,
        below,
        changed: !node.is_clean_itself(),
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        rdev: node.rdev,
        nlink: meta.nlink,
        times: [meta.atime, meta.mtime, meta.ctime],
        created: meta.btime,
        xattrs: match &meta.xattrs {
            Xattrs::Lower => None,
            Xattrs::Own(map) => Some(map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()),
        },
        acls,
        body,
    })
}

impl TmpFs {
    /// The next number, without giving it out.
    fn next_ino(&self) -> u64 {
        self.next_ino.load(Ordering::Relaxed)
    }
}

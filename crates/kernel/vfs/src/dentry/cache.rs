//! What the dentries of one kernel share: their trees, how many there are and may be, whether anybody listens to changes,
//! and what is mounted on which.
//!
//! The table of mounts owns it. A tree gets it with its first mount that belongs to a kernel, and each dentry from its
//! parent. Lock: that of the list of trees is a leaf, and trees are let go outside it. A checkpoint keeps nothing: names
//! are looked up again, and watches are counted again.

use crate::mount::{MountPoints, SuperBlock};
use lock_order::Mutex;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Dentries more than are in use that there may be before unused ones go.
const MANY: usize = 200_000;

/// Counts of a kernel's dentries, and of the watches on what they stand for.
pub struct Dcache {
    alive: AtomicUsize,
    /// How many may be alive before unused ones go.
    limit: AtomicUsize,
    /// Keeps `watches`, which every read and write looks at, out of the cache line of what every new dentry changes.
    _apart: [u64; 16],
    watches: AtomicUsize,
    /// File handles that are remembered.
    handles: AtomicUsize,
    trees: Mutex<Vec<Weak<SuperBlock>>>,
    pub(crate) mount_points: MountPoints,
}

impl Default for Dcache {
    fn default() -> Dcache {
        Dcache {
            alive: AtomicUsize::new(0),
            limit: AtomicUsize::new(MANY),
            _apart: [0; 16],
            watches: AtomicUsize::new(0),
            handles: AtomicUsize::new(0),
            trees: Mutex::default(),
            mount_points: MountPoints::default(),
        }
    }
}

impl Dcache {
    /// How many dentries there are (/proc/sys/fs/dentry-state).
    pub fn alive(&self) -> usize {
        self.alive.load(Ordering::Relaxed)
    }

    /// Changes have no listeners.
    pub fn is_unwatched(&self) -> bool {
        self.watches.load(Ordering::Relaxed) == 0
    }

    /// The tree of `sb` is one of the kernel's from now on, while it is in use.
    pub fn add(&self, sb: &Arc<SuperBlock>) {
        let mut trees = self.trees.lock();
        if trees.len() == trees.capacity() {
            trees.retain(|t| t.strong_count() != 0);
            let room = trees.len().max(16);
            trees.reserve(room);
        }
        trees.push(Arc::downgrade(sb));
    }

    /// Drops unused names of all trees when there are very many. One thread at a time does so; the others go on meanwhile.
    pub fn trim(&self) {
        let limit = self.limit.load(Ordering::Relaxed);
        let relaxed = Ordering::Relaxed;
        if self.alive() < limit || self.limit.compare_exchange(limit, usize::MAX, relaxed, relaxed).is_err() {
            return;
        }
        let mut trees: Vec<_> = self.trees.lock().iter().filter_map(Weak::upgrade).collect();
        // The names of a stacked file system hold those below it.
        trees.sort_by_key(|t| Reverse(t.fs.stack_depth()));
        // Parts of a file system have a tree each.
        let mut trimmed = HashSet::new();
        for tree in &trees {
            tree.root.shrink(false);
            if trimmed.insert(Arc::as_ptr(&tree.fs).cast::<()>()) {
                tree.fs.trim();
            }
        }
        self.limit.store(self.alive() + MANY, Ordering::Relaxed);
    }
}

/// Counts a dentry until it is dropped.
pub struct Alive(Arc<Dcache>);

impl Alive {
    pub fn new(dcache: &Arc<Dcache>) -> Alive {
        dcache.alive.fetch_add(1, Ordering::Relaxed);
        Alive(dcache.clone())
    }

    pub fn dcache(&self) -> &Arc<Dcache> {
        &self.0
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a watch until it is dropped.
pub struct Watched(Arc<Dcache>);

impl Watched {
    /// Counts one more.
    pub fn new(dcache: &Arc<Dcache>) -> Watched {
        dcache.watches.fetch_add(1, Ordering::Relaxed);
        Watched(dcache.clone())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts the file handles that a superblock remembers, until it is dropped.
pub struct HandlesKept {
    dcache: Arc<Dcache>,
    kept: usize,
}

impl HandlesKept {
    pub fn new(dcache: &Arc<Dcache>) -> HandlesKept {
        HandlesKept { dcache: dcache.clone(), kept: 0 }
    }

    /// One more is remembered; false when the kernel remembers `most` already.
    pub fn take(&mut self, most: usize) -> bool {
        let relaxed = Ordering::Relaxed;
        let more = |kept: usize| (kept < most).then_some(kept + 1);
        let taken = self.dcache.handles.fetch_update(relaxed, relaxed, more).is_ok();
        self.kept += usize::from(taken);
        taken
    }
}

impl Drop for HandlesKept {
    fn drop(&mut self) {
        self.dcache.handles.fetch_sub(self.kept, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::InternalFs;

    #[test]
    fn guards_count() {
        let dcache = Arc::new(Dcache::default());
        let (a, b) = (Alive::new(&dcache), Alive::new(&dcache));
        assert_eq!((dcache.alive(), dcache.is_unwatched()), (2, true));
        let watched = Watched::new(a.dcache());
        drop((a, b));
        assert_eq!((dcache.alive(), dcache.is_unwatched()), (0, false));
        drop(watched);
        assert!(dcache.is_unwatched());
    }

    #[test]
    fn unused_names_of_all_trees_go_when_there_are_many() {
        let dcache = Arc::new(Dcache::default());
        let trees =
            [SuperBlock::new(Arc::new(InternalFs::Anon)), SuperBlock::new(Arc::new(InternalFs::Anon))];
        let ended = SuperBlock::new(Arc::new(InternalFs::Anon));
        for tree in trees.iter().chain([&ended]) {
            tree.root.belong(&dcache, tree);
        }
        drop(ended);
        let name =
            |tree: &Arc<SuperBlock>, i: u32| tree.root.insert(&i.to_ne_bytes(), tree.root.inode.clone(), 0);
        let in_use = name(&trees[1], 0);
        for i in 1..4 {
            trees.iter().for_each(|tree| drop(name(tree, i)));
        }
        let before = dcache.alive();
        assert_eq!(before, 2 + 1 + 6);
        dcache.limit.store(before + 1, Ordering::Relaxed);
        dcache.trim();
        assert_eq!(dcache.alive(), before, "one may still come");
        dcache.limit.store(before, Ordering::Relaxed);
        dcache.trim();
        assert_eq!(dcache.alive(), 2 + 1);
        assert_eq!(dcache.limit.load(Ordering::Relaxed), 2 + 1 + MANY);
        drop(in_use);
    }
}

//! What all groups of a kernel share: the lock of their tree (rank CGROUPS), numbers, and counts with bounds.

use ktime::Clock;
use lock_order::{Mutex, MutexGuard, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What all groups of a kernel share.
pub(crate) struct Tree {
    pub(crate) lock: Mutex<(), { rank::CGROUPS }>,
    /// The kernel's clock.
    pub(crate) clock: Clock,
    pub(crate) last_id: AtomicU64,
    /// Groups that exist, removed ones that are still in use included.
    pub(crate) count: AtomicUsize,
    /// Programs about devices that are loaded, and how often they are attached to groups.
    pub(crate) programs: AtomicUsize,
    pub(crate) attached: AtomicUsize,
}

/// The lock of the tree is held.
pub(crate) type Locked<'a> = MutexGuard<'a, (), { rank::CGROUPS }>;

impl Tree {
    pub(crate) fn lock(&self) -> Locked<'_> {
        self.lock.lock()
    }
}

/// A unit of a number of [`Tree`] that is bounded: one group, or one program.
pub(crate) struct Slot {
    tree: Arc<Tree>,
    number: fn(&Tree) -> &AtomicUsize,
}

impl Slot {
    /// A group; `None` when there are `most` already.
    pub(crate) fn group(tree: &Arc<Tree>, most: usize) -> Option<Slot> {
        Slot::new(tree, |tree| &tree.count, most)
    }

    /// A program; `None` when there are `most` already.
    pub(crate) fn program(tree: &Arc<Tree>, most: usize) -> Option<Slot> {
        Slot::new(tree, |tree| &tree.programs, most)
    }

    fn new(tree: &Arc<Tree>, number: fn(&Tree) -> &AtomicUsize, most: usize) -> Option<Slot> {
        let room = |count: usize| (count < most).then_some(count + 1);
        number(tree).fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Slot { tree: tree.clone(), number })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        (self.number)(&self.tree).fetch_sub(1, Ordering::Relaxed);
    }
}

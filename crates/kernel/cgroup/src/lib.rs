//! Control groups: the tree of cgroup v2 as the kernel's object. See cgroups(7) and the host's
//! Documentation/admin-guide/cgroup-v2.
//!
//! [`Cgroup`] is a group, [`Member`] the place of a task in one, [`Charge`] a task that counts for a limit of the
//! `pids` controller, [`CpuMax`] a limit of the `cpu` controller, [`BpfProgram`] a program that decides about devices.
//! The crate knows no tasks: it counts them, and says who may move where. What it means to be frozen, throttled or
//! killed is in the crate `task`, and the files are in `cgroupfs`.
//!
//! All changes of a tree happen under its one lock (rank CGROUPS, [`Tree`]); the state of each group is behind a
//! leaf, which is read by itself. Nobody is told of a change under the lock: a change gives [`Changes`], to be told
//! after all locks.
//!
//! Each container has a root group of its own, a child of a group that nobody sees. A checkpoint keeps groups with
//! their names, owners and settings, and which tasks are in them.

#![forbid(unsafe_code)]

mod control;
mod cpu;
mod devices;
mod freeze;
mod group;
mod limits;
mod member;
mod notice;
mod owner;
mod pids;
#[cfg(test)]
mod tests;

pub use control::Controllers;
pub use cpu::{CpuMax, CpuStat, Look};
pub use devices::{About, Attach, BpfProgram, MOST_PROGRAMS, Programs};
pub use group::{Cgroup, DEEPEST, MOST};
pub use limits::Limit;
pub use member::{Charge, Member};
pub use notice::{Changes, Notice};
pub use owner::Owner;
pub use pids::{MOST_PIDS, Pids};

use ranked::{Mutex, MutexGuard, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What all groups of a kernel share.
pub(crate) struct Tree {
    lock: Mutex<(), { rank::CGROUPS }>,
    last_id: AtomicU64,
    /// Groups that exist, removed ones that somebody still holds included.
    count: AtomicUsize,
    /// Programs about devices that are loaded, and how often they are attached to groups.
    programs: AtomicUsize,
    attached: AtomicUsize,
}

/// The lock of the tree is held.
pub(crate) type Locked<'a> = MutexGuard<'a, (), { rank::CGROUPS }>;

impl Tree {
    pub(crate) fn lock(&self) -> Locked<'_> {
        self.lock.lock()
    }
}

/// Something's part in a number of [`Tree`].
pub(crate) struct Counted {
    tree: Arc<Tree>,
    number: fn(&Tree) -> &AtomicUsize,
}

impl Counted {
    /// A group; `None` when there are `most` already.
    fn group(tree: &Arc<Tree>, most: usize) -> Option<Counted> {
        Counted::new(tree, |tree| &tree.count, most)
    }

    /// A program; `None` when there are `most` already.
    fn program(tree: &Arc<Tree>, most: usize) -> Option<Counted> {
        Counted::new(tree, |tree| &tree.programs, most)
    }

    fn new(tree: &Arc<Tree>, number: fn(&Tree) -> &AtomicUsize, most: usize) -> Option<Counted> {
        let room = |count: usize| (count < most).then_some(count + 1);
        number(tree).fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Counted { tree: tree.clone(), number })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.number)(&self.tree).fetch_sub(1, Ordering::Relaxed);
    }
}

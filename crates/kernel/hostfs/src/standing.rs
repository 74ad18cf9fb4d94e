//! When what was learnt of a node is still so.
//!
//! Attributes change by others, of whom the directory's watch tells, and by us, which the node counts. So they hold while the
//! numbers of both stand ([`Standing`]). Numbers are read before the host is asked: what happens meanwhile makes the answer one
//! that is asked for again.

use crate::fs::{HostFs, Mode};
use crate::node::Node;
use crate::watches::{Coherence, Follower};
use abi::stat::Attr;
use hostsys::fs as host;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A directory is watched when it has been asked about this many times: marking costs as much as a few questions.
const ASKED: u32 = 4;

/// The numbers under which attributes hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Standing {
    /// Changes by others in the directory that has the object.
    parent: u64,
    /// Of a directory: changes by others in itself.
    own: u64,
    /// Our changes.
    ours: u64,
}

impl Standing {
    /// Of a node that has just been made, for what the host said after `before` was noted.
    pub fn of_new(fs: &HostFs, before: &Noted) -> Option<Standing> {
        // Another node for the object may have come and gone, and changed it.
        let quiet = fs.writes.load(Ordering::Acquire) == before.writes;
        before.changes.filter(|_| quiet).map(|parent| Standing { parent, own: 0, ours: 0 })
    }
}

/// What a directory notes before the host is asked about a name in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    changes: Option<u64>,
    writes: u64,
}

/// What a node knows of being watched.
#[derive(Default)]
pub(crate) struct Watching {
    /// Of a directory: its mark.
    follower: biased::RwLock<Option<Follower>>,
    /// Questions that would not have been asked with a mark; huge when there can be none.
    asked: AtomicU32,
    /// Of a directory: [`Standing::own`] when its attributes were learnt, so that who may search it is known.
    searchable: AtomicU64,
    ours: AtomicU64,
    /// It may have several names, of which the node knows one.
    other_names: AtomicBool,
    /// It was mapped shared for writing: its times change without a sign.
    mapped: AtomicBool,
}

impl Watching {
    /// Of a new node with these attributes.
    pub fn of(attr: &Attr) -> Watching {
        Watching { other_names: AtomicBool::new(attr.nlink > 1), ..Watching::default() }
    }

    /// Notes whether it may have other names than the one that the node knows.
    pub fn set_other_names(&self, has: bool) {
        if self.other_names.load(Ordering::Relaxed) != has {
            self.other_names.store(has, Ordering::Release);
        }
    }

    /// Whether it may.
    pub fn has_other_names(&self) -> bool {
        self.other_names.load(Ordering::Acquire)
    }

    /// Notes that its times may change without a sign from now on.
    pub fn set_mapped(&self) {
        self.mapped.store(true, Ordering::Release);
    }

    /// Whether they may.
    pub fn is_mapped(&self) -> bool {
        self.mapped.load(Ordering::Acquire)
    }
}

/// We are changing the object: what is learnt meanwhile does not hold afterwards.
pub(crate) struct Changing<'a>(&'a Node);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.bump();
    }
}

/// Whether the watch of the directory tells of every change of an object with these attributes. Of a file's first name nothing is
/// told when others make it a second one elsewhere, nor of what they change by that one. A lagging tree does without, until the file
/// is asked about next.
pub(crate) fn is_told(attr: &Attr, coherence: Coherence) -> bool {
    attr.is_dir() || attr.nlink == 1 && coherence == Coherence::Lagging
}

impl Node {
    /// Changes by others in this directory; `None` where they are not told.
    fn changes(&self) -> Option<u64> {
        self.fs.home.watches.changes(self.watch.follower.read().as_ref()?)
    }

    /// The numbers as they are now; `None` where they do not tell all.
    pub fn standing(&self) -> Option<Standing> {
        if !self.fs.is_watched() {
            return None;
        }
        let ours = self.watch.ours.load(Ordering::Acquire);
        let own = if self.is_dir() { self.changes()? } else { 0 };
        let parent = self.with_parent(|parent| parent.map_or(Some(0), |parent| parent.changes()))?;
        Some(Standing { parent, own, ours })
    }

    /// The same for what the host said of the object after `before` was noted in its directory.
    pub fn standing_since(&self, before: &Noted) -> Option<Standing> {
        let quiet = self.fs.writes.load(Ordering::Acquire) == before.writes;
        self.standing().filter(|now| quiet && !self.is_dir() && Some(now.parent) == before.changes)
    }

    /// What this directory notes before the host is asked about a name in it.
    pub fn noted(&self) -> Noted {
        Noted { writes: self.fs.writes.load(Ordering::Acquire), changes: self.changes() }
    }

    /// See [`vfs::Confirming::epoch`].
    pub fn epoch_now(&self) -> Option<u64> {
        self.changes().filter(|changes| *changes == self.watch.searchable.load(Ordering::Acquire))
    }

    /// Names would be told of, but who may search it has changed, perhaps.
    pub fn is_unsure(&self) -> bool {
        let searchable = self.watch.searchable.load(Ordering::Acquire);
        self.changes().is_some_and(|changes| changes != searchable)
    }

    /// Attributes were learnt under these numbers.
    pub fn searchable(&self, standing: Option<Standing>) {
        if let (true, Some(standing)) = (self.is_dir(), standing) {
            self.watch.searchable.store(standing.own, Ordering::Release);
        }
    }

    /// Begins a change by us.
    pub fn changing(&self) -> Changing<'_> {
        self.bump();
        Changing(self)
    }

    fn bump(&self) {
        self.watch.ours.fetch_add(1, Ordering::AcqRel);
        self.fs.writes.fetch_add(1, Ordering::AcqRel);
        // Other trees may have the same directory, and follow it.
        let watches = &self.fs.home.watches;
        if self.is_dir() && self.changes().is_none() {
            watches.changed_by_us(self.key);
        }
        // They may have the object by a name of which this node does not know.
        self.fs.home.other_trees(&self.fs, |tree| {
            let node = tree.nodes.read().get(&self.key).and_then(|node| node.upgrade());
            if let Some(node) = node {
                node.watch.ours.fetch_add(1, Ordering::AcqRel);
                tree.writes.fetch_add(1, Ordering::AcqRel);
            }
        });
        self.with_parent(|parent| {
            if let Some(parent) = parent.filter(|parent| parent.changes().is_none()) {
                watches.changed_by_us(parent.key);
            }
        });
    }

    /// The content was read by a host call, which may have changed the time of access.
    pub fn was_read(&self) {
        let a = self.known();
        if self.fs.mode == Mode::Shared && vfs::attr::is_old(a.atime, a.mtime, a.ctime, host::now()) {
            self.watch.ours.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The directory was asked about; when that happens often, it is watched.
    pub fn asked(&self) {
        if !self.fs.is_watched() || self.changes().is_some() {
            return;
        }
        let asked = self.watch.asked.load(Ordering::Relaxed);
        if asked < ASKED {
            self.watch.asked.fetch_add(1, Ordering::Relaxed);
        } else if asked == ASKED
            && self
                .watch
                .asked
                .compare_exchange(asked, asked + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            self.begin_watch();
        }
    }

    /// Marks the directory and learns its attributes.
    fn begin_watch(&self) {
        let Ok(dir) = self.dir_fd().and_then(|dir| host::open_self(&*dir)) else { return };
        let Some(follower) = self.fs.home.watches.watch(&dir, self.key) else { return };
        let old = self.watch.follower.write().replace(follower);
        drop(old);
        self.watch.asked.store(0, Ordering::Relaxed);
        let _ = self.current();
    }
}

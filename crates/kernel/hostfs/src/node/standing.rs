//! Decides how long cached attributes and names of a node are valid.
//!
//! The directory's watch counts changes by other processes, and the node counts our own. Attributes are valid while
//! both numbers stay the same ([`Standing`]). The numbers are read before the host call. A change in between makes the
//! answer invalid, and the call is made again.

use super::Node;
use crate::fs::{HostFs, Mode};
use crate::outside::Act;
use crate::watches::{Coherence, Expectation, Follower};
use abi::stat::{Attr, S_IFREG};
use hostsys::fs as host;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use vfs::SetAttr;

/// A directory is watched when it has been asked about this many times: marking costs as much as a few questions.
const ASKED: u32 = 4;

/// Size of a directory that is read when it is marked.
const SMALL: u64 = 16 << 10;

/// The numbers under which attributes hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Standing {
    /// Changes by others in the directory that has the object.
    parent: u64,
    /// Of a directory: changes by others in itself.
    own: u64,
    /// Our changes.
    ours: u64,
    /// Those of them that may have changed the rights.
    rights: u64,
}

impl Standing {
    /// Whether the rights are the same under both.
    pub fn same_rights(&self, other: &Standing) -> bool {
        (self.parent, self.own, self.rights) == (other.parent, other.own, other.rights)
    }

    /// Numbers of the changes by others.
    pub fn by_others(&self) -> (u64, u64) {
        (self.parent, self.own)
    }

    /// Of a node that has just been made, for what the host said after `before` was noted.
    pub fn of_new(fs: &HostFs, before: &ChangeCounts) -> Option<Standing> {
        // Another node for the object may have come and gone, and changed it.
        let quiet = fs.writes.load(Ordering::Acquire) == before.writes;
        before.changes.filter(|_| quiet).map(|parent| Standing { parent, own: 0, ours: 0, rights: 0 })
    }
}

/// What a directory notes before the host is asked about a name in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeCounts {
    changes: Option<u64>,
    writes: u64,
}

impl ChangeCounts {
    /// We have changed nothing in the tree since.
    pub fn is_quiet(&self, fs: &HostFs) -> bool {
        fs.writes.load(Ordering::Acquire) == self.writes
    }

    /// The same for another directory, of which nothing was noted.
    pub fn elsewhere(self) -> ChangeCounts {
        ChangeCounts { changes: None, ..self }
    }
}

/// What a node knows of being watched.
#[derive(Default)]
pub(crate) struct Watching {
    /// Of a directory: its mark.
    follower: read_biased_lock::RwLock<Option<Follower>>,
    /// Questions that would not have been asked with a mark; huge when there can be none.
    asked: AtomicU32,
    /// Of a directory: [`Standing::own`] at the time when its attributes were read, so that the right to search it is
    /// known.
    searchable: AtomicU64,
    ours: AtomicU64,
    /// See [`Standing::rights`].
    rights: AtomicU64,
    /// Programs with threads of their own that are writing to it.
    writers: AtomicU32,
    /// Open files through which so much is written that changes of the content are not reported, see [`Quiet`].
    quiet: AtomicU32,
    /// The end of what we wrote furthest.
    reached: AtomicU64,
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

    /// Whether changes of its content go unreported now.
    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Acquire) != 0
    }

    /// Notes that we wrote up to this offset.
    pub fn wrote_to(&self, end: u64) {
        if self.reached.load(Ordering::Relaxed) < end {
            self.reached.fetch_max(end, Ordering::Relaxed);
        }
    }

    /// The end of what we wrote furthest. The file may have been cut since.
    pub fn reached(&self) -> u64 {
        self.reached.load(Ordering::Relaxed)
    }

    /// Of a directory: the right to search it is not known any more.
    pub fn forget_searchable(&self) {
        self.searchable.store(0, Ordering::Release);
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

/// While it exists, changes of a file's content are not reported, neither our own nor those of others, and its attributes are asked
/// for each time.
pub(crate) struct Quiet(Arc<Node>, Arc<OwnedFd>);

impl Quiet {
    /// For a file and a descriptor of it.
    pub fn new(node: &Arc<Node>, fd: Arc<OwnedFd>) -> Quiet {
        // Counted for as long as events may be missing.
        node.watch.quiet.fetch_add(1, Ordering::AcqRel);
        node.fs.home.watches.ignore_content(&fd, true);
        Quiet(node.clone(), fd)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // Another open file may go on writing: then there are events that are not needed.
        self.0.fs.home.watches.ignore_content(&self.1, false);
        self.0.bump();
        self.0.watch.quiet.fetch_sub(1, Ordering::AcqRel);
    }
}

/// We are changing the object: what is learnt meanwhile does not hold afterwards.
pub(crate) struct Changing<'a> {
    node: &'a Node,
    /// [`Watching::rights`] after the beginning, if the rights change.
    rights: Option<u64>,
}

impl Changing<'_> {
    /// Ends a change of rights; the number of such changes, if there was no other one meanwhile.
    pub fn end_alone(mut self) -> Option<u64> {
        let begun = self.rights.take()?;
        let ended = self.node.bump_rights();
        (ended == begun + 1).then_some(ended)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        match self.rights {
            Some(_) => drop(self.node.bump_rights()),
            None => self.node.bump(),
        }
    }
}

/// A change by us that a watch may take for another process's.
#[derive(Default)]
pub(crate) struct Acting<'a> {
    expectation: Option<Expectation<'a>>,
    act: Option<Act>,
}

impl Acting<'_> {
    /// The change was made.
    pub fn done(self) {
        if let Some(expectation) = self.expectation {
            expectation.done();
        }
        drop(self.act);
    }
}

/// Whether the watch of the directory reports every change of an object with these attributes. When others give a file a second
/// name in another directory, this watch reports neither that nor changes by the second name. A lagging tree accepts this until
/// it asks about the file next.
pub(crate) fn is_told(attr: &Attr, coherence: Coherence) -> bool {
    attr.is_dir() || attr.nlink == 1 && coherence == Coherence::Lagging
}

impl Node {
    /// Changes by others in this directory; `None` where they are not told.
    pub(crate) fn changes(&self) -> Option<u64> {
        if self.fs.mode == Mode::Exclusive {
            // Nothing changes there. Without a gofer a question costs less than to keep the names.
            return self.fs.top.is_another_process().then_some(0);
        }
        self.fs.home.watches.changes(self.watch.follower.read().as_ref()?)
    }

    /// The numbers as they are now; `None` where they do not tell all.
    pub fn standing(&self) -> Option<Standing> {
        if !self.fs.is_watched() {
            return None;
        }
        // The number first: a writer ends after it has counted its change.
        let (rights, ours) =
            (self.watch.rights.load(Ordering::Acquire), self.watch.ours.load(Ordering::Acquire));
        if self.watch.writers.load(Ordering::Acquire) != 0 {
            return None;
        }
        let own = if self.is_dir() { self.changes()? } else { 0 };
        let parent = self.with_parent(|parent| parent.map_or(Some(0), |parent| parent.changes()))?;
        Some(Standing { parent, own, ours, rights })
    }

    /// The same for what the host said of the object after `before` was noted in its directory.
    pub fn standing_since(&self, before: &ChangeCounts) -> Option<Standing> {
        let quiet = self.fs.writes.load(Ordering::Acquire) == before.writes;
        self.standing().filter(|now| quiet && !self.is_dir() && Some(now.parent) == before.changes)
    }

    /// What this directory notes before the host is asked about a name in it.
    pub fn noted(&self) -> ChangeCounts {
        ChangeCounts { writes: self.fs.writes.load(Ordering::Acquire), changes: self.changes() }
    }

    /// See [`vfs::Confirming::epoch`].
    pub fn epoch_now(&self) -> Option<u64> {
        self.changes().filter(|changes| *changes == self.watch.searchable.load(Ordering::Acquire))
    }

    /// The watch reports changes of names, but the right to search the directory may have changed.
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
        Changing { node: self, rights: Some(self.bump_rights()) }
    }

    /// Begins a change of content or times by us. The host may take set-user-id from what is written to.
    pub fn writing(&self) -> Changing<'_> {
        if self.known().mode & 0o6000 != 0 {
            return self.changing();
        }
        self.bump();
        Changing { node: self, rights: None }
    }

    /// Counts a change of rights.
    fn bump_rights(&self) -> u64 {
        let now = self.watch.rights.fetch_add(1, Ordering::AcqRel) + 1;
        self.bump();
        now
    }

    /// Notes what the host has made of the rights of a regular file, in the change with number `changed`; `before` was noted before.
    /// False where that is not known, so that the host must be asked.
    pub fn note_rights(&self, set: &SetAttr, before: Option<Standing>, changed: Option<u64>) -> bool {
        let (Some(before), Some(rights)) = (before, changed) else { return false };
        let known = self.known();
        let sure = |mode: u32| mode & 0o6000 == 0;
        let told =
            self.kind == S_IFREG && is_told(&known, self.fs.coherence) && !self.watch.has_other_names();
        if !told || !sure(known.mode) || !set.mode.is_none_or(sure) {
            return false;
        }
        let standing = Standing { rights, ..before };
        self.set_rights(set, standing)
    }

    /// A program's own thread begins to write.
    pub fn begin_writing(&self) {
        self.watch.writers.fetch_add(1, Ordering::AcqRel);
        drop(self.writing());
    }

    /// It has written.
    pub fn end_writing(&self) {
        drop(self.writing());
        self.watch.writers.fetch_sub(1, Ordering::AcqRel);
    }

    /// A file of a watched directory with reports of changes of its content, ours among them.
    pub fn hears_its_writes(&self) -> bool {
        self.fs.coherence == Coherence::Lagging
            && self.with_parent(|parent| parent.is_some_and(|parent| parent.changes().is_some()))
    }

    fn bump(&self) {
        // First: what was told before must not be taken for what holds after the change.
        self.place_changed();
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
                node.watch.rights.fetch_add(1, Ordering::AcqRel);
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

    /// A read may change the time of access.
    pub fn reads_show(&self) -> bool {
        let a = self.known();
        self.fs.mode == Mode::Shared && namei::atime::is_old(a.atime, a.mtime, a.ctime, host::now())
    }

    /// The content was read by a host call, which may have changed the time of access.
    pub fn was_read(&self) {
        if self.reads_show() {
            self.place_changed();
            self.watch.ours.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// We are about to change `name` in this directory; `mask` (FAN_*): what may be reported of it. `object` is what the name leads
    /// to, if it is there. Kept until the change is made.
    pub fn acting(&self, name: &[u8], mask: u64, object: Option<(u64, u64)>) -> Acting<'_> {
        if !self.fs.top.is_another_process() {
            return Acting::default();
        }
        let follower = self.watch.follower.read();
        Acting {
            expectation: follower.as_ref().map(|follower| self.fs.home.watches.expect(follower, name, mask)),
            act: self.fs.home.outside.act(self.key, name, object),
        }
    }

    /// An open file is about to be closed: see [`Node::acting`].
    pub fn closing(&self) -> Option<Act> {
        if !self.fs.top.is_another_process() {
            return None;
        }
        let (dir, name) = self.place()?;
        self.fs.home.outside.close(dir.key, &name, self.key)
    }

    /// What a name leads to, for [`Node::acting`]; asked for only while something is watched.
    pub fn acted_on(&self, name: &[u8]) -> Option<(u64, u64)> {
        if !self.fs.top.is_another_process() || !self.fs.home.outside.is_watching() {
            return None;
        }
        let attr = self.dir().ok()?.look(name).ok()?;
        Some((attr.dev, attr.ino))
    }

    /// The directory was asked about; when that happens often, it is watched.
    pub fn asked(&self) {
        if !self.fs.is_watched() || (self.changes().is_some() && !self.stays_unsure()) {
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

    /// The directory is watched from now on, if that can be.
    pub fn watch_at_once(&self) {
        let has_use = self.fs.is_watched() && (self.changes().is_none() || self.stays_unsure());
        if has_use && self.watch.asked.fetch_max(ASKED + 1, Ordering::AcqRel) <= ASKED {
            self.begin_watch();
        }
    }

    /// A directory that we have just made will be asked about the names that come into it: by way of a gofer the first question is
    /// a reason to watch it.
    pub fn expects_questions(&self) {
        if self.is_dir() && self.fs.top.is_another_process() {
            self.watch.asked.fetch_max(ASKED, Ordering::AcqRel);
        }
    }

    /// Marks the directory and learns its attributes. Changes of a directory's own attributes are reported by its
    /// parent. The parent may be unknown when the directory is a working directory.
    fn begin_watch(&self) {
        if self.changes().is_none() && !self.follow() {
            return;
        }
        if let Some((parent, _)) = self.place()
            && parent.changes().is_none()
            && parent.follow()
        {
            self.watch.asked.store(0, Ordering::Relaxed);
        }
        let _ = self.current();
    }

    /// It was marked as another one's parent, and its own parent is not: nothing tells whether it may still be searched.
    fn stays_unsure(&self) -> bool {
        self.is_unsure() && self.with_parent(|parent| parent.is_some_and(|parent| parent.changes().is_none()))
    }

    /// Marks the directory; false where it cannot be. A small one is read as well: a directory that is asked about
    /// names is often asked about absent ones.
    fn follow(&self) -> bool {
        let Ok(dir) = self.dir() else { return false };
        let Some(follower) = self.fs.home.watches.watch(&*dir, self.key, self.fs.coherence) else {
            return false;
        };
        let old = self.watch.follower.write().replace(follower);
        drop(old);
        self.watch.asked.store(0, Ordering::Relaxed);
        if self.known().size <= SMALL
            && let Some(reading) = self.begin_reading()
            && let Ok(list) = dir.list()
        {
            self.keep_names(reading, &list);
        }
        true
    }
}

//! Watches for changes by other processes in directories of the host, so that names and attributes can be cached.
//!
//! A directory that is used often is marked in a group of fanotify(7). Its events tell our own changes from those of
//! others. Each directory has a number of changes ([`Watched::changes`]). Cached data are valid while the number is the
//! same. [`Watches::settle`] brings the numbers up to date. Code that relies on them calls it first. Without a mark
//! (the host has no such groups, the file system has no handles, there are too many marks) every use asks the host.
//!
//! A watch does not report when others read a file, or change it by a shared mapping. Nothing is kept of files with several names.
//!
//! A gofer's changes for us look like another process's: [`Watches::expect`].
//!
//! Locks: `reading`, then `known` or `expected`. No host call but the group's is made with them held.

use hostsys::cpu::tsc;
use hostsys::fanotify::{Change, Group, Handle, MASK, NAMES_MASK};
use hosttree::{Directory, Target};
use lock_order::{Mutex, rank};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// File systems, by their magic numbers, that change through the host's kernel only: ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs,
/// F2FS, ZFS. Watches on network file systems do not report what other machines do.
const TOLD: [u64; 7] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0xf2f5_2010, 0x2fc1_2fc1];

/// Directories that are marked at most: the host's kernel keeps their inodes in memory, and a user may have so many
/// (fs.fanotify.max_user_marks). When there are more, all begin anew.
const MAX: usize = 4096;

/// Ticks of the time stamp counter for which nothing is read, for trees that may lag behind: less than a millisecond with every
/// counter of 1.2 GHz and more.
const LAG: u64 = 1_200_000;

/// Bytes for events that are read at once.
const BUFFER: usize = 32 << 10;

/// How exactly a tree follows what others change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coherence {
    /// A change is seen at once.
    Strict,
    /// It is seen within a millisecond.
    Lagging,
    /// As `Strict`, and so are mounts of the host that appear, of which no watch tells: everything is asked for.
    Unwatched,
}

/// A directory that is or was marked. Several trees may have it.
#[derive(Debug)]
struct Watched {
    /// When there was a change last, by `clock`: two directories never have the same number.
    changes: AtomicU64,
    clock: Arc<AtomicU64>,
    /// The number of [`Watches::round`] in which it was marked last; 0 for never.
    round: AtomicU64,
    /// Nodes that follow it. Our own changes are not told, so what one does the others would not know: only a single one may.
    followers: AtomicUsize,
}

impl Watched {
    /// There is a change.
    fn change(&self) {
        let now = self.clock.fetch_add(1, Ordering::AcqRel);
        self.changes.fetch_max(now, Ordering::AcqRel);
    }
}

/// A node follows a directory.
#[derive(Debug)]
pub(crate) struct Follower(Arc<Watched>);

impl Follower {
    fn of(watched: &Arc<Watched>) -> Follower {
        watched.followers.fetch_add(1, Ordering::AcqRel);
        watched.change();
        Follower(watched.clone())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.change();
        self.0.followers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Marked directories by what events call them, and by device and inode number.
#[derive(Default)]
struct MarkedDirectories {
    handles: HashMap<Handle, Arc<Watched>>,
    inodes: HashMap<(u64, u64), Arc<Watched>>,
}

/// The marked directories of one kernel.
pub(crate) struct Watches {
    /// `None` when the host lets us have none.
    group: OnceLock<Option<Group>>,
    known: Mutex<MarkedDirectories>,
    /// Held while events are read. A thread that waits for it knows that the events have been read.
    reading: Mutex<Vec<u8>, { rank::HOST_EVENTS }>,
    /// When events were read last.
    read: AtomicU64,
    /// Counts how often all marks were taken back, from 1.
    round: AtomicU64,
    /// Counts changes, from 1.
    clock: Arc<AtomicU64>,
    /// What a gofer is doing for us.
    expected: Mutex<Vec<Expected>>,
}

/// A change that a gofer makes for us. Its event looks like another process's.
struct Expected {
    id: u64,
    watched: Arc<Watched>,
    name: Box<[u8]>,
    /// What may be told of it (FAN_*).
    mask: u64,
    /// Events that told nothing else.
    seen: u32,
}

/// While it exists, a change of one name by a gofer is expected. When at most one event has told of it in the end, that was ours, and
/// what is known of the directory still holds: events of two processes are never one.
pub(crate) struct Expectation<'a> {
    watches: &'a Watches,
    id: u64,
    done: bool,
}

impl Expectation<'_> {
    /// The gofer has made the change.
    pub fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Expectation<'_> {
    fn drop(&mut self) {
        // The event was there before the gofer's answer.
        self.watches.read_events();
        let mut all = self.watches.expected.lock();
        let Some(at) = all.iter().position(|one| one.id == self.id) else { return };
        let one = all.swap_remove(at);
        drop(all);
        // A change of nothing, or one that the mark does not tell of, has no event.
        if one.seen > u32::from(self.done) {
            one.watched.change();
        }
    }
}

impl Default for Watches {
    fn default() -> Watches {
        Watches {
            group: OnceLock::new(),
            known: Mutex::default(),
            reading: Mutex::default(),
            read: AtomicU64::new(0),
            round: AtomicU64::new(1),
            clock: Arc::new(AtomicU64::new(1)),
            expected: Mutex::default(),
        }
    }
}

impl Watches {
    /// With a group that was made before.
    pub fn with(group: Option<Group>) -> Watches {
        let watches = Watches::default();
        if let Some(group) = group {
            let _ = watches.group.set(Some(group));
        }
        watches
    }

    fn group(&self) -> Option<&Group> {
        let made = self.group.get_or_init(|| {
            Group::new().inspect_err(|e| log::debug!("directories of the host are not watched: {e}")).ok()
        });
        made.as_ref()
    }

    /// Marks a directory, which has this device and inode number; `None` where that cannot be. What is
    /// learnt of it from now on may be kept.
    /// Changes of contents are reported where attributes of files are kept, in trees that may lag behind.
    pub fn watch(&self, dir: &dyn Directory, inode: (u64, u64), coherence: Coherence) -> Option<Follower> {
        let kind = dir.file_system().ok()? as u64;
        let group = self.group().filter(|_| TOLD.contains(&kind))?;
        if self.known.lock().handles.len() >= MAX {
            self.forget_all(group);
        }
        let round = self.round.load(Ordering::Acquire);
        let mask = if coherence == Coherence::Lagging { MASK } else { NAMES_MASK };
        let key = dir.mark(Target::This, group.as_fd(), mask).ok()?;
        let mut known = self.known.lock();
        let new = || {
            let (changes, round) = (AtomicU64::new(0), AtomicU64::new(0));
            Arc::new(Watched { changes, clock: self.clock.clone(), round, followers: AtomicUsize::new(0) })
        };
        let watched = known.handles.entry(key).or_insert_with(new).clone();
        known.inodes.insert(inode, watched.clone());
        drop(known);
        let follower = Follower::of(&watched);
        // When the mark is taken back meanwhile, the round is over, and the number is not used.
        watched.round.store(round, Ordering::Release);
        Some(follower)
    }

    /// Has changes of the content of an open file reported no longer, or again. Without a group there is nothing to do.
    pub fn ignore_content(&self, file: &OwnedFd, ignore: bool) {
        if let Some(Some(group)) = self.group.get()
            && let Err(e) = group.ignore_content(file, ignore)
        {
            log::debug!("events of a file's content stay as they are: {e}");
        }
    }

    fn forget_all(&self, group: &Group) {
        let _reading = self.reading.lock();
        self.round.fetch_add(1, Ordering::AcqRel);
        if let Err(e) = group.flush() {
            log::warn!("marks on directories of the host stay: {e}");
        }
        let old = std::mem::take(&mut *self.known.lock());
        drop(old);
    }

    /// A number, never 0, that changes when others change something in the directory; `None` while that is not told for certain.
    pub fn changes(&self, follower: &Follower) -> Option<u64> {
        let watched = &follower.0;
        let marked = watched.round.load(Ordering::Acquire) == self.round.load(Ordering::Acquire);
        let alone = watched.followers.load(Ordering::Acquire) == 1;
        (marked && alone).then(|| watched.changes.load(Ordering::Acquire))
    }

    /// We have changed something in the directory with these numbers by way of a node that does not follow it.
    pub fn changed_by_us(&self, inode: (u64, u64)) {
        if let Some(watched) = self.known.lock().inodes.get(&inode) {
            watched.change();
        }
    }

    /// A gofer is about to change a name in a directory that is followed; `mask`: what events may tell of it.
    pub fn expect(&self, follower: &Follower, name: &[u8], mask: u64) -> Expectation<'_> {
        // What others did before is not taken for it.
        self.read_events();
        // A number of its own.
        let id = self.clock.fetch_add(1, Ordering::AcqRel);
        let watched = follower.0.clone();
        self.expected.lock().push(Expected { id, watched, name: name.into(), mask, seen: 0 });
        Expectation { watches: self, id, done: false }
    }

    fn is_expected(&self, watched: &Arc<Watched>, name: &[u8], mask: u64) -> bool {
        let mut all = self.expected.lock();
        let same = |one: &&mut Expected| {
            Arc::ptr_eq(&one.watched, watched) && *one.name == *name && mask & !one.mask == 0
        };
        match all.iter_mut().find(same) {
            Some(one) => {
                one.seen += 1;
                true
            }
            None => false,
        }
    }

    /// Takes note of what others have changed.
    pub fn settle(&self, coherence: Coherence) {
        let fresh = || tsc().wrapping_sub(self.read.load(Ordering::Acquire)) < LAG;
        if coherence != Coherence::Lagging || !fresh() {
            self.read_events();
        }
    }

    fn read_events(&self) {
        let Some(Some(group)) = self.group.get() else { return };
        let mut buffer = self.reading.lock();
        buffer.resize(BUFFER, 0);
        let now = tsc();
        let mut lost = false;
        group.drain(&mut buffer, |change| match change {
            Change::In { directory, name, mask } => {
                let watched = self.known.lock().handles.get(directory).cloned();
                if let Some(watched) = watched.filter(|watched| !self.is_expected(watched, name, mask)) {
                    watched.change();
                }
            }
            Change::Overflow => lost = true,
        });
        if lost {
            self.known.lock().handles.values().for_each(|watched| watched.change());
        }
        self.read.store(now, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_round_ends_all_marks() {
        let watches = Watches::default();
        let dir = hosttree::direct::Direct::at(std::fs::File::open("/").unwrap().into());
        let follower = watches.watch(&*dir, (1, 1), Coherence::Strict).unwrap();
        let before = watches.changes(&follower).unwrap();
        watches.settle(Coherence::Strict);
        assert_eq!(watches.changes(&follower), Some(before));
        watches.forget_all(watches.group().unwrap());
        assert_eq!(watches.changes(&follower), None);
        drop(follower);
        let again = watches.watch(&*dir, (1, 1), Coherence::Strict).unwrap();
        assert!(watches.changes(&again).is_some());
    }

    #[test]
    fn two_followers_know_nothing_of_each_other() {
        let watches = Watches::default();
        let dir = hosttree::direct::Direct::at(std::fs::File::open("/").unwrap().into());
        let first = watches.watch(&*dir, (1, 1), Coherence::Strict).unwrap();
        let before = watches.changes(&first).unwrap();
        let second = watches.watch(&*dir, (1, 1), Coherence::Strict).unwrap();
        assert_eq!((watches.changes(&first), watches.changes(&second)), (None, None));
        drop(second);
        assert!(watches.changes(&first).unwrap() > before);
        let before = watches.changes(&first).unwrap();
        watches.changed_by_us((1, 1));
        assert!(watches.changes(&first).unwrap() > before);
    }
}

//! What a gofer has told of names in a directory before they are looked up.
//!
//! Programs look up many names of a directory one after the other (find(1), tar(1), git(1)). The names of a watched directory are
//! known, so one question asks about a name and about those that follow it. How many follow depends on how many of the last ones
//! were used.
//!
//! Attributes are kept where nothing changes, and where a watch tells of every change of them: in a lagging tree, of files with one
//! name. In a strict tree a
//! descriptor of the file is kept, which tells its attributes as they are when they are used. What is kept holds while others
//! change nothing in the directory, and until we change the object or the name. It is bounded by [`MAX_TOLD`] and [`MAX_PLACES`];
//! the directory that was asked about first makes room. What is not used for some time goes ([`Prefetches::forget_all`]).
//!
//! Locks are leaves. No question is asked with them held.

use super::{ChangeCounts, Node};
use crate::fs::Mode;
use crate::watches::Coherence;
use abi::Result;
use abi::stat::{Attr, S_IFLNK, S_IFREG};
use hosttree::Looked;
use lock_order::Mutex;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Names that are asked for at once: at first, after a listing, and at most.
const WINDOW: (usize, usize, usize) = (4, 16, 128);
/// Attributes that are kept without a descriptor, of all directories.
const MAX_TOLD: usize = 16_384;
/// Those with one, where so many may be open.
const MAX_PLACES: usize = 4096;

/// What is kept of a name: its attributes, and the descriptor that tells newer ones.
type Told = (Attr, Option<OwnedFd>);

/// What is kept of a directory's names.
#[derive(Default)]
pub(crate) struct Prefetched {
    state: Mutex<State>,
    /// There is something.
    some: AtomicBool,
    /// Counts our changes of names and of what they lead to.
    touched: AtomicU64,
    /// The directory is in [`Prefetches::order`].
    queued: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The number of changes by others under which it holds.
    changes: u64,
    told: HashMap<Box<[u8]>, Told>,
    count: Count,
    /// How many names are asked for next; 0 for the first time.
    window: usize,
    /// How many were asked for last, and used of them.
    asked: usize,
    used: usize,
}

/// Part of a [`Prefetches::count`].
#[derive(Default)]
struct Count(Option<Arc<AtomicUsize>>, usize);

impl Count {
    fn set(&mut self, n: usize) {
        if let Some(all) = &self.0 {
            all.fetch_add(n, Ordering::Relaxed);
            all.fetch_sub(self.1, Ordering::Relaxed);
            self.1 = n;
        }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl State {
    /// Nothing is kept any more; what was.
    fn clear(&mut self) -> HashMap<Box<[u8]>, Told> {
        self.count.set(0);
        std::mem::take(&mut self.told)
    }

    /// How many names to ask for, by how many of the last ones were used.
    fn grow(&mut self) -> usize {
        let (first, _, most) = WINDOW;
        self.window = match self.window {
            0 => first,
            window if self.used * 2 < self.asked => (window / 2).max(1),
            window => (window * 2).min(most),
        };
        (self.asked, self.used) = (0, 0);
        self.window
    }
}

/// What is kept of all directories of one kernel.
pub(crate) struct Prefetches {
    told: Arc<AtomicUsize>,
    places: Arc<AtomicUsize>,
    most_places: usize,
    /// Directories with something, the one that was asked about first in front, each once.
    order: Mutex<VecDeque<Weak<Node>>>,
}

impl Prefetches {
    /// For a kernel that may have so many descriptors open.
    pub fn new(descriptors: usize) -> Prefetches {
        let most_places = MAX_PLACES.min(descriptors / 8);
        Prefetches { told: Arc::default(), places: Arc::default(), most_places, order: Mutex::default() }
    }

    /// Something is kept of `node` now. When there is too much, the older half of the directories goes.
    fn make_room(&self, node: &Node) {
        let mut order = self.order.lock();
        if !node.prefetched().queued.swap(true, Ordering::AcqRel) {
            if order.len() >= 1024 && order.len().is_power_of_two() {
                order.retain(|known| known.strong_count() != 0);
            }
            order.push_back(node.me.clone());
        }
        let much = self.told.load(Ordering::Relaxed) > MAX_TOLD
            || self.places.load(Ordering::Relaxed) > self.most_places;
        let half = order.len().div_ceil(2);
        let gone: Vec<_> = if much { order.drain(..half).collect() } else { Vec::new() };
        drop(order);
        gone.iter().filter_map(Weak::upgrade).for_each(|first| drop(first.prefetched().forget()));
    }

    /// Nothing is kept any more. True when there was something.
    pub fn forget_all(&self) -> bool {
        let all = std::mem::take(&mut *self.order.lock());
        let gone: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        gone.iter().for_each(|node| drop(node.prefetched().forget()));
        !gone.is_empty()
    }
}

impl Prefetched {
    /// What is kept of a name does not hold any more.
    fn changed(&self, name: &[u8]) {
        self.touched.fetch_add(1, Ordering::SeqCst);
        if self.some.load(Ordering::SeqCst) {
            let mut state = self.state.lock();
            let old = state.told.remove(name);
            let left = state.told.len();
            state.count.set(left);
            drop(state);
            drop(old);
        }
    }

    /// Nothing is kept any more; what was.
    fn forget(&self) -> HashMap<Box<[u8]>, Told> {
        let mut state = self.state.lock();
        self.some.store(false, Ordering::SeqCst);
        self.queued.store(false, Ordering::Release);
        state.clear()
    }

    /// The directory was listed by a program, which may go on with its names.
    pub fn listed(&self) {
        let mut state = self.state.lock();
        state.window = state.window.max(WINDOW.1 / 2);
        (state.asked, state.used) = (0, 0);
    }
}

impl Node {
    pub fn prefetched(&self) -> &Prefetched {
        self.prefetched.get_or_init(Box::default)
    }

    fn has_prefetched(&self) -> bool {
        self.prefetched.get().is_some_and(|prefetched| prefetched.some.load(Ordering::Acquire))
    }

    /// Which names were changed is not known.
    pub fn forget_prefetched(&self) {
        if let Some(prefetched) = self.prefetched.get() {
            prefetched.touched.fetch_add(1, Ordering::SeqCst);
            drop(prefetched.forget());
        }
    }

    /// We have changed a name in this directory, or what it leads to.
    pub fn name_changed(&self, name: &[u8]) {
        if let Some(prefetched) = self.prefetched.get() {
            prefetched.changed(name);
        }
    }

    /// What is kept of a name, and what was noted before; it is used up.
    pub fn take_prefetched(&self, name: &[u8]) -> Option<(Result<Attr>, ChangeCounts, Option<OwnedFd>)> {
        if !self.has_prefetched() {
            return None;
        }
        let before = self.noted();
        let changes = self.changes()?;
        let mut state = self.prefetched().state.lock();
        if state.changes != changes {
            let old = state.clear();
            drop(state);
            drop(old);
            return None;
        }
        let (attr, place) = state.told.remove(name)?;
        state.used += 1;
        let left = state.told.len();
        state.count.set(left);
        drop(state);
        match place {
            None => self.speaks_for(name, &attr).then_some((Ok(attr), before, None)),
            Some(place) => {
                let now = self.fs.top.attr_open(&place).ok()?;
                let same = (now.dev, now.ino) == (attr.dev, attr.ino) && now.nlink != 0;
                same.then_some((Ok(Attr { btime: attr.btime, ..now }), before, Some(place)))
            }
        }
    }

    /// A program inside that changes the object in any way does so by this name, so that what was told of the name goes.
    fn speaks_for(&self, name: &[u8], attr: &Attr) -> bool {
        let node = self.fs.nodes.read().get(&(attr.dev, attr.ino)).and_then(Weak::upgrade);
        node.is_none_or(|node| {
            let here = node.with_place(|place| {
                place.parent.as_ref().is_some_and(|parent| std::ptr::eq(&**parent, self))
                    && *place.name == *name
            });
            here && !node.watch.is_mapped() && !node.watch.is_quiet()
        })
    }

    /// Something is kept of a name, or has been asked for now together with others.
    pub fn prefetch(&self, name: &[u8]) -> bool {
        let kept = || {
            let changes = self.changes();
            let state = self.prefetched().state.lock();
            Some(state.changes) == changes && state.told.contains_key(name)
        };
        (self.has_prefetched() && kept()) || self.prefetch_from(name).is_some()
    }

    fn prefetch_from(&self, name: &[u8]) -> Option<()> {
        let fixed = self.fs.mode == Mode::Exclusive;
        let with_places = !fixed && self.fs.coherence == Coherence::Strict;
        let wanted = |kind: u32| kind == S_IFREG || kind == S_IFLNK && !with_places;
        self.entry(name).filter(|(_, kind)| wanted(*kind))?;
        let window = self.prefetched().state.lock().grow();
        if window <= 1 {
            // It stays so until the directory is listed.
            self.prefetched().state.lock().asked = 1;
            return None;
        }
        let names = self.names_from(name, window, wanted)?;
        let (touched, reading) = (self.prefetched().touched.load(Ordering::SeqCst), self.begin_reading()?);
        let names: Vec<&[u8]> = names.iter().map(|name| &**name).collect();
        let looked = self.dir().ok()?.look_at_all(&names, with_places)?;
        self.prefetched().state.lock().asked = names.len();
        // Nothing has changed meanwhile that may be in what was told.
        let quiet = || self.prefetched().touched.load(Ordering::SeqCst) == touched;
        if !quiet() || !self.still_reading(&reading) {
            return None;
        }
        let keeps = |attr: &Attr, place: &Option<OwnedFd>| match with_places {
            true => attr.file_type() == S_IFREG && place.is_some(),
            false => matches!(attr.file_type(), S_IFREG | S_IFLNK) && (fixed || attr.nlink == 1),
        };
        let told = names.iter().zip(looked).filter_map(|(name, (attr, place)): (_, Looked)| {
            attr.ok().filter(|attr| keeps(attr, &place)).map(|attr| (Box::from(*name), (attr, place)))
        });
        let told: Vec<(Box<[u8]>, Told)> = told.collect();
        let has = told.iter().any(|(told, _)| **told == *name);
        let prefetches = &self.fs.home.prefetches;
        let mut state = self.prefetched().state.lock();
        let mut old = Vec::new();
        if state.changes != reading.changes() {
            old.extend(state.clear().into_values());
            state.changes = reading.changes();
        }
        old.extend(told.into_iter().filter_map(|(name, told)| state.told.insert(name, told)));
        if state.count.0.is_none() {
            let all = if with_places { &prefetches.places } else { &prefetches.told };
            state.count = Count(Some(all.clone()), 0);
        }
        let len = state.told.len();
        state.count.set(len);
        self.prefetched().some.swap(true, Ordering::SeqCst);
        // A change that found nothing to remove.
        if !quiet() {
            old.extend(state.clear().into_values());
        }
        drop(state);
        drop(old);
        prefetches.make_room(self);
        has.then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_were_used() {
        let mut state = State::default();
        let mut next = |used: usize| {
            state.used = used;
            let window = state.grow();
            state.asked = window;
            window
        };
        assert_eq!([next(0), next(4), next(8), next(3)], [4, 8, 16, 8]);
        assert_eq!([next(1), next(1), next(0), next(0)], [4, 2, 1, 1]);
        assert_eq!([next(1), next(2), next(4), next(8), next(16), next(32)], [2, 4, 8, 16, 32, 64]);
        assert_eq!([next(64), next(128), next(128)], [128, 128, 128]);
    }
}

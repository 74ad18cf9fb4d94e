//! The names of watched directories, so that absent ones are known and listings need not be read again.
//!
//! A listing is valid while other processes change nothing in the directory ([`Node::changes`]). Our own changes are
//! entered: each change begins before the host call and ends after it ([`Naming`]), and a listing that was read
//! meanwhile is not kept.
//!
//! A name is reported absent only where that does not depend on the case of letters, because directories may ignore
//! case.
//!
//! Memory is bounded by [`MAX_NAMES`] for a directory and [`MAX_ALL`] for a kernel; the listing that was read first makes room.
//!
//! Locks are leaves. No host call is made with them held.

use super::Node;
use hostsys::fs::ListEntry;
use lock_order::Mutex;
use std::cmp::Ordering as Order;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Names of a directory with a listing that is kept.
const MAX_NAMES: usize = 4096;
/// So few that all may be asked about at once.
const FEW: usize = 40;
/// Names of all directories together.
const MAX_ALL: usize = 65_536;

/// A name. Those that differ only in the case of ASCII's letters are neighbours, the one in capitals first.
#[derive(PartialEq, Eq, Debug)]
struct Name(Box<[u8]>);

impl Name {
    fn folded(&self) -> impl Iterator<Item = u8> {
        self.0.iter().map(u8::to_ascii_lowercase)
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> Order {
        self.folded().cmp(other.folded()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Order> {
        Some(self.cmp(other))
    }
}

/// Names, with inode number and type (DT_*) of each.
#[derive(Default)]
struct List {
    names: BTreeMap<Name, (u64, u8)>,
    /// How many have other than ASCII's letters.
    foreign: usize,
}

impl List {
    fn add(&mut self, name: &[u8], ino: u64, kind: u8) {
        if self.names.insert(Name(name.into()), (ino, kind)).is_none() {
            self.foreign += usize::from(!name.is_ascii());
        }
    }

    fn remove(&mut self, name: &[u8]) {
        if self.names.remove(&Name(name.into())).is_some() {
            self.foreign -= usize::from(!name.is_ascii());
        }
    }

    /// Neither this name nor one that differs in the case of its letters is there.
    fn lacks(&self, name: &[u8]) -> bool {
        if self.foreign != 0 || !name.is_ascii() {
            return false;
        }
        let first = Name(name.to_ascii_uppercase().into());
        let next = self.names.range(&first..).next();
        next.is_none_or(|(found, _)| !found.0.eq_ignore_ascii_case(name))
    }
}

/// What a directory knows of its names.
#[derive(Default)]
pub(crate) struct Names(Mutex<State>);

#[derive(Default)]
struct State {
    /// Our changes that have begun and not ended.
    begun: u32,
    /// Our changes that have ended.
    ended: u64,
    kept: Option<Listing>,
}

struct Listing {
    /// The number of changes by others under which it holds.
    changes: u64,
    list: List,
    count: NameCount,
}

/// Names that count among those of all directories.
struct NameCount(Arc<AtomicUsize>, usize);

impl NameCount {
    fn set(&mut self, n: usize) {
        self.0.fetch_add(n, Ordering::Relaxed);
        self.0.fetch_sub(self.1, Ordering::Relaxed);
        self.1 = n;
    }
}

impl Drop for NameCount {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// The listings of one kernel.
#[derive(Default)]
pub(crate) struct Listings {
    count: Arc<AtomicUsize>,
    /// Directories with a listing that was kept, the first one in front.
    order: Mutex<VecDeque<Weak<Node>>>,
}

impl Listings {
    /// `node` has one now; the oldest ones that are too many go.
    fn make_room(&self, node: &Node) {
        let mut gone = Vec::new();
        let mut order = self.order.lock();
        if order.len() >= 1024 && order.len().is_power_of_two() {
            order.retain(|known| known.strong_count() != 0);
        }
        order.retain(|known| !known.ptr_eq(&node.me));
        order.push_back(node.me.clone());
        let all = self.count.load(Ordering::Relaxed);
        let mut freed = 0;
        while all.saturating_sub(freed) > MAX_ALL
            && let Some(oldest) = order.pop_front()
        {
            if let Some(oldest) = oldest.upgrade() {
                freed += oldest.names.len();
                gone.push(oldest);
            }
        }
        drop(order);
        gone.iter().for_each(|node| node.names.forget());
    }
}

/// One of our changes.
pub(crate) enum Change<'a> {
    /// There is this name, of an object with this inode number and file type.
    Added(&'a [u8], u64, u32),
    /// It is gone.
    Removed(&'a [u8]),
}

/// Our change of a directory's names, under way. Where it ends without having been made for certain, the names are not known.
pub(crate) struct Naming<'a> {
    node: &'a Node,
    sure: bool,
}

impl Naming<'_> {
    /// The host has made the change.
    pub fn done(mut self, changes: &[Change<'_>]) {
        self.sure = true;
        for change in changes {
            let (Change::Added(name, ..) | Change::Removed(name)) = *change;
            self.node.name_changed(name);
        }
        let mut state = self.node.names.0.lock();
        let Some(kept) = &mut state.kept else { return };
        for change in changes {
            match *change {
                Change::Added(name, ino, kind) => kept.list.add(name, ino, (kind >> 12) as u8 & 0xf),
                Change::Removed(name) => kept.list.remove(name),
            }
        }
        let n = kept.list.names.len();
        kept.count.set(n);
        if n > MAX_NAMES {
            state.kept = None;
        }
    }
}

impl Drop for Naming<'_> {
    fn drop(&mut self) {
        let mut state = self.node.names.0.lock();
        state.begun -= 1;
        state.ended += 1;
        let old = if self.sure { None } else { state.kept.take() };
        drop(state);
        drop(old);
        if !self.sure {
            self.node.forget_prefetched();
        }
    }
}

/// What is noted before a directory is read.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    changes: u64,
    ended: u64,
}

impl Reading {
    /// The number of changes by others.
    pub fn changes(&self) -> u64 {
        self.changes
    }
}

impl Names {
    fn len(&self) -> usize {
        self.0.lock().kept.as_ref().map_or(0, |kept| kept.list.names.len())
    }

    fn forget(&self) {
        let old = self.0.lock().kept.take();
        drop(old);
    }
}

impl Node {
    /// Begins a change of names by us.
    pub fn naming(&self) -> Naming<'_> {
        self.names.0.lock().begun += 1;
        Naming { node: self, sure: false }
    }

    /// Before the directory is read; `None` when the listing could not be kept.
    pub fn begin_reading(&self) -> Option<Reading> {
        let changes = self.changes()?;
        let state = self.names.0.lock();
        (state.begun == 0).then_some(Reading { changes, ended: state.ended })
    }

    /// No name has changed since.
    pub fn still_reading(&self, reading: &Reading) -> bool {
        let state = self.names.0.lock();
        let ours = state.begun == 0 && state.ended == reading.ended;
        drop(state);
        ours && self.changes() == Some(reading.changes)
    }

    /// Keeps what was read.
    pub fn keep_names(&self, reading: Reading, read: &[ListEntry]) {
        if read.len() > MAX_NAMES || self.changes() != Some(reading.changes) {
            return;
        }
        let listings = &self.fs.home.listings;
        let mut kept = Listing {
            changes: reading.changes,
            list: List::default(),
            count: NameCount(listings.count.clone(), 0),
        };
        read.iter().for_each(|e| kept.list.add(&e.name, e.ino, e.kind));
        kept.count.set(kept.list.names.len());
        let mut state = self.names.0.lock();
        if state.begun != 0 || state.ended != reading.ended {
            return;
        }
        let old = state.kept.replace(kept);
        drop(state);
        drop(old);
        listings.make_room(self);
    }

    fn with_names<R>(&self, f: impl FnOnce(&List) -> R) -> Option<R> {
        let now = self.changes()?;
        let mut state = self.names.0.lock();
        if state.kept.as_ref()?.changes != now {
            let old = state.kept.take();
            drop(state);
            drop(old);
            return None;
        }
        state.kept.as_ref().map(|kept| f(&kept.list))
    }

    /// There is no such name for certain. What others have changed was taken note of.
    pub fn is_absent(&self, name: &[u8]) -> bool {
        self.with_names(|list| list.lacks(name)).unwrap_or(false)
    }

    /// Inode number and file type that a name has for certain, as of when others were listened to last.
    pub fn entry(&self, name: &[u8]) -> Option<(u64, u32)> {
        let known = self.with_names(|list| list.names.get(&Name(name.into())).copied());
        known.flatten().map(|(ino, kind)| (ino, u32::from(kind) << 12))
    }

    /// A name that is known, and those with `wanted` file types that follow it, at most `most` with it. In a directory of few names
    /// the first ones follow the last one, and none is left out.
    pub fn names_from(
        &self,
        name: &[u8],
        most: usize,
        wanted: impl Fn(u32) -> bool,
    ) -> Option<Vec<Box<[u8]>>> {
        let from = Name(name.into());
        let names = self.with_names(|list| {
            let few = list.names.len() <= FEW;
            let before = if few { Some(list.names.range(..&from)) } else { None };
            let all = list.names.range(&from..).chain(before.into_iter().flatten());
            let of_kind = all.filter(|(_, (_, kind))| wanted(u32::from(*kind) << 12));
            of_kind.take(if few { FEW } else { most }).map(|(name, _)| name.0.clone()).collect::<Vec<_>>()
        });
        names.filter(|names| names.first().is_some_and(|first| **first == *name))
    }

    /// The names, if they are known. What others have changed was taken note of.
    pub fn known_names(&self) -> Option<Vec<ListEntry>> {
        self.with_names(|list| {
            let entries = list.names.iter();
            entries.map(|(name, &(ino, kind))| ListEntry { ino, kind, name: name.0.clone() }).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_whatever_the_case() {
        let mut list = List::default();
        for name in ["Makefile", "a", "b.c", "zz"] {
            list.add(name.as_bytes(), 1, 8);
        }
        for name in ["Makefile", "makefile", "MAKEFILE", "A", "B.c", "zZ"] {
            assert!(!list.lacks(name.as_bytes()), "{name}");
        }
        for name in ["", "Make", "makefiles", "b", "b.", "b.d", "zzz", "{", "0"] {
            assert!(list.lacks(name.as_bytes()), "{name}");
        }
        assert!(!list.lacks("\u{e9}".as_bytes()));
        list.add("\u{17f}".as_bytes(), 2, 8);
        assert!(!list.lacks(b"s"), "it may be another way to write the long one");
        list.add("\u{17f}".as_bytes(), 3, 8);
        list.remove("\u{17f}".as_bytes());
        list.remove(b"none");
        assert!(list.lacks(b"s"));
        list.remove(b"a");
        assert!(list.lacks(b"a"));
    }
}

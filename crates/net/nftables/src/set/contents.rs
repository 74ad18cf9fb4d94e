//! The elements of a set, in the order that its lookups need.

use crate::set::element::Element;
use crate::set::{Set, flag};
use abi::Errno;
use lock_order::{RwLock, rank};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Milliseconds between two walks for expired elements.
const PAUSE: u64 = 1000;

/// Elements. Lock rank: `NFT_SET`.
pub(crate) struct Contents {
    /// The batch that made this copy.
    pub batch: u64,
    /// When packets may look for expired elements again, in milliseconds of the kernel's clock.
    due: AtomicU64,
    inner: RwLock<Inner, { rank::NFT_SET }>,
}

struct Inner {
    store: Store,
    catchall: Option<Arc<Element>>,
    /// The copy that a batch works on.
    successor: Weak<Contents>,
}

#[derive(Clone)]
enum Store {
    /// Single values.
    Exact(BTreeMap<Box<[u8]>, Arc<Element>>),
    /// Beginnings and ends of intervals by value, the end before a beginning at the same value.
    Bounds(Vec<Arc<Element>>),
    /// Ranges of concatenated fields (their lengths, padded), in the order of their arrival.
    Ranges(Vec<Arc<Element>>, Box<[usize]>),
}

/// What became of a new element.
#[derive(Debug)]
pub(crate) enum Insert {
    Done,
    /// One with the same key is there.
    Exists(Arc<Element>),
    /// An interval with some of the same values is there.
    Overlaps,
    Full,
}

impl std::fmt::Debug for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Element({:?})", self.key)
    }
}

impl Contents {
    pub fn new(flags: u32, fields: &[u32], batch: u64) -> Contents {
        let store = match flags & flag::INTERVAL != 0 {
            true if fields.len() > 1 => Store::Ranges(
                Vec::new(),
                fields.iter().map(|len| (*len as usize).next_multiple_of(4)).collect(),
            ),
            true => Store::Bounds(Vec::new()),
            false => Store::Exact(BTreeMap::new()),
        };
        Contents {
            batch,
            due: 0.into(),
            inner: RwLock::new(Inner { store, catchall: None, successor: Weak::new() }),
        }
    }

    /// A copy for a batch. What packets add from now on is added to it as well.
    pub fn copy(&self, batch: u64) -> Arc<Contents> {
        let mut inner = self.inner.write();
        let copy =
            Inner { store: inner.store.clone(), catchall: inner.catchall.clone(), successor: Weak::new() };
        let copy = Arc::new(Contents { batch, due: 0.into(), inner: RwLock::new(copy) });
        inner.successor = Arc::downgrade(&copy);
        copy
    }

    /// The element that a key belongs to.
    pub fn find(&self, key: &[u8], now: u64) -> Option<Arc<Element>> {
        let inner = self.inner.read();
        let live = |element: &&Arc<Element>| !element.is_expired(now);
        let found = match &inner.store {
            Store::Exact(map) => map.get(key).filter(live),
            Store::Bounds(list) => {
                let after = list.partition_point(|element| *element.key <= *key);
                // An expired interval counts as its own end.
                list[..after].last().filter(|element| !element.is_end()).filter(live)
            }
            Store::Ranges(list, fields) => list.iter().filter(live).find(|e| in_range(e, key, fields)),
        };
        found.or_else(|| inner.catchall.as_ref().filter(live)).cloned()
    }

    /// The element with exactly these bounds.
    pub fn get(&self, key: &[u8], key_end: Option<&[u8]>, flags: u32) -> Option<Arc<Element>> {
        let inner = self.inner.read();
        if flags & super::element::CATCHALL != 0 {
            return inner.catchall.clone();
        }
        let end = flags & super::element::INTERVAL_END != 0;
        match &inner.store {
            Store::Exact(map) => map.get(key).cloned(),
            Store::Bounds(list) => position(list, key, end).ok().map(|at| list[at].clone()),
            Store::Ranges(list, _) => {
                let wanted = key_end.unwrap_or(key);
                let same = |e: &&Arc<Element>| *e.key == *key && last(e) == wanted;
                list.iter().find(same).cloned()
            }
        }
    }

    /// The element with the interval that a value is in; its end if that is asked for.
    pub fn around(&self, key: &[u8], flags: u32, now: u64) -> Option<Arc<Element>> {
        if flags & super::element::INTERVAL_END == 0 {
            return self.find(key, now);
        }
        let inner = self.inner.read();
        let Store::Bounds(list) = &inner.store else { return None };
        let after = list.partition_point(|element| *element.key < *key);
        list.get(after).filter(|element| element.is_end()).cloned()
    }

    /// Adds an element, unless more than `max` would be there.
    pub fn insert(&self, element: &Arc<Element>, max: usize) -> Insert {
        let mut inner = self.inner.write();
        if element.is_catchall() {
            if let Some(old) = &inner.catchall {
                return Insert::Exists(old.clone());
            }
            inner.catchall = Some(element.clone());
            return Insert::Done;
        }
        let result = inner.store.insert(element, max);
        if matches!(result, Insert::Done)
            && let Some(copy) = inner.successor.upgrade()
        {
            copy.inner.write_nested().store.insert(element, max);
        }
        result
    }

    pub fn remove(&self, element: &Element) {
        let mut inner = self.inner.write();
        if element.is_catchall() {
            inner.catchall = None;
            return;
        }
        inner.store.remove(element);
        if let Some(copy) = inner.successor.upgrade() {
            copy.inner.write_nested().store.remove(element);
        }
    }

    /// Removes the expired elements.
    pub fn collect(&self, now: u64) -> Vec<Arc<Element>> {
        let dead: Vec<_> = self.all().into_iter().filter(|element| element.is_expired(now)).collect();
        for element in &dead {
            self.remove(element);
        }
        dead
    }

    /// The same for a packet that finds the set full: the set is walked once in [`PAUSE`], whatever the number of packets. Whether
    /// there is room now.
    pub fn make_room(&self, now: u64) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        let next = now.saturating_add(PAUSE);
        // Of many packets at once one walks.
        let mine =
            now >= due && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        mine && !self.collect(now).is_empty()
    }

    /// All elements.
    pub fn all(&self) -> Vec<Arc<Element>> {
        let inner = self.inner.read();
        let mut all: Vec<_> = match &inner.store {
            Store::Exact(map) => map.values().cloned().collect(),
            Store::Bounds(list) | Store::Ranges(list, _) => list.clone(),
        };
        all.extend(inner.catchall.clone());
        all
    }

    /// Elements that one lookup walks, beyond the few of a search.
    pub fn walked(&self) -> usize {
        match &self.inner.read().store {
            Store::Ranges(list, _) => list.len(),
            Store::Exact(_) | Store::Bounds(_) => 0,
        }
    }

    /// Steps of adding or removing an element: a comparison, or moving 64 elements.
    pub fn steps(&self) -> usize {
        match &self.inner.read().store {
            Store::Ranges(list, _) => list.len(),
            Store::Bounds(list) => list.len() / 64,
            Store::Exact(_) => 0,
        }
    }

    pub fn len(&self) -> usize {
        match &self.inner.read().store {
            Store::Exact(map) => map.len(),
            Store::Bounds(list) | Store::Ranges(list, _) => list.len(),
        }
    }
}

impl Store {
    fn insert(&mut self, element: &Arc<Element>, max: usize) -> Insert {
        match self {
            Store::Exact(map) => {
                let full = map.len() >= max;
                match map.entry(element.key.clone()) {
                    std::collections::btree_map::Entry::Occupied(old) => Insert::Exists(old.get().clone()),
                    _ if full => Insert::Full,
                    std::collections::btree_map::Entry::Vacant(place) => {
                        place.insert(element.clone());
                        Insert::Done
                    }
                }
            }
            Store::Bounds(list) => match position(list, &element.key, element.is_end()) {
                Ok(at) => Insert::Exists(list[at].clone()),
                Err(at) if overlaps(list, at, element.is_end()) => Insert::Overlaps,
                // Each interval has two ends.
                Err(_) if list.len() / 2 >= max => Insert::Full,
                Err(at) => {
                    list.insert(at, element.clone());
                    Insert::Done
                }
            },
            Store::Ranges(list, fields) => {
                let same = |old: &&Arc<Element>| old.key == element.key && last(old) == last(element);
                if let Some(old) = list.iter().find(same) {
                    return Insert::Exists(old.clone());
                }
                if list.iter().any(|old| ranges_meet(old, element, fields)) {
                    return Insert::Overlaps;
                }
                if list.len() >= max {
                    return Insert::Full;
                }
                list.push(element.clone());
                Insert::Done
            }
        }
    }

    fn remove(&mut self, element: &Element) {
        match self {
            Store::Exact(map) => drop(map.remove(&element.key)),
            Store::Bounds(list) => {
                if let Ok(at) = position(list, &element.key, element.is_end()) {
                    list.remove(at);
                }
            }
            Store::Ranges(list, _) => {
                let same = |e: &Arc<Element>| e.key == element.key && last(e) == last(element);
                if let Some(at) = list.iter().rposition(same) {
                    list.remove(at);
                }
            }
        }
    }
}

/// Where a bound is or belongs.
fn position(list: &[Arc<Element>], key: &[u8], end: bool) -> Result<usize, usize> {
    list.binary_search_by(|element| (*element.key).cmp(key).then_with(|| end.cmp(&element.is_end())))
}

/// Whether a bound at that place would lie inside a whole interval.
fn overlaps(list: &[Arc<Element>], at: usize, end: bool) -> bool {
    let before = at.checked_sub(1).map(|at| !list[at].is_end());
    let after = list.get(at).map(|element| element.is_end());
    if end { false } else { before == Some(true) && after == Some(true) }
}

fn last(element: &Element) -> &[u8] {
    element.key_end.as_deref().unwrap_or(&element.key)
}

/// The pieces of keys that belong to one field each.
fn by_field<'a>(key: &'a [u8], fields: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().scan(0, move |at, len| {
        let piece = key.get(*at..*at + len);
        *at += len;
        piece
    })
}

fn in_range(element: &Element, key: &[u8], fields: &[usize]) -> bool {
    let bounds = by_field(&element.key, fields).zip(by_field(last(element), fields));
    by_field(key, fields).zip(bounds).all(|(field, (from, to))| from <= field && field <= to)
}

fn ranges_meet(a: &Element, b: &Element, fields: &[usize]) -> bool {
    let (a, b) = ((&*a.key, last(a)), (&*b.key, last(b)));
    let froms = by_field(a.0, fields).zip(by_field(b.0, fields)).map(|(a, b)| a.max(b));
    let tos = by_field(a.1, fields).zip(by_field(b.1, fields)).map(|(a, b)| a.min(b));
    froms.zip(tos).all(|(from, to)| from <= to)
}

impl Set {
    /// Most elements that may be there.
    pub fn max(&self) -> usize {
        if self.size == 0 { usize::MAX } else { self.size as usize }
    }

    /// The elements, as a copy that a batch may change.
    pub fn contents_mut(&mut self, batch: u64) -> Result<&Arc<Contents>, Errno> {
        if self.contents.batch != batch {
            self.contents = self.contents.copy(batch);
        }
        Ok(&self.contents)
    }
}

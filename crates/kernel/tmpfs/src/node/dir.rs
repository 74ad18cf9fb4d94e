//! Directories: names to nodes, with offsets that stay put while entries come and go.
//!
//! An entry made here gets the next number as its offset. Names of a lower
//! directory keep their place in its listing, which is read once; an entry
//! here with the same name hides it, a whiteout without replacement.

use super::Node;
use crate::fs::TmpFs;
use crate::lower::LowerDir;
use abi::{Errno, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use vfs::{Caller, DirEntry, DirSink};

pub(crate) enum Entry {
    /// A name with its offset; 0 when it is (still) the lower directory's.
    Node(Arc<Node>, u64),
    /// As `Node`, where the lower directory has another object of that name.
    Hiding(Arc<Node>, u64),
    /// A name of the lower directory that was removed.
    Whiteout,
}

/// A name of a directory that may have changed, for the module `walk`.
pub(crate) enum Item {
    /// The layers' object of that name is gone.
    Gone,
    /// A node in place.
    Kept(Arc<Node>),
    /// Another node.
    New(Arc<Node>),
    /// The same, where the layers have an object of that name.
    Hiding(Arc<Node>),
}

/// A directory's entries.
pub(crate) struct Dir {
    entries: HashMap<Arc<[u8]>, Entry>,
    order: BTreeMap<u64, Arc<[u8]>>,
    next: u64,
    lower: Option<Box<dyn LowerDir>>,
    list: Option<Arc<[DirEntry]>>,
    /// All names of the lower directory are known, and it is not asked any more.
    settled: bool,
    /// Removed: nothing may be added.
    pub dead: bool,
}

impl Dir {
    pub fn new(lower: Option<Box<dyn LowerDir>>, first: u64) -> Dir {
        Dir {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            next: first,
            lower,
            list: None,
            settled: false,
            dead: false,
        }
    }

    /// st_size, as tmpfs counts it.
    pub fn size(&self) -> u64 {
        match &self.lower {
            Some(_) => 4096,
            None => (self.order.len() as u64 + 2) * 20,
        }
    }

    /// The next offset to be given out: a reader that started before stops there.
    pub fn end(&self) -> u64 {
        self.next
    }

    /// The lower directory, if it is asked about names.
    pub fn asked(&self) -> Option<&dyn LowerDir> {
        self.lower.as_deref().filter(|_| !self.settled)
    }

    pub fn find(&mut self, cx: &dyn Caller, fs: &Arc<TmpFs>, name: &[u8]) -> Result<Arc<Node>> {
        match self.entries.get(name) {
            Some(Entry::Node(n, _) | Entry::Hiding(n, _)) => return Ok(n.clone()),
            Some(Entry::Whiteout) => return Err(Errno::ENOENT),
            None => {}
        }
        let Some(l) = self.lower.as_ref().filter(|_| !self.settled) else { return Err(Errno::ENOENT) };
        let n = l.find(cx, fs, name)?;
        self.entries.insert(Arc::from(name), Entry::Node(n.clone(), 0));
        Ok(n)
    }

    /// Adds a name, which the caller has looked for, or replaces it.
    pub fn put(&mut self, name: &[u8], node: Arc<Node>) {
        let name: Arc<[u8]> = Arc::from(name);
        let seq = self.next;
        self.next += 1;
        let hides = match self.entries.get(&name) {
            None => false,
            Some(Entry::Node(_, old)) => {
                self.order.remove(old);
                *old == 0
            }
            Some(Entry::Hiding(_, old)) => {
                self.order.remove(old);
                true
            }
            Some(Entry::Whiteout) => true,
        };
        let e = if hides { Entry::Hiding(node, seq) } else { Entry::Node(node, seq) };
        self.entries.insert(name.clone(), e);
        self.order.insert(seq, name);
    }

    /// Exchanges the node behind a name, which keeps its offset unless it was a lower name.
    pub fn replace(&mut self, name: &[u8], node: Arc<Node>) {
        match self.entries.get_mut(name) {
            Some(Entry::Node(n, seq)) if *seq != 0 => *n = node,
            Some(Entry::Hiding(n, _)) => *n = node,
            _ => self.put(name, node),
        }
    }

    /// Takes a name out.
    pub fn remove(&mut self, name: &[u8]) {
        let Some((key, e)) = self.entries.get_key_value(name) else { return };
        let (key, below, seq) = match e {
            Entry::Node(_, seq) => (key.clone(), *seq == 0, *seq),
            Entry::Hiding(_, seq) => (key.clone(), true, *seq),
            Entry::Whiteout => return,
        };
        self.order.remove(&seq);
        if below {
            self.entries.insert(key, Entry::Whiteout);
        } else {
            self.entries.remove(&key);
        }
    }

    fn listing(&mut self, cx: &dyn Caller) -> Result<Option<Arc<[DirEntry]>>> {
        let Some(l) = &self.lower else { return Ok(None) };
        if self.list.is_none() {
            self.list = Some(l.list(cx)?);
        }
        Ok(self.list.clone())
    }

    /// Whether a name of the lower listing still shows.
    fn shows(&self, name: &[u8]) -> bool {
        match self.entries.get(name) {
            // In a settled directory: a name that was listed and could not be found.
            None => !self.settled,
            Some(Entry::Node(_, seq)) => *seq == 0,
            Some(Entry::Hiding(..) | Entry::Whiteout) => false,
        }
    }

    /// Names of the lower directory that have not been looked up.
    pub fn unseen(&mut self, cx: &dyn Caller) -> Result<Vec<Vec<u8>>> {
        if self.settled {
            return Ok(Vec::new());
        }
        let list = self.listing(cx)?;
        let names = list.iter().flat_map(|list| list.iter()).map(|e| &e.name);
        Ok(names.filter(|name| !self.entries.contains_key(&name[..])).cloned().collect())
    }

    /// Says that all names of the lower directory have been looked up: what becomes of it does not matter any more.
    pub fn settle(&mut self) {
        self.settled = self.lower.is_some();
    }

    /// Says that the lower directory is getting the names that were made here: one that goes is to be hidden there.
    pub fn written_back(&mut self) {
        if self.lower.is_none() || self.settled {
            return;
        }
        for e in self.entries.values_mut() {
            if let Entry::Node(n, seq) = e
                && *seq != 0
            {
                *e = Entry::Hiding(n.clone(), *seq);
            }
        }
    }

    /// What may have to be told of a directory that is `in_place`, or of another one.
    pub fn items(&self, in_place: bool) -> Vec<(Arc<[u8]>, Item)> {
        let item = |e: &Entry| match e {
            Entry::Node(n, 0) if in_place => Some(Item::Kept(n.clone())),
            Entry::Hiding(n, _) if in_place => Some(Item::Hiding(n.clone())),
            Entry::Whiteout => in_place.then_some(Item::Gone),
            Entry::Node(n, _) | Entry::Hiding(n, _) => Some(Item::New(n.clone())),
        };
        self.entries.iter().filter_map(|(name, e)| Some((name.clone(), item(e)?))).collect()
    }

    pub fn is_empty(&mut self, cx: &dyn Caller) -> Result<bool> {
        if !self.order.is_empty() {
            return Ok(false);
        }
        let list = self.listing(cx)?;
        Ok(!list.is_some_and(|l| l.iter().any(|e| self.shows(&e.name))))
    }

    /// Feeds entries with offsets `pos..limit`; returns where to go on.
    pub fn read(&mut self, cx: &dyn Caller, mut pos: u64, limit: u64, sink: &mut dyn DirSink) -> Result<u64> {
        if let Some(list) = self.listing(cx)? {
            let mut i = pos.saturating_sub(2);
            while let Some(e) = usize::try_from(i).ok().and_then(|i| list.get(i)) {
                if self.shows(&e.name) {
                    let shown = match self.entries.get(&e.name[..]) {
                        Some(Entry::Node(n, _)) => DirEntry { ino: n.ino, ..e.clone() },
                        _ => e.clone(),
                    };
                    if !sink.entry(i + 3, &shown) {
                        return Ok(i + 2);
                    }
                }
                i += 1;
            }
            pos = pos.max(i + 2);
        }
        for (seq, name) in self.order.range(pos..limit.max(pos)) {
            let Some(Entry::Node(n, _) | Entry::Hiding(n, _)) = self.entries.get(name) else { continue };
            let e = DirEntry { ino: n.ino, kind: (n.mode() >> 12) as u8, name: name.to_vec() };
            if !sink.entry(seq + 1, &e) {
                return Ok(*seq);
            }
            pos = seq + 1;
        }
        Ok(pos)
    }

    /// The nodes that are known.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.entries.values().filter_map(|e| match e {
            Entry::Node(n, _) | Entry::Hiding(n, _) => Some(n),
            Entry::Whiteout => None,
        })
    }

    /// Forgets unused nodes that the lower directory would give again. `names`: by number, under how many names nodes with
    /// several of them are known.
    pub fn forget_clean(&mut self, names: &HashMap<u64, usize>) {
        if self.settled {
            return;
        }
        self.entries.retain(|_, e| match e {
            // A cache drops what only it holds. While the lock is held no new reference can be made. A reference that
            // goes meanwhile only means that the node stays. The cache cannot give its reference up first to see
            // whether the node lives on: another thread may change the node, and let it go, before the cache has taken
            // it back. A count of users would need a handle of its own for each lookup: 24 ns (measured).
            Entry::Node(n, 0) => {
                Arc::strong_count(n) > names.get(&n.ino).copied().unwrap_or(1) || !n.is_clean()
            }
            _ => true,
        });
        if self.entries.is_empty() {
            self.list = None;
        }
    }

    /// Its entries, but for names of the lower directory that have not been looked up.
    pub fn entries(&self) -> impl Iterator<Item = (&Arc<[u8]>, &Entry)> {
        self.entries.iter()
    }

    /// The node behind a name that has been looked up, or was made here.
    pub fn known(&self, name: &[u8]) -> Option<Arc<Node>> {
        match self.entries.get(name)? {
            Entry::Node(node, _) | Entry::Hiding(node, _) => Some(node.clone()),
            Entry::Whiteout => None,
        }
    }

    /// Offsets for names of the lower directory in a directory without one, in the order of the listing.
    pub fn offsets_of_lower(&self) -> HashMap<&[u8], u64> {
        let of_lower =
            |(name, entry): (&'_ Arc<[u8]>, &Entry)| matches!(entry, Entry::Node(_, 0)).then(|| name.clone());
        let mut left: std::collections::BTreeSet<Arc<[u8]>> =
            self.entries.iter().filter_map(of_lower).collect();
        let listed = self.list.iter().flat_map(|list| list.iter());
        let mut order: Vec<Arc<[u8]>> = listed.filter_map(|entry| left.take(&*entry.name)).collect();
        order.extend(left);
        let key = |name: &Arc<[u8]>| self.entries.get_key_value(name).map(|(name, _)| &**name);
        order.iter().filter_map(key).zip(3..).collect()
    }

    /// Makes its entries these, besides names that are as in the lower directory. Gives the entries that go. EINVAL for what
    /// no directory can be.
    pub fn restore(&mut self, new: Vec<(Arc<[u8]>, Entry)>, next: u64, dead: bool) -> Result<Vec<Entry>> {
        let first = if self.lower.is_some() { super::MERGED_FIRST } else { 3 };
        if !(first..=i64::MAX as u64).contains(&next) {
            return Err(Errno::EINVAL);
        }
        let stays = |entry: &Entry| self.lower.is_some() && matches!(entry, Entry::Node(_, 0));
        let (mut entries, mut gone) = (HashMap::new(), Vec::new());
        for (name, entry) in std::mem::take(&mut self.entries) {
            if stays(&entry) {
                entries.insert(name, entry);
            } else {
                gone.push(entry);
            }
        }
        let (mut order, mut names) = (BTreeMap::new(), std::collections::HashSet::new());
        for (name, entry) in new {
            let offset = match &entry {
                Entry::Node(_, offset) | Entry::Hiding(_, offset) => *offset,
                Entry::Whiteout => 0,
            };
            let own = match &entry {
                Entry::Node(_, 0) | Entry::Whiteout => self.lower.is_some(),
                Entry::Node(..) => (3..next).contains(&offset),
                Entry::Hiding(..) => self.lower.is_some() && (3..next).contains(&offset),
            };
            if !own
                || !names.insert(name.clone())
                || offset != 0 && order.insert(offset, name.clone()).is_some()
            {
                return Err(Errno::EINVAL);
            }
            gone.extend(entries.insert(name, entry));
        }
        (self.entries, self.order, self.next, self.dead) = (entries, order, next, dead);
        Ok(gone)
    }

    /// Nothing known of it differs from the lower directory.
    pub fn is_pristine(&self) -> bool {
        self.entries.is_empty() && !self.dead
    }

    /// All nodes, leaving the directory empty.
    pub fn take_nodes(&mut self) -> Vec<Arc<Node>> {
        self.order.clear();
        let all = std::mem::take(&mut self.entries);
        all.into_values()
            .filter_map(|e| match e {
                Entry::Node(n, _) | Entry::Hiding(n, _) => Some(n),
                Entry::Whiteout => None,
            })
            .collect()
    }
}

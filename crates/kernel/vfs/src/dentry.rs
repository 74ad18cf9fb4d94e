//! Dentries: the cache of names. A dentry ties a name in a directory to an
//! inode and keeps the names below it.
//!
//! Invariants: the inode of a dentry never changes; a dentry of a file system
//! that does not revalidate has at most one live dentry per name. Directories
//! of such file systems keep their children strongly (with negative entries),
//! and so do those that can confirm a whole path at once; those of others keep
//! them weakly, only so that mount points and working directories keep their
//! identity. Names that others may change are right while the directory's epoch
//! is the one in which they were found ([`Dentry::epoch`]). Changes to the
//! children go together with the change in the file system under
//! [`Dentry::lock_dir`]. Order of locks: the
//! rename lock, directories (ancestors first), then whatever the file system
//! takes; nothing that a file system holds is held while a directory is locked.

use crate::inode::{FileSystem, InodeRef};
use crate::mount::SuperBlock;
use abi::stat::S_IFDIR;
use abi::{Errno, Result};
use cache::Alive;
use caller::Blocking;
use lock_order::{Mutex, MutexGuard, RwLock, rank};
use read_biased_lock::ReadGuard;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

mod cache;
mod handles;

pub use cache::{Dcache, Watched};
pub use handles::{Handle, Handles, SIZE as HANDLE_SIZE};

/// Directories above a name in a file system that may name any directory anywhere, such as FUSE.
const DEEPEST: usize = 2048;

/// A quick hash for short names. The table belongs to one sandbox, so collisions harm no other.
#[derive(Default)]
pub struct NameHasher(u64);

impl NameHasher {
    fn word(&mut self, w: u64) {
        self.0 = (self.0.rotate_left(5) ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for w in words {
            self.word(u64::from_le_bytes(*w));
        }
        // The last eight bytes once more where there are as many, so that no byte is looked at alone.
        match bytes {
            _ if rest.is_empty() => {}
            [.., a, b, c, d, e, f, g, h] => self.word(u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h])),
            short => self.word(short.iter().fold(0, |w, b| w << 8 | u64::from(*b))),
        }
    }
    fn write_usize(&mut self, n: usize) {
        self.word(n as u64);
    }
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

type NameMap<V> = HashMap<Box<[u8]>, V, BuildHasherDefault<NameHasher>>;

enum Child {
    Strong(Arc<Dentry>),
    Weak(Weak<Dentry>),
    /// No such name, as of this epoch of the directory.
    Negative(u64),
}

impl Child {
    /// Whether a dentry is in use outside of the cache, or a file handle leads to it. The cache gives its reference up
    /// and takes it back while something else keeps the dentry; so no references are counted. The dentry ends here if
    /// nothing does. The caller has the lock of the names for writing.
    fn is_used_elsewhere(&mut self) -> bool {
        let Child::Strong(dentry) = self else { return false };
        if dentry.handled.load(Ordering::Relaxed) {
            return true;
        }
        let weak = Arc::downgrade(dentry);
        *self = Child::Weak(weak.clone());
        let Some(dentry) = weak.upgrade() else { return false };
        *self = Child::Strong(dentry);
        true
    }
}

/// What the cache says about a name, for certain.
pub enum Cached {
    /// It exists.
    Present(Arc<Dentry>),
    /// It does not exist.
    Absent,
    /// Ask the file system.
    Unknown,
}

/// What the cache says about a name, borrowed from [`Names`], and the epoch in which it was so ([`Dentry::trusts`]).
pub enum Name<'a> {
    /// It existed.
    Present(&'a Arc<Dentry>, u64),
    /// It did not exist.
    Absent(u64),
    /// Ask the file system.
    Unknown,
}

/// The names of a directory, which stay as they are meanwhile.
pub struct Names<'a>(ReadGuard<'a, NameMap<Child>>);

impl Names<'_> {
    /// What the cache knows of `name`.
    pub fn get(&self, name: &[u8]) -> Name<'_> {
        match self.0.get(name) {
            Some(Child::Strong(d)) => Name::Present(d, d.seen.load(Ordering::Acquire)),
            Some(Child::Negative(epoch)) => Name::Absent(*epoch),
            Some(Child::Weak(_)) | None => Name::Unknown,
        }
    }
}

struct Place {
    parent: Option<Arc<Dentry>>,
    name: Arc<[u8]>,
}

/// A cached name: a node of the tree that the walk follows.
pub struct Dentry {
    /// The object.
    pub inode: InodeRef,
    /// Its type (S_IFMT bits), which never changes.
    pub kind: u32,
    /// The file system wants to be asked on every use.
    pub volatile: bool,
    /// Names below are kept, absent ones too.
    pub keeps: bool,
    place: RwLock<Place>,
    unlinked: AtomicBool,
    /// Others have taken its name away. They may have given the object another one.
    fallen: AtomicBool,
    /// The epoch of its directory in which it was found there last; see [`Dentry::epoch`].
    seen: AtomicU64,
    /// Made without a name (O_TMPFILE without O_EXCL): linkat(2) may give it its first.
    pub linkable: AtomicBool,
    /// A file handle leads here: the cache keeps the name although it is not in use ([`crate::handles`]).
    pub handled: AtomicBool,
    /// Mounts on top of this dentry, in all namespaces.
    mounted: AtomicU32,
    dir: Mutex<(), { rank::DIRECTORY }>,
    /// Read by every walk that passes, written when names are added or removed.
    children: read_biased_lock::RwLock<NameMap<Child>>,
    /// Counts it among the kernel's dentries, once its tree belongs to one.
    alive: OnceLock<Alive>,
}

impl Dentry {
    fn make(
        parent: Option<Arc<Dentry>>,
        name: Arc<[u8]>,
        inode: InodeRef,
        (volatile, keeps): (bool, bool),
        epoch: u64,
        dcache: Option<&Arc<Dcache>>,
    ) -> Arc<Dentry> {
        let kind = inode.kind();
        Arc::new(Dentry {
            alive: dcache.map(|dcache| Alive::new(dcache).into()).unwrap_or_default(),
            inode,
            kind,
            volatile,
            keeps,
            place: RwLock::new(Place { parent, name }),
            unlinked: AtomicBool::new(false),
            fallen: AtomicBool::new(false),
            seen: AtomicU64::new(epoch),
            linkable: AtomicBool::new(false),
            handled: AtomicBool::new(false),
            mounted: AtomicU32::new(0),
            dir: Mutex::new(()),
            children: read_biased_lock::RwLock::default(),
        })
    }

    /// Its tree belongs to the kernel with these dentries from now on; it is the root of the tree of `sb`.
    pub fn belong(&self, dcache: &Arc<Dcache>, sb: &Arc<SuperBlock>) {
        self.alive.get_or_init(|| {
            dcache.add(sb);
            Alive::new(dcache)
        });
    }

    /// Drops unused names of its kernel when there are very many of them. The caller holds no lock of the file system.
    pub fn trim(&self) {
        if let Some(dcache) = self.dcache() {
            dcache.trim();
        }
    }

    /// What it shares with the other dentries of its kernel.
    pub fn dcache(&self) -> Option<&Arc<Dcache>> {
        self.alive.get().map(Alive::dcache)
    }

    /// The root dentry of a file system.
    pub fn root(fs: &dyn FileSystem) -> Arc<Dentry> {
        let volatile = fs.revalidate();
        Dentry::make(None, Arc::from(&b"/"[..]), fs.root(), (volatile, !volatile || fs.confirms()), 0, None)
    }

    /// A dentry outside every tree: an object that has no name (O_TMPFILE, memfd, pipes).
    pub fn detached(dcache: &Arc<Dcache>, inode: InodeRef, name: &[u8]) -> Arc<Dentry> {
        let d = Dentry::make(None, Arc::from(name), inode, (false, true), 0, Some(dcache));
        d.unlinked.store(true, Ordering::Relaxed);
        d
    }

    /// An object without a place in the tree of its file system (with the root `root`), shown by this name.
    pub fn nameless(root: &Dentry, inode: InodeRef, name: &[u8]) -> Arc<Dentry> {
        Dentry::make(None, Arc::from(name), inode, (false, true), 0, root.dcache())
    }

    /// An object made in directory `dir` without a name (O_TMPFILE); shown as `#ino (deleted)`.
    pub fn unnamed(dir: &Arc<Dentry>, inode: InodeRef) -> Arc<Dentry> {
        let ino = inode.attr().map_or(0, |a| a.ino);
        let name = format!("#{ino}").into_bytes();
        let d = Dentry::make(Some(dir.clone()), Arc::from(&name[..]), inode, dir.ways(), 0, dir.dcache());
        d.unlinked.store(true, Ordering::Relaxed);
        d
    }

    /// An object that had this name in directory `dir`, as long as it had one.
    pub fn gone(dir: &Arc<Dentry>, name: &[u8], inode: InodeRef) -> Arc<Dentry> {
        let d = Dentry::make(Some(dir.clone()), Arc::from(name), inode, dir.ways(), 0, dir.dcache());
        d.unlinked.store(true, Ordering::Relaxed);
        d
    }

    /// How names below it are treated: as it is treated itself.
    fn ways(&self) -> (bool, bool) {
        (self.volatile, self.keeps)
    }

    /// Last component of the name.
    pub fn name(&self) -> Arc<[u8]> {
        self.place.read().name.clone()
    }

    /// The directory that holds it; `None` for a root.
    pub fn parent(&self) -> Option<Arc<Dentry>> {
        self.place.read().parent.clone()
    }

    /// Parent and name together.
    pub fn place(&self) -> (Option<Arc<Dentry>>, Arc<[u8]>) {
        let p = self.place.read();
        (p.parent.clone(), p.name.clone())
    }

    /// True once the name is gone from its directory.
    pub fn is_unlinked(&self) -> bool {
        self.unlinked.load(Ordering::Acquire)
    }

    /// True for directories.
    pub fn is_dir(&self) -> bool {
        self.kind == S_IFDIR
    }

    /// True when something is mounted here, in any namespace.
    pub fn is_mountpoint(&self) -> bool {
        self.mounted.load(Ordering::Acquire) != 0
    }

    /// How many mounts are on it, in all namespaces.
    pub fn mounts_on(&self) -> u32 {
        self.mounted.load(Ordering::Acquire)
    }

    /// Mounts come or go.
    pub fn count_mounts(&self, more: i32) {
        self.mounted.fetch_add(more as u32, Ordering::AcqRel);
    }

    /// True when `self` is `other` or lies below it.
    pub fn is_below(self: &Arc<Dentry>, other: &Arc<Dentry>) -> bool {
        let mut d = self.clone();
        loop {
            if Arc::ptr_eq(&d, other) {
                return true;
            }
            let Some(p) = d.parent() else { return false };
            d = p;
        }
    }

    /// How many names below it are in the cache, absent ones included.
    #[cfg(any(test, feature = "testing"))]
    pub fn cached_names(&self) -> usize {
        self.children.read().len()
    }

    /// Takes the lock under which names in this directory change.
    pub fn lock_dir(&self) -> MutexGuard<'_, (), { rank::DIRECTORY }> {
        self.dir.lock()
    }

    /// As [`Dentry::lock_dir`] for a caller that may be killed meanwhile: the holder of the lock may wait for a program
    /// that serves the file system. EINTR.
    pub fn lock_dir_for(
        &self,
        cx: &(impl Blocking + ?Sized),
    ) -> Result<MutexGuard<'_, (), { rank::DIRECTORY }>> {
        self.dir.lock_unless(|| cx.is_killed()).ok_or(Errno::EINTR)
    }

    /// The same with another directory's lock held, see [`Dentry::lock_second_dir`].
    pub fn lock_second_dir_for(
        &self,
        cx: &(impl Blocking + ?Sized),
    ) -> Result<MutexGuard<'_, (), { rank::DIRECTORY }>> {
        self.dir.lock_nested_unless(|| cx.is_killed()).ok_or(Errno::EINTR)
    }

    /// As [`Dentry::lock_dir`], with another directory's lock held: of a child after its parent, of the later in the order of
    /// renames.
    pub fn lock_second_dir(&self) -> MutexGuard<'_, (), { rank::DIRECTORY }> {
        self.dir.lock_nested()
    }

    /// The names, unless a thread is changing them.
    pub fn names(&self) -> Option<Names<'_>> {
        self.children.try_read().map(Names)
    }

    /// The epoch of this directory, where others change it: while it stays the same, names are as they were found. 0 when they
    /// have to be asked for.
    pub fn epoch(&self) -> u64 {
        if !self.volatile || !self.keeps {
            return 0;
        }
        self.inode.as_confirming().and_then(|dir| dir.epoch()).unwrap_or(0)
    }

    /// As [`Dentry::epoch`], with everything that others have changed until now.
    pub fn settled_epoch(&self) -> u64 {
        if !self.volatile || !self.keeps {
            return 0;
        }
        self.inode.as_confirming().map_or(0, |dir| {
            dir.settle();
            dir.epoch().unwrap_or(0)
        })
    }

    /// Whether what was found here in epoch `seen` is so in `epoch`.
    pub fn trusts(&self, seen: u64, epoch: u64) -> bool {
        !self.volatile || epoch != 0 && seen == epoch
    }

    /// Whether this dentry stands for its name in `dir` in that epoch.
    fn holds(&self, dir: &Dentry, epoch: u64) -> bool {
        self.is_sure(dir, self.seen.load(Ordering::Acquire), epoch) || self.is_mountpoint()
    }

    /// The same where it was seen in epoch `seen`, and nothing is mounted on it.
    pub fn is_sure(&self, dir: &Dentry, seen: u64, epoch: u64) -> bool {
        let other_names = || self.inode.as_confirming().is_some_and(|object| object.has_other_names());
        dir.trusts(seen, epoch) && (!dir.volatile || self.is_dir() || !other_names())
    }

    /// The file system was asked, without a lock, in this epoch: this still is what its name stands for.
    pub fn confirmed(&self, epoch: u64) {
        self.seen.store(epoch, Ordering::Release);
    }

    /// The same for a name that is absent.
    pub fn confirmed_absent(&self, name: &[u8], epoch: u64) {
        if let Some(Child::Negative(seen)) = self.children.write().get_mut(name) {
            *seen = epoch;
        }
    }

    /// What the cache knows of `name` in this epoch.
    pub fn cached(&self, name: &[u8], epoch: u64) -> Cached {
        match self.children.read().get(name) {
            Some(Child::Strong(d)) if d.holds(self, epoch) => Cached::Present(d.clone()),
            Some(Child::Weak(w)) => {
                w.upgrade().filter(|d| d.holds(self, epoch)).map_or(Cached::Unknown, Cached::Present)
            }
            Some(Child::Negative(seen)) if self.trusts(*seen, epoch) => Cached::Absent,
            _ => Cached::Unknown,
        }
    }

    /// As [`Dentry::cached`] for a caller that needs the object and none of its attributes: those of a file with
    /// several names may have changed by another one.
    pub fn cached_object(&self, name: &[u8], epoch: u64) -> Option<Arc<Dentry>> {
        let found = match self.children.read().get(name) {
            Some(Child::Strong(d)) => Some(d.clone()),
            Some(Child::Weak(w)) => w.upgrade(),
            _ => None,
        };
        found.filter(|d| self.trusts(d.seen.load(Ordering::Acquire), epoch))
    }

    /// Whether directory `inode` may be called `name` here, in a file system that may name any directory anywhere:
    /// ELOOP for one that lies above its name, ENAMETOOLONG for one that lies very deep.
    pub fn admits(self: &Arc<Dentry>, name: &[u8], inode: &InodeRef) -> Result<()> {
        let known = match self.children.read().get(name) {
            Some(Child::Weak(w)) => w.upgrade(),
            _ => None,
        };
        if inode.kind() != S_IFDIR || known.is_some_and(|d| Arc::ptr_eq(&d.inode, inode)) {
            return Ok(());
        }
        let mut at = self.clone();
        for _ in 0..DEEPEST {
            if Arc::ptr_eq(&at.inode, inode) {
                return Err(Errno::ELOOP);
            }
            let Some(parent) = at.parent() else { return Ok(()) };
            at = parent;
        }
        Err(Errno::ENAMETOOLONG)
    }

    /// Records that `name` was `inode` in `epoch`; returns the dentry, an existing one when it already stands for it.
    pub fn insert(self: &Arc<Dentry>, name: &[u8], inode: InodeRef, epoch: u64) -> Arc<Dentry> {
        let known = |c: &NameMap<Child>| match c.get(name) {
            Some(Child::Strong(d)) => Some(d.clone()),
            Some(Child::Weak(w)) => w.upgrade(),
            _ => None,
        };
        let stands = |d: &Arc<Dentry>| Arc::ptr_eq(&d.inode, &inode) || d.is_mountpoint();
        // Where the file system is asked every time, the answer is mostly what it was.
        let again = |d: Arc<Dentry>| {
            if d.seen.load(Ordering::Relaxed) != epoch {
                d.seen.store(epoch, Ordering::Release);
            }
            d
        };
        let old = known(&self.children.read());
        if let Some(d) = old.filter(stands) {
            return again(d);
        }
        let mut c = self.children.write();
        let fallen = known(&c);
        if let Some(d) = fallen.clone().filter(stands) {
            return again(d);
        }
        let d = Dentry::make(Some(self.clone()), Arc::from(name), inode, self.ways(), epoch, self.dcache());
        let child = if !self.keeps {
            if c.len() >= 64 && c.len().is_power_of_two() {
                c.retain(|_, v| !matches!(v, Child::Weak(w) if w.strong_count() == 0));
            }
            Child::Weak(Arc::downgrade(&d))
        } else {
            make_room(&mut c);
            Child::Strong(d.clone())
        };
        let old = c.insert(Box::from(name), child);
        drop(c);
        drop(old);
        if let Some(old) = fallen {
            old.fell(true);
        }
        d
    }

    /// The name belongs to another object now, or to none. Where others change the file system, names below it may be
    /// cached still, and hold it as it holds them.
    fn fell(self: &Arc<Dentry>, by_others: bool) {
        if !self.unlinked.swap(true, Ordering::AcqRel) {
            self.fallen.store(by_others, Ordering::Release);
        }
        if self.volatile && self.is_dir() {
            self.shrink(true);
        }
    }

    /// Records that `name` did not exist in `epoch`. The dentry it had is marked unlinked.
    pub fn insert_negative(&self, name: &[u8], epoch: u64) {
        self.without(name, epoch, true);
    }

    /// As [`Dentry::insert_negative`] after this kernel itself has removed the name.
    pub fn removed(&self, name: &[u8], epoch: u64) {
        self.without(name, epoch, false);
    }

    fn without(&self, name: &[u8], epoch: u64, by_others: bool) {
        let old = self.forget_negatively(name, epoch);
        match old {
            Some(Child::Strong(d)) => d.fell(by_others),
            Some(Child::Weak(w)) => {
                if let Some(d) = w.upgrade() {
                    d.fell(by_others);
                }
            }
            _ => {}
        }
    }

    /// Forgets `name` without saying that it is gone.
    pub fn forget(&self, name: &[u8]) {
        self.children.write().remove(name);
    }

    /// Moves `child` to `new_dir`/`new_name` in the cache (both directories are locked), as of the epochs of both.
    pub fn moved(
        self: &Arc<Dentry>,
        name: &[u8],
        child: &Arc<Dentry>,
        new_dir: &Arc<Dentry>,
        new_name: &[u8],
        (epoch, new_epoch): (u64, u64),
    ) {
        self.forget_negatively(name, epoch);
        new_dir.put(new_name, child, new_epoch);
    }

    fn forget_negatively(&self, name: &[u8], epoch: u64) -> Option<Child> {
        let known = match self.children.read().get(name) {
            Some(Child::Negative(seen)) => *seen == epoch,
            None => !self.keeps,
            Some(_) => false,
        };
        if known {
            return None;
        }
        let mut c = self.children.write();
        if !self.keeps {
            return c.remove(name);
        }
        make_room(&mut c);
        c.insert(Box::from(name), Child::Negative(epoch))
    }

    /// Makes `child` the dentry for `name` here, as of `epoch`.
    pub fn put(self: &Arc<Dentry>, name: &[u8], child: &Arc<Dentry>, epoch: u64) {
        child.seen.store(epoch, Ordering::Release);
        let old_parent = {
            let mut p = child.place.write();
            p.name = Arc::from(name);
            p.parent.replace(self.clone())
        };
        let v = if self.keeps { Child::Strong(child.clone()) } else { Child::Weak(Arc::downgrade(child)) };
        let old = self.children.write().insert(Box::from(name), v);
        if let Some(Child::Strong(d)) = &old
            && !Arc::ptr_eq(d, child)
        {
            d.fell(false);
        }
        drop((old, old_parent));
    }

    /// Gives a detached dentry a name (linkat of an unnamed file).
    pub fn attach(self: &Arc<Dentry>, name: &[u8], child: &Arc<Dentry>) {
        child.unlinked.store(false, Ordering::Release);
        child.fallen.store(false, Ordering::Release);
        self.put(name, child, 0);
    }

    /// A file handle leads here from now on. [`Dentry::shrink`] does not work on the name meanwhile, so the cache keeps it.
    pub(crate) fn keep_for_handle(&self) {
        loop {
            let parent = self.parent();
            let names = parent.as_ref().map(|parent| parent.children.read());
            self.handled.store(true, Ordering::Relaxed);
            drop(names);
            let now = self.parent();
            let same = |parent: &Arc<Dentry>| now.as_ref().is_some_and(|now| Arc::ptr_eq(now, parent));
            // A rename may have moved it to another directory.
            if parent.as_ref().map_or(now.is_none(), same) {
                return;
            }
        }
    }

    /// Drops every cached name below that is not used elsewhere. Returns how many went.
    pub fn shrink(self: &Arc<Dentry>, everything: bool) -> usize {
        let mut gone = 0;
        let mut todo = vec![self.clone()];
        let mut order = Vec::new();
        while let Some(d) = todo.pop() {
            for c in d.children.read().values() {
                if let Child::Strong(c) = c {
                    todo.push(c.clone());
                }
            }
            order.push(d);
        }
        // Children come after their parents, so going backwards frees leaves first.
        while let Some(d) = order.pop() {
            d.children.write().retain(|_, child| {
                let keep = match child {
                    Child::Strong(_) => !everything && child.is_used_elsewhere(),
                    Child::Weak(dentry) => dentry.strong_count() != 0,
                    Child::Negative(_) => false,
                };
                gone += usize::from(!keep);
                keep
            });
        }
        gone
    }
}

/// Names that came and went (temporary files) must not pile up. Checked whenever the table is about to
/// grow, so that the work is shared out over many calls.
fn make_room(c: &mut NameMap<Child>) {
    let room = c.capacity();
    if c.len() < room || room < 256 {
        return;
    }
    c.retain(|_, v| !matches!(v, Child::Negative(_)));
    if c.len() > room / 2 {
        c.reserve(room);
    }
}

impl Drop for Dentry {
    /// Lets go of the chain of parents one by one: a guest can nest directories deeper than our stack.
    fn drop(&mut self) {
        if *self.unlinked.get_mut() {
            let fallen = *self.fallen.get_mut();
            crate::notify::on_last_use(self, fallen);
        }
        let mut next = self.place.get_mut().parent.take();
        while let Some(p) = next {
            next = Arc::into_inner(p).and_then(|mut d| d.place.get_mut().parent.take());
        }
    }
}

//! Host objects: their place, their cached attributes, and how to open them.
//!
//! Key type: [`Node`]. Each child keeps one part of a node and has the methods for it: `standing`, how long cached
//! attributes and names are valid; `reach`, how the object is reached, whatever becomes of its names; `names`, the names of a watched directory; `acls`, access control lists; `views`,
//! mappings of files that are read often.
//! Neighbours: a node belongs to a tree ([`HostFs`]); `files` keeps the caches that the nodes of all trees share;
//! `inode` implements vfs's traits.
//! Invariant: in a shared tree there is one node for one host object.
//! Locks are leaves; no host call is made with one held.
//! A checkpoint can keep the place of a node, and finds the object there again; an object without a name is lost.

mod acls;
pub(crate) mod ahead;
mod names;
mod prefetch;
mod reach;
mod standing;
mod views;

pub(crate) use self::names::{Change, Listings};
pub(crate) use self::prefetch::Prefetches;
pub(crate) use self::standing::{ChangeCounts, Quiet};
pub(crate) use self::views::Views;

use self::acls::Acls;
use self::names::Names;
use self::prefetch::Prefetched;
use self::reach::Reach;
use self::standing::{Standing, Watching, is_told};
use self::views::View;
use crate::files::Attached;
use crate::fs::{HostFs, Mode};
use abi::stat::{Attr, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};
use abi::time::Timespec;
use abi::{Errno, PATH_MAX, Result};
use hostsys::fs::Access;
use hosttree::DirectoryRef;
use lock_order::Mutex;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vfs::SetAttr;
use vfs::attach::Attachments;

pub(crate) struct Place {
    pub parent: Option<Arc<Node>>,
    pub name: Arc<[u8]>,
}

/// The descriptors of open files: the object stays within reach after its name is gone.
#[derive(Default)]
pub(crate) struct Held(Mutex<Vec<Weak<OwnedFd>>>);

impl Held {
    /// One of them.
    pub fn get(&self) -> Option<Arc<OwnedFd>> {
        self.0.lock().iter().rev().find_map(Weak::upgrade)
    }

    /// There is one more.
    pub fn add(&self, fd: &Arc<OwnedFd>) {
        let mut all = self.0.lock();
        if all.len().is_power_of_two() {
            all.retain(|known| known.strong_count() != 0);
        }
        all.push(Arc::downgrade(fd));
    }
}

/// Attributes, and when they are still so.
#[derive(Clone, Copy)]
struct CachedAttr {
    attr: Attr,
    /// All of them.
    all: Option<Standing>,
    /// Mode and owners.
    rights: Option<Standing>,
}

/// An object of a host tree.
pub(crate) struct Node {
    pub me: Weak<Node>,
    pub fs: Arc<HostFs>,
    /// Key in the descriptor cache.
    id: u64,
    pub kind: u32,
    /// Host device and inode number.
    pub key: (u64, u64),
    place: read_biased_lock::RwLock<Place>,
    /// Open files of a directory.
    open_dirs: Arc<AtomicUsize>,
    /// What was told last; see [`Node::standing`].
    attr: read_biased_lock::RwLock<CachedAttr>,
    pub(crate) watch: Watching,
    pub(crate) acls: Acls,
    /// Of a directory: its names.
    pub(crate) names: Names,
    prefetched: OnceLock<Box<Prefetched>>,
    pub held: Held,
    reach: Reach,
    /// Of a file that never had a name: what it was made with.
    pub unnamed: Mutex<Option<Arc<OwnedFd>>>,
    /// Of a symbolic link: where it leads.
    pub target: Mutex<Option<Vec<u8>>>,
    attachments: OnceLock<Arc<Attached>>,
    /// Of a regular file in an exclusive tree that is read often.
    pub view: View,
}

impl Node {
    /// A new node; `attr` as the host gave it, and when it is still so.
    pub fn new(
        fs: &Arc<HostFs>,
        parent: Option<Arc<Node>>,
        name: &[u8],
        attr: Attr,
        standing: Option<Standing>,
    ) -> Arc<Node> {
        Node::told(fs, parent, name, attr, (standing, standing))
    }

    /// The same; `all` and `rights`: when all of the attributes are still so, and when mode and owners.
    fn told(
        fs: &Arc<HostFs>,
        parent: Option<Arc<Node>>,
        name: &[u8],
        attr: Attr,
        (all, rights): (Option<Standing>, Option<Standing>),
    ) -> Arc<Node> {
        let kept = |standing: Option<Standing>| standing.filter(|_| is_told(&attr, fs.coherence));
        let told = CachedAttr { attr: translate(fs, attr), all: kept(all), rights: kept(rights) };
        Arc::new_cyclic(|me| Node {
            me: me.clone(),
            fs: fs.clone(),
            id: fs.home.next_node(),
            kind: attr.mode & S_IFMT,
            key: (attr.dev, attr.ino),
            place: read_biased_lock::RwLock::new(Place { parent, name: Arc::from(name) }),
            open_dirs: Arc::default(),
            attr: read_biased_lock::RwLock::new(told),
            watch: Watching::of(&attr),
            acls: Acls::default(),
            names: Names::default(),
            prefetched: OnceLock::new(),
            held: Held::default(),
            reach: Reach::default(),
            unnamed: Mutex::default(),
            target: Mutex::default(),
            attachments: OnceLock::new(),
            view: View::default(),
        })
    }

    /// The node for a host object found at `name` in `parent`; in shared trees the one in use already. `before` was noted before
    /// the host was asked.
    pub fn found(parent: &Arc<Node>, name: &[u8], attr: Attr, before: ChangeCounts) -> Arc<Node> {
        let fs = &parent.fs;
        if fs.mode == Mode::Exclusive {
            return Node::new(fs, Some(parent.clone()), name, attr, None);
        }
        let key = (attr.dev, attr.ino);
        let known = |t: &HashMap<(u64, u64), Weak<Node>>| in_use(t, key).filter(|n| n.is(&attr));
        let again = |n: Arc<Node>| {
            n.moved(parent, name);
            n.refresh(attr, n.standing_since(&before));
            n
        };
        let node = known(&fs.nodes.read());
        if let Some(n) = node {
            return again(n);
        }
        let mut t = fs.nodes.write();
        if let Some(n) = known(&t) {
            drop(t);
            return again(n);
        }
        let n = Node::new(fs, Some(parent.clone()), name, attr, Standing::of_new(fs, &before));
        let old = Node::enter(&mut t, &n);
        drop(t);
        n.succeeds(old);
        n
    }

    /// The node of a regular file that was just made, of which `attr` is the identity ([`hostsys::fs::identity`]); `None`
    /// when there is a node with its number already: [`Node::found`] knows what to do with it.
    pub fn made(parent: &Arc<Node>, name: &[u8], attr: Attr, before: &ChangeCounts) -> Option<Arc<Node>> {
        let fs = &parent.fs;
        let rights = Standing::of_new(fs, before);
        let new = Node::told(fs, Some(parent.clone()), name, attr, (None, rights));
        let mut nodes = fs.nodes.write();
        let known = in_use(&nodes, new.key);
        if known.is_some() {
            drop(nodes);
            return None;
        }
        let old = Node::enter(&mut nodes, &new);
        drop(nodes);
        new.succeeds(old);
        Some(new)
    }

    /// The node that had its number before.
    fn enter(nodes: &mut HashMap<(u64, u64), Weak<Node>>, new: &Arc<Node>) -> Option<Weak<Node>> {
        if nodes.len() >= 1024 && nodes.len().is_power_of_two() {
            nodes.retain(|_, known| known.strong_count() != 0);
        }
        nodes.insert(new.key, Arc::downgrade(new))
    }

    /// It has the number of an object that has ended, of which some still use the node.
    fn succeeds(&self, old: Option<Weak<Node>>) {
        if old.is_some_and(|old| old.strong_count() != 0) {
            self.fs.home.forget_attached((self.key.0, self.key.1, self.kind));
        }
    }

    /// What other subsystems hang on the object.
    pub fn attachments(&self) -> &Attachments {
        let attached = self.attachments.get_or_init(|| {
            if self.fs.mode == Mode::Exclusive {
                return Arc::default();
            }
            let mut object = None;
            if matches!(self.kind, S_IFIFO | S_IFSOCK) {
                let held = self.place_within_reach();
                match held.map_or_else(|| self.open(Access::Place).map(Arc::new), Ok) {
                    Ok(fd) => object = Some(fd),
                    // No other lookup finds it by its name either.
                    Err(_) => return Arc::default(),
                }
            }
            self.fs.home.attached((self.key.0, self.key.1, self.kind), object)
        });
        attached.list()
    }

    /// The node of a file without a name in a directory, open for reading and writing.
    pub fn unnamed(dir: &Arc<Node>, attr: Attr, fd: OwnedFd) -> Arc<Node> {
        // No object has this name as long as the file is there, unless a program gives it to another one.
        let name = format!("#{}", attr.ino);
        let node = Node::new(&dir.fs, Some(dir.clone()), name.as_bytes(), attr, None);
        let fd = Arc::new(fd);
        node.held.add(&fd);
        *node.unnamed.lock() = Some(fd);
        dir.fs.nodes.write().insert(node.key, Arc::downgrade(&node));
        node
    }

    /// It has got its first name.
    pub fn got_name(&self, dir: &Arc<Node>, name: &[u8]) {
        self.moved(dir, name);
        let old = self.unnamed.lock().take();
        drop(old);
    }

    /// Keeps the descriptor that the file was made with for its first user, which mostly is the maker.
    pub fn keep_made(&self, fd: OwnedFd) {
        let old = self.fs.home.made.lock().replace((self.id, fd));
        drop(old);
    }

    /// The descriptor that the file was made with, if it was the last one made.
    pub fn take_made(&self) -> Option<OwnedFd> {
        self.fs.home.made.lock().take_if(|(id, _)| *id == self.id).map(|(_, fd)| fd)
    }

    /// The directory is open.
    pub fn is_open_dir(&self) -> bool {
        self.open_dirs.load(Ordering::Acquire) != 0
    }

    pub fn is_dir(&self) -> bool {
        self.kind == S_IFDIR
    }

    /// Notes a new place.
    pub fn moved(&self, parent: &Arc<Node>, name: &[u8]) {
        let same = {
            let p = self.place.read();
            p.parent.as_ref().is_some_and(|q| Arc::ptr_eq(q, parent)) && *p.name == *name
        };
        if !same {
            let new = Place { parent: Some(parent.clone()), name: Arc::from(name) };
            let old = std::mem::replace(&mut *self.place.write(), new);
            drop(old);
            // What was told of this name does not know of our changes by the other one.
            parent.name_changed(name);
        }
    }

    /// What was known last, without asking.
    pub fn known(&self) -> Attr {
        self.attr.read().attr
    }

    /// Whether these are attributes of this object, and not of one that has its number now.
    pub fn is(&self, attr: &Attr) -> bool {
        (attr.dev, attr.ino) == self.key && attr.file_type() == self.kind && self.was_made_at(attr.btime)
    }

    /// Whether this object was made then, as far as that is known. An overlay of the host makes a file anew when it is changed first,
    /// under the old number.
    fn was_made_at(&self, made: Option<Timespec>) -> bool {
        let (Some(known), Some(made)) = (self.known().btime, made) else { return true };
        known == made || self.fs.layer_made.is_some_and(|layer| known < layer && made >= layer)
    }

    /// Notes attributes as the host gave them, and when they are still so; returns them as the guest sees them.
    pub fn refresh(&self, attr: Attr, standing: Option<Standing>) -> Attr {
        let CachedAttr { attr: known, all: stood, .. } = *self.attr.read();
        // A process without statx(2) does not learn it from a descriptor.
        let a = translate(&self.fs, Attr { btime: attr.btime.or(known.btime), ..attr });
        let standing = standing.filter(|_| is_told(&attr, self.fs.coherence) && !self.watch.is_mapped());
        self.searchable(standing);
        if self.is_dir() && standing.is_none() && !same_rights(&known, &a) {
            self.watch.forget_searchable();
        }
        self.watch.set_other_names(attr.nlink > 1);
        if known == a && (stood == standing || standing.is_none()) {
            return a;
        }
        // Both at once: the text of a link is kept only with the attributes that were valid when it was read.
        let mut target = self.target.lock();
        if !same_link(&known, &a) {
            *target = None;
        }
        *self.attr.write() = CachedAttr { attr: a, all: standing, rights: standing };
        a
    }

    /// Parent and name; `None` for the root.
    pub fn place(&self) -> Option<(Arc<Node>, Arc<[u8]>)> {
        let p = self.place.read();
        Some((p.parent.clone()?, p.name.clone()))
    }

    /// The names from the tree's root to here, with `/` between them; empty for the root itself. ENAMETOOLONG.
    pub fn path(&self) -> Result<Vec<u8>> {
        let mut names: Vec<Arc<[u8]>> = Vec::new();
        let mut next = self.place();
        while let Some((parent, name)) = next {
            names.push(name);
            // Directories that others move while they are looked at may seem to be below each other.
            if names.len() > PATH_MAX / 2 {
                return Err(Errno::ENAMETOOLONG);
            }
            next = parent.place();
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// Current attributes: asked for in shared trees.
    pub fn current(&self) -> Result<Attr> {
        if self.fs.mode == Mode::Exclusive {
            return Ok(self.known());
        }
        self.settle_if_kept();
        let standing = self.standing();
        if let Some(a) = self.still(standing) {
            return Ok(a);
        }
        if let Some(told) = ahead::itself(self) {
            return Ok(self.refresh(told, None));
        }
        // What is learnt by way of a descriptor says nothing of the name, so it cannot be kept.
        let standing = standing.filter(|_| is_told(&self.known(), self.fs.coherence));
        let held = if standing.is_none() { self.held.get() } else { None };
        let fresh = match (held, self.place()) {
            (Some(fd), _) => self.attr_open(&fd)?,
            (None, None) => self.fs.top.attr()?,
            (None, Some((dir, name))) => {
                let told = self.told_at(&dir, &name).map(|(told, _)| told);
                let named = told.map_or_else(|| dir.dir().and_then(|dir| dir.look(&name)), Ok);
                match named {
                    Ok(a) if self.is(&a) => a,
                    // Its name is gone, or another object's.
                    Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ESTALE) => {
                        return self.attr_within_reach();
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(self.refresh(fresh, standing))
    }

    /// Attributes of an object that is held. ESTALE for others.
    fn attr_within_reach(&self) -> Result<Attr> {
        let attr = match self.held.get().or_else(|| self.place_within_reach()) {
            Some(fd) => self.attr_open(&fd),
            None => self.dir_within_reach().ok_or(Errno::ESTALE)?.attr(),
        };
        let a = attr.ok().filter(|a| self.is(a)).ok_or(Errno::ESTALE)?;
        Ok(self.refresh(a, None))
    }

    /// When it was made, as an open file that it is tells; `None` where that is not known.
    pub fn made_at(&self, file: &OwnedFd) -> Option<Timespec> {
        let open = || Some(self.fs.top.attr_open(file).ok()?.btime);
        let named = || {
            let (dir, name) = self.place()?;
            dir.dir().ok()?.look(&name).ok().filter(|a| self.is(a))?.btime
        };
        open()?.or_else(named)
    }

    /// Attributes of an open file that this is.
    pub fn attr_open(&self, file: &OwnedFd) -> Result<Attr> {
        let attr = self.fs.top.attr_open(file)?;
        let known = self.known();
        let nameless = attr.nlink == 0 && known.nlink != 0;
        if (attr.dev, attr.ino) == self.key && !nameless {
            return Ok(Attr { btime: attr.btime.or(known.btime), ..attr });
        }
        // A gofer of others hands out files with the content of its objects, which have other attributes, or no name.
        let named = || {
            let (dir, name) = self.place()?;
            dir.dir().ok()?.look(&name).ok().filter(|a| self.is(a))
        };
        let own = named().unwrap_or(Attr { dev: self.key.0, ino: self.key.1, nlink: 0, ..attr });
        let Attr { size, blksize, blocks, atime, mtime, ctime, .. } = attr;
        Ok(Attr { size, blksize, blocks, atime, mtime, ctime, ..own })
    }

    /// Takes note of what others have changed, if attributes are kept that depend on it.
    pub fn settle_if_kept(&self) {
        if self.attr.read().all.is_some() {
            self.fs.settle();
        }
    }

    /// The attributes, if they were learnt when all was as `standing` says.
    pub fn still(&self, standing: Option<Standing>) -> Option<Attr> {
        let CachedAttr { attr, all, .. } = *self.attr.read();
        (all? == standing? && !self.watch.is_quiet()).then_some(attr)
    }

    /// Attributes of which mode and owners are right now; `None` when that is not known.
    pub fn known_rights(&self) -> Option<Attr> {
        let CachedAttr { attr, rights, .. } = *self.attr.read();
        self.standing().is_some_and(|now| rights.is_some_and(|stood| stood.same_rights(&now))).then_some(attr)
    }

    /// Notes mode and owners that were set; false where that is not enough.
    pub fn set_rights(&self, set: &SetAttr, standing: Standing) -> bool {
        let mut told = self.attr.write();
        if told.attr.file_type() != self.kind || told.attr.nlink != 1 {
            return false;
        }
        let a = &mut told.attr;
        a.mode = set.mode.map_or(a.mode, |mode| a.mode & S_IFMT | mode & 0o7777);
        a.uid = set.uid.unwrap_or(a.uid);
        a.gid = set.gid.unwrap_or(a.gid);
        (told.all, told.rights) = (None, Some(standing));
        true
    }

    /// Calls `f` with the place, without a reference.
    pub fn with_place<R>(&self, f: impl FnOnce(&Place) -> R) -> R {
        f(&self.place.read())
    }

    /// What was told ahead of the name does not hold any more.
    pub fn place_changed(&self) {
        // Without a gofer nothing is, and this is on the way of every write.
        if !self.fs.top.is_another_process() {
            return;
        }
        let told = self.with_place(|place| {
            let parent = place.parent.as_ref().filter(|parent| parent.prefetched.get().is_some())?;
            Some((parent.clone(), place.name.clone()))
        });
        if let Some((parent, name)) = told {
            parent.name_changed(&name);
        }
    }

    /// Parent, without a reference.
    pub fn with_parent<R>(&self, f: impl FnOnce(Option<&Arc<Node>>) -> R) -> R {
        f(self.place.read().parent.as_ref())
    }

    /// This directory, to start calls from.
    pub fn dir(&self) -> Result<DirectoryRef> {
        if !self.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        // Up to the next directory that is open, then down by several names at a time.
        let mut names: Vec<Arc<[u8]>> = Vec::new();
        let mut at: Option<Arc<Node>> = None;
        let base = loop {
            let n: &Node = at.as_deref().unwrap_or(self);
            if let Some(dir) = n.dir_within_reach() {
                break dir;
            }
            let Some((parent, name)) = n.place() else { break self.fs.top.clone() };
            names.push(name);
            // Directories that others move while they are looked at may seem to be below each other.
            if names.len() > PATH_MAX / 2 {
                return Err(Errno::ESTALE);
            }
            at = Some(parent);
        };
        if names.is_empty() {
            return Ok(base);
        }
        let mut found = (base, None);
        while !names.is_empty() {
            let mut path = Vec::new();
            while let Some(n) = names.last() {
                if path.len() + n.len() + 2 > PATH_MAX {
                    break;
                }
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(n);
                names.pop();
            }
            let (dir, attr) = found.0.walk(&path).map_err(moved_away)?;
            found = (dir, Some(attr));
        }
        let (dir, attr) = found;
        self.check_same(attr.as_ref())?;
        Ok(self.fs.home.dirs.put(self.id, dir))
    }

    /// ESTALE for attributes of another object. Those of an exclusive tree do not change.
    pub(super) fn check_same(&self, attr: Option<&Attr>) -> Result<()> {
        let same = attr.is_none_or(|a| self.is(a));
        if same || self.fs.mode == Mode::Exclusive { Ok(()) } else { Err(Errno::ESTALE) }
    }

    /// A descriptor of a regular file in a strict tree that tells its attributes.
    pub fn place_fd(&self) -> Option<Arc<OwnedFd>> {
        if self.fs.keeps_places() { self.fs.home.places.get(self.id) } else { None }
    }

    /// A gofer has given such a descriptor.
    pub fn keep_place(&self, fd: OwnedFd) {
        self.fs.home.places.put(self.id, &Arc::new(fd));
    }

    /// Attributes that the kept descriptor tells, or that were asked for together with those of other names, and when they are
    /// still so; where a path below `top` leads to this object for certain.
    pub fn told_at(&self, top: &Node, path: &[u8]) -> Option<(Attr, Option<Standing>)> {
        if !self.fs.top.is_another_process()
            || !self.fs.is_watched()
            || !matches!(self.kind, S_IFREG | S_IFLNK)
        {
            return None;
        }
        self.fs.settle();
        let mut dir = top.me.upgrade()?;
        let mut names = path.split(|c| *c == b'/').peekable();
        let name = loop {
            let name = names.next()?;
            let (ino, kind) = dir.entry(name)?;
            if names.peek().is_none() {
                break if (ino, kind) == (self.key.1, self.kind) { name } else { return None };
            }
            let below = self.fs.nodes.read().get(&(dir.key.0, ino)).and_then(Weak::upgrade);
            dir = below.filter(|below| below.is_dir() && kind == S_IFDIR)?;
        };
        if dir.key.0 != self.key.0 {
            return None;
        }
        self.moved(&dir, name);
        if let Some(place) = self.place_fd() {
            let told = self.fs.top.attr_open(&place).ok()?;
            let told = Attr { btime: self.known().btime, ..told };
            return (self.is(&told) && told.nlink != 0).then_some((told, None));
        }
        if !dir.prefetch(name) {
            return None;
        }
        let standing = self.standing();
        let (told, _, place) = dir.take_prefetched(name)?;
        let told = told.ok().filter(|told| self.is(told))?;
        if let Some(place) = place {
            self.keep_place(place);
        }
        Some((told, standing))
    }

    /// A descriptor of a regular file for reading that was opened a short while ago.
    pub fn warm_fd(&self) -> Option<Arc<OwnedFd>> {
        if self.fs.keeps_warm() { self.fs.home.warm.get(self.id) } else { None }
    }

    /// The file has been opened for reading, and may soon be again.
    pub fn keep_warm(&self, fd: &Arc<OwnedFd>) {
        if self.fs.keeps_warm() {
            self.fs.home.warm.put(self.id, fd);
        }
    }

    /// Closes descriptors that are only kept for later use.
    pub fn let_go(&self) {
        self.fs.home.dirs.remove(self.id);
        self.fs.home.fds.remove(self.id);
        self.fs.home.warm.remove(self.id);
        self.fs.home.places.remove(self.id);
        self.place_changed();
        drop(self.take_made());
    }

    /// A read-only descriptor of a regular file in an exclusive tree, cached.
    pub fn read_fd(&self) -> Result<Arc<OwnedFd>> {
        let kept = &self.fs.home.fds;
        if let Some(fd) = kept.get(self.id) {
            return Ok(fd);
        }
        Ok(kept.put(self.id, Arc::new(self.open(Access::Read)?)))
    }
}

/// The node of the object with this number, unless the number may be another object's by now.
fn in_use(nodes: &HashMap<(u64, u64), Weak<Node>>, key: (u64, u64)) -> Option<Arc<Node>> {
    nodes.get(&key).and_then(Weak::upgrade).filter(|node| !node.has_gone())
}

/// An object is not in its place any more.
fn moved_away(error: Errno) -> Errno {
    let moved = [Errno::ENOENT, Errno::ENOTDIR, Errno::EISDIR, Errno::ELOOP];
    if moved.contains(&error) { Errno::ESTALE } else { error }
}

/// Counts one open file of a directory.
pub(crate) struct OpenDir(Arc<AtomicUsize>);

impl OpenDir {
    pub fn new(node: &Node) -> OpenDir {
        node.open_dirs.fetch_add(1, Ordering::AcqRel);
        OpenDir(node.open_dirs.clone())
    }
}

impl Drop for OpenDir {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether a symbolic link with these attributes is the one it was: its text cannot be changed, but another link may
/// have its number.
pub(crate) fn same_link(a: &Attr, b: &Attr) -> bool {
    (a.btime, a.ctime, a.mtime, a.size) == (b.btime, b.ctime, b.mtime, b.size)
}

fn same_rights(a: &Attr, b: &Attr) -> bool {
    (a.mode, a.uid, a.gid) == (b.mode, b.uid, b.gid)
}

fn translate(fs: &HostFs, a: Attr) -> Attr {
    Attr { dev: fs.home.device(a.dev), ..a }
}

impl Drop for Node {
    /// Lets go of the chain of parents one by one: trees may be deeper than our stack.
    fn drop(&mut self) {
        match self.kind {
            S_IFDIR => self.fs.home.dirs.remove(self.id),
            _ => self.fs.home.fds.remove(self.id),
        }
        if self.fs.keeps_warm() {
            self.fs.home.warm.remove(self.id);
        }
        if self.fs.keeps_places() || self.reach.is_kept() {
            self.fs.home.places.remove(self.id);
        }
        let mut next = self.place.get_mut().parent.take();
        while let Some(p) = next {
            next = Arc::into_inner(p).and_then(|mut n| n.place.get_mut().parent.take());
        }
    }
}

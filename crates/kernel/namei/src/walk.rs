//! Path resolution. See path_resolution(7), openat2(2).
//!
//! One loop takes the path apart component by component. A symbolic link
//! replaces the rest of the path by its target followed by that rest, so
//! that "last component" and trailing slashes need no second bookkeeping.
//! Most paths do not come here: [`crate::quick`] resolves what is cached.

use crate::lookup::{Last, Lookup, Parent, Start};
use crate::rules::{self, Component};
use crate::{anon, quick};
use abi::stat::Attr;
use abi::{Errno, PATH_MAX, Result};
use mounts::fs_context::FsView;
use rights::cred::Creds;
use std::borrow::Cow;
use std::sync::Arc;
use vfs::dentry::Cached;
use vfs::in_use::InUse;
use vfs::inode::InodeRef;
use vfs::{Caller, Dentry, Mount, Path};

/// One resolution: the caller, the bounds, and the links counted so far.
pub struct Walker<'a> {
    cx: &'a dyn Caller,
    creds: Creds,
    root: Path,
    /// RESOLVE_BENEATH and RESOLVE_IN_ROOT: the place that `..` does not leave.
    anchor: Option<Path>,
    flags: Lookup,
    links: u32,
    /// The root has been looked at: a relative path of RESOLVE_NO_XDEV follows no absolute link before that.
    rooted: bool,
    /// See [`FsView::anew`].
    anew: bool,
    /// What the last lookup that asked the file system found.
    asked: Option<Arc<Dentry>>,
    /// A directory from which names have been looked up ahead.
    ahead: Option<InodeRef>,
    /// Where what others have changed has been taken note of last: once is enough for all names in this mount.
    settled: Option<Arc<Mount>>,
}

/// Resolves a path to a place.
pub fn lookup(cx: &dyn Caller, view: &FsView, start: &Start, path: &[u8], flags: Lookup) -> Result<Path> {
    if path.is_empty() && flags.contains(Lookup::EMPTY_PATH) {
        return start_place(cx, view, start, false);
    }
    let found =
        |mount: &Arc<Mount>, dentry: &Arc<Dentry>| Path { mount: mount.clone(), dentry: dentry.clone() };
    anew(view, |view| {
        if let Some(done) = quick::lookup(cx, view, start, path, flags, found) {
            return done;
        }
        let (mut w, from) = Walker::new(cx, view, start, path, flags)?;
        w.walk(from, path)
    })
}

/// How often a path is resolved anew. Each time the objects on it stay within reach, so that once is mostly enough.
const TIMES: usize = 16;

/// Calls `attempt`, and again while it finds an object that is not there any more (ESTALE). The view then says that each name is
/// to be looked up anew. An attempt within another one is made once: the outer one begins again.
pub fn anew<T, E: PartialEq + From<Errno>>(
    view: &FsView,
    mut attempt: impl FnMut(&FsView) -> Result<T, E>,
) -> Result<T, E> {
    let is_stale = |done: &Result<T, E>| done.as_ref().is_err_and(|error| *error == Errno::ESTALE.into());
    let mut done = attempt(view);
    if view.anew || !is_stale(&done) {
        return done;
    }
    let view = FsView { anew: true, ..view.clone() };
    for _ in 0..TIMES {
        done = attempt(&view);
        if !is_stale(&done) {
            break;
        }
    }
    done
}

/// How often a path is resolved again that leads to a mount which umount(2) takes away.
pub(crate) const ATTEMPTS: usize = 16;

/// Resolves a path to a place that stays mounted as long as the second part is held: umount(2) fails, unless it came
/// before; then the path is resolved again. A walk that starts in a mount that has gone meanwhile gets a place in it
/// all the same, as after MNT_DETACH.
pub fn lookup_held(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    flags: Lookup,
) -> Result<(Path, InUse<Mount>)> {
    for _ in 0..ATTEMPTS {
        let place = lookup(cx, view, start, path, flags)?;
        if let Some(held) = place.mount.hold_in(&cx.vfs().mounts) {
            return Ok((place, held));
        }
    }
    let place = lookup(cx, view, start, path, flags)?;
    let held = InUse::new(place.mount.clone());
    Ok((place, held))
}

/// The attributes of what a path leads to.
pub fn lookup_attr(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    flags: Lookup,
) -> Result<Attr> {
    anew(view, |view| lookup_attr_once(cx, view, start, path, flags))
}

fn lookup_attr_once(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    flags: Lookup,
) -> Result<Attr> {
    match quick::lookup_attr(cx, view, start, path, flags) {
        Some(Ok((_, Some(attr)))) => Ok(attr),
        Some(Ok((inode, None))) => {
            inode.refresh(cx)?;
            inode.attr()
        }
        Some(Err(e)) => Err(e),
        None => {
            let (mut w, from) = Walker::new(cx, view, start, path, flags)?;
            let p = w.walk(from, path)?;
            match w
                .asked
                .take()
                .filter(|d| Arc::ptr_eq(d, &p.dentry))
                .and_then(|d| d.inode.as_confirming()?.told())
            {
                Some(attr) => Ok(attr),
                None => {
                    p.inode().refresh(cx)?;
                    p.attr()
                }
            }
        }
    }
}

/// Resolves all but the last component.
pub fn lookup_parent(cx: &dyn Caller, view: &FsView, start: &Start, path: &[u8]) -> Result<Parent> {
    anew(view, |view| {
        if let Some(done) = quick::parent(cx, view, start, path) {
            return done;
        }
        let (mut w, from) = Walker::new(cx, view, start, path, Lookup::empty())?;
        w.parent(from, path)
    })
}

fn start_place(cx: &dyn Caller, view: &FsView, start: &Start, dir: bool) -> Result<Path> {
    match start {
        Start::Cwd => Ok(view.cwd.clone()),
        Start::At(p) => Ok(p.clone()),
        Start::File(f) => {
            let p = match &f.path {
                Some(p) => p.clone(),
                None if !dir => anon::path_of(cx, f),
                None => return Err(Errno::ENOTDIR),
            };
            if dir && !p.is_dir() { Err(Errno::ENOTDIR) } else { Ok(p) }
        }
    }
}

impl Drop for Walker<'_> {
    fn drop(&mut self) {
        self.looked();
    }
}

impl<'a> Walker<'a> {
    /// Sets out; also says where the path starts.
    pub fn new(
        cx: &'a dyn Caller,
        view: &FsView,
        start: &Start,
        path: &[u8],
        flags: Lookup,
    ) -> Result<(Walker<'a>, Path)> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let absolute = path[0] == b'/';
        let confined = flags.intersects(Lookup::BENEATH | Lookup::IN_ROOT);
        let mut w = Walker {
            cx,
            creds: cx.creds(),
            root: view.root.clone(),
            anchor: None,
            flags,
            links: 0,
            rooted: absolute || confined,
            anew: view.anew,
            asked: None,
            ahead: None,
            settled: None,
        };
        if absolute && !confined {
            let from = w.root.clone();
            return Ok((w, from));
        }
        let from = start_place(cx, view, start, true)?;
        if confined {
            w.anchor = Some(from.clone());
            if flags.contains(Lookup::IN_ROOT) {
                w.root = from.clone();
            } else if absolute {
                return Err(Errno::EXDEV);
            }
        }
        Ok((w, from))
    }

    /// The whole path.
    pub fn walk(&mut self, from: Path, path: &[u8]) -> Result<Path> {
        match self.run(from, path, Goal::Object, false)? {
            Step::Done(p) => {
                if self.flags.contains(Lookup::DIRECTORY) && !p.is_dir() {
                    return Err(Errno::ENOTDIR);
                }
                if !self.flags.contains(Lookup::MOUNTPOINT) {
                    p.mount.used();
                }
                Ok(p)
            }
            Step::Parent(_) | Step::Entry { .. } => Err(Errno::ENOENT),
        }
    }

    /// All but the last component.
    pub fn parent(&mut self, from: Path, path: &[u8]) -> Result<Parent> {
        match self.run(from, path, Goal::Parent, false)? {
            Step::Parent(p) => Ok(p),
            Step::Done(dir) => Ok(Parent::root(dir)),
            Step::Entry { .. } => Err(Errno::ENOENT),
        }
    }

    /// The whole path, to make what it leads to if there is nothing yet (O_CREAT). `searched`: the path is one name in `from`,
    /// and the caller may search `from`.
    pub fn entry(&mut self, from: Path, path: &[u8], searched: bool) -> Result<Entry> {
        match self.run(from, path, Goal::Entry, searched)? {
            Step::Entry { dir, place } => Ok(Entry::Present { dir, place }),
            Step::Parent(parent) => Ok(Entry::Absent(parent)),
            Step::Done(dir) => Ok(Entry::Absent(Parent::root(dir))),
        }
    }

    /// The object called `name` in `dir`, mounts crossed, links not followed.
    fn child(&mut self, dir: &Path, name: &[u8]) -> Result<Path> {
        if self.anew && dir.dentry.volatile && dir.dentry.keeps {
            let d = find_anew(self.cx, &dir.dentry, name)?;
            if !d.is_mountpoint() {
                self.asked = Some(d.clone());
            }
            return self.crossed(Path { mount: dir.mount.clone(), dentry: d });
        }
        let epoch = || if self.has_settled(dir) { dir.dentry.epoch() } else { dir.dentry.settled_epoch() };
        let epoch = epoch();
        let known = match dir.dentry.volatile.then(|| dir.dentry.cached(name, epoch)) {
            Some(Cached::Present(d)) => Some(d),
            _ => None,
        };
        let d = match known {
            Some(d) => d,
            None => {
                let d = find_in(self.cx, &dir.dentry, name, epoch, self.flags.contains(Lookup::CACHED))?;
                if dir.dentry.volatile && !d.is_mountpoint() {
                    self.asked = Some(d.clone());
                }
                d
            }
        };
        let p = Path { mount: dir.mount.clone(), dentry: d };
        self.crossed(p)
    }

    /// Where a magic link leads; `None` for other links.
    fn magic_target(&self, inode: &InodeRef) -> Result<Option<Path>> {
        let Some(link) = inode.as_magic_link() else { return Ok(None) };
        if let Some(place) = link.magic_link(self.cx) {
            return place.map(Some);
        }
        let file = link.magic_file(self.cx).transpose()?;
        Ok(file.map(|f| anon::path_of(self.cx, &f)))
    }

    fn crossed(&self, p: Path) -> Result<Path> {
        if !p.dentry.is_mountpoint() {
            return Ok(p);
        }
        let before = p.mount.clone();
        let p = p.cross_mounts();
        if !Arc::ptr_eq(&p.mount, &before) && self.flags.contains(Lookup::NO_XDEV) {
            return Err(Errno::EXDEV);
        }
        Ok(p)
    }

    /// Counts a link and gives where it leads: a place, or text to go on with from `dir` or the root.
    fn follow(&mut self, dir: &Path, link: &Path) -> Result<Target> {
        self.links += 1;
        if self.flags.contains(Lookup::NO_SYMLINKS) {
            return Err(Errno::ELOOP);
        }
        rules::follow_link(self.cx, &self.creds, dir.inode(), &link.mount, link.inode(), self.links)?;
        let inode = link.inode();
        if let Some(p) = self.magic_target(inode)? {
            if self.flags.contains(Lookup::NO_MAGICLINKS) {
                return Err(Errno::ELOOP);
            }
            if self.anchor.is_some()
                || self.flags.contains(Lookup::NO_XDEV) && !Arc::ptr_eq(&p.mount, &link.mount)
            {
                return Err(Errno::EXDEV);
            }
            return Ok(Target::Place(p));
        }
        let body = inode.readlink(self.cx)?;
        if body.is_empty() {
            return Err(Errno::ENOENT);
        }
        if body[0] != b'/' {
            return Ok(Target::Text(dir.clone(), body));
        }
        if self.flags.contains(Lookup::BENEATH) {
            return Err(Errno::EXDEV);
        }
        let root = self.root.clone();
        let near = self.rooted && Arc::ptr_eq(&root.mount, &dir.mount);
        if self.flags.contains(Lookup::NO_XDEV) && !near {
            return Err(Errno::EXDEV);
        }
        Ok(Target::Text(root, body))
    }

    fn up(&mut self, p: &Path) -> Result<Path> {
        self.rooted = true;
        if let Some(a) = &self.anchor
            && p == a
        {
            return if self.flags.contains(Lookup::IN_ROOT) { Ok(p.clone()) } else { Err(Errno::EXDEV) };
        }
        let (up, crossed) = p.up(&self.root);
        if crossed && self.flags.contains(Lookup::NO_XDEV) {
            return Err(Errno::EXDEV);
        }
        Ok(up)
    }

    fn has_settled(&self, dir: &Path) -> bool {
        self.settled.as_ref().is_some_and(|mount| Arc::ptr_eq(mount, &dir.mount))
    }

    /// Has the file system ask about the names that come next at once, if it has to ask about the first of them, and if that has not
    /// been done for this path.
    fn look_ahead(&mut self, dir: &Path, text: &[u8]) {
        let inode = &dir.dentry.inode;
        if self.ahead.is_some() || self.anew || self.flags.contains(Lookup::CACHED) {
            return;
        }
        let Some(asked) = inode.as_dir().filter(|inode| inode.looks_ahead()) else { return };
        let mut path = Vec::new();
        let mut rest = text;
        while let Some(Component { name, rest: next }) = Component::first(rest)
            && Last::of(name) == Last::Normal
        {
            if path.is_empty()
                && matches!(dir.dentry.cached(name, dir.dentry.settled_epoch()), Cached::Present(_))
            {
                return;
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            rest = next;
        }
        asked.look_ahead(&path);
        self.ahead = Some(inode.clone());
    }

    /// What was looked up ahead is not used any more.
    fn looked(&mut self) {
        let ahead = self.ahead.take();
        if let Some(asked) = ahead.as_ref().and_then(|inode| inode.as_dir()) {
            asked.looked();
        }
    }

    /// For a directory that other processes change: checks whether the right to search it is still the same, unless
    /// that was just checked.
    fn recheck(&mut self, dir: &Path) -> Result<()> {
        let asked = self.asked.as_ref().is_some_and(|asked| Arc::ptr_eq(asked, &dir.dentry));
        if dir.dentry.volatile
            && !asked
            && let Some(inode) = dir.dentry.inode.as_confirming()
        {
            inode.recheck(self.has_settled(dir));
            if !self.has_settled(dir) {
                self.settled = Some(dir.mount.clone());
            }
        }
        if dir.dentry.volatile { dir.inode().refresh_access(self.cx) } else { Ok(()) }
    }

    /// The loop. `searched`: the caller may search `from`.
    fn run(&mut self, from: Path, path: &[u8], goal: Goal, mut searched: bool) -> Result<Step> {
        let mut cur = from;
        let mut text: Cow<[u8]> = Cow::Borrowed(path);
        let mut i = 0;
        loop {
            let Some(component) = Component::first(&text[i..]) else { return Ok(Step::Done(cur)) };
            let (name, through) = (component.name, component.is_through());
            let end = text.len() - component.rest.len();
            if Last::of(name) == Last::Normal {
                self.look_ahead(&cur, &text[i..]);
            }
            if !std::mem::take(&mut searched) {
                self.recheck(&cur)?;
                rules::may_search(&self.creds, &cur.dentry, name)?;
            }
            let kind = Last::of(name);
            let last = goal != Goal::Object && component.is_last();
            let entry = last && goal == Goal::Entry && kind == Last::Normal && !through;
            let parent = |dir: Path| Parent { dir, name: name.to_vec(), last: kind, slash: through };
            if last && !entry {
                return Ok(Step::Parent(parent(cur)));
            }
            match kind {
                Last::Dot | Last::Root => {}
                Last::DotDot => cur = self.up(&cur)?,
                Last::Normal => {
                    let child = match self.child(&cur, name) {
                        Err(Errno::ENOENT) if entry => return Ok(Step::Parent(parent(cur))),
                        child => child?,
                    };
                    if rules::is_followed(&child.dentry, through, self.flags.contains(Lookup::FOLLOW)) {
                        match self.follow(&cur, &child)? {
                            Target::Place(place) if entry => return Ok(Step::Entry { dir: cur, place }),
                            Target::Place(place) => cur = place,
                            Target::Text(dir, mut body) => {
                                body.extend_from_slice(&text[end..]);
                                self.looked();
                                text = Cow::Owned(body);
                                i = 0;
                                cur = dir;
                                continue;
                            }
                        }
                    } else if entry {
                        return Ok(Step::Entry { dir: cur, place: child });
                    } else {
                        if !Arc::ptr_eq(&child.mount, &cur.mount) {
                            // The names that follow are another file system's.
                            self.looked();
                        }
                        cur = child;
                    }
                    rules::may_pass(&cur.dentry, through)?;
                }
            }
            i = end;
        }
    }
}

/// What a resolution is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// What the path leads to.
    Object,
    /// Its last name, whatever that leads to.
    Parent,
    /// What it leads to, or the last name if there is nothing.
    Entry,
}

enum Step {
    Done(Path),
    Parent(Parent),
    Entry { dir: Path, place: Path },
}

/// What a path leads to that may be about to be made.
pub enum Entry {
    /// Nothing, or no name that something could be made under.
    Absent(Parent),
    /// An object.
    Present {
        /// The directory of its name, or of the magic link that led to it.
        dir: Path,
        /// The object.
        place: Path,
    },
}

/// Where a symbolic link leads.
enum Target {
    /// A magic link: this place.
    Place(Path),
    /// Text to resolve from this directory.
    Text(Path, Vec<u8>),
}

/// Finds `name` in directory `dir` through the cache; no permission checks.
pub fn find(cx: &dyn Caller, dir: &Arc<Dentry>, name: &[u8], cached_only: bool) -> Result<Arc<Dentry>> {
    find_in(cx, dir, name, dir.settled_epoch(), cached_only)
}

/// As [`find`] in the directory's settled epoch.
fn find_in(
    cx: &dyn Caller,
    dir: &Arc<Dentry>,
    name: &[u8],
    epoch: u64,
    cached_only: bool,
) -> Result<Arc<Dentry>> {
    match dir.cached(name, epoch) {
        Cached::Present(d) => return Ok(d),
        Cached::Absent => return Err(Errno::ENOENT),
        Cached::Unknown if cached_only => return Err(Errno::EAGAIN),
        Cached::Unknown => {}
    }
    if !dir.keeps {
        let found = match dir.inode.lookup(cx, name) {
            Ok(inode) => dir.admits(name, &inode).map(|()| dir.insert(name, inode, 0)),
            Err(Errno::ENOENT) => {
                dir.insert_negative(name, 0);
                Err(Errno::ENOENT)
            }
            Err(e) => Err(e),
        };
        dir.trim();
        return found;
    }
    let found = {
        let _lock = dir.lock_dir();
        find_locked_in(cx, dir, name, dir.epoch())
    };
    dir.trim();
    found
}

/// Finds `name` in directory `dir` of a file system that others change, whatever the cache says. The directory's lock keeps changes
/// by this kernel away, so that the cache gets the answer in its order among them.
fn find_anew(cx: &dyn Caller, dir: &Arc<Dentry>, name: &[u8]) -> Result<Arc<Dentry>> {
    let found = {
        let _lock = dir.lock_dir_for(cx)?;
        let epoch = dir.settled_epoch();
        keep_answer(dir, name, epoch, dir.inode.lookup_anew(cx, name))
    };
    dir.trim();
    found
}

/// As [`find`] for a caller that holds the directory's lock.
pub(crate) fn find_locked(cx: &dyn Caller, dir: &Arc<Dentry>, name: &[u8]) -> Result<Arc<Dentry>> {
    find_locked_in(cx, dir, name, dir.settled_epoch())
}

/// As [`find_locked`] for a caller that has settled the directory's epoch and has it now.
pub(crate) fn find_locked_in(
    cx: &dyn Caller,
    dir: &Arc<Dentry>,
    name: &[u8],
    epoch: u64,
) -> Result<Arc<Dentry>> {
    match dir.cached(name, epoch) {
        Cached::Present(d) => return Ok(d),
        Cached::Absent => return Err(Errno::ENOENT),
        Cached::Unknown => {}
    }
    keep_answer(dir, name, epoch, dir.inode.lookup(cx, name))
}

/// Enters what the file system said of `name` in this epoch. The caller holds the directory's lock.
fn keep_answer(dir: &Arc<Dentry>, name: &[u8], epoch: u64, answer: Result<InodeRef>) -> Result<Arc<Dentry>> {
    match answer {
        Ok(inode) => Ok(dir.insert(name, inode, epoch)),
        Err(Errno::ENOENT) => {
            // A removed directory has no names and must not gather negative ones.
            if !dir.is_unlinked() {
                dir.insert_negative(name, epoch);
            }
            Err(Errno::ENOENT)
        }
        Err(e) => Err(e),
    }
}

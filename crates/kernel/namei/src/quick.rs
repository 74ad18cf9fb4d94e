//! Path resolution that counts no references, for paths with all their names in the cache.
//!
//! The names of every directory on the way stay locked for reading until the end, each by the stack frame that looks at
//! the next. That keeps the dentries alive, so nothing on the way is counted, and the locks are biased towards readers,
//! so threads that resolve different names write to no common cache line. Whatever needs more (`..`, names the cache
//! does not have, places to stay beneath) is left to [`crate::walk`], which begins again. No lock is waited for here,
//! because other threads could wait for the locks that this one holds.
//!
//! Of a directory that others change, the cache may know that its names are right ([`Dentry::epoch`]); then it is as
//! any other. Else the file system may be able to say of a whole path that it still leads where the cache says
//! ([`vfs::Confirming::still_there`]). For a caller that only wants attributes, and may search every directory
//! anyway, such paths are resolved like the others. Then the file system is asked, without any lock: once for each
//! symbolic link on the path, and once for the end. Intermediate directories are not revalidated. So a caller that goes
//! on to change or open something takes the thorough resolution.

use crate::lookup::{Last, Lookup, Parent, Start};
use crate::rules::{self, Component};
use abi::stat::Attr;
use abi::{Errno, PATH_MAX, Result};
use mounts::fs_context::FsView;
use rights::cred::{Cap, Credentials};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use vfs::Caller;
use vfs::dentry::{Dentry, Name};
use vfs::inode::InodeRef;
use vfs::mount::{Mount, Path};

/// Frames of one resolution: directories, mounts and links on the way. Each may hold a lock.
const MAX_DEPTH: u32 = 32;

/// What the file system is asked before the result counts.
struct Question {
    /// The directory where the path starts.
    base: InodeRef,
    path: Vec<u8>,
    /// The other directories on the way.
    dirs: SmallVec<[InodeRef; 8]>,
    /// What it leads to; `None` when it leads nowhere.
    end: Option<Arc<Dentry>>,
    /// The directory and its epoch, where the path is one name in it.
    only: Option<(Arc<Dentry>, u64)>,
}

impl Question {
    /// Asks. `None` when it is not as the cache says; else attributes of what is there.
    fn ask(self) -> Option<Option<Attr>> {
        self.dirs.iter().filter_map(|dir| dir.as_confirming()).for_each(|dir| dir.passed());
        let base = self.base.as_confirming()?;
        match &self.end {
            Some(end) => {
                let attr = base.still_there(&self.path, &end.inode)?;
                if let Some((_, epoch)) = self.only {
                    end.confirmed(epoch);
                }
                Some(Some(attr))
            }
            None => {
                if !base.still_absent(&self.path) {
                    return None;
                }
                if let Some((dir, epoch)) = self.only {
                    dir.confirmed_absent(&self.path, epoch);
                }
                Some(None)
            }
        }
    }
}

/// A name on the way, and those before it up to the directory where the file system is to be asked from.
struct Step<'a> {
    before: &'a Way<'a>,
    name: &'a [u8],
    dir: &'a Arc<Dentry>,
    /// The epoch of the directory.
    epoch: u64,
    /// The name is known to be right.
    sure: bool,
}

/// How a directory was reached.
enum Way<'a> {
    /// It is where the resolution, or this file system, began; or no question is needed.
    Begin,
    /// By this name in a directory that has to be asked about.
    Step(Step<'a>),
}

impl<'a> Way<'a> {
    fn by(step: Option<Step<'a>>) -> Way<'a> {
        step.filter(|s| !s.sure).map_or(Way::Begin, Way::Step)
    }

    /// The question about `end`; `None` when none is needed.
    fn question(&self, end: Option<&Arc<Dentry>>) -> Option<Question> {
        let mut names: SmallVec<[&[u8]; 16]> = SmallVec::new();
        let mut dirs = SmallVec::new();
        let (mut at, mut base) = (self, None);
        while let Way::Step(s) = at {
            names.push(s.name);
            dirs.extend(base.replace(s.dir.inode.clone()));
            at = s.before;
        }
        names.reverse();
        let only = match self {
            Way::Step(s) if names.len() == 1 && s.epoch != 0 => Some((s.dir.clone(), s.epoch)),
            _ => None,
        };
        Some(Question { base: base?, path: names.join(&b'/'), dirs, end: end.cloned(), only })
    }
}

struct Quick<'a, F> {
    cx: &'a dyn Caller,
    creds: &'a Credentials,
    root: &'a Path,
    follow: bool,
    /// All but the last component.
    parent: bool,
    /// File systems may be asked.
    asks: bool,
    links: Cell<u32>,
    depth: Cell<u32>,
    /// What others have changed has been taken note of.
    settled: Cell<bool>,
    questions: RefCell<SmallVec<[Question; 2]>>,
    found: F,
}

/// Resolves a path and gives the place to `found` while it is sure to exist. `None` when that takes more than the cache.
pub(crate) fn lookup<R>(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    flags: Lookup,
    found: impl Fn(&Arc<Mount>, &Arc<Dentry>) -> R,
) -> Option<Result<R>> {
    Some(resolve(cx, view, start, path, flags, false, found)?.map(|(r, _)| r))
}

/// The inode that a path leads to, with its attributes where its file system was asked and told them.
pub(crate) fn lookup_attr(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    flags: Lookup,
) -> Option<Result<(InodeRef, Option<Attr>)>> {
    let asks = !flags.contains(Lookup::CACHED);
    resolve(cx, view, start, path, flags, asks, |_, dentry| dentry.inode.clone())
}

fn resolve<R>(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    flags: Lookup,
    asks: bool,
    found: impl Fn(&Arc<Mount>, &Arc<Dentry>) -> R,
) -> Option<Result<(R, Option<Attr>)>> {
    if !(Lookup::FOLLOW | Lookup::DIRECTORY | Lookup::EMPTY_PATH | Lookup::CACHED).contains(flags) {
        return None;
    }
    let directory = flags.contains(Lookup::DIRECTORY);
    let checked = |m: &Arc<Mount>, d: &Arc<Dentry>| {
        m.used();
        if directory && !d.is_dir() { Err(Errno::ENOTDIR) } else { Ok(found(m, d)) }
    };
    let done = run(cx, view, start, path, flags.contains(Lookup::FOLLOW), false, asks, checked)?;
    Some(done.and_then(|(r, attr)| Ok((r?, attr))))
}

/// As [`crate::walk::lookup_parent`].
pub(crate) fn parent(cx: &dyn Caller, view: &FsView, start: &Start, path: &[u8]) -> Option<Result<Parent>> {
    let end = path.iter().rposition(|&c| c != b'/')? + 1;
    let begin = path[..end].iter().rposition(|&c| c == b'/').map_or(0, |i| i + 1);
    let name = &path[begin..end];
    let last = Last::of(name);
    let found = |mount: &Arc<Mount>, dentry: &Arc<Dentry>| {
        mount.used();
        Path { mount: mount.clone(), dentry: dentry.clone() }
    };
    let dir = run(cx, view, start, path, false, true, false, found)?;
    Some(dir.map(|(dir, _)| Parent { dir, name: name.to_vec(), last, slash: end != path.len() }))
}

fn run<R>(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    follow: bool,
    parent: bool,
    asks: bool,
    found: impl Fn(&Arc<Mount>, &Arc<Dentry>) -> R,
) -> Option<Result<(R, Option<Attr>)>> {
    if view.anew || path.is_empty() || path.len() >= PATH_MAX {
        return None;
    }
    let from = match start {
        _ if path[0] == b'/' => &view.root,
        Start::Cwd => &view.cwd,
        Start::At(p) => p,
        Start::File(f) => f.path.as_ref()?,
    };
    let creds = cx.creds();
    let quick = Quick {
        cx,
        creds: &creds,
        root: &view.root,
        follow,
        parent,
        // In a nested user namespace a capability counts for some owners only.
        asks: asks
            && creds.user_ns.is_initial()
            && (creds.own_ns_capable(Cap::DAC_READ_SEARCH) || creds.own_ns_capable(Cap::DAC_OVERRIDE)),
        links: Cell::new(0),
        depth: Cell::new(0),
        settled: Cell::new(false),
        questions: RefCell::default(),
        found,
    };
    let done = quick.names(&from.mount, &from.dentry, &Way::Begin, path)?;
    let mut attr = None;
    for q in quick.questions.into_inner() {
        attr = q.ask()?;
    }
    Some(done.map(|(r, asked)| (r, attr.filter(|_| asked))))
}

impl<F> Quick<'_, F> {
    /// Has the file system asked what `way` leads to, if it has to be; `None` when it may not. True when it is.
    fn ask(&self, way: &Way<'_>, end: Option<&Arc<Dentry>>) -> Option<bool> {
        let Way::Step(_) = way else { return Some(false) };
        if !self.asks {
            return None;
        }
        let question = way.question(end)?;
        if question.path.len() >= PATH_MAX {
            return None;
        }
        self.questions.borrow_mut().push(question);
        Some(true)
    }

    /// The epoch of a directory, after everything that others changed before this resolution.
    fn epoch(&self, dir: &Dentry) -> u64 {
        if self.settled.get() || !dir.volatile {
            dir.epoch()
        } else {
            self.settled.set(true);
            dir.settled_epoch()
        }
    }

    /// The end: what `found` makes of it, and whether the last question is about it.
    fn end<R>(&self, mount: &Arc<Mount>, at: &Arc<Dentry>, way: &Way<'_>) -> Option<Result<(R, bool)>>
    where
        F: Fn(&Arc<Mount>, &Arc<Dentry>) -> R,
    {
        let asked = self.ask(way, Some(at))?;
        Some(Ok(((self.found)(mount, at), asked)))
    }

    /// An error, which is certain only where no question is needed.
    fn fail<R>(&self, way: &Way<'_>, e: Errno) -> Option<Result<(R, bool)>> {
        matches!(way, Way::Begin).then_some(Err(e))
    }

    /// Resolves `text` from directory `dir`, which was reached by `way`.
    fn names<R>(
        &self,
        mount: &Arc<Mount>,
        dir: &Arc<Dentry>,
        way: &Way<'_>,
        text: &[u8],
    ) -> Option<Result<(R, bool)>>
    where
        F: Fn(&Arc<Mount>, &Arc<Dentry>) -> R,
    {
        let mut text = text;
        loop {
            let Some(component) = Component::first(text) else {
                // What ends in slashes only, or in a link to such, has no last component.
                return if self.parent { None } else { self.end(mount, dir, way) };
            };
            let Component { name, rest } = component;
            if let Err(e) = rules::may_search(self.creds, dir, name) {
                // The right to search it is known while its names are.
                let sure = !dir.volatile || self.epoch(dir) != 0;
                return if sure { self.fail(way, e) } else { None };
            }
            if self.parent && component.is_last() {
                return self.end(mount, dir, way);
            }
            match name {
                b"." => text = rest,
                b".." => return None,
                _ => {
                    let epoch = self.epoch(dir);
                    if !dir.keeps || dir.volatile && epoch == 0 && !self.asks {
                        return None;
                    }
                    self.deeper()?;
                    let step = |sure| Step { before: way, name, dir, epoch, sure };
                    let names = dir.names()?;
                    return match names.get(name) {
                        Name::Present(d, seen) => {
                            self.arrive(mount, d, Some(step(d.is_sure(dir, seen, epoch))), rest)
                        }
                        Name::Absent(seen) => {
                            self.ask(&Way::by(Some(step(dir.trusts(seen, epoch)))), None)?;
                            Some(Err(Errno::ENOENT))
                        }
                        Name::Unknown => None,
                    };
                }
            }
        }
    }

    /// Goes on at `at` of `mount`, found by `step` or the root of a mount, with `rest` behind its name.
    fn arrive<R>(
        &self,
        mount: &Arc<Mount>,
        at: &Arc<Dentry>,
        step: Option<Step<'_>>,
        rest: &[u8],
    ) -> Option<Result<(R, bool)>>
    where
        F: Fn(&Arc<Mount>, &Arc<Dentry>) -> R,
    {
        if at.is_mountpoint() {
            self.deeper()?;
            let mounts = mount.mounts()?;
            if let Some(m) = mounts.on(at) {
                return self.arrive(m, &m.root, None, rest);
            }
            drop(mounts);
        }
        let through = !rest.is_empty();
        if rules::is_followed(at, through, self.follow) {
            return self.link(mount, at, step?, rest);
        }
        let way = Way::by(step);
        if let Err(e) = rules::may_pass(at, through) {
            return self.fail(&way, e);
        }
        self.names(mount, at, &way, rest)
    }

    /// Follows a symbolic link. Magic links are in directories that keep no names, so not here.
    fn link<R>(
        &self,
        mount: &Arc<Mount>,
        link: &Arc<Dentry>,
        step: Step<'_>,
        rest: &[u8],
    ) -> Option<Result<(R, bool)>>
    where
        F: Fn(&Arc<Mount>, &Arc<Dentry>) -> R,
    {
        let (dir, before) = (step.dir, step.before);
        let way = Way::by(Some(step));
        self.links.set(self.links.get() + 1);
        let links = self.links.get();
        if let Err(e) = rules::follow_link(self.cx, self.creds, &dir.inode, mount, &link.inode, links) {
            return self.fail(&way, e);
        }
        self.deeper()?;
        self.ask(&way, Some(link))?;
        let mut body = link.inode.as_link()?.link_text(self.cx)?;
        let absolute = *body.first()? == b'/';
        body.extend_from_slice(rest);
        if absolute {
            self.names(&self.root.mount, &self.root.dentry, &Way::Begin, &body)
        } else {
            self.names(mount, dir, before, &body)
        }
    }

    fn deeper(&self) -> Option<()> {
        self.depth.set(self.depth.get() + 1);
        (self.depth.get() <= MAX_DEPTH).then_some(())
    }
}

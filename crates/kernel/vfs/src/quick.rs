//! Path resolution that counts no references: for paths whose names are all in the cache.
//!
//! The names of every directory on the way stay locked for reading until the end, each by the stack frame that looks
//! at the next. That keeps the dentries alive, so nothing on the way is counted, and the locks are biased towards
//! readers, so threads that resolve different names write to no common cache line. Whatever needs more (`..`, names the
//! cache does not have, file systems that want to be asked, places to stay beneath) is left to [`crate::walk`], which
//! begins again. No lock is waited for here: who waits while holding others could be waited for.

use crate::caller::Caller;
use crate::cred::Credentials;
use crate::dentry::{Dentry, Name, S_IFLNK};
use crate::fs_context::FsView;
use crate::mount::{Mount, MountFlags};
use crate::path::Path;
use crate::perm::{self, MAY_EXEC};
use crate::walk::{Last, Lookup, MAX_LINKS, Parent, Start};
use abi::{Errno, NAME_MAX, PATH_MAX, Result};
use std::cell::Cell;
use std::sync::Arc;

/// Frames of one resolution: directories, mounts and links on the way. Each may hold a lock.
const MAX_DEPTH: u32 = 32;

struct Quick<'a, F> {
    cx: &'a dyn Caller,
    creds: &'a Credentials,
    root: &'a Path,
    follow: bool,
    /// All but the last component.
    parent: bool,
    links: Cell<u32>,
    depth: Cell<u32>,
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
    if !(Lookup::FOLLOW | Lookup::DIRECTORY | Lookup::EMPTY_PATH | Lookup::CACHED).contains(flags) {
        return None;
    }
    let directory = flags.contains(Lookup::DIRECTORY);
    let checked = |m: &Arc<Mount>, d: &Arc<Dentry>| {
        if directory && !d.is_dir() { Err(Errno::ENOTDIR) } else { Ok(found(m, d)) }
    };
    let done = run(cx, view, start, path, flags.contains(Lookup::FOLLOW), false, checked)?;
    Some(done.flatten())
}

/// As [`crate::walk::lookup_parent`].
pub(crate) fn parent(cx: &dyn Caller, view: &FsView, start: &Start, path: &[u8]) -> Option<Result<Parent>> {
    let end = path.iter().rposition(|&c| c != b'/')? + 1;
    let begin = path[..end].iter().rposition(|&c| c == b'/').map_or(0, |i| i + 1);
    let name = &path[begin..end];
    let last = Last::of(name);
    let dir = run(cx, view, start, path, false, true, |mount, dentry| Path {
        mount: mount.clone(),
        dentry: dentry.clone(),
    })?;
    Some(dir.map(|dir| Parent { dir, name: name.to_vec(), last, slash: end != path.len() }))
}

fn run<R>(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    follow: bool,
    parent: bool,
    found: impl Fn(&Arc<Mount>, &Arc<Dentry>) -> R,
) -> Option<Result<R>> {
    if path.is_empty() || path.len() >= PATH_MAX {
        return None;
    }
    let from = match start {
        _ if path[0] == b'/' => &view.root,
        Start::Cwd => &view.cwd,
        Start::At(p) => p,
        Start::File(f) => f.path.as_ref()?,
    };
    let creds = cx.creds();
    let (links, depth) = (Cell::new(0), Cell::new(0));
    let quick = Quick { cx, creds: &creds, root: &view.root, follow, parent, links, depth, found };
    quick.names(&from.mount, &from.dentry, path)
}

impl<F> Quick<'_, F> {
    /// Resolves `text` from directory `dir`.
    fn names<R>(&self, mount: &Arc<Mount>, dir: &Arc<Dentry>, text: &[u8]) -> Option<Result<R>>
    where
        F: Fn(&Arc<Mount>, &Arc<Dentry>) -> R,
    {
        let mut text = text;
        loop {
            while let [b'/', rest @ ..] = text {
                text = rest;
            }
            if text.is_empty() {
                // What ends in slashes only, or in a link to such, has no last component.
                return (!self.parent).then(|| Ok((self.found)(mount, dir)));
            }
            let end = text.iter().position(|&c| c == b'/').unwrap_or(text.len());
            let (name, rest) = text.split_at(end);
            let last = rest.iter().all(|&c| c == b'/');
            if !dir.is_dir() {
                return Some(Err(Errno::ENOTDIR));
            }
            if let Err(e) = perm::allowed(self.creds, &dir.inode.perm().ok()?, MAY_EXEC) {
                return Some(Err(e));
            }
            if name.len() > NAME_MAX {
                return Some(Err(Errno::ENAMETOOLONG));
            }
            if self.parent && last {
                return Some(Ok((self.found)(mount, dir)));
            }
            match name {
                b"." => text = rest,
                b".." => return None,
                _ => {
                    if dir.volatile {
                        return None;
                    }
                    self.deeper()?;
                    let names = dir.names()?;
                    return match names.get(name) {
                        Name::Present(d) => self.arrive(mount, d, (mount, dir), rest),
                        Name::Absent => Some(Err(Errno::ENOENT)),
                        Name::Unknown => None,
                    };
                }
            }
        }
    }

    /// Goes on at `at` of `mount`, found in directory `from`, with `rest` behind its name.
    fn arrive<R>(
        &self,
        mount: &Arc<Mount>,
        at: &Arc<Dentry>,
        from: (&Arc<Mount>, &Arc<Dentry>),
        rest: &[u8],
    ) -> Option<Result<R>>
    where
        F: Fn(&Arc<Mount>, &Arc<Dentry>) -> R,
    {
        if at.is_mountpoint() {
            self.deeper()?;
            let mounts = mount.mounts()?;
            if let Some(m) = mounts.on(at) {
                return self.arrive(m, &m.root, from, rest);
            }
            drop(mounts);
        }
        let through = !rest.is_empty();
        if at.kind == S_IFLNK && (through || self.follow) {
            return self.link(mount, at, from, rest);
        }
        if through && !at.is_dir() {
            return Some(Err(Errno::ENOTDIR));
        }
        self.names(mount, at, rest)
    }

    /// Follows a symbolic link. Magic links are in directories that want to be asked, so not here.
    fn link<R>(
        &self,
        mount: &Arc<Mount>,
        link: &Arc<Dentry>,
        from: (&Arc<Mount>, &Arc<Dentry>),
        rest: &[u8],
    ) -> Option<Result<R>>
    where
        F: Fn(&Arc<Mount>, &Arc<Dentry>) -> R,
    {
        self.links.set(self.links.get() + 1);
        if self.links.get() > MAX_LINKS || mount.flags().contains(MountFlags::NOSYMFOLLOW) {
            return Some(Err(Errno::ELOOP));
        }
        if let Err(e) = perm::may_follow(self.creds, &from.1.inode, &link.inode) {
            return Some(Err(e));
        }
        self.deeper()?;
        let mut body = link.inode.readlink(self.cx).ok()?;
        let absolute = *body.first()? == b'/';
        body.extend_from_slice(rest);
        if absolute {
            self.names(&self.root.mount, &self.root.dentry, &body)
        } else {
            self.names(from.0, from.1, &body)
        }
    }

    fn deeper(&self) -> Option<()> {
        self.depth.set(self.depth.get() + 1);
        (self.depth.get() <= MAX_DEPTH).then_some(())
    }
}

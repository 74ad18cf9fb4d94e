//! Opening files by their paths, and making them. See open(2), openat2(2).

use crate::dir::Newborn;
use crate::domain;
use crate::how::{OpenHow, creates};
use crate::lookup::{Last, Lookup, Parent, Start};
use crate::opening::{finish, finish_opened, open_held};
use crate::quick;
use crate::walk::{self, Entry, Walker};
use abi::Errno;
use abi::stat::{S_IFIFO, S_IFREG};
use caller::retry::Outcome;
use mounts::fs_context::FsView;
use policy::Kind;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::dentry::Dentry;
use vfs::file::{FileOps, OpenFile};
use vfs::in_use::InUse;
use vfs::inode::NewNode;
use vfs::mount::{Mount, Path};
use vfs::notify::{self, event};
use vfs::policing::{self, FileOperation, Place};
use vfs::{Caller, access};

/// Opens `path`.
pub fn open_at(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    how: &OpenHow,
) -> Outcome<Arc<OpenFile>> {
    walk::anew(view, |view| open_once(cx, view, start, path, how))
}

fn open_once(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    how: &OpenHow,
) -> Outcome<Arc<OpenFile>> {
    let flags = how.flags;
    if how.resolve & 0x20 != 0 && creates(flags) | (flags & libc::O_TRUNC != 0) {
        return Err(Errno::EAGAIN.into());
    }
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return open_unnamed(cx, view, start, path, how);
    }
    let mut look = how.lookup();
    if flags & libc::O_CREAT != 0 {
        look.set(Lookup::FOLLOW, flags & (libc::O_NOFOLLOW | libc::O_EXCL) == 0);
        return open_create(cx, view, start, path, how, look);
    }
    look.set(Lookup::FOLLOW, flags & libc::O_NOFOLLOW == 0);
    look.set(Lookup::DIRECTORY, flags & libc::O_DIRECTORY != 0);
    let (p, held) = walk::lookup_held(cx, view, start, path, look)?;
    open_held(cx, p, flags, held)
}

/// The O_CREAT case.
fn open_create(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    how: &OpenHow,
    look: Lookup,
) -> Outcome<Arc<OpenFile>> {
    let vfs = cx.vfs();
    for _ in 0..walk::ATTEMPTS {
        let hold = |mount: &Arc<Mount>| mount.hold_in(&vfs.mounts);
        if let Some(file) = open_or_create(cx, view, start, path, how, look, hold)? {
            return Ok(file);
        }
    }
    let hold = |mount: &Arc<Mount>| Some(InUse::new(mount.clone()));
    open_or_create(cx, view, start, path, how, look, hold)?.ok_or(Errno::ENOENT.into())
}

/// One attempt: nothing when `hold` finds that the mount has gone.
fn open_or_create(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    how: &OpenHow,
    look: Lookup,
    hold: impl Fn(&Arc<Mount>) -> Option<InUse<Mount>>,
) -> Outcome<Option<Arc<OpenFile>>> {
    let flags = how.flags;
    let exclusive = flags & libc::O_EXCL != 0;
    let (mut w, mut from) = Walker::new(cx, view, start, path, look)?;
    let mut text = Cow::Borrowed(path);
    let mut rounds = 0;
    let quick = if Lookup::FOLLOW.contains(look) { quick::parent(cx, view, start, path) } else { None };
    let mut quick = quick.transpose()?;
    loop {
        let entry = match quick.take() {
            Some(parent) if parent.is_name() => w.entry(parent.dir, &parent.name, true)?,
            Some(parent) => Entry::Absent(parent),
            None => w.entry(from, &text, false)?,
        };
        let parent = match entry {
            Entry::Present { .. } if exclusive => return Err(Errno::EEXIST.into()),
            Entry::Present { dir, place } => {
                let Some(held) = hold(&place.mount) else { return Ok(None) };
                return open_existing(cx, &dir, place, flags, held).map(Some);
            }
            Entry::Absent(parent) => parent,
        };
        if !parent.is_name() {
            let exists = exclusive && parent.last != Last::Normal;
            return Err(if exists { Errno::EEXIST } else { Errno::EISDIR }.into());
        }
        let Parent { dir, name, .. } = parent;
        domain::check_make(cx, &dir, &NewNode::Regular)?;
        access::may_create(cx, &dir)?;
        decide_creation(cx, Place::Name(&dir, &name), flags)?;
        let Some(held) = hold(&dir.mount) else { return Ok(None) };
        let made = create_in(cx, &dir, &name, how)?;
        match made {
            Some((dentry, opened)) => {
                let p = Path { mount: dir.mount.clone(), dentry };
                notify::on_dentry(&dir.dentry, event::CREATE, 0, &name);
                let denied = domain::check_open(cx, &p, flags & !libc::O_TRUNC, false)?;
                let file = match opened {
                    Some(ops) => finish_opened(cx, p, flags & !libc::O_TRUNC, ops, held)?,
                    None => finish(cx, p, flags & !libc::O_TRUNC, held)?,
                };
                file.deny(denied);
                file.mark_created();
                return Ok(Some(file));
            }
            None if exclusive => return Err(Errno::EEXIST.into()),
            // A program that serves the file system says at will that it is there, and that it is not.
            None if !dir.dentry.keeps && rounds > 0 => return Err(Errno::EEXIST.into()),
            // It appeared meanwhile: look again.
            None => (from, text) = (dir, Cow::Owned(name)),
        }
        rounds += 1;
    }
}

/// The error of a policy that refuses to make and open a file.
fn decide_creation(cx: &dyn Caller, place: Place<'_>, flags: i32) -> Result<(), Errno> {
    policing::decide(cx, Kind::FileCreate, place)?;
    if !policing::concerns(cx, Kind::FileOpen) {
        return Ok(());
    }
    let access = policing::open_access(flags);
    cx.decide(&FileOperation { access, directory: false, ..FileOperation::at(Kind::FileOpen, place) })
}

/// A name that was made, and its operations where that opened it.
type CreatedFile = (Arc<Dentry>, Option<Arc<dyn FileOps>>);

/// Makes a regular file in a directory in which the caller has just looked for the name; nothing when there is something of that name by now.
fn create_in(cx: &dyn Caller, dir: &Path, name: &[u8], how: &OpenHow) -> Outcome<Option<CreatedFile>> {
    let _lock = dir.dentry.lock_dir_for(cx)?;
    match walk::find_locked_in(cx, &dir.dentry, name, dir.dentry.epoch()) {
        Ok(_) => return Ok(None),
        Err(Errno::ENOENT) if !dir.dentry.is_unlinked() => {}
        Err(e) => return Err(e.into()),
    }
    let new = Newborn::of(cx, dir, &NewNode::Regular, how.mode)?;
    let epoch = dir.dentry.epoch();
    let both = dir.inode().as_dir().and_then(|place| place.create_open(cx, name, new.mode, how.flags));
    let made = match both {
        Some(made) => made.map(|(inode, ops)| (inode, Some(ops))),
        None => new.create(cx, dir, name, &NewNode::Regular).map(|inode| (inode, None)),
    };
    match made {
        Ok((inode, opened)) => Ok(Some((dir.dentry.insert(name, inode, epoch), opened))),
        // Others share the directory and were quicker.
        Err(Errno::EEXIST) if how.flags & libc::O_EXCL == 0 => {
            dir.dentry.forget(name);
            Ok(None)
        }
        Err(e) => Err(e.into()),
    }
}

/// The O_CREAT case of a file that exists: protected_regular and protected_fifos apply.
fn open_existing(
    cx: &dyn Caller,
    dir: &Path,
    p: Path,
    flags: i32,
    held: InUse<Mount>,
) -> Outcome<Arc<OpenFile>> {
    if p.is_dir() {
        return Err(Errno::EISDIR.into());
    }
    let level = match p.kind() {
        S_IFREG => cx.resources().protected.regular.load(Ordering::Relaxed),
        S_IFIFO => cx.resources().protected.fifos.load(Ordering::Relaxed),
        _ => 0,
    };
    if level > 0 {
        let (d, f) = (dir.inode().perm()?, p.inode().perm()?);
        let guarded = d.mode & 0o1002 == 0o1002 || level > 1 && d.mode & 0o1020 == 0o1020;
        if guarded && f.uid != d.uid && f.uid != cx.creds().fsuid {
            return Err(Errno::EACCES.into());
        }
    }
    open_held(cx, p, flags, held)
}

fn open_unnamed(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    how: &OpenHow,
) -> Outcome<Arc<OpenFile>> {
    let look = how.lookup() | Lookup::FOLLOW | Lookup::DIRECTORY;
    let (dir, held) = walk::lookup_held(cx, view, start, path, look)?;
    open_unnamed_in(cx, &dir, how, held)
}

fn open_unnamed_in(cx: &dyn Caller, dir: &Path, how: &OpenHow, held: InUse<Mount>) -> Outcome<Arc<OpenFile>> {
    access::may_create(cx, dir)?;
    decide_creation(cx, Place::Object(dir), how.flags)?;
    let new = Newborn::of(cx, dir, &NewNode::Regular, how.mode)?;
    let place = dir.inode().as_dir().ok_or(Errno::EOPNOTSUPP)?;
    let inode = place.create_unnamed(cx, new.mode, new.uid, new.gid)?;
    new.acls.give(cx, &inode)?;
    let dentry = Dentry::unnamed(&dir.dentry, inode);
    let p = Path { mount: dir.mount.clone(), dentry };
    p.dentry.linkable.store(how.flags & libc::O_EXCL == 0, Ordering::Relaxed);
    let denied = domain::check_open(cx, &p, how.flags, false)?;
    let file = finish(cx, p, how.flags, held)?;
    file.deny(denied);
    Ok(file)
}

/// Opens what a file handle leads to, with all checks of open(2). There is something already, so O_CREAT makes nothing.
pub fn open_decoded(cx: &dyn Caller, p: Path, how: &OpenHow) -> Outcome<Arc<OpenFile>> {
    let flags = how.flags;
    if flags & libc::O_DIRECTORY != 0 && !p.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    let held = InUse::new(p.mount.clone());
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return open_unnamed_in(cx, &p, how, held);
    }
    if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 {
        return Err(Errno::EEXIST.into());
    }
    if flags & libc::O_CREAT != 0 && p.is_dir() {
        return Err(Errno::EISDIR.into());
    }
    open_held(cx, p, flags, held)
}

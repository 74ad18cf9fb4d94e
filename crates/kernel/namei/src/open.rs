//! Opening files. See open(2), openat2(2).

use crate::dir::Newborn;
use crate::lookup::{Last, Lookup, Parent, Start};
use crate::walk::{self, Entry, Walker};
use crate::{domain, quick};
use abi::stat::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};
use abi::{Errno, Result};
use caller::retry::Outcome;
use mounts::fs_context::FsView;
use rights::cred::Cap;
use rights::mode;
use rights::mode::{MAY_EXEC, MAY_READ, MAY_WRITE};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::dentry::Dentry;
use vfs::file::devices::Opened;
use vfs::file::{FileOps, OpenFile, Opener, PathOnly};
use vfs::file::{claim as busy, claim::Claim};
use vfs::in_use::InUse;
use vfs::inode::{NewNode, SetAttr};
use vfs::mount::{Mount, MountFlags, Path};
use vfs::notify::{self, event};
use vfs::{Caller, access};

const O_LARGEFILE: i32 = 0o100000;
const RESOLVE_KNOWN: u64 = 0x3f;

/// `struct open_how`, and the arguments of open(2) in its form. Its fields fit together: what openat2(2) refuses is never
/// made into one.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHow {
    flags: i32,
    mode: u32,
    resolve: u64,
}

impl OpenHow {
    /// The arguments of openat2(2): O_* flags, the mode of a created file, RESOLVE_* flags. EINVAL for combinations that it
    /// refuses.
    pub fn new(flags: i32, mode: u32, resolve: u64) -> Result<OpenHow> {
        let how = OpenHow { flags, mode, resolve };
        how.validate().map(|()| how)
    }

    /// The arguments of open(2) and openat(2), which ignore unknown flags. EINVAL for combinations that they refuse.
    pub fn legacy(flags: i32, mode: u32) -> Result<OpenHow> {
        let known = libc::O_ACCMODE
            | libc::O_CREAT
            | libc::O_EXCL
            | libc::O_NOCTTY
            | libc::O_TRUNC
            | libc::O_APPEND
            | libc::O_NONBLOCK
            | libc::O_SYNC
            | libc::O_ASYNC
            | libc::O_DIRECT
            | libc::O_TMPFILE
            | libc::O_NOFOLLOW
            | libc::O_NOATIME
            | libc::O_CLOEXEC
            | libc::O_PATH;
        let mut f = flags & known;
        if f & libc::O_PATH != 0 {
            f &= libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        }
        OpenHow::new(f, if creates(f) { mode & 0o7777 } else { 0 }, 0)
    }

    /// O_* flags.
    pub fn flags(&self) -> i32 {
        self.flags
    }

    /// RESOLVE_* flags.
    pub fn resolve(&self) -> u64 {
        self.resolve
    }

    fn validate(&self) -> Result<()> {
        let f = self.flags;
        if self.resolve & !RESOLVE_KNOWN != 0 || self.resolve & 0x18 == 0x18 {
            return Err(Errno::EINVAL);
        }
        if self.mode & !0o7777 != 0 || self.mode != 0 && !creates(f) {
            return Err(Errno::EINVAL);
        }
        if f & TMPFILE_ONLY != 0 {
            let accepted = f & libc::O_TMPFILE == libc::O_TMPFILE
                && matches!(f & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR)
                && f & libc::O_CREAT == 0;
            if !accepted {
                return Err(Errno::EINVAL);
            }
        }
        if f & libc::O_CREAT != 0 && f & libc::O_DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        if f & libc::O_PATH != 0
            && f & !(libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC) != 0
        {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    fn lookup(&self) -> Lookup {
        let mut l = Lookup::empty();
        for (bit, flag) in [
            (0x01, Lookup::NO_XDEV),
            (0x02, Lookup::NO_MAGICLINKS),
            (0x04, Lookup::NO_SYMLINKS),
            (0x08, Lookup::BENEATH),
            (0x10, Lookup::IN_ROOT),
            (0x20, Lookup::CACHED),
        ] {
            l.set(flag, self.resolve & bit != 0);
        }
        l
    }
}

/// O_TMPFILE without the O_DIRECTORY in it.
const TMPFILE_ONLY: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

fn creates(flags: i32) -> bool {
    flags & (libc::O_CREAT | TMPFILE_ONLY) != 0
}

/// Rights that an access mode needs.
fn access(flags: i32) -> u32 {
    let m = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => MAY_READ,
        libc::O_WRONLY => MAY_WRITE,
        _ => MAY_READ | MAY_WRITE,
    };
    if flags & libc::O_TRUNC != 0 { m | MAY_WRITE } else { m }
}

/// Opens `path`.
pub fn open_at(
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
    let mut text = path.to_vec();
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
            None => (from, text) = (dir, name),
        }
        rounds += 1;
    }
}

/// A name that was made, and its operations where that opened it.
type Made = (Arc<Dentry>, Option<Arc<dyn FileOps>>);

/// Makes a regular file in a directory in which the caller has just looked for the name; nothing when there is something of that name by now.
fn create_in(cx: &dyn Caller, dir: &Path, name: &[u8], how: &OpenHow) -> Outcome<Option<Made>> {
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

/// Opens what is at `p`, with all checks but those of creation.
pub fn open_path(cx: &dyn Caller, p: Path, flags: i32) -> Outcome<Arc<OpenFile>> {
    let held = InUse::new(p.mount.clone());
    open_held(cx, p, flags, held)
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

/// Opens what is at `p` on a mount that is held already.
fn open_held(cx: &dyn Caller, p: Path, flags: i32, held: InUse<Mount>) -> Outcome<Arc<OpenFile>> {
    if flags & libc::O_PATH != 0 {
        let ops = Arc::new(PathOnly);
        let inode = p.inode().clone();
        return Ok(OpenFile::at(p, inode, ops, flags, (None, held), Opener::of(&cx.creds())));
    }
    let mask = access(flags);
    match p.kind() {
        S_IFLNK => return Err(Errno::ELOOP.into()),
        S_IFDIR if mask & MAY_WRITE != 0 => return Err(Errno::EISDIR.into()),
        S_IFCHR | S_IFBLK if p.mount.nodev() => return Err(Errno::EACCES.into()),
        _ => {}
    }
    p.inode().refresh_access(cx)?;
    access::may(cx, &p, mask)?;
    if flags & libc::O_NOATIME != 0 && !mode::owner_or_capable(&cx.creds(), &p.inode().perm()?) {
        return Err(Errno::EPERM.into());
    }
    let denied = domain::check_open(cx, &p, flags, false)?;
    let file = finish(cx, p, flags, held)?;
    file.deny(denied);
    Ok(file)
}

/// Opens without permission checks, and truncates.
fn finish(cx: &dyn Caller, p: Path, flags: i32, held: InUse<Mount>) -> Outcome<Arc<OpenFile>> {
    let writes =
        matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR) || flags & libc::O_TRUNC != 0;
    let claim = match p.kind() == S_IFREG {
        true if writes => busy::write(p.inode())?,
        true => busy::read(p.inode()),
        false => None,
    };
    if claim.is_some() {
        locks::leases::break_for(cx, p.inode(), writes, flags & libc::O_NONBLOCK != 0)?;
    }
    finish_claiming(cx, p, flags, claim, held, event::OPEN)
}

/// As [`finish`] of a file that was just made and opened in one step.
fn finish_opened(
    cx: &dyn Caller,
    p: Path,
    flags: i32,
    ops: Arc<dyn FileOps>,
    held: InUse<Mount>,
) -> Outcome<Arc<OpenFile>> {
    notify::ask(cx, &p, vfs::notify::marks::OPEN_PERM)?;
    let inode = p.inode().clone();
    let writes = matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR);
    let claim = if writes { busy::write(&inode)? } else { busy::read(&inode) };
    if flags & libc::O_DIRECT != 0 && !ops.direct() {
        return Err(Errno::EINVAL.into());
    }
    notify::by(cx, &p, event::OPEN);
    Ok(OpenFile::at(p, inode, ops, flags | O_LARGEFILE, (claim, held), Opener::of(&cx.creds())))
}

/// `told`: the event for listeners.
fn finish_claiming(
    cx: &dyn Caller,
    p: Path,
    flags: i32,
    claim: Option<Claim>,
    held: InUse<Mount>,
    told: u32,
) -> Outcome<Arc<OpenFile>> {
    if told & vfs::notify::marks::OPEN_EXEC != 0 {
        notify::ask(cx, &p, vfs::notify::marks::OPEN_EXEC_PERM)?;
    }
    if told != 0 {
        notify::ask(cx, &p, vfs::notify::marks::OPEN_PERM)?;
    }
    let inode = p.inode().clone();
    let keep = flags | O_LARGEFILE;
    let stands_for = inode.open_file().map(|file| file.inode.clone());
    let ops: Arc<dyn FileOps> = match p.kind() {
        S_IFSOCK if stands_for.is_none() => return Err(Errno::ENXIO.into()),
        S_IFBLK => match cx.vfs().devices.open_block(cx, &p, &inode, inode.attr()?.rdev, flags)? {
            Opened::Ops(o) => o,
            Opened::File(f) => return Ok(f),
        },
        kind @ (S_IFCHR | S_IFIFO) if stands_for.is_none() => {
            let outside = if kind == S_IFIFO { inode.open_outside(cx, flags) } else { None };
            let opened = match outside {
                Some(ops) => Opened::Ops(ops?),
                None if kind == S_IFCHR => {
                    cx.vfs().devices.open_char(cx, &p, &inode, inode.attr()?.rdev, flags)?
                }
                None => cx.vfs().devices.open_fifo(cx, &p, &inode, flags)?,
            };
            match opened {
                Opened::Ops(o) => o,
                Opened::File(f) => return Ok(f),
            }
        }
        _ => inode.open(cx, flags)?,
    };
    if flags & libc::O_DIRECT != 0 && !ops.direct() {
        return Err(Errno::EINVAL.into());
    }
    if told != 0 {
        notify::by(cx, &p, told);
    }
    if flags & libc::O_TRUNC != 0 && p.kind() == S_IFREG {
        let mut set = SetAttr { size: Some(0), ..SetAttr::default() };
        let perm = inode.perm()?;
        if perm.mode & 0o6000 != 0 && !cx.creds().capable(Cap::FSETID) {
            set.mode = Some(mode::drop_set_id(perm.mode) & 0o7777);
        }
        inode.set_attr(cx, &set)?;
        notify::on_path(&p, event::MODIFY);
    }
    match stands_for {
        Some(inode) => Ok(OpenFile::new(None, inode, ops, keep)),
        None => Ok(OpenFile::at(p, inode, ops, keep, (claim, held), Opener::of(&cx.creds()))),
    }
}

/// Opens a program for execve(2): a regular file with execute permission on a mount that allows it.
pub fn open_exec(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    look: Lookup,
) -> Outcome<Arc<OpenFile>> {
    let (p, held) = walk::lookup_held(cx, view, start, path, look)?;
    match p.kind() {
        S_IFREG => {}
        S_IFLNK => return Err(Errno::ELOOP.into()),
        _ => return Err(Errno::EACCES.into()),
    }
    if p.mount.flags().contains(MountFlags::NOEXEC) {
        return Err(Errno::EACCES.into());
    }
    p.inode().refresh_access(cx)?;
    access::inode_may(cx, p.inode(), MAY_EXEC)?;
    domain::check_open(cx, &p, libc::O_RDONLY, true)?;
    let claim = busy::run(p.inode())?;
    finish_claiming(cx, p, libc::O_RDONLY, claim, held, event::OPEN | vfs::notify::marks::OPEN_EXEC)
}

/// Opens the object of an event for the reader of the event, without permission checks and without events.
pub fn open_event(cx: &dyn Caller, p: &Path, flags: i32) -> Outcome<Arc<OpenFile>> {
    if flags & libc::O_ACCMODE != libc::O_RDONLY && matches!(p.kind(), S_IFREG | S_IFDIR) {
        if p.kind() == S_IFDIR {
            return Err(Errno::EISDIR.into());
        }
        access::writable_mount(p)?;
    }
    access::device_may(cx, p.inode(), access(flags))?;
    let held = InUse::new(p.mount.clone());
    let claim = match p.kind() {
        S_IFREG if flags & libc::O_ACCMODE != libc::O_RDONLY => busy::write(p.inode())?,
        S_IFREG => busy::read(p.inode()),
        _ => None,
    };
    // The other end of a FIFO is not waited for.
    let nonblocking = if p.kind() == S_IFIFO { libc::O_NONBLOCK } else { 0 };
    let file = finish_claiming(cx, p.clone(), flags | nonblocking, claim, held, 0)?;
    file.silence();
    Ok(file)
}

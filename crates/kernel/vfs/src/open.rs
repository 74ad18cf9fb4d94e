//! Opening files. See open(2), openat2(2).

use crate::anon::AnonInode;
use crate::busy::{self, Claim};
use crate::caller::Caller;
use crate::cred::Cap;
use crate::dentry::{Dentry, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};
use crate::devices::Opened;
use crate::dir;
use crate::file::OpenFile;
use crate::file_ops::FileOps;
use crate::fs_context::FsView;
use crate::inode::{NewNode, SetAttr};
use crate::mount::MountFlags;
use crate::notify::{self, event};
use crate::path::Path;
use crate::perm::{self, MAY_EXEC, MAY_READ, MAY_WRITE};
use crate::quick;
use crate::retry::Outcome;
use crate::walk::{self, Last, Lookup, Parent, Start, Target, Walker};
use abi::{Errno, Result};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const O_LARGEFILE: i32 = 0o100000;
const RESOLVE_KNOWN: u64 = 0x3f;

/// `struct open_how`, and the arguments of open(2) in its form.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHow {
    /// O_* flags.
    pub flags: i32,
    /// Mode of a created file.
    pub mode: u32,
    /// RESOLVE_* flags.
    pub resolve: u64,
}

impl OpenHow {
    /// The arguments of open(2) and openat(2), which ignore what they do not know.
    pub fn legacy(flags: i32, mode: u32) -> OpenHow {
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
        OpenHow { flags: f, mode: if creates(f) { mode & 0o7777 } else { 0 }, resolve: 0 }
    }

    /// EINVAL for combinations that openat2(2) refuses.
    pub fn validate(&self) -> Result<()> {
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

/// Opens `path`. `how` was made by [`OpenHow::legacy`] or checked by [`OpenHow::validate`].
pub fn open_at(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    how: &OpenHow,
) -> Outcome<Arc<OpenFile>> {
    how.validate()?;
    let flags = how.flags;
    if how.resolve & 0x20 != 0 && creates(flags) | (flags & libc::O_TRUNC != 0) {
        return Err(Errno::EAGAIN.into());
    }
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return open_unnamed(cx, view, start, path, how);
    }
    let mut look = how.lookup();
    if flags & libc::O_CREAT != 0 {
        return open_create(cx, view, start, path, how, look);
    }
    look.set(Lookup::FOLLOW, flags & libc::O_NOFOLLOW == 0);
    look.set(Lookup::DIRECTORY, flags & libc::O_DIRECTORY != 0);
    let p = walk::lookup(cx, view, start, path, look)?;
    open_path(cx, p, flags)
}

fn open_create(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    how: &OpenHow,
    look: Lookup,
) -> Outcome<Arc<OpenFile>> {
    let flags = how.flags;
    let (mut w, mut from) = Walker::new(cx, view, start, path, look)?;
    let mut text = path.to_vec();
    let exclusive = flags & libc::O_EXCL != 0;
    let mut known = if look.is_empty() { quick::parent(cx, view, start, path) } else { None };
    loop {
        let Parent { dir, name, last, slash } = match known.take() {
            Some(parent) => parent?,
            None => w.parent(from, &text)?,
        };
        if last != Last::Normal {
            return Err(if exclusive { Errno::EEXIST } else { Errno::EISDIR }.into());
        }
        if slash {
            return Err(Errno::EISDIR.into());
        }
        match w.child(&dir, &name) {
            Ok(p) => {
                if exclusive {
                    return Err(Errno::EEXIST.into());
                }
                if p.kind() == S_IFLNK {
                    if flags & libc::O_NOFOLLOW != 0 {
                        return Err(Errno::ELOOP.into());
                    }
                    match w.follow(&dir, &p)? {
                        Target::Place(p) => return open_existing(cx, &dir, p, flags),
                        Target::Text(d, t) => (from, text) = (d, t),
                    }
                    continue;
                }
                return open_existing(cx, &dir, p, flags);
            }
            Err(Errno::ENOENT) => {}
            Err(e) => return Err(e.into()),
        }
        perm::may_create(cx, &dir)?;
        let made = {
            let _lock = dir.dentry.lock_dir();
            match walk::find_locked(cx, &dir.dentry, &name) {
                Ok(_) => None,
                Err(Errno::ENOENT) => {
                    if dir.dentry.is_unlinked() {
                        return Err(Errno::ENOENT.into());
                    }
                    let (mode, uid, gid) = dir::new_owner(cx, &dir, how.mode, false)?;
                    let epoch = dir.dentry.epoch();
                    match dir.inode().dir()?.create(cx, &name, &NewNode::Regular, mode, uid, gid) {
                        Ok(i) => Some(dir.dentry.insert(&name, i, epoch)),
                        // Others share the directory and were quicker.
                        Err(Errno::EEXIST) if !exclusive => {
                            dir.dentry.forget(&name);
                            None
                        }
                        Err(e) => return Err(e.into()),
                    }
                }
                Err(e) => return Err(e.into()),
            }
        };
        match made {
            Some(dentry) => {
                let p = Path { mount: dir.mount.clone(), dentry };
                notify::on_inode(dir.inode(), event::CREATE, 0, &name);
                let file = finish(cx, p, flags & !libc::O_TRUNC)?;
                file.mark_created();
                return Ok(file);
            }
            None if exclusive => return Err(Errno::EEXIST.into()),
            // It appeared meanwhile: look again.
            None => (from, text) = (dir, name),
        }
    }
}

/// The O_CREAT case of a file that exists: protected_regular and protected_fifos apply.
fn open_existing(cx: &dyn Caller, dir: &Path, p: Path, flags: i32) -> Outcome<Arc<OpenFile>> {
    if p.is_dir() {
        return Err(Errno::EISDIR.into());
    }
    let level = match p.kind() {
        S_IFREG => cx.vfs().protected.regular.load(Ordering::Relaxed),
        S_IFIFO => cx.vfs().protected.fifos.load(Ordering::Relaxed),
        _ => 0,
    };
    if level > 0 {
        let (d, f) = (dir.inode().perm()?, p.inode().perm()?);
        let guarded = d.mode & 0o1002 == 0o1002 || level > 1 && d.mode & 0o1020 == 0o1020;
        if guarded && f.uid != d.uid && f.uid != cx.creds().fsuid {
            return Err(Errno::EACCES.into());
        }
    }
    open_path(cx, p, flags)
}

fn open_unnamed(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    how: &OpenHow,
) -> Outcome<Arc<OpenFile>> {
    let look = how.lookup() | Lookup::FOLLOW | Lookup::DIRECTORY;
    let dir = walk::lookup(cx, view, start, path, look)?;
    perm::may_create(cx, &dir)?;
    let (mode, uid, gid) = dir::new_owner(cx, &dir, how.mode, false)?;
    let inode = dir.inode().as_dir().ok_or(Errno::EOPNOTSUPP)?.create_unnamed(cx, mode, uid, gid)?;
    let dentry = Dentry::unnamed(&dir.dentry, inode);
    let p = Path { mount: dir.mount.clone(), dentry };
    p.dentry.linkable.store(how.flags & libc::O_EXCL == 0, Ordering::Relaxed);
    finish(cx, p, how.flags)
}

/// Opens what is at `p`, with all checks but those of creation.
pub fn open_path(cx: &dyn Caller, p: Path, flags: i32) -> Outcome<Arc<OpenFile>> {
    if flags & libc::O_PATH != 0 {
        let ops = Arc::new(PathOnly);
        let inode = p.inode().clone();
        return Ok(OpenFile::new(Some(p), Some(inode), ops, flags));
    }
    let mask = access(flags);
    match p.kind() {
        S_IFLNK => return Err(Errno::ELOOP.into()),
        S_IFDIR if mask & MAY_WRITE != 0 => return Err(Errno::EISDIR.into()),
        S_IFCHR | S_IFBLK if p.mount.flags().contains(MountFlags::NODEV) => return Err(Errno::EACCES.into()),
        _ => {}
    }
    perm::may(cx, &p, mask)?;
    if flags & libc::O_NOATIME != 0 && !perm::owner_or_capable(&cx.creds(), &p.inode().perm()?) {
        return Err(Errno::EPERM.into());
    }
    finish(cx, p, flags)
}

/// Opens without permission checks, and truncates.
fn finish(cx: &dyn Caller, p: Path, flags: i32) -> Outcome<Arc<OpenFile>> {
    let writes =
        matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR) || flags & libc::O_TRUNC != 0;
    let claim = match p.kind() == S_IFREG {
        true if writes => busy::write(p.inode())?,
        true => busy::read(p.inode()),
        false => None,
    };
    if claim.is_some() {
        crate::leases::break_for(cx, p.inode(), writes, flags & libc::O_NONBLOCK != 0)?;
    }
    finish_claiming(cx, p, flags, claim)
}

fn finish_claiming(cx: &dyn Caller, p: Path, flags: i32, claim: Option<Claim>) -> Outcome<Arc<OpenFile>> {
    let inode = p.inode().clone();
    let keep = flags | O_LARGEFILE;
    let ops: Arc<dyn FileOps> = match p.kind() {
        S_IFSOCK if inode.as_any().downcast_ref::<AnonInode>().is_none() => return Err(Errno::ENXIO.into()),
        S_IFBLK => return Err(Errno::ENXIO.into()),
        kind @ (S_IFCHR | S_IFIFO) if inode.as_any().downcast_ref::<AnonInode>().is_none() => {
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
    notify::on_path(&p, event::OPEN);
    if flags & libc::O_TRUNC != 0 && p.kind() == S_IFREG {
        let mut set = SetAttr { size: Some(0), ..SetAttr::default() };
        let perm = inode.perm()?;
        if perm.mode & 0o6000 != 0 && !cx.creds().own_ns_capable(Cap::FSETID) {
            set.mode = Some(perm::drop_set_id(perm.mode) & 0o7777);
        }
        inode.set_attr(cx, &set)?;
        notify::on_path(&p, event::MODIFY);
    }
    match inode.as_any().downcast_ref::<AnonInode>() {
        Some(a) => Ok(OpenFile::new(None, a.file.inode.clone(), ops, keep)),
        None => Ok(OpenFile::claiming(Some(p), Some(inode), ops, keep, claim)),
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
    let p = walk::lookup(cx, view, start, path, look)?;
    exec_path(cx, p)
}

/// As [`open_exec`] for a place found before.
pub fn exec_path(cx: &dyn Caller, p: Path) -> Outcome<Arc<OpenFile>> {
    match p.kind() {
        S_IFREG => {}
        S_IFLNK => return Err(Errno::ELOOP.into()),
        _ => return Err(Errno::EACCES.into()),
    }
    if p.mount.flags().contains(MountFlags::NOEXEC) {
        return Err(Errno::EACCES.into());
    }
    perm::inode_may(cx, p.inode(), MAY_EXEC)?;
    let claim = busy::run(p.inode())?;
    finish_claiming(cx, p, libc::O_RDONLY, claim)
}

/// An O_PATH file: a place without operations.
pub struct PathOnly;

impl FileOps for PathOnly {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> wait::Events {
        wait::Events(0x20)
    }
}

/// Type bits of what a file is, for checks like "is a directory".
pub fn file_kind(f: &OpenFile) -> u32 {
    match (&f.path, &f.inode) {
        (Some(p), _) => p.kind(),
        (None, Some(i)) => i.kind(),
        (None, None) => f.attr().map_or(0, |a| a.mode & S_IFMT),
    }
}

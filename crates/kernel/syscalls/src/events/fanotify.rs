//! fanotify_init(2), fanotify_mark(2). The groups are in `ipc::fanotify`; none reports by file handle.

use crate::arg::{DirFd, Fd, PathPtr};
use crate::at;
use abi::{Errno, Result};
use caller::HasCredentials;
use ipc::fanotify::{Fanotify, init};
use namei::{Lookup, walk};
use rights::{Cap, mode};
use std::sync::Arc;
use task::{Current, SysResult};
use vfs::notify::marks::{EVENTS, MarkMask, Marked, ON_CHILD, ON_DIR, QUESTIONS};
use vfs::{Path, access};

mod mark {
    pub(super) const ADD: u32 = 1;
    pub(super) const REMOVE: u32 = 2;
    pub(super) const DONT_FOLLOW: u32 = 4;
    pub(super) const ONLYDIR: u32 = 8;
    pub(super) const MOUNT: u32 = 0x10;
    pub(super) const IGNORED: u32 = 0x20;
    pub(super) const SURVIVES: u32 = 0x40;
    pub(super) const FLUSH: u32 = 0x80;
    pub(super) const FILESYSTEM: u32 = 0x100;
    pub(super) const IGNORE: u32 = 0x400;
    pub(super) const ALL: u32 = 0x5ff;
}

pub fn fanotify_init(c: &mut Current, flags: u32, event_flags: u32) -> SysResult {
    if !c.creds().capable(Cap::SYS_ADMIN) {
        // Others could have groups that report file handles.
        return Err(Errno::EPERM.into());
    }
    let event_flags = event_flags as i32;
    let file = Fanotify::open(c, flags, event_flags)?;
    Ok(c.install(file, flags & init::CLOEXEC != 0)? as u64)
}

/// What fanotify_mark(2) is asked for.
struct Change {
    mask: u32,
    ignored: bool,
    exact: bool,
    survives: bool,
}

impl Change {
    /// EEXIST when events were ignored with flags before, or when they would not survive any more.
    fn add(&self, wanted: &mut MarkMask) -> Result<()> {
        if !self.ignored {
            wanted.mask |= self.mask;
            return Ok(());
        }
        if wanted.exact && !self.exact || self.exact && wanted.survives && !self.survives {
            return Err(Errno::EEXIST);
        }
        wanted.ignored |= self.mask;
        wanted.exact = self.exact;
        wanted.survives |= self.survives;
        Ok(())
    }

    fn remove(&self, wanted: &mut MarkMask) {
        let from = if self.ignored { &mut wanted.ignored } else { &mut wanted.mask };
        *from &= !self.mask;
    }
}

pub fn fanotify_mark(c: &mut Current, fd: Fd, flags: u32, mask: u64, dir: DirFd, path: PathPtr) -> SysResult {
    let mask = u32::try_from(mask).map_err(|_| Errno::EINVAL)?;
    let kind = flags & (mark::MOUNT | mark::FILESYSTEM);
    let command = flags & (mark::ADD | mark::REMOVE | mark::FLUSH);
    let ignored = flags & (mark::IGNORED | mark::IGNORE);
    let known = flags & !mark::ALL == 0 && kind != mark::MOUNT | mark::FILESYSTEM;
    let complete = match command {
        mark::ADD | mark::REMOVE => mask != 0,
        mark::FLUSH => flags & !(kind | mark::FLUSH) == 0,
        _ => false,
    };
    // Events about names need a group that reports file handles.
    let told = command == mark::FLUSH || mask & !(EVENTS | QUESTIONS | ON_CHILD | ON_DIR) == 0;
    if !known || !complete || ignored == mark::IGNORED | mark::IGNORE {
        return Err(Errno::EINVAL.into());
    }
    let file = c.file(fd.0)?;
    let group = Fanotify::of(&file).ok_or(Errno::EINVAL)?;
    if !told || mask & QUESTIONS != 0 && !group.asks() {
        return Err(Errno::EINVAL.into());
    }
    if !c.creds().capable(Cap::SYS_ADMIN) && kind != 0 {
        return Err(Errno::EPERM.into());
    }
    if command == mark::FLUSH {
        group.flush(match kind {
            mark::MOUNT => 1,
            mark::FILESYSTEM => 2,
            _ => 0,
        });
        return Ok(0);
    }
    let place = find(c, dir, path, flags)?;
    let (on, inode) = match kind {
        mark::MOUNT => (Marked::Mount(Arc::downgrade(&place.mount)), false),
        mark::FILESYSTEM => (Marked::FileSystem(Arc::downgrade(&place.mount.sb)), false),
        _ => (Marked::Inode(place.inode().clone()), true),
    };
    // The process that answers may need to read such files.
    if mask & QUESTIONS != 0 && place.mount.fs().kind() == "proc" {
        return Err(Errno::EINVAL.into());
    }
    let survives = flags & mark::SURVIVES != 0;
    let exact = ignored == mark::IGNORE;
    if command == mark::ADD && exact && !survives {
        // What is ignored there is not forgotten when something is modified.
        if !inode {
            return Err(Errno::EINVAL.into());
        }
        if place.is_dir() {
            return Err(Errno::EISDIR.into());
        }
    }
    let no_children = if inode && place.is_dir() { 0 } else { ON_CHILD };
    let no_flags = if ignored == mark::IGNORED { ON_DIR | ON_CHILD } else { 0 };
    let change = Change { mask: mask & !no_children & !no_flags, ignored: ignored != 0, exact, survives };
    match command {
        mark::ADD => group.add(on, &place, |wanted| change.add(wanted))?,
        _ => group.remove(&on, |wanted| change.remove(wanted))?,
    }
    Ok(0)
}

/// The object to be marked: the one of a path, or without a path that of the descriptor. It must be readable.
fn find(c: &mut Current, dir: DirFd, path: PathPtr, flags: u32) -> Result<Path> {
    let place = if path.0 == 0 {
        let file = c.file(dir.0)?;
        // Pipes and the like have no place here.
        let place = file.path.clone().ok_or(Errno::EINVAL)?;
        if flags & mark::ONLYDIR != 0 && !place.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        place
    } else {
        let (start, path) = at::read(c, dir, path)?;
        let mut look = Lookup::empty();
        look.set(Lookup::FOLLOW, flags & mark::DONT_FOLLOW == 0);
        look.set(Lookup::DIRECTORY, flags & mark::ONLYDIR != 0);
        walk::lookup(c, &c.fs().view(), &start, &path, look)?
    };
    access::inode_may(c, place.inode(), mode::MAY_READ)?;
    Ok(place)
}

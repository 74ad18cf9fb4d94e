//! The objects that requests are about, and changes of their attributes.

use super::Connection;
use abi::stat::{Attr, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};
use abi::{Errno, Result};
use fileproto::{Changes, Key, SetTime, Target};
use hostsys::fs::{self as host, Access};
use std::os::fd::OwnedFd;
use std::sync::PoisonError;

/// Attributes of an open object; ESTALE when another one is expected.
fn expected(fd: &OwnedFd, key: Key) -> Result<Attr> {
    host::identity(fd).and_then(|attr| is_expected(attr, key))
}

fn is_expected(attr: Attr, key: Key) -> Result<Attr> {
    if (attr.dev, attr.ino) == (key.dev, key.ino) { Ok(attr) } else { Err(Errno::ESTALE) }
}

impl Connection {
    /// The descriptor of a message. EINVAL for one of an object of other types than `kinds` (S_IFMT), and for one that was not
    /// opened through the mounts of the tree: the sentry has other files open, which it may not change.
    pub(super) fn sent(&self, descriptor: Option<OwnedFd>, kinds: &[u32]) -> Result<OwnedFd> {
        let fd = descriptor.ok_or(Errno::EBADF)?;
        let (attr, mount) = host::identity_on_mount(&fd)?;
        let mounts = self.mounts.read().unwrap_or_else(PoisonError::into_inner);
        if kinds.contains(&attr.file_type()) && mounts.contains(&mount) { Ok(fd) } else { Err(Errno::EINVAL) }
    }

    /// Attributes of an object of which the sentry gets the descriptor.
    pub(super) fn given(&self, fd: &OwnedFd) -> Result<Attr> {
        let (attr, mount) = host::identity_on_mount(fd)?;
        let known = self.mounts.read().unwrap_or_else(PoisonError::into_inner).contains(&mount);
        if !known {
            self.mounts.write().unwrap_or_else(PoisonError::into_inner).insert(mount);
        }
        Ok(attr)
    }

    pub(super) fn writable(&self) -> Result<()> {
        if self.options.readonly { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Opens a regular file or a directory for reading. Other objects are not opened: EOPNOTSUPP.
    pub(super) fn readable(&self, target: &Target<'_>, descriptor: Option<OwnedFd>) -> Result<OwnedFd> {
        match *target {
            Target::Descriptor => self.sent(descriptor, &[S_IFREG, S_IFDIR]),
            Target::Directory(dir) => host::open_self(&*self.dir(dir)?),
            Target::Named { dir, name, key } => {
                let dir = self.dir(dir)?;
                let access = match is_expected(host::identity_at(&*dir, name)?, key)?.file_type() {
                    S_IFREG => Access::Read,
                    S_IFDIR => Access::Directory,
                    _ => return Err(Errno::EOPNOTSUPP),
                };
                let fd = host::open_at(&*dir, name, access)?;
                expected(&fd, key)?;
                Ok(fd)
            }
        }
    }

    /// Changes attributes; those of the object afterwards.
    pub(super) fn set_attr(
        &self,
        target: &Target<'_>,
        changes: &Changes,
        descriptor: Option<OwnedFd>,
    ) -> Result<Attr> {
        self.writable()?;
        let id = |id: Option<u32>| id.filter(|id| *id != u32::MAX);
        let changes = &Changes { uid: id(changes.uid), gid: id(changes.gid), ..*changes };
        match *target {
            Target::Descriptor => {
                // O_PATH is enough, for all but the size.
                let fd = self.sent(descriptor, &[S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK])?;
                if let Some(size) = changes.size {
                    host::truncate(&fd, size)?;
                }
                let kind = host::identity(&fd)?.file_type();
                let readable = || match &self.own {
                    Some(own) if kind == S_IFREG => own.open_again(&fd, fileproto::Access::Read),
                    _ => fd.try_clone().map_err(|_| Errno::EMFILE),
                };
                change_place(&fd, kind, changes, readable)?;
                host::stat(&fd)
            }
            Target::Directory(dir) => {
                if changes.size.is_some() {
                    return Err(Errno::EISDIR);
                }
                let dir = self.dir(dir)?;
                change_place(&dir, S_IFDIR, changes, || host::open_self(&*dir))?;
                host::stat(&*dir)
            }
            Target::Named { dir, name, key } => {
                let dir = self.dir(dir)?;
                let place = host::open_at(&*dir, name, Access::Place)?;
                let kind = expected(&place, key)?.file_type();
                if let Some(size) = changes.size {
                    match kind {
                        S_IFREG => {}
                        S_IFDIR => return Err(Errno::EISDIR),
                        _ => return Err(Errno::EINVAL),
                    }
                    let fd = host::open_at(&*dir, name, Access::Write)?;
                    expected(&fd, key)?;
                    host::truncate(fd, size)?;
                }
                change_place(&place, kind, changes, || self.readable(target, None))?;
                host::stat(&place)
            }
        }
    }
}

fn changes_owner(changes: &Changes) -> bool {
    changes.uid.is_some() || changes.gid.is_some()
}

fn changes_times(changes: &Changes) -> bool {
    (changes.atime, changes.mtime) != (SetTime::Keep, SetTime::Keep)
}

fn time(time: SetTime) -> host::SetTime {
    match time {
        SetTime::Keep => host::SetTime::Keep,
        SetTime::Now => host::SetTime::Now,
        SetTime::At(time) => host::SetTime::At(time),
    }
}

/// Changes of what a descriptor stands for, but its size. `readable` opens the same object for reading.
fn change_place(
    place: &OwnedFd,
    kind: u32,
    changes: &Changes,
    readable: impl FnOnce() -> Result<OwnedFd>,
) -> Result<()> {
    if changes_owner(changes) {
        host::chown_place(place, changes.uid, changes.gid)?;
    }
    if let Some(mode) = changes.mode {
        if kind == S_IFLNK {
            return Err(Errno::EOPNOTSUPP);
        }
        match host::chmod_place(place, mode) {
            // Linux before 6.6.
            Err(Errno::ENOSYS) => host::chmod(readable()?, mode)?,
            done => done?,
        }
    }
    if changes_times(changes) {
        host::utimes_place(place, time(changes.atime), time(changes.mtime))?;
    }
    Ok(())
}

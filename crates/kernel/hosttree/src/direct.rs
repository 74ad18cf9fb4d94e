//! Directories that this process reaches itself, each by a descriptor. See `hostsys::fs`.

use crate::remote::Connection;
use crate::{Changes, Directory, DirectoryRef, Kind, Rights, SetTime, Source, Target, same, towards};
use abi::stat::{Attr, S_IFDIR, StatFs};
use abi::time::Timespec;
use abi::{Errno, Result};
use hostsys::fanotify::{self, Handle};
use hostsys::fs::{self as host, Access, ListEntry};
use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A directory behind a descriptor, and the gofer of its tree, which can open files once more.
pub struct Direct(OwnedFd, Option<Arc<Connection>>);

impl Direct {
    /// O_PATH is enough.
    pub fn at(directory: OwnedFd) -> DirectoryRef {
        Arc::new(Direct(directory, None))
    }

    /// The same with a gofer.
    pub fn with_gofer(directory: OwnedFd, gofer: Option<Arc<Connection>>) -> DirectoryRef {
        Arc::new(Direct(directory, gofer))
    }

    /// A descriptor of what `name` is, once its numbers are those expected.
    fn open_same(&self, name: &[u8], key: (u64, u64), access: Access) -> Result<(OwnedFd, Attr)> {
        let (fd, attr) = self.open(name, access)?;
        if (attr.dev, attr.ino) == key { Ok((fd, attr)) } else { Err(Errno::ESTALE) }
    }

    /// Calls `f` with a descriptor, opened for reading, of a regular file or directory.
    fn readable<R>(&self, target: Target<'_>, f: impl FnOnce(BorrowedFd<'_>) -> Result<R>) -> Result<R> {
        match target {
            Target::Open(fd) => f(fd.as_fd()),
            Target::Place(_) => Err(Errno::EOPNOTSUPP),
            Target::This => f(host::open_self(&self.0)?.as_fd()),
            Target::Named { name, key } => f(self.open_same(name, key, Access::Read)?.0.as_fd()),
        }
    }

    /// Gives an open file that was just made its rights; what tells it from others.
    fn own(file: &OwnedFd, rights: Rights) -> Result<Attr> {
        let made = host::identity(file)?;
        let Some(changes) = towards(rights, &made) else { return Ok(made) };
        if owned(&changes) {
            // Without the privilege (rootless) everything belongs to the one user we are.
            let _ = host::chown(file, changes.uid, changes.gid);
        }
        // chown(2) takes set-ID bits away.
        let lost = owned(&changes) && rights.mode & 0o6000 != 0;
        if let Some(mode) = changes.mode.or(lost.then_some(rights.mode)) {
            host::chmod(file, mode)?;
        }
        host::identity(file)
    }
}

/// An owner or a group is among the changes.
fn owned(changes: &Changes) -> bool {
    changes.uid.is_some() || changes.gid.is_some()
}

/// A time is among them.
fn timed(changes: &Changes) -> bool {
    (changes.atime, changes.mtime) != (SetTime::Keep, SetTime::Keep)
}

fn time(set: SetTime) -> host::SetTime {
    match set {
        SetTime::Keep => host::SetTime::Keep,
        SetTime::Now => host::SetTime::Now,
        SetTime::At(time) => host::SetTime::At(time),
    }
}

/// Sets attributes of a regular file or directory that is open for reading or writing.
fn set_open(fd: BorrowedFd<'_>, changes: &Changes) -> Result<()> {
    if let Some(size) = changes.size {
        host::truncate(fd, size)?;
    }
    if owned(changes) {
        host::chown(fd, changes.uid, changes.gid)?;
    }
    if let Some(mode) = changes.mode {
        host::chmod(fd, mode)?;
    }
    if timed(changes) {
        host::utimes(fd, time(changes.atime), time(changes.mtime))?;
    }
    Ok(())
}

/// The same of what an O_PATH descriptor stands for, but its size.
fn set_place(fd: &OwnedFd, changes: &Changes) -> Result<()> {
    if changes.size.is_some() {
        return Err(Errno::EBADF);
    }
    if owned(changes) {
        host::chown_place(fd, changes.uid, changes.gid)?;
    }
    if let Some(mode) = changes.mode {
        match host::chmod_place(fd, mode) {
            // Linux before 6.6.
            Err(Errno::ENOSYS) => chmod_before_6_6(fd, mode)?,
            done => done?,
        }
    }
    if timed(changes) {
        host::utimes_place(fd, time(changes.atime), time(changes.mtime))?;
    }
    Ok(())
}

/// chmod(2) of what an O_PATH descriptor stands for, without fchmodat2(2). ENOSYS but for directories.
fn chmod_before_6_6(fd: &OwnedFd, mode: u32) -> Result<()> {
    match host::identity(fd)?.file_type() {
        S_IFDIR => host::chmod(host::open_self(fd)?, mode),
        _ => Err(Errno::ENOSYS),
    }
}

impl Directory for Direct {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn attr(&self) -> Result<Attr> {
        host::stat(&self.0)
    }

    fn statfs(&self) -> Result<StatFs> {
        host::statfs(&self.0)
    }

    fn look(&self, path: &[u8]) -> Result<Attr> {
        host::stat_below(&self.0, path)
    }

    fn walk(&self, path: &[u8]) -> Result<(DirectoryRef, Attr)> {
        let found = host::open_below(&self.0, path)?;
        let attr = host::identity(&found)?;
        Ok((Direct::with_gofer(found, self.1.clone()), attr))
    }

    fn open(&self, name: &[u8], access: Access) -> Result<(OwnedFd, Attr)> {
        let fd = host::open_at(&self.0, name, access)?;
        let attr = host::identity(&fd)?;
        Ok((fd, attr))
    }

    fn open_self(&self) -> Result<OwnedFd> {
        host::open_self(&self.0)
    }

    fn open_again(&self, file: &OwnedFd, access: Access) -> Result<OwnedFd> {
        self.1.as_ref().ok_or(Errno::ESTALE)?.open_again(file, access)
    }

    fn attr_open(&self, file: &OwnedFd) -> Result<Attr> {
        host::stat(file)
    }

    fn list(&self) -> Result<Vec<ListEntry>> {
        host::list(host::open_self(&self.0)?.as_fd())
    }

    fn read_link(&self, name: &[u8]) -> Result<(Vec<u8>, Option<Attr>)> {
        host::readlink_at(&self.0, name).map(|text| (text, None))
    }

    fn read_link_at(&self, place: &OwnedFd) -> Result<Vec<u8>> {
        host::readlink_place(place)
    }

    fn create(&self, name: &[u8], rights: Rights) -> Result<(OwnedFd, Attr)> {
        let fd = host::create_at(&self.0, name, Access::ReadWrite, rights.mode)?;
        let attr = Direct::own(&fd, rights)?;
        Ok((fd, attr))
    }

    fn create_unnamed(&self, rights: Rights) -> Result<(OwnedFd, Attr)> {
        let fd = host::create_unnamed(&self.0, rights.mode)?;
        Direct::own(&fd, rights)?;
        let attr = host::stat(&fd)?;
        Ok((fd, attr))
    }

    fn make(&self, name: &[u8], kind: Kind<'_>, rights: Rights) -> Result<Attr> {
        let since = host::now();
        match kind {
            Kind::Directory => host::mkdir_at(&self.0, name, rights.mode)?,
            Kind::Fifo => host::mknod_at(&self.0, name, false, rights.mode)?,
            Kind::Socket => host::mknod_at(&self.0, name, true, rights.mode)?,
            Kind::Whiteout => host::whiteout_at(&self.0, name, rights.mode)?,
            Kind::Symlink(text) => host::symlink_at(text, &self.0, name)?,
        }
        self.adopt(name, since, rights)
    }

    fn adopt(&self, name: &[u8], since: Timespec, rights: Rights) -> Result<Attr> {
        let found = host::stat_at(&self.0, name)?;
        let Some(changes) = towards(rights, &found) else { return Ok(found) };
        let (fd, made) = self.open(name, Access::Place)?;
        // By way of another tree the name may be exchanged for an older object.
        if (made.dev, made.ino) != (found.dev, found.ino) || made.btime.is_some_and(|b| b.sec + 1 < since.sec)
        {
            return Err(Errno::ESTALE);
        }
        if owned(&changes) {
            // As above.
            let _ = host::chown_place(&fd, changes.uid, changes.gid);
        }
        if let Some(mode) = changes.mode {
            match host::chmod_place(&fd, mode) {
                // Linux before 6.6.
                Err(Errno::ENOSYS) => host::chmod_at(&self.0, name, mode)?,
                done => done?,
            }
        }
        host::stat(&fd)
    }

    fn link(&self, from: Source<'_>, name: &[u8]) -> Result<()> {
        match from {
            Source::Named(dir, old) => host::link_at(&same::<Direct>(dir)?.0, old, &self.0, name),
            Source::Open(file) => host::link_open(file, &self.0, name),
        }
    }

    fn unlink(&self, name: &[u8], directory: bool) -> Result<()> {
        host::unlink_at(&self.0, name, directory)
    }

    fn rename(&self, name: &[u8], to: &dyn Directory, new_name: &[u8], flags: u32) -> Result<()> {
        host::rename_at(&self.0, name, &same::<Direct>(to)?.0, new_name, flags)
    }

    fn set_attr(&self, target: Target<'_>, changes: &Changes) -> Result<()> {
        let (name, key) = match target {
            Target::Open(fd) => return set_open(fd.as_fd(), changes),
            Target::This => return set_place(&self.0, changes),
            Target::Place(fd) => return set_place(fd, changes),
            Target::Named { name, key } => (name, key),
        };
        // By a descriptor, and the object is compared: a process that may change the directory could exchange the name
        // meanwhile.
        if let Some(size) = changes.size {
            host::truncate(self.open_same(name, key, Access::Write)?.0, size)?;
        }
        set_place(&self.open_same(name, key, Access::Place)?.0, &Changes { size: None, ..*changes })
    }

    fn get_xattr(&self, target: Target<'_>, name: &[u8]) -> Result<Vec<u8>> {
        self.readable(target, |fd| host::get_xattr(fd, name))
    }

    fn list_xattr(&self, target: Target<'_>) -> Result<Vec<Vec<u8>>> {
        self.readable(target, |fd| host::list_xattr(fd))
    }

    fn set_xattr(&self, target: Target<'_>, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
        self.readable(target, |fd| host::set_xattr(fd, name, value, flags))
    }

    fn remove_xattr(&self, target: Target<'_>, name: &[u8]) -> Result<()> {
        self.readable(target, |fd| host::remove_xattr(fd, name))
    }

    fn mark(&self, target: Target<'_>, group: BorrowedFd<'_>, mask: u64) -> Result<Handle> {
        self.readable(target, |fd| fanotify::mark(group, fd, mask))
    }

    fn unmark(&self, target: Target<'_>, group: BorrowedFd<'_>, mask: u64) -> Result<()> {
        self.readable(target, |fd| fanotify::unmark(group, fd, mask))
    }

    fn is_another_process(&self) -> bool {
        false
    }
}

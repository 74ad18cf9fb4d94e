//! Calls on the directory that is written to. Every one takes a directory and one name, and follows no link.

use crate::skipped::Skipped;
use abi::{Errno, Result};
use hostsys::fs::{self as host, Access, SetTime};
use overlay_diff::{Kind, Meta};
use rustix::fs::{FileType, Mode, mknodat};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Extended attributes of an object by name.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// An error of the host, with what it was about.
pub(crate) fn failed(what: &str, path: &[u8], error: Errno) -> io::Error {
    let cause = io::Error::from_raw_os_error(error.raw());
    io::Error::new(cause.kind(), format!("{what} /{}: {cause}", path.escape_ascii()))
}

/// Goes down from a directory, name by name.
pub(crate) fn open_dir(root: impl AsFd, path: &[u8]) -> Result<OwnedFd> {
    let mut at = root.as_fd().try_clone_to_owned().map_err(|_| Errno::EMFILE)?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let next = host::open_within(&at, name, Access::Place)?;
        if !host::stat(&next)?.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        at = next;
    }
    Ok(at)
}

/// The directory and the last name of a path.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Makes an object. A directory can be filled by us alone; the rest of its attributes come later. A regular file is
/// open for writing.
pub(crate) fn make(dir: impl AsFd, name: &[u8], meta: &Meta, target: &[u8]) -> Result<Option<OwnedFd>> {
    let device = |kind| {
        let mode = Mode::from_raw_mode(0o600);
        mknodat(&dir, name, kind, mode, meta.rdev).map_err(|e| Errno::from_raw(e.raw_os_error()))
    };
    match Kind::of_mode(meta.mode).ok_or(Errno::EINVAL)? {
        Kind::Regular => return host::create_at(dir, name, Access::Write, 0o600).map(Some),
        Kind::Directory => {
            host::mkdir_at(&dir, name, 0o700)?;
            return host::open_within(&dir, name, Access::Directory).map(Some);
        }
        Kind::Symlink => host::symlink_at(target, dir, name)?,
        Kind::Char => device(FileType::CharacterDevice)?,
        Kind::Block => device(FileType::BlockDevice)?,
        Kind::Fifo => device(FileType::Fifo)?,
        Kind::Socket => device(FileType::Socket)?,
    }
    Ok(None)
}

/// The list of access rights.
const ACL: &[u8] = b"system.posix_acl_access";

/// Whether an extended attribute is written back, and part of a layer: the others are the host's own.
pub(crate) fn is_written(name: &[u8]) -> bool {
    let of_overlay =
        [&b"user.overlay."[..], b"user.fuseoverlayfs."].iter().any(|prefix| name.starts_with(prefix));
    let named = name.starts_with(b"user.") && !of_overlay;
    named || [&b"security.capability"[..], ACL, b"system.posix_acl_default"].contains(&name)
}

/// Whether an error says that the host cannot hold the object, or that the object cannot be changed there: bounds of
/// the file system, a mount, an attribute of chattr(1). A guest's user can have that come at any object, and the others
/// are written back all the same.
pub(crate) fn is_refused(error: Errno) -> bool {
    matches!(
        error,
        Errno::EXDEV
            | Errno::EBUSY
            | Errno::EPERM
            | Errno::EINVAL
            | Errno::EILSEQ
            | Errno::EFBIG
            | Errno::EOVERFLOW
            | Errno::ENAMETOOLONG
            | Errno::EMLINK
            | Errno::ELOOP
            | Errno::EMFILE
            | Errno::EOPNOTSUPP
    )
}

/// Writes all of `bytes` at an offset.
pub(crate) fn write(file: &OwnedFd, mut bytes: &[u8], mut at: u64) -> Result<()> {
    while !bytes.is_empty() {
        let n = host::pwrite(file, bytes, at)?;
        if n == 0 {
            return Err(Errno::ENOSPC);
        }
        (bytes, at) = (&bytes[n..], at + n as u64);
    }
    Ok(())
}

/// Gives an object its attributes, extended ones included. Says what of those it cannot have.
pub(crate) fn set_attributes(dir: impl AsFd, name: &[u8], meta: &Meta, xattrs: &Xattrs) -> Result<Skipped> {
    let place = host::open_within(&dir, name, Access::Place)?;
    let kind = host::stat(&place)?.file_type();
    if kind != meta.mode & libc::S_IFMT {
        return Err(Errno::ESTALE);
    }
    let open = match kind {
        libc::S_IFREG => Some(host::open_within(&dir, name, Access::Read)?),
        libc::S_IFDIR => Some(host::open_within(&dir, name, Access::Directory)?),
        _ => None,
    };
    describe(&place, open.as_ref(), meta, xattrs)
}

/// The same for an object that is open as a place and, if it can have extended attributes, as itself.
pub(crate) fn describe(
    place: impl AsFd,
    open: Option<&OwnedFd>,
    meta: &Meta,
    xattrs: &Xattrs,
) -> Result<Skipped> {
    let mut left = Skipped::default();
    let mut mode = meta.mode;
    match host::chown_place(&place, Some(meta.uid), Some(meta.gid)) {
        Ok(()) => {}
        // Without the privilege everything belongs to our one user, and some users do not exist in the user namespace.
        // Set-id bits would then be another user's.
        Err(Errno::EPERM | Errno::EINVAL) => {
            left.owners += 1;
            mode &= !(libc::S_ISUID | libc::S_ISGID);
        }
        Err(e) => return Err(e),
    }
    // A list of access rights changes the mode, and a change of owner drops a file's capabilities.
    let missing = match open {
        Some(open) => set_xattrs(open, xattrs)?,
        None => xattrs.iter().map(|(name, _)| &name[..]).collect(),
    };
    left.xattrs = missing.len() as u64;
    if missing.contains(&ACL) {
        // The group's bits say then what any of the list may do.
        mode &= !libc::S_IRWXG;
    }
    if mode & libc::S_IFMT != libc::S_IFLNK {
        match (host::chmod_place(&place, mode), open) {
            (Err(Errno::ENOSYS | Errno::EOPNOTSUPP), Some(open)) => host::chmod(open, mode)?,
            (done, _) => done?,
        }
    }
    set_times(&place, meta)?;
    Ok(left)
}

/// Gives an object that is open, if only as a place, its times.
pub(crate) fn set_times(place: impl AsFd, meta: &Meta) -> Result<()> {
    let time = |(sec, nsec): (i64, u32)| SetTime::At(abi::time::Timespec { sec, nsec: nsec.into() });
    host::utimes_place(place, time(meta.atime), time(meta.mtime))
}

/// Those that it cannot have.
fn set_xattrs<'a>(open: &OwnedFd, xattrs: &'a Xattrs) -> Result<Vec<&'a [u8]>> {
    let there = match host::list_xattr(open) {
        Err(Errno::EOPNOTSUPP) => Vec::new(),
        names => names?,
    };
    for name in there.iter().filter(|name| is_written(name)) {
        if !xattrs.iter().any(|(wanted, _)| wanted == name) {
            host::remove_xattr(open, name)?;
        }
    }
    let mut missing = Vec::new();
    for (name, value) in xattrs {
        let known = || there.contains(name) && host::get_xattr(open, name).is_ok_and(|known| known == *value);
        if !is_written(name) {
            missing.push(&name[..]);
        } else if !known() {
            match host::set_xattr(open, name, value, 0) {
                Ok(()) => {}
                Err(Errno::EIO) => return Err(Errno::EIO),
                // File systems bound their number and size in many ways.
                Err(_) => missing.push(&name[..]),
            }
        }
    }
    Ok(missing)
}

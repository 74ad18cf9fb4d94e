//! Path arguments: a directory descriptor, a path, and AT_* flags.

use crate::arg::{DirFd, Fd, PathPtr};
use abi::{Errno, Result};
use mounts::View;
use namei::{Lookup, Start};
use std::sync::Arc;
use task::Current;
use vfs::{OpenFile, Path};

/// `CWD` for calls without a directory descriptor.
pub const CWD: DirFd = DirFd(libc::AT_FDCWD);

/// Where a path starts. Absolute paths do not look at the descriptor.
pub fn start(c: &Current, dir: DirFd, path: &[u8]) -> Result<Start> {
    if dir == CWD || path.first() == Some(&b'/') { Ok(Start::Cwd) } else { Ok(Start::File(c.file(dir.0)?)) }
}

/// Reads a path that must not be empty, and says where it starts.
pub fn read(c: &Current, dir: DirFd, path: PathPtr) -> Result<(Start, Vec<u8>)> {
    let path = c.read_path(path.0)?;
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    Ok((start(c, dir, &path)?, path))
}

/// As [`read`] for calls with AT_EMPTY_PATH.
pub fn read_flags(c: &Current, dir: DirFd, path: PathPtr, flags: i32) -> Result<(Start, Vec<u8>)> {
    if flags & libc::AT_EMPTY_PATH == 0 {
        return read(c, dir, path);
    }
    let path = c.read_path(path.0)?;
    Ok((start(c, dir, &path)?, path))
}

/// As [`read_flags`]; with AT_EMPTY_PATH the path may also be NULL.
pub fn read_null(c: &Current, dir: DirFd, path: PathPtr, flags: i32) -> Result<(Start, Vec<u8>)> {
    // An empty path, which is how fstat(3) asks, was usually captured.
    let mut first = [1];
    let empty = path.0 == 0 || c.ctx.captured(path.0, &mut first) && first == [0];
    if flags & libc::AT_EMPTY_PATH != 0 && empty {
        return Ok((start(c, dir, b"")?, Vec::new()));
    }
    read_flags(c, dir, path, flags)
}

/// Lookup flags of a call that follows links unless AT_SYMLINK_NOFOLLOW.
pub fn follow(flags: i32) -> Lookup {
    let mut l = Lookup::empty();
    l.set(Lookup::FOLLOW, flags & libc::AT_SYMLINK_NOFOLLOW == 0);
    l.set(Lookup::EMPTY_PATH, flags & libc::AT_EMPTY_PATH != 0);
    l
}

/// A path argument, read from the guest, with the caller's view of the tree.
pub struct At {
    /// The caller's root, working directory and mounts.
    pub view: View,
    /// Where the path starts.
    pub start: Start,
    /// The path.
    pub path: Vec<u8>,
}

impl At {
    /// Reads a path that must not be empty.
    pub fn new(c: &Current, dir: DirFd, path: PathPtr) -> Result<At> {
        let (start, path) = read(c, dir, path)?;
        Ok(At { view: c.fs().view(), start, path })
    }

    /// As `new`; with AT_EMPTY_PATH in `flags` the path may be empty. NULL is EFAULT.
    pub fn with_flags(c: &Current, dir: DirFd, path: PathPtr, flags: i32) -> Result<At> {
        let (start, path) = read_flags(c, dir, path, flags)?;
        Ok(At { view: c.fs().view(), start, path })
    }

    /// As `with_flags`, for the calls that take NULL for an empty path: stat, statx, move_mount and *xattrat.
    pub fn or_null(c: &Current, dir: DirFd, path: PathPtr, flags: i32) -> Result<At> {
        let (start, path) = read_null(c, dir, path, flags)?;
        Ok(At { view: c.fs().view(), start, path })
    }

    /// Finds the place.
    pub fn lookup(&self, c: &Current, look: Lookup) -> Result<Path> {
        namei::walk::lookup(c, &self.view, &self.start, &self.path, look)
    }

    /// Finds the place and changes what is there; once more when programs of the host exchange it at that moment.
    pub fn change(&self, c: &Current, look: Lookup, change: impl Fn(&Path) -> Result<()>) -> Result<()> {
        namei::walk::anew(&self.view, |view| {
            change(&namei::walk::lookup(c, view, &self.start, &self.path, look)?)
        })
    }
}

/// An open file that is more than a place; EBADF for O_PATH.
pub fn real_file(c: &Current, fd: Fd) -> Result<Arc<OpenFile>> {
    let f = c.file(fd.0)?;
    if f.path_only() { Err(Errno::EBADF) } else { Ok(f) }
}

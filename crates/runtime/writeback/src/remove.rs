//! Removes a tree of a directory that is written to.

use crate::steps::step;
use abi::{Errno, Result};
use hostsys::fs::{self as host, Access};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Says whether to go on: EINTR when the result is no longer awaited.
pub(crate) type Pace<'a> = &'a dyn Fn() -> Result<()>;

/// Removes a name with all that is below it, without recursion; what is not there is removed already.
pub(crate) fn remove(dir: &OwnedFd, name: &[u8], pace: Pace<'_>) -> Result<()> {
    if remove_one(dir.as_fd(), name)? {
        return Ok(());
    }
    // Directories that are being emptied: what they are called in the one before, and the names that are left.
    let mut open = vec![enter(dir.as_fd(), name)?];
    while let Some((inner, name, names)) = open.last_mut() {
        step()?;
        pace()?;
        if let Some(entry) = names.next() {
            if !remove_one(inner.as_fd(), &entry.name)? {
                let deeper = enter(inner.as_fd(), &entry.name)?;
                if open.len() >= 2 * overlay_diff::DEPTH_MAX {
                    return Err(Errno::ELOOP);
                }
                open.push(deeper);
            }
            continue;
        }
        let name = std::mem::take(name);
        open.pop();
        let parent = open.last().map_or(dir.as_fd(), |(parent, ..)| parent.as_fd());
        host::unlink_at(parent, &name, true)?;
    }
    Ok(())
}

/// A directory that is being emptied.
type Emptied = (OwnedFd, Vec<u8>, std::vec::IntoIter<host::ListEntry>);

fn enter(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Emptied> {
    let open = || host::open_within(dir, name, Access::Directory);
    let inner = match open() {
        Err(Errno::EACCES) => {
            host::chmod_place(host::open_within(dir, name, Access::Place)?, 0o700)?;
            open()?
        }
        opened => opened?,
    };
    let names = host::list(inner.as_fd())?.into_iter();
    Ok((inner, name.to_vec(), names))
}

/// Removes a name; false for a directory that has names itself.
fn remove_one(dir: BorrowedFd<'_>, name: &[u8]) -> Result<bool> {
    let object = match host::stat_at(dir, name) {
        Ok(object) => object,
        Err(Errno::ENOENT) => return Ok(true),
        Err(e) => return Err(e),
    };
    match host::unlink_at(dir, name, object.is_dir()) {
        Ok(()) | Err(Errno::ENOENT) => Ok(true),
        Err(Errno::ENOTEMPTY | Errno::EEXIST) if object.is_dir() => Ok(false),
        Err(e) => Err(e),
    }
}

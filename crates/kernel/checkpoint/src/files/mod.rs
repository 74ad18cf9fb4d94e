//! Open files as plain data, and back: [`FileSaver`] and [`FileRestorer`].
//!
//! A restored container builds the mounts of its specification again. A file with a place is opened there again, without
//! following links and without permission checks: it was open already. Everything else (pipes, sockets, event
//! descriptors) is made again from its state. What cannot be saved becomes an [`Obstacle`](crate::Obstacle) that names
//! the holder.

mod masks;
mod mounts;
mod restore;
mod save;
mod state;
mod supers;
#[cfg(test)]
mod tests;
mod watches;

pub use self::mounts::{Baseline, Belongs, MountState, NamespaceState, SpaceRef};
pub use restore::{FileRestorer, FindPid, Given, Late};
pub use save::{Around, CheckedFiles, FileSaver};
pub use state::{
    BoundState, ContextState, FileEventState, FileState, FilesState, InodeLocks, IpcNamespaceState, Kind,
    LandlockState, MarkState, MountedTree, TerminalState, WatchState,
};
pub use supers::{MakeSuper, SuperKind, SuperState};

use ::mounts::FsContext;
use abi::stat::Attr;
use abi::{Errno, Result};
use std::sync::Arc;
use vfs::{Caller, Dentry, Mount, Path};

/// Longest path of a place out of an image.
const PATH_MOST: usize = 1 << 20;

/// The attributes of what an absolute path leads to from the top of a container.
fn look(cx: &dyn Caller, fs: &FsContext, path: &[u8]) -> Result<Attr> {
    found(cx, fs, path)?.attr()
}

/// What an absolute path leads to from the top of a container.
fn found(cx: &dyn Caller, fs: &FsContext, path: &[u8]) -> Result<Path> {
    if !path.starts_with(b"/") {
        return Err(Errno::ENOENT);
    }
    let start = namei::Start::At(fs.view().root.clone());
    namei::walk::lookup(cx, &fs.view(), &start, path, namei::Lookup::FOLLOW)
}

/// The place with this path in the file system of a mount. Links are not followed.
fn find(cx: &dyn Caller, mount: &Arc<Mount>, path: &[u8]) -> Result<Path> {
    Ok(Path { mount: mount.clone(), dentry: find_below(cx, &mount.sb.root, path)? })
}

/// The dentry with this path below another one. Links are not followed.
fn find_below(cx: &dyn Caller, top: &Arc<Dentry>, path: &[u8]) -> Result<Arc<Dentry>> {
    if path.len() > PATH_MOST {
        return Err(Errno::ENAMETOOLONG);
    }
    let mut dentry = top.clone();
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if matches!(name, b"." | b"..") || name.len() > 255 || name.contains(&0) {
            return Err(Errno::EINVAL);
        }
        if !dentry.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        dentry = namei::walk::find(cx, &dentry, name, false)?;
    }
    Ok(dentry)
}

//! Open files as plain data, and back: [`FileSaver`] and [`FileRestorer`].
//!
//! A restored container builds the mounts of its specification again. A file with a place is opened there again, without
//! following links and without permission checks: it was open already. Everything else (pipes, sockets, event
//! descriptors) is made again from its state. What cannot be saved becomes an [`Obstacle`](crate::Obstacle) that names
//! the holder.

mod mounts;
mod restore;
mod save;
mod state;
#[cfg(test)]
mod tests;

pub use self::mounts::{Baseline, MountState, NamespaceState};
pub use restore::{FileRestorer, FindPid, Given, Late};
pub use save::{CheckedFiles, FileSaver};
pub use state::{ContextState, FileState, FilesState, InodeLocks, Kind};

use abi::{Errno, Result};
use std::sync::Arc;
use vfs::{Caller, Mount, Path};

/// Longest path of a place out of an image.
const PATH_MOST: usize = 1 << 20;

/// The place with this path in the file system of a mount. Links are not followed.
fn find(cx: &dyn Caller, mount: &Arc<Mount>, path: &[u8]) -> Result<Path> {
    if path.len() > PATH_MOST {
        return Err(Errno::ENAMETOOLONG);
    }
    let mut dentry = mount.sb.root.clone();
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if matches!(name, b"." | b"..") || name.len() > 255 || name.contains(&0) {
            return Err(Errno::EINVAL);
        }
        if !dentry.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        dentry = namei::walk::find(cx, &dentry, name, false)?;
    }
    Ok(Path { mount: mount.clone(), dentry })
}

//! File handles of places: name_to_handle_at(2) and open_by_handle_at(2). [`vfs::dentry::Handle`] says what a handle is.

use abi::stat::S_IFDIR;
use abi::{Errno, Result};
use std::sync::Arc;
use vfs::dentry::{Dentry, Handle};
use vfs::{Mount, Path};

/// `handle_type` of one that can be opened.
pub const OPENED: i32 = 1;

/// `handle_type` of one that only tells objects apart (FILEID_INO64_GEN).
pub const COMPARED: i32 = 0x81;

/// The handle of what is at `path`, and whether it can be opened: EOPNOTSUPP where it cannot, unless it shall only be `compared`
/// (AT_HANDLE_FID). ENOMEM, errors of the file system.
pub fn encode(path: &Path, compared: bool) -> Result<(Handle, bool)> {
    let sb = &path.mount.sb;
    let opens = sb.fs.opens_by_handle();
    if !opens && !compared {
        return Err(Errno::EOPNOTSUPP);
    }
    let handle = Handle::of(&path.attr()?);
    if opens {
        sb.handles.add(handle, &path.dentry)?;
    }
    Ok((handle, opens))
}

/// Where `handle` leads in what `mount` shows a part of, outside that part as well. ESTALE when the object is gone, or
/// the handle was never given out.
pub fn decode(mount: &Arc<Mount>, handle: Handle) -> Result<Path> {
    let sb = &mount.sb;
    let (dentry, inode) = sb.handles.find(handle).ok_or(Errno::ESTALE)?;
    // What has no name any more may still be open.
    let known = dentry.filter(|d| d.is_unlinked() || !sb.fs.revalidate() || stands(&sb.root, d));
    let dentry = match known {
        Some(d) => d,
        None if inode.kind() == S_IFDIR => return Err(Errno::ESTALE),
        // It has other names.
        None => Dentry::nameless(&sb.root, inode, b"/"),
    };
    // Others may have given the number to another object.
    if Handle::of(&dentry.inode.attr().map_err(|_| Errno::ESTALE)?) != handle {
        return Err(Errno::ESTALE);
    }
    Ok(Path { mount: mount.clone(), dentry })
}

/// Whether the names from `root` to `dentry` still lead there, where others change the file system.
fn stands(root: &Arc<Dentry>, dentry: &Arc<Dentry>) -> bool {
    let mut names = Vec::new();
    let mut at = dentry.clone();
    while !Arc::ptr_eq(&at, root) {
        let (parent, name) = at.place();
        let Some(parent) = parent else { return false };
        names.push(name);
        at = parent;
    }
    if names.is_empty() {
        return true;
    }
    let Some(top) = root.inode.as_confirming() else { return true };
    names.reverse();
    top.still_there(&names.join(&b'/'), &dentry.inode).is_some()
}

//! The rules of path_resolution(7), each once. [`crate::quick`] and [`crate::walk`] find names in different ways and ask here what
//! may be done with them.

use crate::atime;
use abi::stat::S_IFLNK;
use abi::{Errno, NAME_MAX, Result};
use rights::cred::Credentials;
use rights::mode::MAY_EXEC;
use std::sync::Arc;
use vfs::dentry::Dentry;
use vfs::inode::InodeRef;
use vfs::mount::{Mount, MountFlags};
use vfs::{Caller, access};

/// Symbolic links followed in one resolution before ELOOP.
pub(crate) const MAX_LINKS: u32 = 40;

/// The next component of a path.
pub(crate) struct Component<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// What stands behind the name, slashes included.
    pub rest: &'a [u8],
}

impl<'a> Component<'a> {
    /// The first component of `text`; `None` when only slashes are left.
    pub fn first(text: &'a [u8]) -> Option<Component<'a>> {
        let text = &text[text.iter().position(|&c| c != b'/')?..];
        let (name, rest) = text.split_at(text.iter().position(|&c| c == b'/').unwrap_or(text.len()));
        Some(Component { name, rest })
    }

    /// Nothing but slashes follows.
    pub fn is_last(&self) -> bool {
        self.rest.iter().all(|&c| c == b'/')
    }

    /// A slash follows: only a directory will do, and a link is followed.
    pub fn is_through(&self) -> bool {
        !self.rest.is_empty()
    }
}

/// Whether a name may be looked for in a directory.
pub(crate) fn may_search(creds: &Credentials, dir: &Dentry, name: &[u8]) -> Result<()> {
    if !dir.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    access::inode_allowed(creds, &dir.inode, MAY_EXEC)?;
    if name.len() > NAME_MAX { Err(Errno::ENAMETOOLONG) } else { Ok(()) }
}

/// Whether what was found is a link to be followed.
pub(crate) fn is_followed(found: &Dentry, through: bool, follow_last: bool) -> bool {
    found.kind == S_IFLNK && (through || follow_last)
}

/// Whether the resolution may go on at what was found.
pub(crate) fn may_pass(found: &Dentry, through: bool) -> Result<()> {
    if through && !found.is_dir() { Err(Errno::ENOTDIR) } else { Ok(()) }
}

/// Whether `link`, found in `dir`, may be followed as number `links` of a resolution; its time of access changes.
pub(crate) fn follow_link(
    cx: &dyn Caller,
    creds: &Credentials,
    dir: &InodeRef,
    mount: &Arc<Mount>,
    link: &InodeRef,
    links: u32,
) -> Result<()> {
    if links > MAX_LINKS || mount.flags().contains(MountFlags::NOSYMFOLLOW) {
        return Err(Errno::ELOOP);
    }
    access::may_follow(&cx.resources().protected, creds, dir, link)?;
    atime::followed(mount, link);
    Ok(())
}

//! Mount calls that rustix does not have.

use bitflags::bitflags;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

bitflags! {
    /// MOUNT_ATTR_* of mount_setattr(2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MountAttrs: u64 {
        /// Read-only.
        const RDONLY = libc::MOUNT_ATTR_RDONLY;
        /// Set-user-id bits have no effect.
        const NOSUID = libc::MOUNT_ATTR_NOSUID;
        /// Device nodes cannot be opened.
        const NODEV = libc::MOUNT_ATTR_NODEV;
        /// Nothing can be executed or mapped executable.
        const NOEXEC = libc::MOUNT_ATTR_NOEXEC;
        /// Symbolic links are not followed.
        const NOSYMFOLLOW = libc::MOUNT_ATTR_NOSYMFOLLOW;
    }
}

/// Sets attributes on the mount behind `tree` and, when `recursive`, on all mounts below it.
pub fn set_attributes(tree: BorrowedFd<'_>, attrs: MountAttrs, recursive: bool) -> io::Result<()> {
    set(tree, attrs, 0, recursive)
}

/// Makes the mount behind `tree` and all mounts below it private: what is mounted elsewhere does not appear.
pub fn make_private(tree: BorrowedFd<'_>) -> io::Result<()> {
    set(tree, MountAttrs::empty(), libc::MS_PRIVATE, true)
}

/// Makes the mount behind `tree` and all mounts below it slaves: what is mounted there does not appear elsewhere.
pub fn make_slave(tree: BorrowedFd<'_>) -> io::Result<()> {
    set(tree, MountAttrs::empty(), libc::MS_SLAVE, true)
}

/// Has the mount behind `tree`, and with `recursive` all mounts below it, map owners as the user namespace `ids` does: an ID of
/// the file system is one inside, and becomes the one outside.
pub fn map_ids(tree: BorrowedFd<'_>, ids: BorrowedFd<'_>, recursive: bool) -> io::Result<()> {
    let (attr_set, userns_fd) = (libc::MOUNT_ATTR_IDMAP, ids.as_raw_fd() as u64);
    apply(tree, &libc::mount_attr { attr_set, attr_clr: 0, propagation: 0, userns_fd }, recursive)
}

fn set(tree: BorrowedFd<'_>, attrs: MountAttrs, propagation: u64, recursive: bool) -> io::Result<()> {
    apply(
        tree,
        &libc::mount_attr { attr_set: attrs.bits(), attr_clr: 0, propagation, userns_fd: 0 },
        recursive,
    )
}

fn apply(tree: BorrowedFd<'_>, attr: &libc::mount_attr, recursive: bool) -> io::Result<()> {
    let recursive = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: `attr` is a reference to a value of the stated size and the path is a static C string.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            ptr::from_ref(attr),
            size_of::<libc::mount_attr>(),
        )
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

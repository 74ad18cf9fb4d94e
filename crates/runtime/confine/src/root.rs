//! Leaving the host's file tree.
//!
//! [`Stage`] is a fresh tmpfs over /proc (a directory that is always there):
//! mounts are put into it, then [`Stage::enter`] makes it the root and lets go
//! of the old one. The process must be in a mount namespace of its own and
//! have CAP_SYS_ADMIN over it.

use hostsys::mounts::{MountAttrs, set_attributes};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const STAGE: &str = "/proc";

/// A root in the making.
#[derive(Debug)]
pub struct Stage {
    mount: OwnedFd,
}

impl Stage {
    /// Mounts the tmpfs. Nothing that is mounted from here on is seen outside.
    pub fn new() -> io::Result<Self> {
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(fs.as_fd(), "mode", "0555")?;
        fsconfig_set_string(fs.as_fd(), "size", "1m")?;
        fsconfig_create(fs.as_fd())?;
        let attrs = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let mount = fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attrs)?;
        move_mount(mount.as_fd(), "", CWD, STAGE, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        Ok(Self { mount })
    }

    /// The root directory of the tmpfs.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }

    /// Makes the tmpfs the root, read-only, and detaches the old root with all that is mounted there.
    pub fn enter(self) -> io::Result<()> {
        set_attributes(self.mount.as_fd(), MountAttrs::RDONLY, false)?;
        enter(self.mount.as_fd())
    }
}

/// Makes a mount of this namespace the root, and detaches the old one with all that is mounted there.
pub fn enter(root: BorrowedFd<'_>) -> io::Result<()> {
    fchdir(root)?;
    pivot_root(".", ".")?;
    // The old root now lies over the new one, at the same place.
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    Ok(())
}

/// Gives the process an empty, read-only root.
pub fn enter_empty() -> io::Result<()> {
    Stage::new()?.enter()
}

/// The root directory of a tmpfs that is mounted nowhere, for files that processes map: without a limit
/// of its own (the cgroup's counts) and, since programs may lie in it, not `noexec`. Needs CAP_SYS_ADMIN.
pub fn private_tmpfs() -> io::Result<OwnedFd> {
    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(fs.as_fd(), "mode", "0700")?;
    // No limit to speak of; but one, so that the host says how much is used.
    fsconfig_set_string(fs.as_fd(), "size", "1P")?;
    fsconfig_set_string(fs.as_fd(), "nr_inodes", "0")?;
    fsconfig_create(fs.as_fd())?;
    let attrs = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attrs)?)
}

/// Opens a directory below `dir` without following links, as a mere reference.
pub fn reference(dir: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(dir, name, flags, Mode::empty())?)
}

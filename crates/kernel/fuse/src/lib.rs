//! FUSE: file systems that a program serves through /dev/fuse. See fuse(4), mount.fuse(8) and linux/fuse.h.
//!
//! A daemon opens the device, mounts a file system with its descriptor, and from then on reads requests and writes
//! answers. The daemon is a program of the sandbox and is not trusted. [`wire`] checks each byte of an answer.
//! [`conn`](mod@conn) keeps every wait for the daemon killable and every queue bounded. The mounter's identity limits
//! what the daemon may do to processes of others ([`vfs::PermissionInode::judges`]).
//!
//! [`vfs::Inode::attr`] returns the last known attributes. It never waits, so it may be called with any lock held.
//! [`vfs::ServedInode::refresh`] asks the daemon. While the daemon answers, only these locks may be held: those of
//! directories of this file system, the lock of its own renames (a caller that is killed waits for neither), and the
//! position of an open file.
//!
//! Neighbours: `vfs` (files, drivers, types), `files` and `tmpfs` (bytes of mapped files). Locks: all leaves, but for the
//! lock of renames. A checkpoint keeps nothing of a mounted file system: it belongs to the daemon.

#![forbid(unsafe_code)]

mod conn;
mod device;
mod dir;
mod file;
mod fs;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod handle;
mod inode;
mod mount;
mod node;
#[cfg(test)]
mod tests;
pub mod wire;

use crate::device::Device;
pub use crate::mount::{KNOWN, mount};
use abi::{Errno, Result};
use caller::UserMemory;
use std::sync::Arc;
use vfs::file::devices::{Devices, Opened};
use vfs::{Caller, InodeRef, OpenFile, Path};

/// Major and minor number of /dev/fuse.
const NUMBER: (u32, u32) = (10, 229);
/// FUSE_DEV_IOC_CLONE: the device file gets the connection of another one.
const CLONE: u32 = 0x8004_e500;

/// Registers the driver.
pub fn register(devices: &Devices) {
    let open = |cx: &dyn Caller, _: &Path, _: &InodeRef, _: i32| Ok(Opened::Ops(Arc::new(Device::new(cx))));
    devices.register_char("misc", NUMBER.0, NUMBER.1..=NUMBER.1, Arc::new(open));
}

/// True for a request on the device that names another file by a descriptor, for [`clone_device`].
pub fn names_file(file: &OpenFile, cmd: u32) -> bool {
    cmd == CLONE && Device::of(file).is_some()
}

/// The number of that descriptor.
pub fn named_fd(mem: &mut dyn UserMemory, arg: u64) -> Result<i32> {
    mem.read_value(arg)
}

/// FUSE_DEV_IOC_CLONE. EINVAL when `other` is no device file, or `file` has a connection; EPERM when `other` has none.
pub fn clone_device(file: &OpenFile, other: &OpenFile) -> Result<()> {
    match (Device::of(file), Device::of(other)) {
        (Some(device), Some(other)) => device.attach_as(other),
        _ => Err(Errno::EINVAL),
    }
}

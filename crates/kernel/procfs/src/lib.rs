//! procfs, a minimal sysfs, and the container's control group. See proc(5), sysfs(5), cgroups(7).
//!
//! The shape is three layers: `entry` has the table types (a file is a name, a mode and a
//! function that makes its text), `fs` turns tables into inodes, and the other modules are the
//! tables and functions themselves: `pid` below /proc/PID, `top` for /proc, `sysctl` for /proc/sys, `sysfs`, `cgroupfs`.
//!
//! A file's text is made at the first read and again at every read at offset 0; reads are served
//! from that snapshot. Inodes are the same object as long as anybody holds them, and have numbers
//! that depend only on what they stand for. No lock is held while text is made.

#![forbid(unsafe_code)]

mod cgroupfs;
mod cpu;
mod cpu_flags;
mod entry;
mod file;
mod fs;
mod host;
mod mounts;
mod net;
mod pid;
mod snapshot;
mod sysctl;
mod sysfs;
#[cfg(test)]
mod tests;
mod top;

pub use pid::memory::command_line;
pub use sysctl::set as set_sysctl;

use ::pid::PidNamespace;
use std::sync::Arc;
use task::Kernel;
use vfs::FileSystem;

/// An instance of procfs that shows a pid namespace.
pub fn new(kernel: Arc<Kernel>, pids: Arc<PidNamespace>) -> Arc<dyn FileSystem> {
    fs::ProcFs::make(kernel, pids, "proc", 0x9fa0, &top::ROOT)
}

/// An instance of sysfs.
pub fn sysfs(kernel: Arc<Kernel>) -> Arc<dyn FileSystem> {
    let pids = kernel.pids.clone();
    fs::ProcFs::make(kernel, pids, "sysfs", 0x6265_6572, &sysfs::ROOT)
}

/// The container's control group as the root of a cgroup v2 hierarchy, whatever the host has.
pub fn cgroupfs(kernel: Arc<Kernel>) -> Arc<dyn FileSystem> {
    let pids = kernel.pids.clone();
    fs::ProcFs::make(kernel, pids, "cgroup2", 0x6367_7270, &cgroupfs::ROOT)
}

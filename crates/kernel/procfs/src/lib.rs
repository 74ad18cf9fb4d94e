//! procfs. See proc(5).
//!
//! The machinery is in `kernfs`; the modules here are tables and the functions that make text: `pid` below /proc/PID, `top`
//! for /proc, `sysctl` for /proc/sys.

#![forbid(unsafe_code)]

mod conf;
mod config;
mod counter_names;
mod cpu;
mod cpu_flags;
mod fs_type;
mod locks;
mod mounts;
mod net;
mod net_counters;
mod net_filter;
mod net_sockets;
mod notices;
mod pid;
mod sysctl;
#[cfg(test)]
mod tests;
mod top;

pub use cpu_flags::flags as cpu_flags;
pub use pid::memory::{command_line, shows_gone_memory, strings};
pub use sysctl::set as set_sysctl;

use ::pid::PidNamespace;
use kernfs::KernFs;
use std::sync::Arc;
use task::Kernel;
use vfs::FileSystem;

/// An instance that shows a PID namespace.
pub fn new(kernel: Arc<Kernel>, pids: Arc<PidNamespace>) -> Arc<dyn FileSystem> {
    KernFs::new(kernel, pids, &fs_type::Proc)
}

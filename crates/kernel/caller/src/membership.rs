//! The container and the namespaces that a caller is in, by number.
//!
//! A driver below the crates of those objects decides by the number, or finds its own object by it.

use abi::{Errno, Result};
use std::any::Any;
use std::sync::Arc;

/// A caller in a container and in namespaces. The kernel itself is in none.
pub trait Membership {
    /// Number of the container among the sandbox's; `None` for the kernel itself.
    fn container(&self) -> Option<u32> {
        None
    }
    /// Whether absolute paths of the caller begin where those of the first container's first process began, on the same mount.
    fn sees_first_root(&self) -> bool {
        false
    }
    /// Number of the network namespace's nsfs inode; `None` for the kernel itself.
    fn net_ns(&self) -> Option<u64> {
        None
    }
    /// The same number of a process, which is named by its own number. ESRCH.
    fn net_ns_of_process(&self, _nr: i32) -> Result<u64> {
        Err(Errno::ESRCH)
    }
    /// The number of the network namespace that a descriptor of the caller is for. EBADF; EINVAL when it is for something
    /// else.
    fn net_ns_of_descriptor(&self, _fd: i32) -> Result<u64> {
        Err(Errno::EBADF)
    }
    /// The control group (`cgroup::Cgroup`) that is the root of the cgroup namespace; `None` for the kernel itself.
    fn cgroup_root(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
}

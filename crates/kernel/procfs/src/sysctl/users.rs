//! /proc/sys/user: how many namespaces, inotify instances and so on each user of a user namespace may have.
//!
//! In the initial one the limits of inotify are those of /proc/sys/fs, and those of fanotify are fixed.

use super::{INT, SysctlView, bounded};
use abi::{Errno, Result};
use caller::quota::Limit;
use user_ns::Kind;

/// The limit of the sandbox that stands for a kind's in the initial user namespace.
fn quota(kernel: &SysctlView, kind: Kind) -> Option<Limit> {
    match kind {
        _ if !kernel.user_ns.is_initial() => None,
        Kind::InotifyInstances => Some(Limit::InotifyInstances),
        Kind::InotifyWatches => Some(Limit::InotifyWatches),
        _ => None,
    }
}

pub(super) fn get(kernel: &SysctlView, kind: Kind) -> u64 {
    match quota(kernel, kind) {
        Some(limit) => kernel.vfs.resources.quotas.limit(limit),
        None => kernel.user_ns.limit(kind),
    }
}

/// EPERM for what is fixed, and above what the sandbox was given.
pub(super) fn set(kernel: &SysctlView, kind: Kind, value: &str) -> Result<()> {
    let value = bounded(value, 0, INT)? as u64;
    if let Some(limit) = quota(kernel, kind) {
        return kernel.vfs.resources.quotas.lower_limit(limit, value);
    }
    if kind.has_quota() && kernel.user_ns.is_initial() {
        return if value == kernel.user_ns.limit(kind) { Ok(()) } else { Err(Errno::EPERM) };
    }
    kernel.user_ns.set_limit(kind, value);
    Ok(())
}

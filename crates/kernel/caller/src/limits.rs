//! Limits of the caller and of its sandbox.

use crate::quota::Quotas;
use crate::resources::Resources;
use std::sync::Arc;

/// A caller with resource limits, in a kernel with shared resources.
pub trait Limits {
    /// Soft limit of an RLIMIT_* resource, in its unit; `u64::MAX` is unlimited.
    fn rlimit(&self, resource: i32) -> u64;
    /// What the subsystems of the caller's kernel share.
    fn resources(&self) -> &Arc<Resources>;
    /// Limits and counts of the sandbox and of its users.
    fn quotas(&self) -> Arc<Quotas> {
        self.resources().quotas.clone()
    }
}

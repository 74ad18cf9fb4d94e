//! What a kernel gets of the host beside files and network.

use platform::Platform;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What runs guest code, and what the host keeps and counts of it.
pub struct HostSide {
    /// Runs guest code.
    pub platform: Arc<dyn Platform>,
    /// Where content of files in memory lives that programs map.
    pub memory: Arc<tmpfs::MemFiles>,
    /// Leads to a process that knows what the host counts of the sandbox's processes.
    pub figures: Option<OwnedFd>,
}

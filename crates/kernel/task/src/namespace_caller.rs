//! The caller of mount(2) and its like, with the namespaces that some file systems show.

use mounts::PathCaller;
use nsproxy::NsProxy;
use std::sync::Arc;
use vfs::Internal;

/// A caller with namespaces. File systems that show a namespace are made for those of the caller.
pub trait NamespaceCaller: PathCaller {
    /// The caller's namespaces; `None` for the kernel itself.
    fn namespaces(&self) -> Option<Arc<NsProxy>>;
}

impl NamespaceCaller for Internal {
    fn namespaces(&self) -> Option<Arc<NsProxy>> {
        None
    }
}

//! Network namespaces: what sockets of a namespace share. See network_namespaces(7).
//!
//! Lock rank: leaves. A checkpoint keeps the interfaces.

use parking_lot::{Mutex, RwLock};
use spec::Interfaces;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A network namespace.
#[derive(Default)]
pub struct NetNamespace {
    /// Number of its nsfs inode.
    pub inum: u64,
    interfaces: RwLock<Arc<Interfaces>>,
    /// Addresses of netlink sockets in use.
    pub(crate) ports: Mutex<BTreeSet<u32>>,
}

impl NetNamespace {
    /// With these interfaces.
    pub fn new(inum: u64, interfaces: Interfaces) -> Arc<NetNamespace> {
        Arc::new(NetNamespace {
            inum,
            interfaces: RwLock::new(Arc::new(interfaces)),
            ports: Mutex::default(),
        })
    }

    /// Its interfaces, addresses and routes as they are now.
    pub fn interfaces(&self) -> Arc<Interfaces> {
        self.interfaces.read().clone()
    }

    /// Replaces the interfaces.
    pub fn set_interfaces(&self, interfaces: Interfaces) {
        *self.interfaces.write() = Arc::new(interfaces);
    }
}

//! Network namespaces: what sockets of a namespace share. See network_namespaces(7).
//!
//! Lock rank: leaves. A checkpoint keeps the interfaces.

use parking_lot::{Mutex, RwLock};
use spec::Interfaces;
use std::collections::BTreeSet;
use std::sync::Arc;
use user_ns::UserNamespace;

/// A network namespace.
pub struct NetNamespace {
    /// Number of its nsfs inode.
    pub inum: u64,
    user_ns: Arc<UserNamespace>,
    interfaces: RwLock<Arc<Interfaces>>,
    /// Addresses of netlink sockets in use.
    pub(crate) ports: Mutex<BTreeSet<u32>>,
}

impl NetNamespace {
    /// With these interfaces, owned by `user_ns`.
    pub fn new(inum: u64, user_ns: Arc<UserNamespace>, interfaces: Interfaces) -> Arc<NetNamespace> {
        Arc::new(NetNamespace {
            inum,
            user_ns,
            interfaces: RwLock::new(Arc::new(interfaces)),
            ports: Mutex::default(),
        })
    }

    /// One that has loopback alone.
    #[cfg(test)]
    pub fn alone() -> Arc<NetNamespace> {
        NetNamespace::new(1, UserNamespace::initial(), Interfaces::loopback())
    }

    /// Where capabilities over it are held.
    pub fn user_ns(&self) -> &UserNamespace {
        &self.user_ns
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

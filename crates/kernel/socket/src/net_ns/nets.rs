//! All network namespaces of a kernel: their list, the lock for changes of interfaces, and their names in requests.
//!
//! Lock rank: `RTNL` (Linux's `rtnl_lock`, one for all, as an interface may lead from one namespace to another); the list is a leaf.
//! A checkpoint keeps nothing of it: each namespace enters itself again.

use super::NetNamespace;
use account::Account;
use lock_order::{Mutex, MutexGuard, rank};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The network namespaces of a kernel.
#[derive(Default)]
pub struct Nets {
    /// By the numbers of their nsfs inodes.
    all: Mutex<BTreeMap<u64, Weak<NetNamespace>>>,
    rtnl: Mutex<(), { rank::RTNL }>,
    /// What the packet filters of all of them take.
    pub filters: Arc<Account>,
    /// Events of devices that anybody was told of.
    events: AtomicU64,
}

impl Nets {
    pub(crate) fn add(&self, net: &Arc<NetNamespace>) {
        self.all.lock().insert(net.inum, Arc::downgrade(net));
    }

    /// The one with a number, while it lives.
    pub(crate) fn find(&self, inum: u64) -> Option<Arc<NetNamespace>> {
        let found = self.all.lock().get(&inum).cloned();
        found.and_then(|net| net.upgrade())
    }

    /// A namespace has gone: the others forget what they called it.
    pub(crate) fn forget(&self, inum: u64) {
        let mut all = self.all.lock();
        all.remove(&inum);
        let others: Vec<_> = all.values().cloned().collect();
        drop(all);
        others.iter().filter_map(Weak::upgrade).for_each(|net| net.netlink.forget_net(inum));
    }

    /// The number of the next event of a device.
    pub(crate) fn next_event(&self) -> u64 {
        self.events.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn rtnl(&self) -> MutexGuard<'_, (), { rank::RTNL }> {
        self.rtnl.lock()
    }
}

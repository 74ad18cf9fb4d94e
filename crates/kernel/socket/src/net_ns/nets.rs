//! All network namespaces of a kernel: their list, the lock for changes of interfaces, and their names in requests.
//!
//! Lock rank: `RTNL` (Linux's `rtnl_lock`, one for all, as an interface may lead from one namespace to another); the list is a leaf.
//! A checkpoint keeps nothing of it: each namespace enters itself again.

use super::NetNamespace;
use account::Account;
use lock_order::{Mutex, MutexGuard, rank};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
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
    /// Timers of stacks stand still.
    paused: AtomicBool,
    /// Timers of stacks that run now.
    running: AtomicUsize,
}

/// While it lives, no timer of a stack runs; those that became due run at its end.
pub struct Pause {
    nets: Arc<Nets>,
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.nets.paused.store(false, Ordering::SeqCst);
        self.nets.all().iter().for_each(|net| net.rearm());
    }
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

    /// All that live.
    pub fn all(&self) -> Vec<Arc<NetNamespace>> {
        let all: Vec<_> = self.all.lock().values().cloned().collect();
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Lets the timers of all stacks stand still, when those that run are done. For a checkpoint: programs stand still already.
    pub fn pause(self: &Arc<Self>) -> Pause {
        self.paused.store(true, Ordering::SeqCst);
        while self.running.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        Pause { nets: self.clone() }
    }

    /// Runs timers, unless they stand still.
    pub(crate) fn unless_paused(&self, run: impl FnOnce()) {
        self.running.fetch_add(1, Ordering::SeqCst);
        if !self.paused.load(Ordering::SeqCst) {
            run();
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    /// The number of the next event of a device.
    pub(crate) fn next_event(&self) -> u64 {
        self.events.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn rtnl(&self) -> MutexGuard<'_, (), { rank::RTNL }> {
        self.rtnl.lock()
    }
}

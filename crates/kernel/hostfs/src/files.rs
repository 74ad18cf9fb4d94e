//! The state that all trees and streams of the host of one kernel share.
//!
//! Locks are leaves.

use crate::fd_cache::FdCache;
use crate::fs::HostFs;
use crate::node::{Listings, Prefetches, Views};
use crate::outside::Outside;
use crate::poller::Poller;
use crate::warm::Warm;
use crate::watches::Watches;
use abi::Result;
use caller::DeviceNumbers;
use hostsys::fanotify::Group;
use hosttree::DirectoryRef;
use lock_order::Mutex;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vfs::attach::Attachments;

/// Descriptors that are kept open for reading.
const WARM: usize = 256;
/// Those that are kept for attributes, where so many may be open.
const PLACES: usize = 8192;

/// Host device and inode number of an object, and its kind.
type Key = (u64, u64, u32);

/// Attachments, and for a FIFO or a socket the object itself: while they are known by its number, the host must not give
/// that number to another one, which may be another container's.
#[derive(Default)]
pub(crate) struct Attached {
    list: Attachments,
    object: Option<Arc<OwnedFd>>,
}

impl Attached {
    pub fn list(&self) -> &Attachments {
        &self.list
    }

    /// A descriptor of the object by O_PATH.
    pub fn object(&self) -> Option<Arc<OwnedFd>> {
        self.object.clone()
    }
}

/// The files of the host that a kernel uses: open descriptors, mappings, and the thread that watches streams.
pub struct HostFiles {
    pub(crate) dirs: FdCache<DirectoryRef>,
    /// Files of exclusive trees, open for reading.
    pub(crate) fds: FdCache<Arc<OwnedFd>>,
    pub(crate) views: Views,
    /// Trees that are shared with the host.
    trees: read_biased_lock::RwLock<Vec<Weak<HostFs>>>,
    /// The file that was made last, by its node, and the descriptor that it was made with.
    pub(crate) made: Mutex<Option<(u64, OwnedFd)>>,
    pub(crate) warm: Warm,
    /// Files of strict trees, good for attributes only.
    pub(crate) places: Warm,
    pub(crate) prefetches: Prefetches,
    pub(crate) listings: Listings,
    pub(crate) watches: Watches,
    /// What programs inside watch.
    pub(crate) outside: Arc<Outside>,
    /// What hangs on host objects of shared trees: the containers of a sandbox may have the same directory in several
    /// trees, and a socket or a lock of one is there for the others.
    attached: Mutex<BTreeMap<Key, Weak<Attached>>>,
    /// Open directories that hold theirs.
    pub(crate) held_dirs: Arc<AtomicUsize>,
    poller: Mutex<Option<Arc<Poller>>>,
    pub(crate) device_numbers: Arc<DeviceNumbers>,
    /// Our device numbers for the host's: two trees of one file system have the same.
    devices: read_biased_lock::RwLock<Vec<(u64, u64)>>,
    /// Device number of imported files.
    pub(crate) imported_dev: u64,
    next_node: AtomicU64,
}

impl HostFiles {
    /// Without any tree; trees will have these device numbers.
    pub fn new(device_numbers: &Arc<DeviceNumbers>) -> Arc<HostFiles> {
        HostFiles::with(device_numbers, None)
    }

    /// The same with a group of fanotify(7) that watches directories; without one it is made when it is needed.
    pub fn with(device_numbers: &Arc<DeviceNumbers>, watcher: Option<Group>) -> Arc<HostFiles> {
        Arc::new(HostFiles {
            dirs: FdCache::default(),
            fds: FdCache::default(),
            views: Views::default(),
            trees: read_biased_lock::RwLock::default(),
            made: Mutex::default(),
            warm: Warm::new(WARM),
            places: Warm::new(PLACES.min(hostsys::process::most_descriptors() / 4)),
            prefetches: Prefetches::new(hostsys::process::most_descriptors()),
            listings: Listings::default(),
            watches: Watches::with(watcher),
            outside: Arc::default(),
            attached: Mutex::default(),
            held_dirs: Arc::default(),
            poller: Mutex::default(),
            imported_dev: device_numbers.alloc(),
            device_numbers: device_numbers.clone(),
            devices: read_biased_lock::RwLock::default(),
            next_node: AtomicU64::new(1),
        })
    }

    /// Unmaps the files that have not been read since it was called last, and closes those that have not been opened. True when
    /// some are left.
    pub fn release_idle(&self) -> bool {
        self.views.release_idle()
            | self.warm.release_idle()
            | self.places.release_idle()
            | self.prefetches.forget_all()
    }

    /// There is one tree more.
    pub(crate) fn add_tree(&self, tree: &Arc<HostFs>) {
        let mut trees = self.trees.write();
        trees.retain(|known| known.strong_count() != 0);
        trees.push(Arc::downgrade(tree));
    }

    /// Calls `f` for each shared tree but this one.
    pub(crate) fn other_trees(&self, own: &HostFs, f: impl Fn(&HostFs)) {
        let trees = self.trees.read();
        let others = trees.iter().filter(|tree| !std::ptr::eq(tree.as_ptr(), own));
        others.filter_map(Weak::upgrade).for_each(|tree| f(&tree));
    }

    /// Our number for a host device.
    pub(crate) fn device(&self, host_dev: u64) -> u64 {
        let known = |t: &[(u64, u64)]| t.iter().find(|(h, _)| *h == host_dev).map(|(_, ours)| *ours);
        let ours = known(&self.devices.read());
        if let Some(ours) = ours {
            return ours;
        }
        let mut t = self.devices.write();
        if let Some(ours) = known(&t) {
            return ours;
        }
        let new = self.device_numbers.alloc();
        t.push((host_dev, new));
        new
    }

    pub(crate) fn next_node(&self) -> u64 {
        self.next_node.fetch_add(1, Ordering::Relaxed)
    }

    /// What hangs on an object, which stays open as long as something does.
    pub(crate) fn attached(&self, key: Key, object: Option<Arc<OwnedFd>>) -> Arc<Attached> {
        let mut all = self.attached.lock();
        if let Some(known) = all.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(Attached { list: Attachments::default(), object });
        if all.len() >= 1024 && all.len().is_power_of_two() {
            all.retain(|_, known| known.strong_count() != 0);
        }
        all.insert(key, Arc::downgrade(&new));
        new
    }

    /// Another object has this number from now on.
    pub(crate) fn forget_attached(&self, key: Key) {
        let old = self.attached.lock().remove(&key);
        drop(old);
    }

    /// The thread that watches descriptors, started with the first use.
    pub(crate) fn poller(&self) -> Result<Arc<Poller>> {
        let mut poller = self.poller.lock();
        match &*poller {
            Some(known) => Ok(known.clone()),
            None => Ok(poller.insert(Poller::start()?).clone()),
        }
    }
}

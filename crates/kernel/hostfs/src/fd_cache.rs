//! Open descriptors that can be opened again: directories on the way to others, and read-only files of exclusive trees.
//! The sentry's RLIMIT_NOFILE is small compared with the trees, so the ones used longest ago are closed.

use lock_order::Mutex;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptors kept at most.
const MAX: usize = 4096;

struct Entry {
    fd: Arc<OwnedFd>,
    used: AtomicU64,
}

/// The descriptors of a kernel's trees, by node identity.
#[derive(Default)]
pub(crate) struct FdCache {
    entries: read_biased_lock::RwLock<HashMap<u64, Entry>>,
    /// Ticks when a descriptor is put in, which is often enough to tell what was used long ago; looking at it is free.
    clock: AtomicU64,
    trim: Mutex<()>,
}

impl FdCache {
    pub fn get(&self, id: u64) -> Option<Arc<OwnedFd>> {
        let t = self.entries.read();
        let e = t.get(&id)?;
        let now = self.clock.load(Ordering::Relaxed);
        if e.used.load(Ordering::Relaxed) != now {
            e.used.store(now, Ordering::Relaxed);
        }
        Some(e.fd.clone())
    }

    pub fn put(&self, id: u64, fd: OwnedFd) -> Arc<OwnedFd> {
        let fd = Arc::new(fd);
        let used = AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed));
        let full = {
            let mut t = self.entries.write();
            t.insert(id, Entry { fd: fd.clone(), used });
            t.len() > MAX
        };
        if full {
            self.evict();
        }
        fd
    }

    pub fn remove(&self, id: u64) {
        let old = self.entries.write().remove(&id);
        drop(old);
    }

    /// Closes the older half.
    fn evict(&self) {
        let Some(_one) = self.trim.try_lock() else { return };
        let mut gone = Vec::new();
        {
            let mut t = self.entries.write();
            // Many may have been used at the same tick: half of them go, whatever their ages.
            let mut ages: Vec<(u64, u64)> =
                t.iter().map(|(k, e)| (e.used.load(Ordering::Relaxed), *k)).collect();
            ages.sort_unstable();
            for (_, k) in &ages[..ages.len() / 2] {
                gone.extend(t.remove(k));
            }
        }
        drop(gone);
    }
}

//! What can be opened again: directories on the way to others, and read-only files of exclusive trees. There may be few
//! descriptors (RLIMIT_NOFILE) compared with the trees, so the ones used longest ago are closed.

use lock_order::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many are kept at most.
const MAX: usize = 4096;

struct Entry<T> {
    open: T,
    used: AtomicU64,
}

/// What is open of a kernel's trees, by node identity.
pub(crate) struct FdCache<T> {
    entries: read_biased_lock::RwLock<HashMap<u64, Entry<T>>>,
    /// Ticks when a descriptor is put in, which is often enough to tell what was used long ago; looking at it is free.
    clock: AtomicU64,
    trim: Mutex<()>,
}

impl<T> Default for FdCache<T> {
    fn default() -> FdCache<T> {
        FdCache {
            entries: read_biased_lock::RwLock::default(),
            clock: AtomicU64::default(),
            trim: Mutex::default(),
        }
    }
}

impl<T: Clone> FdCache<T> {
    pub fn get(&self, id: u64) -> Option<T> {
        let t = self.entries.read();
        let e = t.get(&id)?;
        let now = self.clock.load(Ordering::Relaxed);
        if e.used.load(Ordering::Relaxed) != now {
            e.used.store(now, Ordering::Relaxed);
        }
        Some(e.open.clone())
    }

    pub fn put(&self, id: u64, open: T) -> T {
        let used = AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed));
        let (old, full) = {
            let mut t = self.entries.write();
            let old = t.insert(id, Entry { open: open.clone(), used });
            (old, t.len() > MAX)
        };
        drop(old);
        if full {
            self.evict();
        }
        open
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

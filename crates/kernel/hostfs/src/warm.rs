//! Descriptors of files that were opened for reading a short while ago, so that opening one again makes no host call.
//!
//! For reading, only files of a container's root are kept, because the root belongs to the container; on a volume other
//! processes may watch for each open(2). Descriptors by O_PATH, which no watch reports, tell attributes of files on
//! volumes that a gofer serves. A descriptor refers to the file even when the file's name changes. So it may be used
//! whenever the name leads to the node. Nothing uses the descriptor's position. An open descriptor keeps the host's
//! file, so it is closed with the node, and when it has not been used for some time ([`Warm::release_idle`]).
//!
//! The lock is a leaf.

use lock_order::Mutex;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

#[derive(Default)]
struct Descriptors {
    /// By node: the descriptor, and the tick of its last use.
    fds: HashMap<u64, (Arc<OwnedFd>, u64)>,
    /// Counts uses.
    clock: u64,
    /// The tick at which [`Warm::release_idle`] looked last.
    looked: u64,
}

/// The descriptors of one kernel.
pub(crate) struct Warm {
    most: usize,
    kept: Mutex<Descriptors>,
}

impl Warm {
    /// For so many at most.
    pub fn new(most: usize) -> Warm {
        Warm { most, kept: Mutex::default() }
    }

    /// The descriptor of this node.
    pub fn get(&self, node: u64) -> Option<Arc<OwnedFd>> {
        let mut kept = self.kept.lock();
        kept.clock += 1;
        let now = kept.clock;
        let (fd, used) = kept.fds.get_mut(&node)?;
        *used = now;
        Some(fd.clone())
    }

    /// Keeps a descriptor. When there are too many, the half that was used longest ago is closed.
    pub fn put(&self, node: u64, fd: &Arc<OwnedFd>) {
        let mut gone = Vec::new();
        let mut kept = self.kept.lock();
        kept.clock += 1;
        let now = kept.clock;
        gone.extend(kept.fds.insert(node, (fd.clone(), now)));
        if kept.fds.len() > self.most {
            let mut ages: Vec<(u64, u64)> = kept.fds.iter().map(|(node, (_, used))| (*used, *node)).collect();
            ages.sort_unstable();
            ages.iter().take(self.most / 2).for_each(|(_, node)| gone.extend(kept.fds.remove(node)));
        }
        drop(kept);
        drop(gone);
    }

    /// The node goes.
    pub fn remove(&self, node: u64) {
        let old = self.kept.lock().fds.remove(&node);
        drop(old);
    }

    /// Closes what has not been used since it was called last. True when something is left.
    pub fn release_idle(&self) -> bool {
        let mut kept = self.kept.lock();
        let (since, now) = (kept.looked, kept.clock);
        kept.looked = now;
        let idle: Vec<u64> =
            kept.fds.iter().filter(|(_, (_, used))| *used <= since).map(|(node, _)| *node).collect();
        let gone: Vec<_> = idle.iter().filter_map(|node| kept.fds.remove(node)).collect();
        let some = !kept.fds.is_empty();
        drop(kept);
        drop(gone);
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Arc<OwnedFd> {
        Arc::new(std::fs::File::open("/").unwrap().into())
    }

    #[test]
    fn the_oldest_make_room() {
        const MAX: usize = 256;
        let warm = Warm::new(MAX);
        let fd = file();
        (0..=MAX as u64).for_each(|node| {
            warm.put(node, &fd);
            assert!(warm.get(0).is_some(), "used all the time");
        });
        assert!(warm.get(1).is_none() && warm.get(MAX as u64).is_some());
    }

    #[test]
    fn what_is_idle_goes() {
        let warm = Warm::new(16);
        warm.put(1, &file());
        warm.put(2, &file());
        assert!(warm.release_idle(), "used since the last time");
        assert!(warm.get(2).is_some());
        assert!(warm.release_idle());
        assert!(warm.get(1).is_none() && warm.get(2).is_some());
        warm.remove(2);
        assert!(!warm.release_idle());
    }
}

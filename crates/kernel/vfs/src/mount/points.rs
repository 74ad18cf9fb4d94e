//! The mounts on a dentry, in all mount namespaces: removing the name of a directory takes along the mounts that other
//! namespaces have there. The dentries of a kernel share one list.
//!
//! Lock: a leaf. Mounts that are found are let go outside it.

use super::{Mount, key};
use crate::dentry::Dentry;
use lock_order::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// All mount points of a kernel.
#[derive(Default)]
pub(crate) struct MountPoints(Mutex<List>);

#[derive(Default)]
struct List {
    /// By dentry and ticket.
    mounts: BTreeMap<(usize, u64), Weak<Mount>>,
    next: u64,
}

/// A mount's place in the list of mount points. Ends with the mount's stay there.
pub(crate) struct Listed {
    point: Arc<Dentry>,
    ticket: u64,
}

impl Listed {
    /// `mount` sits on `point` from now on.
    pub fn new(mount: &Arc<Mount>, point: &Arc<Dentry>) -> Listed {
        point.count_mounts(1);
        let ticket = point.dcache().map_or(0, |dcache| {
            let mut list = dcache.mount_points.0.lock();
            list.next += 1;
            let ticket = list.next;
            list.mounts.insert((key(point), ticket), Arc::downgrade(mount));
            ticket
        });
        Listed { point: point.clone(), ticket }
    }

    /// Where.
    pub fn point(&self) -> &Arc<Dentry> {
        &self.point
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(dcache) = self.point.dcache() {
            dcache.mount_points.0.lock().mounts.remove(&(key(&self.point), self.ticket));
        }
        self.point.count_mounts(-1);
    }
}

impl Dentry {
    /// What is mounted here, in any namespace. What is given must not be dropped with a lock held.
    pub fn mounts(self: &Arc<Dentry>) -> Vec<Arc<Mount>> {
        let Some(dcache) = self.dcache().filter(|_| self.is_mountpoint()) else { return Vec::new() };
        let list = dcache.mount_points.0.lock();
        let here = list.mounts.range((key(self), 0)..=(key(self), u64::MAX));
        here.filter_map(|(_, m)| m.upgrade()).collect()
    }
}

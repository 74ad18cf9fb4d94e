//! File handles: what name_to_handle_at(2) gives out and open_by_handle_at(2) takes.
//!
//! A handle is a name for an object of one superblock: its inode number, and a number made from the time of its
//! creation, which tells apart objects that have had the same inode number. It holds nothing that statx(2) does not
//! show. An invented handle leads nowhere. A handle is looked up among those that the superblock gave out, so it leads
//! only to objects that were found by name before. A superblock remembers the last [`MANY`] of them, and fewer where
//! those of a kernel together have [`ALL`]. Neither the object nor its mount is kept alive by a handle.
//!
//! Lock: that of the table is a leaf; dentries and inodes are let go outside it. A checkpoint keeps nothing: handles of before it
//! are stale.

use super::Dentry;
use super::cache::{Dcache, HandlesKept};
use crate::inode::{Inode, InodeRef};
use abi::stat::Attr;
use abi::{Errno, Result};
use lock_order::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Handles that a superblock remembers.
const MANY: usize = 16384;

/// Handles that all superblocks of a kernel remember.
const ALL: usize = 65536;

/// Bytes of a handle.
pub const SIZE: usize = 12;

/// A name for an object of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Inode number.
    ino: u64,
    /// Tells objects with the same number apart.
    generation: u32,
}

impl Handle {
    /// The handle of an object with these attributes.
    pub fn of(attr: &Attr) -> Handle {
        let born = attr.btime.unwrap_or_default();
        let mut mixed = attr.dev;
        for word in [born.sec as u64, born.nsec as u64] {
            mixed = (mixed.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        Handle { ino: attr.ino, generation: (mixed >> 32) as u32 }
    }

    /// As programs see it.
    pub fn to_bytes(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&self.generation.to_ne_bytes());
        bytes[4..].copy_from_slice(&self.ino.to_ne_bytes());
        bytes
    }

    /// What a program gives as one; `None` for bytes that no handle has.
    pub fn from_bytes(bytes: &[u8]) -> Option<Handle> {
        let bytes: &[u8; SIZE] = bytes.try_into().ok()?;
        let (generation, ino) = bytes.split_first_chunk::<4>()?;
        let ino = ino.first_chunk::<8>()?;
        Some(Handle { ino: u64::from_ne_bytes(*ino), generation: u32::from_ne_bytes(*generation) })
    }
}

/// What a handle leads to: a name, while it is known, and the object.
type HandleTarget = (Option<Arc<Dentry>>, InodeRef);

/// Where a handle leads. The inode is known as well, as one of its names may go.
struct Object {
    dentry: Weak<Dentry>,
    inode: Weak<dyn Inode>,
}

#[derive(Default)]
struct Table {
    objects: HashMap<Handle, Object>,
    /// The same, the oldest first.
    order: VecDeque<Handle>,
    kept: Option<HandlesKept>,
}

impl Table {
    /// Makes room for one more: the oldest that goes. ENOMEM where none can go.
    fn make_room(&mut self, dcache: &Arc<Dcache>) -> Result<Option<Object>> {
        let kept = self.kept.get_or_insert_with(|| HandlesKept::new(dcache));
        if self.order.len() < MANY && kept.take(ALL) {
            return Ok(None);
        }
        let oldest = self.order.pop_front().ok_or(Errno::ENOMEM)?;
        Ok(self.objects.remove(&oldest))
    }
}

/// The handles that a superblock gave out.
#[derive(Default)]
pub struct Handles(Mutex<Table>);

impl Handles {
    /// Remembers that `handle` leads to `dentry`. ENOMEM when other file systems have all handles there may be.
    pub fn add(&self, handle: Handle, dentry: &Arc<Dentry>) -> Result<()> {
        let dcache = dentry.dcache().ok_or(Errno::EOPNOTSUPP)?;
        let object = Object { dentry: Arc::downgrade(dentry), inode: Arc::downgrade(&dentry.inode) };
        let mut table = self.0.lock();
        let old = match table.objects.get_mut(&handle) {
            Some(known) => Some(std::mem::replace(known, object)),
            None => {
                let oldest = table.make_room(dcache)?;
                table.order.push_back(handle);
                table.objects.insert(handle, object);
                oldest
            }
        };
        drop(table);
        dentry.keep_for_handle();
        // A name that a handle no longer leads to may leave the cache.
        if let Some(d) = old.and_then(|o| o.dentry.upgrade()).filter(|d| !Arc::ptr_eq(d, dentry)) {
            d.handled.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Where a handle leads: to a name, while it is known, and to an object.
    pub fn find(&self, handle: Handle) -> Option<HandleTarget> {
        let table = self.0.lock();
        let object = table.objects.get(&handle)?;
        let inode = object.inode.upgrade()?;
        Some((object.dentry.upgrade(), inode))
    }
}

#[cfg(test)]
mod tests {
    use super::{Handle, SIZE};
    use abi::stat::Attr;
    use abi::time::Timespec;

    #[test]
    fn bytes_and_back() {
        let attr = Attr { ino: u64::MAX - 7, btime: Some(Timespec { sec: 5, nsec: 9 }), ..Attr::default() };
        let handle = Handle::of(&attr);
        assert_eq!(Handle::from_bytes(&handle.to_bytes()), Some(handle));
        assert_eq!(Handle::from_bytes(&[0; SIZE - 1]), None);
        assert_eq!(Handle::from_bytes(&[0; SIZE + 1]), None);
    }

    #[test]
    fn a_number_given_again_is_another_handle() {
        let born =
            |nsec| Handle::of(&Attr { ino: 3, btime: Some(Timespec { sec: 1, nsec }), ..Attr::default() });
        assert_ne!(born(1), born(2));
        assert_eq!(born(1), born(1));
    }
}

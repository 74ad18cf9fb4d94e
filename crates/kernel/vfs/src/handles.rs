//! File handles: what name_to_handle_at(2) gives out and open_by_handle_at(2) takes.
//!
//! A handle is a name for an object of one superblock: its inode number, and a number made from the time of its creation, which
//! tells apart objects that have had the same inode number. It holds nothing that statx(2) does not show. Whoever makes one up gets
//! nowhere: a handle is looked up among those that the superblock gave out, so it leads to no object that nobody has found by its
//! name. A superblock remembers the last [`MANY`] of them, and
//! fewer where those of a kernel together have [`ALL`]. Neither the object nor its mount is kept alive by a handle.
//!
//! Lock: that of the table is a leaf; dentries and inodes are let go outside it. A checkpoint keeps nothing: handles of before it
//! are stale.

use crate::dcache::{Dcache, HandlesKept};
use crate::dentry::Dentry;
use crate::inode::{Inode, InodeRef};
use crate::mount::Mount;
use crate::path::Path;
use abi::stat::Attr;
use abi::stat::S_IFDIR;
use abi::{Errno, Result};
use ranked::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Handles that a superblock remembers.
const MANY: usize = 16384;

/// Handles that all superblocks of a kernel remember.
const ALL: usize = 65536;

/// Bytes of a handle.
pub const SIZE: usize = 12;

/// `handle_type` of one that can be opened.
pub const OPENED: i32 = 1;

/// `handle_type` of one that only tells objects apart (FILEID_INO64_GEN).
pub const COMPARED: i32 = 0x81;

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
type Found = (Option<Arc<Dentry>>, InodeRef);

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
pub(crate) struct Handles(Mutex<Table>);

impl Handles {
    /// Remembers that `handle` leads to `dentry`. ENOMEM when other file systems have all handles there may be.
    fn add(&self, handle: Handle, dentry: &Arc<Dentry>) -> Result<()> {
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
        dentry.handled.store(true, Ordering::Relaxed);
        // A name that a handle no longer leads to may leave the cache.
        if let Some(d) = old.and_then(|o| o.dentry.upgrade()).filter(|d| !Arc::ptr_eq(d, dentry)) {
            d.handled.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn find(&self, handle: Handle) -> Option<Found> {
        let table = self.0.lock();
        let object = table.objects.get(&handle)?;
        let inode = object.inode.upgrade()?;
        Some((object.dentry.upgrade(), inode))
    }
}

/// The handle of what is at `path`, and whether it can be opened: EOPNOTSUPP where it cannot, unless it shall only be `compared`
/// (AT_HANDLE_FID). ENOMEM, errors of the file system.
pub fn encode(path: &Path, compared: bool) -> Result<(Handle, bool)> {
    let sb = &path.mount.sb;
    let opens = sb.fs.opens_by_handle();
    if !opens && !compared {
        return Err(Errno::EOPNOTSUPP);
    }
    let handle = Handle::of(&path.attr()?);
    if opens {
        sb.handles.add(handle, &path.dentry)?;
    }
    Ok((handle, opens))
}

/// Where `handle` leads in what `mount` shows a part of, outside that part as well. ESTALE when the object is gone, or nobody was
/// given the handle.
pub fn decode(mount: &Arc<Mount>, handle: Handle) -> Result<Path> {
    let sb = &mount.sb;
    let (dentry, inode) = sb.handles.find(handle).ok_or(Errno::ESTALE)?;
    // What has no name any more may still be open.
    let known = dentry.filter(|d| d.is_unlinked() || !sb.fs.revalidate() || stands(&sb.root, d));
    let dentry = match known {
        Some(d) => d,
        None if inode.kind() == S_IFDIR => return Err(Errno::ESTALE),
        // It has other names.
        None => Dentry::nameless(&sb.root, inode, b"/"),
    };
    // Others may have given the number to another object.
    if Handle::of(&dentry.inode.attr().map_err(|_| Errno::ESTALE)?) != handle {
        return Err(Errno::ESTALE);
    }
    Ok(Path { mount: mount.clone(), dentry })
}

/// Whether the names from `root` to `dentry` still lead there, where others change the file system.
fn stands(root: &Arc<Dentry>, dentry: &Arc<Dentry>) -> bool {
    let mut names = Vec::new();
    let mut at = dentry.clone();
    while !Arc::ptr_eq(&at, root) {
        let (parent, name) = at.place();
        let Some(parent) = parent else { return false };
        names.push(name);
        at = parent;
    }
    if names.is_empty() {
        return true;
    }
    let Some(top) = root.inode.as_confirming() else { return true };
    names.reverse();
    top.still_there(&names.join(&b'/'), &dentry.inode).is_some()
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

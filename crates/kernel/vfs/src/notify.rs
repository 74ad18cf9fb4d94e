//! Who wants to hear of changes to an inode: the hooks behind inotify(7).
//!
//! Watches hang on inodes as attachments; file operations report here what they
//! did. While nobody watches anything, a report costs one load. Lock: a leaf;
//! listeners are called without it.

use crate::dentry::Dentry;
use crate::file::OpenFile;
use crate::inode::InodeRef;
use crate::path::Path;
use ranked::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// IN_* bits, inotify(7).
pub mod event {
    #![expect(missing_docs, reason = "names of inotify(7)")]
    pub const ACCESS: u32 = 0x1;
    pub const MODIFY: u32 = 0x2;
    pub const ATTRIB: u32 = 0x4;
    pub const CLOSE_WRITE: u32 = 0x8;
    pub const CLOSE_NOWRITE: u32 = 0x10;
    pub const OPEN: u32 = 0x20;
    pub const MOVED_FROM: u32 = 0x40;
    pub const MOVED_TO: u32 = 0x80;
    pub const CREATE: u32 = 0x100;
    pub const DELETE: u32 = 0x200;
    pub const DELETE_SELF: u32 = 0x400;
    pub const MOVE_SELF: u32 = 0x800;
    pub const ALL: u32 = 0xfff;
    pub const EXCL_UNLINK: u32 = 0x400_0000;
    pub const ISDIR: u32 = 0x4000_0000;
}

/// Receives events: an inotify instance.
pub trait Listener: Send + Sync {
    /// Something of the watch's mask happened. `name` is empty for the watched object itself.
    fn event(&self, watch: i32, mask: u32, cookie: u32, name: &[u8]);
    /// The watched object is gone for good, and the watch with it.
    fn gone(&self, watch: i32);
}

/// One watch on an inode.
pub struct Watch {
    /// Descriptor in its instance.
    pub id: i32,
    /// Events wanted.
    pub mask: AtomicU32,
    /// The instance.
    pub to: Weak<dyn Listener>,
}

#[derive(Default)]
struct Watches(Mutex<Vec<Arc<Watch>>>);

static ACTIVE: AtomicUsize = AtomicUsize::new(0);

/// Adds a watch; `false` for objects that cannot carry one.
pub fn add(inode: &InodeRef, w: Arc<Watch>) -> bool {
    let Some(a) = inode.attachments() else { return false };
    a.get_or(Watches::default).0.lock().push(w);
    ACTIVE.fetch_add(1, Ordering::Relaxed);
    true
}

/// Removes a watch.
pub fn remove(inode: &InodeRef, w: &Arc<Watch>) {
    if let Some(list) = inode.attachments().and_then(|a| a.get::<Watches>()) {
        let mut l = list.0.lock();
        let before = l.len();
        l.retain(|x| !Arc::ptr_eq(x, w));
        ACTIVE.fetch_sub(before - l.len(), Ordering::Relaxed);
    }
}

fn idle() -> bool {
    ACTIVE.load(Ordering::Relaxed) == 0
}

/// Reports an event on an inode.
pub fn on_inode(inode: &InodeRef, mask: u32, cookie: u32, name: &[u8]) {
    report(inode, mask, cookie, name, false);
}

/// `unlinked`: the child that the event is about has no name any more, which some watches ignore.
fn report(inode: &InodeRef, mask: u32, cookie: u32, name: &[u8], unlinked: bool) {
    if idle() {
        return;
    }
    let Some(list) = inode.attachments().and_then(|a| a.get::<Watches>()) else { return };
    let hit: Vec<_> = list
        .0
        .lock()
        .iter()
        .filter(|w| {
            let wanted = w.mask.load(Ordering::Relaxed);
            wanted & mask & event::ALL != 0 && !(unlinked && wanted & event::EXCL_UNLINK != 0)
        })
        .cloned()
        .collect();
    for w in hit {
        if let Some(l) = w.to.upgrade() {
            l.event(w.id, mask, cookie, name);
        }
    }
}

/// Reports an event on an object to its own watches and to those of its directory.
pub fn on_path(path: &Path, mask: u32) {
    if idle() {
        return;
    }
    let mask = if path.is_dir() { mask | event::ISDIR } else { mask };
    let (parent, name) = path.dentry.place();
    if let Some(p) = parent {
        report(&p.inode, mask, 0, &name, path.dentry.is_unlinked());
    }
    on_inode(path.inode(), mask, 0, b"");
}

/// As [`on_path`] for an open file, where it has a path.
pub fn on_file(file: &OpenFile, mask: u32) {
    if !idle()
        && let Some(p) = &file.path
    {
        on_path(p, mask);
    }
}

/// A name of an object is gone: its link count has changed.
pub(crate) fn on_unlinked(dentry: &Dentry) {
    if !dentry.is_dir() {
        on_inode(&dentry.inode, event::ATTRIB, 0, b"");
    }
}

/// Nobody uses a dentry without a name any more. When it was the object's last name, the object goes, and its watches
/// with it.
pub(crate) fn on_last_use(dentry: &Dentry) {
    if idle() || dentry.inode.attr().is_ok_and(|a| a.nlink != 0) {
        return;
    }
    on_inode(&dentry.inode, event::DELETE_SELF, 0, b"");
    let Some(list) = dentry.inode.attachments().and_then(|a| a.get::<Watches>()) else { return };
    let all = list.0.lock().clone();
    for w in all {
        if let Some(l) = w.to.upgrade() {
            l.gone(w.id);
        }
    }
}

/// An open file is closed for good.
pub(crate) fn on_close(file: &OpenFile) {
    if idle() || file.path_only() {
        return;
    }
    let Some(p) = &file.path else { return };
    on_path(p, if file.writable() { event::CLOSE_WRITE } else { event::CLOSE_NOWRITE });
}

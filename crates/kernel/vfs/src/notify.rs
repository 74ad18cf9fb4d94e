//! The listeners to changes of an inode: the hooks behind inotify(7).
//!
//! Watches hang on inodes as attachments; file operations report here what they did. While the kernel has no watch
//! ([`crate::dentry::Dcache`]), a report costs two loads. Lock: a leaf; listeners are called without it.

use crate::attach::Attachments;
use crate::dentry::{Dentry, Watched};
use crate::file::{Caller, OpenFile};
use crate::inode::{Hold, InodeRef};
use crate::mount::Path;
use caller::Outcome;
use lock_order::Mutex;
use marks::Actor;
use std::any::Any;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

pub mod marks;

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
    /// Events of watched objects were lost.
    fn lost(&self) {}
}

/// One watch on an inode.
pub struct Watch {
    /// Descriptor in its instance.
    pub id: i32,
    /// Events wanted.
    pub mask: AtomicU32,
    /// The instance.
    pub to: Weak<dyn Listener>,
    /// Has changes from outside this kernel reported, where there can be any.
    outside: Mutex<Option<OutsideWatch>>,
    /// Keeps the object within reach where nothing outside reports its end.
    held: Mutex<Option<Hold>>,
    _counted: Option<Watched>,
}

/// While it exists, what others outside this kernel do to an object is reported by [`from_outside`] and its like.
pub type OutsideWatch = Box<dyn Any + Send + Sync>;

impl Watch {
    /// A watch on what `dentry` stands for, to be added to it.
    pub fn new(dentry: &Dentry, id: i32, mask: u32, to: Weak<dyn Listener>) -> Arc<Watch> {
        let counted = dentry.dcache().map(Watched::new);
        Arc::new(Watch {
            id,
            mask: mask.into(),
            to,
            outside: Mutex::default(),
            held: Mutex::default(),
            _counted: counted,
        })
    }
}

#[derive(Default)]
struct Watches(Mutex<Vec<Arc<Watch>>>);

/// Adds a watch; `false` for objects that cannot carry one.
pub fn add(inode: &InodeRef, w: Arc<Watch>) -> bool {
    let Some(a) = inode.attachments() else { return false };
    a.get_or(Watches::default).0.lock().push(w);
    true
}

/// Has what others outside this kernel do to the object reported as well, as far as the watch's mask wants it. May make calls
/// of the host: to be called without locks when a watch was added, and when its mask has changed.
pub fn look_outside(inode: &InodeRef, w: &Watch) {
    let Some(object) = inode.as_confirming() else { return };
    let new = object.watch_outside(w.mask.load(Ordering::Relaxed) & event::ALL);
    // A mark on the host keeps the object's number. A descriptor would keep the end of the object from being reported.
    let hold = if new.is_none() { object.hold().ok().flatten() } else { None };
    let old = std::mem::replace(&mut *w.outside.lock(), new);
    let released = std::mem::replace(&mut *w.held.lock(), hold);
    drop((old, released));
}

/// Removes a watch.
pub fn remove(inode: &InodeRef, w: &Arc<Watch>) {
    if let Some(list) = inode.attachments().and_then(|a| a.get::<Watches>()) {
        list.0.lock().retain(|x| !Arc::ptr_eq(x, w));
    }
}

/// Changes have no listeners in the kernel that a dentry belongs to.
fn idle(dentry: &Dentry) -> bool {
    dentry.dcache().is_some_and(|dcache| dcache.is_unwatched())
}

/// Operations on an open file cannot have listeners.
pub fn is_idle(file: &OpenFile) -> bool {
    file.path.as_ref().is_none_or(|path| idle(&path.dentry))
}

/// Reports an event on what a dentry stands for.
pub fn on_dentry(dentry: &Dentry, mask: u32, cookie: u32, name: &[u8]) {
    if !idle(dentry) {
        report(&dentry.inode, mask, cookie, name, false);
    }
}

/// Reports an event to the watches of an object by what hangs on its inodes, for objects that change by themselves.
pub fn on_attachments(of: &Attachments, mask: u32, name: &[u8]) {
    tell(of, mask, 0, name, false);
}

/// Reports to the watches of an object what others outside this kernel have done to it, or to `name` in it.
pub fn from_outside(of: &Attachments, mask: u32, cookie: u32, name: &[u8]) {
    tell(of, mask, cookie, name, false);
    marks::from_outside(of, mask, name);
}

/// Others outside this kernel have removed the last name of an object, and nothing uses it any more.
pub fn gone_outside(inode: &InodeRef) {
    report(inode, event::DELETE_SELF, 0, b"", false);
    marks::on_gone(inode);
    if let Some(of) = inode.attachments() {
        for_each(of, |to, id| to.gone(id));
    }
}

/// Events from outside this kernel about an object were lost.
pub fn lost_outside(of: &Attachments) {
    for_each(of, |to, _| to.lost());
    marks::lost_outside(of);
}

/// Calls `f` with each listener and its watch.
fn for_each(of: &Attachments, f: impl Fn(&dyn Listener, i32)) {
    let Some(list) = of.get::<Watches>() else { return };
    let all = list.0.lock().clone();
    for w in all {
        if let Some(to) = w.to.upgrade() {
            f(&*to, w.id);
        }
    }
}

/// What happens to the object outside this kernel is reported.
fn is_seen_outside(of: &Attachments) -> bool {
    let all = of.get::<Watches>().map(|list| list.0.lock().clone()).unwrap_or_default();
    all.iter().any(|w| w.outside.lock().is_some()) || marks::is_seen_outside(of)
}

/// `unlinked`: the child that the event is about has no name any more, which some watches ignore.
fn report(inode: &InodeRef, mask: u32, cookie: u32, name: &[u8], unlinked: bool) {
    if let Some(of) = inode.attachments() {
        tell(of, mask, cookie, name, unlinked);
    }
}

fn tell(of: &Attachments, mask: u32, cookie: u32, name: &[u8], unlinked: bool) {
    let Some(list) = of.get::<Watches>() else { return };
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

/// Events of reading, writing, opening and closing.
const BY_OPEN_FILES: u32 =
    event::ACCESS | event::MODIFY | event::OPEN | event::CLOSE_WRITE | event::CLOSE_NOWRITE;

/// Reports an event on an object to its own watches and to those of its directory.
pub fn on_path(path: &Path, mask: u32) {
    // IN_EXCL_UNLINK is about what is done to open files.
    on_place(path, mask, mask & BY_OPEN_FILES != 0);
}

fn on_place(path: &Path, mask: u32, by_open_file: bool) {
    if idle(&path.dentry) {
        return;
    }
    if mask & event::MODIFY != 0 {
        marks::modified(path);
    }
    let unlinked = by_open_file && path.dentry.is_unlinked();
    let mask = if path.is_dir() { mask | event::ISDIR } else { mask };
    let (parent, name) = path.dentry.place();
    if let Some(p) = parent {
        report(&p.inode, mask, 0, &name, unlinked);
    }
    report(path.inode(), mask, 0, b"", unlinked);
}

/// Reports that an object's size was set, by its name or by an open file: unlike a write, watches with IN_EXCL_UNLINK hear of
/// that also when the name has gone.
pub fn truncated(path: &Path) {
    on_place(path, event::MODIFY, false);
}

/// Reports what the caller does to an object, as [`on_path`], and to groups of fanotify(7).
pub fn by(cx: &dyn Caller, path: &Path, mask: u32) {
    if idle(&path.dentry) {
        return;
    }
    if mask & event::ALL != 0 {
        on_path(path, mask & event::ALL);
    }
    if let Some(actor) = actor(cx) {
        marks::tell(path, mask, &actor);
    }
}

/// As [`by`] for an open file, where it has a path, and is not one that a group of fanotify(7) has opened.
pub fn by_file(cx: &dyn Caller, file: &OpenFile, mask: u32) {
    if let Some(path) = file.path.as_ref().filter(|_| !file.is_silent()) {
        by(cx, path, mask);
    }
}

/// Asks groups of fanotify(7) whether the caller may do something, and waits for their answers. EPERM.
pub fn ask(cx: &dyn Caller, path: &Path, mask: u32) -> Outcome<()> {
    if idle(&path.dentry) {
        return Ok(());
    }
    actor(cx).map_or(Ok(()), |actor| marks::ask(cx, path, mask, &actor))
}

/// As [`ask`] for reading an open file.
pub fn ask_to_read(cx: &dyn Caller, file: &OpenFile) -> Outcome<()> {
    match file.path.as_ref().filter(|_| !file.is_silent()) {
        Some(path) => ask(cx, path, marks::ACCESS_PERM),
        None => Ok(()),
    }
}

/// The caller as an actor; none for the kernel itself.
fn actor(cx: &dyn Caller) -> Option<Actor> {
    Some(Actor { process: cx.find_pid(cx.pid())?, thread: cx.find_pid(cx.tid())? })
}

/// The caller closes a descriptor of an open file: when it is the last, it has closed the file.
pub fn on_descriptor_close(cx: &dyn Caller, file: &OpenFile) {
    if !is_idle(file) {
        file.set_closer(actor(cx));
    }
}

/// As [`on_path`] for an open file, where it has a path.
pub fn on_file(file: &OpenFile, mask: u32) {
    if let Some(p) = &file.path {
        on_path(p, mask);
    }
}

/// A name of an object is gone: its link count has changed.
pub fn on_unlinked(dentry: &Dentry) {
    if !dentry.is_dir() {
        on_dentry(dentry, event::ATTRIB, 0, b"");
    }
}

/// A dentry without a name is not used any more. When it was the object's last name, the object goes, and its watches
/// with it. `fell`: others have taken the name away. They may have given the object another one.
pub fn on_last_use(dentry: &Dentry, fell: bool) {
    if idle(dentry) || fell && dentry.inode.attachments().is_some_and(is_seen_outside) {
        return;
    }
    if dentry.inode.attr().is_ok_and(|a| a.nlink != 0) {
        return;
    }
    on_dentry(dentry, event::DELETE_SELF, 0, b"");
    marks::on_gone(&dentry.inode);
    if let Some(of) = dentry.inode.attachments() {
        for_each(of, |to, id| to.gone(id));
    }
}

/// An open file is closed for good.
pub fn on_close(file: &OpenFile) {
    let Some(p) = file.path.as_ref().filter(|_| !file.path_only()) else { return };
    if file.is_silent() || idle(&p.dentry) {
        return;
    }
    let mask = if file.writable() { event::CLOSE_WRITE } else { event::CLOSE_NOWRITE };
    on_path(p, mask);
    if let Some(actor) = file.closer() {
        marks::tell(p, mask, &actor);
    }
}

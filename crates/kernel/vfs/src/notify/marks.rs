//! Marks of fanotify(7): groups hear of what is done to an object, to what is in a directory, through a mount or in a file
//! system, and by which process.
//!
//! Marks hang on inodes as attachments, on mounts and on superblocks; [`super`] reports here. A group is asked once
//! for an event, with what all of its marks say together. Locks: lists and marks are leaves; groups are called without.

use super::{OutsideWatch, event};
use crate::attach::Attachments;
use crate::dentry::Watched;
use crate::inode::InodeRef;
use crate::mount::{Mount, Path, SuperBlock};
use abi::Errno;
use caller::Blocking;
use caller::retry::{Failure, Outcome, retry_on};
use lock_order::Mutex;
use pid::Pid;
use std::cmp::Reverse;
use std::sync::{Arc, Weak};
use wait::{Events, WaitQueue};

/// FAN_OPEN_EXEC. The other events have inotify's numbers.
pub const OPEN_EXEC: u32 = 0x1000;
/// FAN_EVENT_ON_CHILD: what is in the directory as well.
pub const ON_CHILD: u32 = 0x0800_0000;
/// FAN_ONDIR: directories as well.
pub const ON_DIR: u32 = event::ISDIR;
/// The events that are told of.
pub const EVENTS: u32 =
    event::ACCESS | event::MODIFY | event::CLOSE_WRITE | event::CLOSE_NOWRITE | event::OPEN | OPEN_EXEC;

/// FAN_OPEN_PERM: whether it may be opened.
pub const OPEN_PERM: u32 = 0x1_0000;
/// FAN_ACCESS_PERM: whether it may be read.
pub const ACCESS_PERM: u32 = 0x2_0000;
/// FAN_OPEN_EXEC_PERM: whether it may be opened for execution.
pub const OPEN_EXEC_PERM: u32 = 0x4_0000;
/// What is asked for.
pub const QUESTIONS: u32 = OPEN_PERM | ACCESS_PERM | OPEN_EXEC_PERM;

/// The process and thread that did something.
#[derive(Clone)]
pub struct Actor {
    /// The process.
    pub process: Arc<Pid>,
    /// The thread.
    pub thread: Arc<Pid>,
}

/// A question whether something may be done, for which a thread waits.
#[derive(Default)]
pub struct Question {
    answer: Mutex<Option<bool>>,
    queue: WaitQueue,
}

impl Question {
    /// Answers it. The first answer counts.
    pub fn answer(&self, allow: bool) {
        self.answer.lock().get_or_insert(allow);
        self.queue.notify(Events::READABLE);
    }

    /// There is an answer, or the question is not awaited any more.
    pub fn is_answered(&self) -> bool {
        self.answer.lock().is_some()
    }

    /// Waits for the answer. EPERM.
    fn wait(&self, cx: &(impl Blocking + ?Sized)) -> Outcome<()> {
        let allowed = || match *self.answer.lock() {
            None => Err(Errno::EAGAIN),
            Some(true) => Ok(()),
            Some(false) => Err(Errno::EPERM),
        };
        retry_on(cx, &self.queue, Events::ALL, None, allowed)
    }
}

/// Receives events: a group of fanotify(7).
pub trait Group: Send + Sync {
    /// Something that the group's marks are about happened to what is at `path`.
    fn event(&self, path: &Path, mask: u32, by: &Actor);
    /// Others outside this kernel have done something that the mark is about: to its object, or to `name` in it.
    fn outside(&self, mark: &Arc<Mark>, mask: u32, name: &[u8]);
    /// Asks for permission on the object at `path`; `None` when there will be no answer.
    fn ask(&self, path: &Path, mask: u32, by: &Actor) -> Option<Arc<Question>>;
    /// The answer is not awaited any more.
    fn forget(&self, question: &Arc<Question>);
    /// Groups of a higher class are asked first.
    fn class(&self) -> u32;
    /// Events were lost.
    fn lost(&self);
    /// The object of a mark is gone.
    fn gone(&self, mark: &Arc<Mark>);
}

/// What a mark says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MarkMask {
    /// Events that are told of, and [`ON_CHILD`] and [`ON_DIR`].
    pub mask: u32,
    /// Events that are not, whatever other marks of the group say; with the same flags if `exact`.
    pub ignored: u32,
    /// `ignored` has flags of its own (FAN_MARK_IGNORE).
    pub exact: bool,
    /// `ignored` stays when the object is modified.
    pub survives: bool,
}

impl MarkMask {
    /// It says something of what is in the directory.
    fn is_about_children(&self) -> bool {
        self.mask & ON_CHILD != 0 || self.exact && self.ignored & ON_CHILD != 0
    }

    /// The events of an object of this kind that it ignores, seen from the object itself or from its directory.
    fn ignores(&self, dir: bool, from_parent: bool) -> u32 {
        let flags = match self.exact {
            true => self.ignored,
            false => ON_DIR | self.mask & ON_CHILD,
        };
        if applies(flags, dir, from_parent) { self.ignored & (EVENTS | QUESTIONS) } else { 0 }
    }
}

fn applies(flags: u32, dir: bool, from_parent: bool) -> bool {
    (!dir || flags & ON_DIR != 0) && (!from_parent || flags & ON_CHILD != 0)
}

/// A group's mark on an object.
pub struct Mark {
    to: Weak<dyn Group>,
    wanted: Mutex<MarkMask>,
    key: (u8, usize),
    /// Has changes from outside this kernel reported, where there can be any.
    outside: Mutex<Option<OutsideWatch>>,
    _counted: Option<Watched>,
}

impl Mark {
    /// A mark on `on`, which is at `path`, its mount or its file system, to be added there.
    pub fn new(on: &Marked, path: &Path, to: Weak<dyn Group>, wanted: MarkMask) -> Arc<Mark> {
        let counted = path.dentry.dcache().map(Watched::new);
        let wanted = Mutex::new(wanted);
        Arc::new(Mark { to, wanted, key: on.key(), outside: Mutex::default(), _counted: counted })
    }

    /// The key of what it is on.
    pub fn key(&self) -> (u8, usize) {
        self.key
    }

    /// Has what others outside this kernel do to the mark's object reported as well. May make calls of the host: to be
    /// called without locks when the mark was added, and when it has changed.
    pub fn look_outside(&self, object: &InodeRef) {
        let wanted = self.wanted();
        // What is in a directory is marked by the directory alone.
        let told = wanted.mask | if wanted.survives { 0 } else { wanted.ignored };
        let new = object.as_confirming().and_then(|object| object.watch_outside(told & EVENTS & event::ALL));
        let old = std::mem::replace(&mut *self.outside.lock(), new);
        drop(old);
    }

    /// Its object, or something in it, has been modified.
    fn modified(&self, from_parent: bool) {
        self.change(|wanted| {
            if !wanted.survives && (!from_parent || wanted.is_about_children()) {
                wanted.ignored = 0;
            }
        });
    }

    fn is_outside(&self) -> bool {
        self.outside.lock().is_some()
    }

    /// What it says.
    pub fn wanted(&self) -> MarkMask {
        *self.wanted.lock()
    }

    /// Changes what it says.
    pub fn change<T>(&self, how: impl FnOnce(&mut MarkMask) -> T) -> T {
        how(&mut self.wanted.lock())
    }
}

/// The marks on an object.
#[derive(Default)]
pub struct Marks(Mutex<Vec<Arc<Mark>>>);

/// What marks are on. The mark goes with it.
#[derive(Clone)]
pub enum Marked {
    /// An object of a file system.
    Inode(InodeRef),
    /// A mount.
    Mount(Weak<Mount>),
    /// A file system.
    FileSystem(Weak<SuperBlock>),
}

impl Marked {
    /// Runs `f` on its marks; `None` when it is gone or cannot have any.
    fn marks<T>(&self, f: impl FnOnce(&Marks) -> T) -> Option<T> {
        match self {
            Marked::Inode(inode) => inode.attachments().map(|a| f(&a.get_or(Marks::default))),
            Marked::Mount(mount) => mount.upgrade().map(|mount| f(&mount.marks)),
            Marked::FileSystem(sb) => sb.upgrade().map(|sb| f(&sb.marks)),
        }
    }

    /// Adds a mark; `false` for objects that cannot have one.
    pub fn add(&self, mark: &Arc<Mark>) -> bool {
        self.marks(|marks| marks.0.lock().push(mark.clone())).is_some()
    }

    /// Removes a mark.
    pub fn remove(&self, mark: &Arc<Mark>) {
        self.marks(|marks| marks.0.lock().retain(|there| !Arc::ptr_eq(there, mark)));
    }

    /// It is there no longer.
    pub fn is_gone(&self) -> bool {
        match self {
            Marked::Inode(_) => false,
            Marked::Mount(mount) => mount.strong_count() == 0,
            Marked::FileSystem(sb) => sb.strong_count() == 0,
        }
    }

    /// What tells it from others as long as this is kept: its kind and its address.
    pub fn key(&self) -> (u8, usize) {
        match self {
            Marked::Inode(inode) => (0, Arc::as_ptr(inode).cast::<()>().addr()),
            Marked::Mount(mount) => (1, mount.as_ptr().addr()),
            Marked::FileSystem(sb) => (2, sb.as_ptr().addr()),
        }
    }
}

/// A group that an event may be for, and what its marks say so far.
struct Recipient {
    group: Arc<dyn Group>,
    wanted: u32,
    ignored: u32,
}

/// Calls `look` with all marks that something at `path` can concern, and whether they are those of its directory.
fn each(path: &Path, mut look: impl FnMut(&Marks, bool)) {
    let of_inode = |inode: &InodeRef| inode.attachments().and_then(|a| a.get::<Marks>());
    if let (Some(parent), _) = path.dentry.place()
        && let Some(marks) = of_inode(&parent.inode)
    {
        look(&marks, true);
    }
    if let Some(marks) = of_inode(path.inode()) {
        look(&marks, false);
    }
    look(&path.mount.marks, false);
    look(&path.mount.sb.marks, false);
}

/// What is at `path` has been modified: what marks ignore until then, they ignore no longer.
pub fn modified(path: &Path) {
    each(path, |marks, from_parent| {
        let all = marks.0.lock().clone();
        for mark in all {
            mark.modified(from_parent);
        }
    });
}

/// Others outside this kernel have done something to an object, or to `name` in it, for the marks on that object.
pub(super) fn from_outside(of: &Attachments, mask: u32, name: &[u8]) {
    let Some(marks) = of.get::<Marks>() else { return };
    let (dir, from_parent) = (mask & event::ISDIR != 0, !name.is_empty());
    let all = marks.0.lock().clone();
    for mark in all {
        if mask & event::MODIFY != 0 {
            mark.modified(from_parent);
        }
        let wanted = mark.wanted();
        let told = mask & EVENTS & wanted.mask & !wanted.ignores(dir, from_parent);
        if told != 0
            && applies(wanted.mask, dir, from_parent)
            && let Some(group) = mark.to.upgrade()
        {
            group.outside(&mark, told, name);
        }
    }
}

/// What others outside this kernel do to an object is reported for one of its marks.
pub(super) fn is_seen_outside(of: &Attachments) -> bool {
    let Some(marks) = of.get::<Marks>() else { return false };
    let all = marks.0.lock().clone();
    all.iter().any(|mark| mark.is_outside())
}

/// Events from outside this kernel about an object were lost.
pub(super) fn lost_outside(of: &Attachments) {
    let Some(marks) = of.get::<Marks>() else { return };
    let all = marks.0.lock().clone();
    for group in all.iter().filter_map(|mark| mark.to.upgrade()) {
        group.lost();
    }
}

/// The groups that may want to know what happens at `path`.
fn hits(path: &Path) -> Vec<Recipient> {
    let dir = path.is_dir();
    let mut hits: Vec<Recipient> = Vec::new();
    each(path, |marks, from_parent| {
        let all = marks.0.lock().clone();
        for mark in all {
            let wanted = mark.wanted();
            let Some(group) = mark.to.upgrade() else { continue };
            let ignored = wanted.ignores(dir, from_parent);
            let told = if applies(wanted.mask, dir, from_parent) { wanted.mask } else { 0 };
            match hits.iter_mut().find(|hit| Arc::ptr_eq(&hit.group, &group)) {
                Some(hit) => (hit.wanted, hit.ignored) = (hit.wanted | told, hit.ignored | ignored),
                None => hits.push(Recipient { group, wanted: told, ignored }),
            }
        }
    });
    hits
}

/// Tells the groups with marks on the way to what is at `path` of an event.
pub fn tell(path: &Path, mask: u32, by: &Actor) {
    for Recipient { group, wanted, ignored } in hits(path) {
        let told = mask & EVENTS & wanted & !ignored;
        if told != 0 {
            group.event(path, told, by);
        }
    }
}

/// Asks the groups with marks on the way, and waits for their answers: EPERM when one refuses. While a thread waits it keeps
/// no group, so that the last descriptor of a group ends it, and with it the wait.
pub fn ask(cx: &(impl Blocking + ?Sized), path: &Path, mask: u32, by: &Actor) -> Outcome<()> {
    let mut asked: Vec<(u32, Weak<dyn Group>, u32)> = Vec::new();
    for Recipient { group, wanted, ignored } in hits(path) {
        let question = mask & QUESTIONS & wanted & !ignored;
        if question != 0 {
            asked.push((group.class(), Arc::downgrade(&group), question));
        }
    }
    asked.sort_by_key(|(class, ..)| Reverse(*class));
    for (_, group, mask) in asked {
        let Some(question) = group.upgrade().and_then(|group| group.ask(path, mask, by)) else { continue };
        let answer = question.wait(cx);
        if matches!(answer, Err(Failure::Interrupted | Failure::TimedOut))
            && let Some(group) = group.upgrade()
        {
            group.forget(&question);
        }
        answer?;
    }
    Ok(())
}

/// An object has no name and no user any more: its marks go.
pub fn on_gone(inode: &InodeRef) {
    let Some(marks) = inode.attachments().and_then(|a| a.get::<Marks>()) else { return };
    let all = std::mem::take(&mut *marks.0.lock());
    for mark in all {
        if let Some(group) = mark.to.upgrade() {
            group.gone(&mark);
        }
    }
}

//! Groups of fanotify(7). A group receives events about files, or questions for permission, with a descriptor of the
//! file for each event.
//!
//! A group is a queue of events and a table of marks; `vfs::notify::marks` delivers what happens. It hears of processes of its
//! maker's container only: an event leads to the place where they see the file. A thread that waits for an answer holds no
//! group ([`Question`]): the group's end answers what is left. Lock rank: that of inotify; paths are
//! dropped and the wait queue is notified after the lock is released. A checkpoint keeps [`FanotifyState`], marks and events. A
//! thread that waits for an answer makes its call again, so questions are asked anew.

use abi::{Errno, Result};
use caller::UserMemory;
use caller::quota::{Account, Charge, Kind};
use lock_order::{Mutex, rank};
use pid::{Pid, PidNamespace};
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use vfs::notify::marks::{Actor, Group, Mark, MarkMask, Marked, ON_CHILD, ON_DIR, Question};
use vfs::{Caller, FileOps, Known, KnownPlace, OpenFile, Path, StreamOps};
use wait::{Events, WaitQueue};

/// What fanotify_init(2) takes.
pub mod init {
    #![expect(missing_docs, reason = "names of fanotify_init(2)")]
    pub const CLOEXEC: u32 = 1;
    pub const NONBLOCK: u32 = 2;
    pub const CLASS: u32 = 0xc;
    pub const UNLIMITED_QUEUE: u32 = 0x10;
    pub const UNLIMITED_MARKS: u32 = 0x20;
    pub const REPORT_TID: u32 = 0x100;
    pub const ALL: u32 = CLOEXEC | NONBLOCK | CLASS | UNLIMITED_QUEUE | UNLIMITED_MARKS | REPORT_TID;
}

/// Flags of the files that events come with.
const EVENT_FLAGS: i32 = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_DSYNC
    | libc::O_CLOEXEC
    | libc::O_LARGEFILE
    | LARGE_FILE
    | libc::O_NOATIME;
/// O_LARGEFILE as 32-bit programs have it, which fcntl(2) shows.
const LARGE_FILE: i32 = 0o100_000;

/// FAN_Q_OVERFLOW.
const OVERFLOW: u32 = 0x4000;
const NO_FD: i32 = -1;
const FIONREAD: u32 = 0x541b;
/// Events that may wait in a group (fs.fanotify.max_queued_events).
const MAX_EVENTS: usize = 16384;
/// How many events a new one is compared with.
const MERGED: usize = 128;
/// Bytes of `struct fanotify_event_metadata`.
const EVENT: usize = 24;
/// Bytes of `struct fanotify_response`.
const RESPONSE: usize = 8;

/// What an event is about.
enum Object {
    Place(Path),
    /// What others outside this kernel have changed: the object of a mark, or what has this name in it.
    Outside(Arc<KnownPlace>, Box<[u8]>),
}

impl Object {
    fn is_same(&self, other: &Object) -> bool {
        match (self, other) {
            (Object::Place(one), Object::Place(two)) => {
                Arc::ptr_eq(&one.dentry, &two.dentry) && Arc::ptr_eq(&one.mount, &two.mount)
            }
            (Object::Outside(one, name), Object::Outside(two, other)) => {
                Arc::ptr_eq(one, two) && name == other
            }
            _ => false,
        }
    }

    /// Where it is now. ENOENT.
    fn find(&self, cx: &dyn Caller) -> Result<Path> {
        let (place, name) = match self {
            Object::Place(path) => return Ok(path.clone()),
            Object::Outside(place, name) => (place, name),
        };
        let (mount, mut dentry, names) = match place.now() {
            Known::Place(Path { mount, dentry }) => (mount, dentry, Vec::new()),
            Known::Name(mount, names) => {
                let root = mount.sb.root.clone();
                (mount, root, names)
            }
            Known::Gone => return Err(Errno::ENOENT),
        };
        for name in names.split(|c| *c == b'/').chain([&**name]).filter(|name| !name.is_empty()) {
            dentry = namei::walk::find(cx, &dentry, name, false)?;
        }
        let path = Path { mount, dentry };
        // The name may have another object by now.
        if path.kind() == abi::stat::S_IFLNK { Err(Errno::ENOENT) } else { Ok(path) }
    }
}

struct Event {
    object: Object,
    mask: u32,
    /// `None` for a process outside this kernel.
    by: Option<Arc<Pid>>,
    /// A thread waits for the answer.
    question: Option<Arc<Question>>,
    _charge: Charge,
}

struct MarkEntry {
    on: Marked,
    place: Arc<KnownPlace>,
    mark: Arc<Mark>,
    _charge: Charge,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    /// An event was lost, which is told after those that wait.
    overflown: bool,
    /// Questions that were read, by the descriptor that came with them.
    asked: Vec<(i32, Arc<Question>)>,
    marks: HashMap<(u8, usize), MarkEntry>,
}

/// A group.
pub struct Fanotify {
    me: Weak<Fanotify>,
    flags: u32,
    event_flags: i32,
    /// The outermost PID namespace that its maker's container has.
    pid_ns: Arc<PidNamespace>,
    state: Mutex<State, { rank::INOTIFY }>,
    queue: WaitQueue,
    /// The account that pays for marks and events, and its user.
    user: Arc<Account>,
    uid: u32,
    _charge: Charge,
}

/// A group as plain data, but for its marks and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FanotifyState {
    user: u32,
    flags: u32,
    event_flags: i32,
    overflown: bool,
    /// A process of the namespace that it hears of, by its number in the sandbox's own PID namespace.
    pub process: i32,
}

/// A mark for a checkpoint.
pub struct MarkedPlace {
    /// What it is on.
    pub on: Marked,
    /// What is known of the place by which it was made.
    pub place: Known,
    /// What it says.
    pub wanted: MarkMask,
}

/// An event for a checkpoint.
pub struct EventAt {
    /// The file.
    pub path: Path,
    /// What happened.
    pub mask: u32,
    /// By which process or thread.
    pub by: Arc<Pid>,
}

/// The namespace right below the sandbox's own that a namespace is in.
fn outermost(ns: Arc<PidNamespace>) -> Arc<PidNamespace> {
    let mut at = ns;
    while let Some(parent) = at.parent().filter(|parent| parent.level() > 0).cloned() {
        at = parent;
    }
    at
}

impl Fanotify {
    /// A new group as an open file. EMFILE when the user has too many, EINVAL for flags that it cannot have.
    pub fn open(cx: &dyn Caller, flags: u32, event_flags: i32) -> Result<Arc<OpenFile>> {
        let pid_ns = cx.pid_ns().ok_or(Errno::EINVAL)?;
        let group = Fanotify::with(cx, cx.creds().uid, pid_ns, (flags, event_flags), State::default())?;
        let status = if flags & init::NONBLOCK != 0 { libc::O_NONBLOCK } else { 0 };
        Ok(OpenFile::new(None, Some(cx.vfs().anonymous_inode()), group, status | libc::O_RDWR))
    }

    fn with(
        cx: &dyn Caller,
        uid: u32,
        pid_ns: Arc<PidNamespace>,
        (flags, event_flags): (u32, i32),
        state: State,
    ) -> Result<Arc<Fanotify>> {
        let one_class = flags & init::CLASS != init::CLASS;
        let mode = event_flags & libc::O_ACCMODE != libc::O_ACCMODE;
        if flags & !init::ALL != 0 || event_flags & !EVENT_FLAGS != 0 || !one_class || !mode {
            return Err(Errno::EINVAL);
        }
        let user = cx.quotas().account(uid);
        let charge = user.charge(Kind::FanotifyGroups, 1).ok_or(Errno::EMFILE)?;
        Ok(Arc::new_cyclic(|me| Fanotify {
            me: me.clone(),
            flags,
            event_flags,
            pid_ns: outermost(pid_ns),
            state: Mutex::new(state),
            queue: WaitQueue::new(),
            user,
            uid,
            _charge: charge,
        }))
    }

    /// As plain data, its marks and events. `None` when the processes that it hears of are gone.
    pub fn state(&self) -> Option<(FanotifyState, Vec<MarkedPlace>, Vec<EventAt>)> {
        let process = self.pid_ns.taken().first()?.nr();
        let s = self.state.lock();
        let (user, flags, event_flags) = (self.uid, self.flags, self.event_flags);
        // What happened outside is not saved; the program is told that events were lost.
        let overflown = s.overflown || s.events.iter().any(|event| event.by.is_none());
        let state = FanotifyState { user, flags, event_flags, overflown, process };
        let marked = |held: &MarkEntry| MarkedPlace {
            on: held.on.clone(),
            place: held.place.now(),
            wanted: held.mark.wanted(),
        };
        let marks = s.marks.values().filter(|held| !held.on.is_gone()).map(marked).collect();
        let plain = s.events.iter().filter_map(|event| match (&event.object, &event.by, &event.question) {
            (Object::Place(path), Some(by), None) => {
                Some(EventAt { path: path.clone(), mask: event.mask, by: by.clone() })
            }
            _ => None,
        });
        Some((state, marks, plain.collect()))
    }

    /// Back from plain data, without marks and events. EMFILE, and EINVAL for what cannot be.
    pub fn restore(cx: &dyn Caller, saved: &FanotifyState, process: &Pid) -> Result<Arc<dyn FileOps>> {
        let state = State { overflown: saved.overflown, ..State::default() };
        let pid_ns = process.ns().cloned().ok_or(Errno::EINVAL)?;
        Ok(Fanotify::with(cx, saved.user, pid_ns, (saved.flags, saved.event_flags), state)?)
    }

    /// An event back. ENOMEM when the user has too many.
    pub fn restore_event(&self, event: EventAt) -> Result<()> {
        let EventAt { path, mask, by } = event;
        let charge = self.user.charge(Kind::FanotifyEvents, 1).ok_or(Errno::ENOMEM)?;
        let event =
            Event { object: Object::Place(path), mask, by: Some(by), question: None, _charge: charge };
        self.state.lock().events.push_back(event);
        Ok(())
    }

    /// The group behind an open file, if it is one.
    pub fn of(file: &OpenFile) -> Option<&Fanotify> {
        file.ops.as_any().downcast_ref()
    }

    /// Adds to what is wanted of an object by `change`, which refuses what does not go with what is there already. ENOSPC
    /// when the user has too many marks, EINVAL for objects that cannot have one.
    pub fn add(&self, on: Marked, path: &Path, change: impl Fn(&mut MarkMask) -> Result<()>) -> Result<()> {
        let inode = if let Marked::Inode(inode) = &on { Some(inode.clone()) } else { None };
        let mark = self.insert(on, path, change)?;
        if let Some(inode) = inode {
            mark.look_outside(&inode);
        }
        Ok(())
    }

    fn insert(
        &self,
        on: Marked,
        path: &Path,
        change: impl Fn(&mut MarkMask) -> Result<()>,
    ) -> Result<Arc<Mark>> {
        let mut s = self.state.lock();
        if let Some(held) = s.marks.get(&on.key()) {
            held.mark.change(change)?;
            return Ok(held.mark.clone());
        }
        let mut wanted = MarkMask::default();
        change(&mut wanted)?;
        let charge = match self.user.charge(Kind::FanotifyMarks, 1) {
            Some(charge) => charge,
            None => {
                // Marks of mounts that are gone count until the next check.
                s.marks.retain(|_, held| !held.on.is_gone());
                self.user.charge(Kind::FanotifyMarks, 1).ok_or(Errno::ENOSPC)?
            }
        };
        let mark = Mark::new(&on, path, self.me.clone(), wanted);
        if !on.add(&mark) {
            return Err(Errno::EINVAL);
        }
        let place = Arc::new(KnownPlace::of(path));
        s.marks.insert(on.key(), MarkEntry { on, place, mark: mark.clone(), _charge: charge });
        Ok(mark)
    }

    /// Takes from what is wanted of an object by `change`; the mark goes when nothing is left. ENOENT.
    pub fn remove(&self, on: &Marked, change: impl Fn(&mut MarkMask)) -> Result<()> {
        let gone = {
            let mut s = self.state.lock();
            let held = s.marks.get(&on.key()).ok_or(Errno::ENOENT)?;
            let left = held.mark.change(|wanted| {
                change(wanted);
                wanted.mask & !(ON_DIR | ON_CHILD) | wanted.ignored & !(ON_DIR | ON_CHILD)
            });
            if left == 0 { s.marks.remove(&on.key()) } else { None }
        };
        if let Some(held) = gone {
            held.on.remove(&held.mark);
        }
        Ok(())
    }

    /// Removes all marks on inodes, mounts or file systems.
    pub fn flush(&self, kind: u8) {
        let gone: Vec<_> = self.state.lock().marks.extract_if(|key, _| key.0 == kind).collect();
        for (_, held) in gone {
            held.on.remove(&held.mark);
        }
    }

    /// Gives the waiting thread its answer.
    fn answer(&self, fd: i32, allow: bool) -> Result<()> {
        let question = {
            let mut s = self.state.lock();
            let place = s.asked.iter().position(|(asked, _)| *asked == fd).ok_or(Errno::ENOENT)?;
            s.asked.remove(place).1
        };
        question.answer(allow);
        Ok(())
    }

    /// One event with its file, which the caller gets a descriptor of.
    fn deliver(&self, cx: &dyn Caller, event: &Event) -> Result<[u8; EVENT]> {
        let fd = self.open_file(cx, event);
        if let Some(question) = &event.question {
            match fd {
                Ok(fd) => {
                    let mut s = self.state.lock();
                    if !question.is_answered() {
                        s.asked.push((fd, question.clone()));
                    }
                }
                // No program can answer.
                Err(_) => question.answer(false),
            }
        }
        let pid = event.by.as_ref().map_or(0, |by| cx.vnr_of(by));
        Ok(metadata(event.mask, fd?, pid))
    }

    fn open_file(&self, cx: &dyn Caller, event: &Event) -> Result<i32> {
        let path = event.object.find(cx)?;
        let opened = namei::opening::open_event(cx, &path, self.event_flags & !libc::O_CLOEXEC);
        let file = opened.map_err(caller::retry::Failure::errno)?;
        cx.install(file, self.event_flags & libc::O_CLOEXEC != 0)
    }
}

fn metadata(mask: u32, fd: i32, pid: i32) -> [u8; EVENT] {
    const VERSION: u8 = 3;
    let mut out = [0; EVENT];
    out[..4].copy_from_slice(&(EVENT as u32).to_ne_bytes());
    out[4] = VERSION;
    out[6..8].copy_from_slice(&(EVENT as u16).to_ne_bytes());
    out[8..16].copy_from_slice(&u64::from(mask).to_ne_bytes());
    out[16..20].copy_from_slice(&fd.to_ne_bytes());
    out[20..].copy_from_slice(&pid.to_ne_bytes());
    out
}

impl Group for Fanotify {
    fn event(&self, path: &Path, mask: u32, by: &Actor) {
        if by.process.nr_in(&self.pid_ns) == 0 {
            return;
        }
        self.push(Object::Place(path.clone()), mask, Some(self.told_of(by)), None);
    }

    fn outside(&self, mark: &Arc<Mark>, mask: u32, name: &[u8]) {
        let place = {
            let s = self.state.lock();
            let held = s.marks.get(&mark.key()).filter(|held| Arc::ptr_eq(&held.mark, mark));
            held.map(|held| held.place.clone())
        };
        if let Some(place) = place {
            self.push(Object::Outside(place, name.into()), mask, None, None);
        }
    }

    fn ask(&self, path: &Path, mask: u32, by: &Actor) -> Option<Arc<Question>> {
        if by.process.nr_in(&self.pid_ns) == 0 {
            return None;
        }
        let question = Arc::new(Question::default());
        let queued = self.push(Object::Place(path.clone()), mask, Some(self.told_of(by)), Some(&question));
        queued.then_some(question)
    }

    fn forget(&self, question: &Arc<Question>) {
        // It may be about to be read.
        question.answer(false);
        let gone = {
            let mut s = self.state.lock();
            s.asked.retain(|(_, asked)| !Arc::ptr_eq(asked, question));
            let same = |event: &Event| event.question.as_ref().is_some_and(|q| Arc::ptr_eq(q, question));
            let place = s.events.iter().position(same);
            place.and_then(|place| s.events.remove(place))
        };
        drop(gone);
    }

    fn class(&self) -> u32 {
        self.flags & init::CLASS
    }

    fn lost(&self) {
        self.state.lock().overflown = true;
        self.queue.notify(Events::READABLE);
    }

    fn gone(&self, mark: &Arc<Mark>) {
        let held = {
            let mut s = self.state.lock();
            let same = s.marks.get(&mark.key()).is_some_and(|held| Arc::ptr_eq(&held.mark, mark));
            if same { s.marks.remove(&mark.key()) } else { None }
        };
        drop(held);
    }
}

impl Fanotify {
    /// Whether it can have marks that ask for permission.
    pub fn asks(&self) -> bool {
        self.class() != 0
    }

    /// The process or thread that events name.
    fn told_of(&self, by: &Actor) -> Arc<Pid> {
        let told = if self.flags & init::REPORT_TID != 0 { &by.thread } else { &by.process };
        told.clone()
    }

    /// Queues an event; false when it was lost. Questions are for themselves.
    fn push(
        &self,
        object: Object,
        mask: u32,
        by: Option<Arc<Pid>>,
        question: Option<&Arc<Question>>,
    ) -> bool {
        let charge = self.user.charge(Kind::FanotifyEvents, 1);
        let queued;
        {
            let mut s = self.state.lock();
            let same = |event: &&mut Event| {
                event.question.is_none()
                    && event.object.is_same(&object)
                    && event.by.as_ref().map(Arc::as_ptr) == by.as_ref().map(Arc::as_ptr)
            };
            if question.is_none()
                && let Some(event) = s.events.iter_mut().rev().take(MERGED).find(same)
            {
                event.mask |= mask;
                return true;
            }
            let limited = self.flags & init::UNLIMITED_QUEUE == 0;
            let full = s.overflown || limited && s.events.len() >= MAX_EVENTS;
            queued = !full && charge.is_some();
            match charge {
                Some(charge) if !full => {
                    s.events.push_back(Event {
                        object,
                        mask,
                        by,
                        question: question.cloned(),
                        _charge: charge,
                    });
                }
                _ => s.overflown = true,
            }
        }
        self.queue.notify(Events::READABLE);
        queued
    }
}

impl FileOps for Fanotify {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_stream(&self) -> Option<&dyn StreamOps> {
        Some(self)
    }
    fn read(&self, cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        let mut done = 0;
        loop {
            let room = buf.get_mut(done..done + EVENT);
            let next = {
                let mut s = self.state.lock();
                if s.events.is_empty() && !s.overflown {
                    break;
                }
                if room.is_none() {
                    if done == 0 {
                        return Err(Errno::EINVAL);
                    }
                    break;
                }
                let next = s.events.pop_front();
                if next.is_none() {
                    s.overflown = false;
                }
                next
            };
            let told = match &next {
                Some(event) => self.deliver(cx, event),
                None => Ok(metadata(OVERFLOW, NO_FD, 0)),
            };
            match (told, room) {
                (Ok(bytes), Some(room)) => room.copy_from_slice(&bytes),
                // What others have changed and removed since is no event any more.
                (Err(Errno::ENOENT), _) if next.as_ref().is_some_and(|event| event.by.is_none()) => continue,
                // The event is lost, as on Linux.
                (Err(e), _) if done == 0 => return Err(e),
                _ => break,
            }
            done += EVENT;
        }
        if done == 0 { Err(Errno::EAGAIN) } else { Ok(done) }
    }
    fn write(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        const ALLOW: u32 = 1;
        const DENY: u32 = 2;
        let word = |at: usize| buf.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
        match (word(0), word(RESPONSE / 2)) {
            (Some(fd), Some(answer @ (ALLOW | DENY))) if fd as i32 >= 0 => {
                self.answer(fd as i32, answer == ALLOW)?;
                Ok(RESPONSE)
            }
            _ => Err(Errno::EINVAL),
        }
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        let s = self.state.lock();
        if s.events.is_empty() && !s.overflown { Events::NONE } else { Events::READABLE }
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.queue.clone())
    }
    fn ioctl(
        &self,
        _cx: &dyn Caller,
        _file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        if cmd != FIONREAD {
            return Err(Errno::ENOTTY);
        }
        let count = {
            let s = self.state.lock();
            s.events.len() + usize::from(s.overflown)
        };
        mem.write_value(arg, &((count * EVENT) as i32))?;
        Ok(0)
    }
    fn fdinfo(&self) -> String {
        let (flags, event_flags) = (self.flags & !init::CLOEXEC, self.event_flags);
        let mut out = format!("fanotify flags:{flags:x} event-flags:{event_flags:x}\n");
        let all: Vec<_> = {
            let s = self.state.lock();
            s.marks.values().map(|held| (held.on.clone(), held.mark.wanted())).collect()
        };
        for (on, wanted) in all {
            let dev = |dev: u64| u64::from(abi::stat::major(dev)) << 20 | u64::from(abi::stat::minor(dev));
            let place = match &on {
                Marked::Inode(inode) => {
                    let attr = inode.attr().unwrap_or_default();
                    format!("ino:{:x} sdev:{:x}", attr.ino, dev(attr.dev))
                }
                Marked::Mount(mount) => match mount.upgrade() {
                    Some(mount) => format!("mnt_id:{:x}", mount.id()),
                    None => continue,
                },
                Marked::FileSystem(sb) => match sb.upgrade().and_then(|sb| sb.root.inode.attr().ok()) {
                    Some(attr) => format!("sdev:{:x}", dev(attr.dev)),
                    None => continue,
                },
            };
            let survives = if wanted.survives { 0x40 } else { 0 };
            let (mask, ignored) = (wanted.mask, wanted.ignored);
            out += &format!("fanotify {place} mflags:{survives:x} mask:{mask:x} ignored_mask:{ignored:x} \n");
        }
        out
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:[fanotify]".into())
    }
}

impl StreamOps for Fanotify {
    fn fasync(&self, cx: &dyn Caller, _file: &OpenFile) -> Option<WaitQueue> {
        self.wait_queue(cx)
    }
}

impl Drop for Fanotify {
    fn drop(&mut self) {
        let s = self.state.get_mut();
        for held in s.marks.values() {
            held.on.remove(&held.mark);
        }
        // A question that can no longer be answered is allowed.
        let waiting = s.events.iter().filter_map(|event| event.question.as_ref());
        waiting
            .chain(s.asked.iter().map(|(_, question)| question))
            .for_each(|question| question.answer(true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_states() {
        let cx = vfs::testing::TestCaller::root().with_pid(7);
        let good = FanotifyState { user: 0, flags: 0, event_flags: 0, overflown: false, process: 7 };
        let restored = |saved: &FanotifyState| Fanotify::restore(&cx, saved, &cx.pid).map(drop);
        assert_eq!(restored(&good), Ok(()));
        let bad = [
            FanotifyState { flags: u32::MAX, ..good },
            FanotifyState { flags: init::CLASS, ..good },
            FanotifyState { event_flags: libc::O_ACCMODE, ..good },
            FanotifyState { event_flags: libc::O_CREAT, ..good },
        ];
        assert_eq!(bad.map(|saved| restored(&saved)), [Err(Errno::EINVAL); 4]);
    }
}

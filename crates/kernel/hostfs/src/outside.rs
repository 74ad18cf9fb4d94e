//! Watches inside (inotify(7)) receive what other processes of the host do to files and directories of shared trees.
//!
//! A watched object is marked in a group of fanotify(7) that names objects by handles. A thread waits for the group's events
//! and passes them on to `vfs::notify`. What this process causes is left out: the file layer has reported it already. Group and
//! thread exist only while something is watched ([`Observer`]).
//!
//! The host's kernel bounds the events that wait. When there are more, watches are told that events are lost
//! (IN_Q_OVERFLOW). The host's events have no order among those of one object that one process causes one after the other, so
//! they are passed on in the order in which programs usually cause them.
//!
//! An object without a name is reported as gone when no descriptor of it is left. So a descriptor that is only kept for later
//! use is closed when another process removes the name. For a directory, its parent is marked, which tells of that.
//!
//! Locks: `marking`, then that of the marked objects, a leaf. Marks are made with the first held, and no call of the host with the
//! second.

use abi::{Errno, Result};
use hostsys::fanotify::{DIRECTORY_MASK, Entry, Handle, OBJECT_MASK, RENAME, Report, Reports};
use hostsys::fs::{Bell, Readiness};
use lock_order::{Mutex, rank};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use vfs::InodeRef;
use vfs::attach::Attachments;
use vfs::notify::{self, event};

/// Token of the bell that ends the thread.
const END: u64 = 0;
/// Token of the group.
const GROUP: u64 = 1;

/// How long the thread waits before it reads again: many events then cost one wake-up.
const PAUSE: Duration = Duration::from_millis(1);

/// Of so many acts those that are over are forgotten.
const MANY: usize = 64;

/// Events come at most so long after an act; and so long after our end of an open file a gofer may close its own reference to it. It does so when it has sent the descriptor.
const LATE: Duration = Duration::from_millis(50);

/// The first cookie of a rename by others. Those of renames inside begin with 1.
const FIRST_COOKIE: u32 = 1 << 31;

/// Events of an object that a report may have together, in the order in which they are passed on.
const OBJECT_EVENTS: [u32; 4] = [event::MODIFY, event::ATTRIB, event::CLOSE_WRITE, event::MOVE_SELF];

/// An object of the host, as one tree has it.
pub(crate) trait Observed: Send + Sync {
    /// Host device and inode number.
    fn key(&self) -> (u64, u64);
    /// It is a directory.
    fn is_dir(&self) -> bool;
    /// The directory that has it, and its name there; `None` for the root of its tree.
    fn place(&self) -> Option<(Object, Arc<[u8]>)>;
    /// Has a group report the events of `mask` (FAN_*) of it, and returns what events call it.
    fn mark(&self, group: &Reports, mask: u64) -> Result<Handle>;
    /// Has it report them no longer.
    fn unmark(&self, group: &Reports, mask: u64) -> Result<()>;
    /// Of a directory: there is something of this name.
    fn has(&self, name: &[u8]) -> bool;
    /// Of a directory: a program has it open.
    fn is_in_use(&self) -> bool;
    /// Closes descriptors that are only kept for later use.
    fn let_go(&self);
    /// Others have changed it, or something in it: nothing that was learnt before holds.
    fn has_changed(&self);
    /// What hangs on it, its watches among them.
    fn attachments(&self) -> &Attachments;
    /// As an inode.
    fn inode(self: Arc<Self>) -> InodeRef;
}

/// An object of one tree.
pub(crate) type Object = Arc<dyn Observed>;

/// The same without counting as a user.
type WeakObject = Weak<dyn Observed>;

/// The numbers of a directory, and a name in it.
type Place = ((u64, u64), Box<[u8]>);

/// A marked object.
#[derive(Default)]
struct Marked {
    /// Its nodes, one in each tree that has it, and how many observers each of them has.
    nodes: Vec<(WeakObject, usize)>,
    /// Others have removed a name of it. Then its end is theirs, although the last descriptor was ours.
    doomed: bool,
}

/// The group, and what ends its thread.
struct Running {
    group: Arc<Reports>,
    end: Bell,
}

/// What a gofer does for us: its events look like another process's, and are taken for ours.
struct Own {
    id: u64,
    /// The directory, and the name that changes.
    dir: (u64, u64),
    name: Box<[u8]>,
    /// What the name leads to.
    object: Option<(u64, u64)>,
    /// Nothing but the end of an open file.
    closes: bool,
    /// When it was done: then its events are there to be read.
    done: Option<Instant>,
}

impl Own {
    /// Its events have come.
    fn is_over(&self) -> bool {
        self.done.is_some_and(|done| done.elapsed() > LATE)
    }
}

/// While it exists, events of one name are ours.
pub(crate) struct Act {
    outside: Arc<Outside>,
    id: u64,
}

impl Drop for Act {
    fn drop(&mut self) {
        if let Some(own) = self.outside.own.lock().iter_mut().find(|own| own.id == self.id) {
            own.done = Some(Instant::now());
        }
    }
}

#[derive(Default)]
struct State {
    running: Option<Running>,
    marked: HashMap<Handle, Marked>,
    /// Watched directories by the directory that has them and their name there.
    places: HashMap<Place, WeakObject>,
}

/// What is watched in the trees of one kernel.
pub(crate) struct Outside {
    state: Mutex<State>,
    /// Held while a mark is set or taken back.
    marking: Mutex<(), { rank::HOST_EVENTS }>,
    cookie: AtomicU32,
    own: Mutex<Vec<Own>>,
    next: AtomicU64,
}

impl Default for Outside {
    fn default() -> Outside {
        Outside {
            state: Mutex::default(),
            marking: Mutex::default(),
            cookie: AtomicU32::new(FIRST_COOKIE),
            own: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }
}

/// While it exists, an object is watched.
pub(crate) struct Observer {
    outside: Arc<Outside>,
    node: Object,
    handle: Handle,
    /// Watches for the removal of a directory.
    _parent: Option<Box<Observer>>,
}

impl Outside {
    /// Passes on what others do to an object from now on; `mask`: IN_*. `None` where that cannot be.
    pub fn observe(self: &Arc<Outside>, node: &Object, mask: u32) -> Option<Observer> {
        let wanted = host_mask(mask, node.is_dir());
        let add = || {
            let Some((dir, name)) = node.place().filter(|_| node.is_dir()) else {
                return self.add(node, wanted, None);
            };
            let parent = self.add(&dir, libc::FAN_DELETE | libc::FAN_ONDIR | RENAME, None)?;
            let observer = self.add(node, wanted, Some(Box::new(parent)))?;
            let place = (dir.key(), Box::from(&*name));
            let old = self.state.lock().places.insert(place, Arc::downgrade(node));
            drop(old);
            Ok(observer)
        };
        add().inspect_err(|e| log::debug!("changes by the host are not reported to a watch: {e}")).ok()
    }

    fn add(
        self: &Arc<Outside>,
        node: &Object,
        wanted: u64,
        parent: Option<Box<Observer>>,
    ) -> Result<Observer> {
        let _marking = self.marking.lock();
        let group = {
            let mut state = self.state.lock();
            let running = match &mut state.running {
                Some(running) => running,
                none => none.insert(self.start()?),
            };
            running.group.clone()
        };
        let marked = node.mark(&group, wanted);
        let mut state = self.state.lock();
        let handle = match marked {
            Ok(handle) => handle,
            Err(e) => {
                let unused = if state.marked.is_empty() { state.running.take() } else { None };
                drop(state);
                if let Some(unused) = unused {
                    unused.end.ring();
                }
                return Err(e);
            }
        };
        let marked = state.marked.entry(handle.clone()).or_default();
        match marked.nodes.iter_mut().find(|(known, _)| is_same(known, node)) {
            Some((_, observers)) => *observers += 1,
            None => marked.nodes.push((Arc::downgrade(node), 1)),
        }
        drop(state);
        Ok(Observer { outside: self.clone(), node: node.clone(), handle, _parent: parent })
    }

    /// Makes a group and its thread.
    fn start(self: &Arc<Outside>) -> Result<Running> {
        let group = Arc::new(Reports::new()?);
        let readiness = Readiness::new()?;
        let end = readiness.bell(END)?;
        readiness.add(&*group, GROUP)?;
        let (outside, reports) = (self.clone(), group.clone());
        std::thread::Builder::new().name("host-watch".into()).spawn(move || {
            hostsys::cpu::roam();
            outside.run(&readiness, &reports);
        })?;
        Ok(Running { group, end })
    }

    fn run(&self, readiness: &Readiness, group: &Reports) {
        let mut buf = Vec::new();
        loop {
            if readiness.wait().iter().any(|(token, _)| *token == END) {
                return;
            }
            let read = self.done();
            while group.read(&mut buf, |report| self.pass_on(report)) {}
            self.own.lock().retain(|own| !read.contains(&own.id));
            std::thread::sleep(PAUSE);
        }
    }

    /// A gofer is about to change a name for us; nothing while nothing is watched. Until the events of it have been read, those of this
    /// name are ours.
    pub fn act(self: &Arc<Outside>, dir: (u64, u64), name: &[u8], object: Option<(u64, u64)>) -> Option<Act> {
        self.begin(dir, name, object, false)
    }

    /// The same for an open file that we close.
    pub fn close(self: &Arc<Outside>, dir: (u64, u64), name: &[u8], object: (u64, u64)) -> Option<Act> {
        self.begin(dir, name, Some(object), true)
    }

    fn begin(
        self: &Arc<Outside>,
        dir: (u64, u64),
        name: &[u8],
        object: Option<(u64, u64)>,
        closes: bool,
    ) -> Option<Act> {
        self.state.lock().running.as_ref()?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut own = self.own.lock();
        if own.len() >= MANY {
            own.retain(|one| !one.is_over());
        }
        own.push(Own { id, dir, name: name.into(), object, closes, done: None });
        Some(Act { outside: self.clone(), id })
    }

    /// Something is watched.
    pub fn is_watching(&self) -> bool {
        self.state.lock().running.is_some()
    }

    /// Those that have been done.
    fn done(&self) -> Vec<u64> {
        let over = |own: &&Own| own.done.is_some() && !own.closes || own.is_over();
        self.own.lock().iter().filter(over).map(|own| own.id).collect()
    }

    /// Whether an event is of something that a gofer does for us.
    fn is_ours(&self, mask: u64, entry: Option<Entry<'_>>, object: Option<&[u8]>) -> bool {
        if self.own.lock().is_empty() {
            return false;
        }
        let key = |handle: &[u8]| self.find(handle).map(|node| node.key());
        let dir = entry.and_then(|(handle, name)| Some((key(handle)?, name)));
        let object = object.and_then(key);
        let own = self.own.lock();
        let only_closes = mask & u64::from(event::ALL) == u64::from(event::CLOSE_WRITE);
        own.iter().filter(|own| (only_closes || !own.closes) && !own.is_over()).any(|own| {
            dir.is_some_and(|(dir, name)| dir == own.dir && *name == *own.name)
                || object.is_some() && object == own.object
        })
    }

    /// A node of the object with this handle.
    fn find(&self, handle: &[u8]) -> Option<Object> {
        let state = self.state.lock();
        state.marked.get(handle)?.nodes.iter().find_map(|(node, _)| node.upgrade())
    }

    /// Others have removed a name of the object.
    fn doom(&self, handle: &[u8]) {
        if let Some(marked) = self.state.lock().marked.get_mut(handle) {
            marked.doomed = true;
        }
    }

    fn is_doomed(&self, handle: &[u8]) -> bool {
        self.state.lock().marked.get(handle).is_some_and(|marked| marked.doomed)
    }

    fn pass_on(&self, report: Report<'_>) {
        match report {
            Report::Event { mask, own, entry, object } => {
                let own = own || self.is_ours(mask, entry, object);
                self.event(mask, own, entry, object);
            }
            Report::Rename { dir, own, from, to } => {
                let own = own || self.is_ours(RENAME, from, None) || self.is_ours(RENAME, to, None);
                self.rename(dir, own, from, to);
            }
            Report::Overflow => self.overflow(),
        }
    }

    fn event(&self, mask: u64, own: bool, entry: Option<Entry<'_>>, object: Option<&[u8]>) {
        let dir = mask & libc::FAN_ONDIR != 0;
        let (in_dir, object) = match entry {
            // The directory itself.
            Some((handle, b".")) => (None, Some(handle)),
            entry => (entry, object),
        };
        let kind = if dir { event::ISDIR } else { 0 };
        let events = mask as u32 & event::ALL;
        let parent = in_dir.filter(|_| !own).and_then(|(handle, name)| Some((self.find(handle)?, name)));
        let node = object.and_then(|handle| self.find(handle));
        for node in parent.iter().map(|(node, _)| node).chain(node.as_ref().filter(|_| !own)) {
            node.has_changed();
        }
        if let Some((parent, name)) = &parent {
            if dir && events & event::DELETE != 0 {
                self.removed(&**parent, name);
            }
            for one in names(&**parent, name, events) {
                tell(&**parent, one | kind, 0, name);
            }
        }
        if let (Some(node), Some(handle), None, false) = (&node, object, in_dir, own || dir) {
            if let Some((parent, _)) = node.place() {
                parent.has_changed();
            }
            if events & event::ATTRIB != 0 {
                // The number of its names has changed.
                self.doom(handle);
                node.let_go();
            }
        }
        // The directory is told of each first.
        for one in OBJECT_EVENTS.into_iter().filter(|one| events & one != 0 && !own) {
            if let Some((parent, name)) = &parent {
                tell(&**parent, one | kind, 0, name);
            }
            if let Some(node) = &node {
                if dir && one == event::ATTRIB {
                    self.tell_parent(&**node, one | kind);
                }
                tell(&**node, if one == event::MOVE_SELF { one } else { one | kind }, 0, b"");
            }
        }
        if let (Some(node), Some(handle)) = (node, object)
            && events & event::DELETE_SELF != 0
            && (!own || self.is_doomed(handle))
        {
            notify::gone_outside(&node.inode());
        }
    }

    /// An event of a directory is one of its name in the directory that has it, too. The host reports it once.
    fn tell_parent(&self, node: &dyn Observed, event: u32) {
        if let Some((parent, name)) = node.place() {
            tell(&*parent, event, 0, &name);
        }
    }

    /// Others have removed a directory: what is only kept of it for later use goes.
    fn removed(&self, parent: &dyn Observed, name: &[u8]) {
        let node = self.state.lock().places.get(&(parent.key(), Box::from(name))).and_then(Weak::upgrade);
        let Some(node) = node.filter(|node| !node.is_in_use()) else { return };
        {
            let mut state = self.state.lock();
            let same = |(known, _): &(WeakObject, usize)| is_same(known, &node);
            if let Some(marked) = state.marked.values_mut().find(|marked| marked.nodes.iter().any(same)) {
                marked.doomed = true;
            }
        }
        node.let_go();
    }

    fn rename(&self, dir: bool, own: bool, from: Option<Entry<'_>>, to: Option<Entry<'_>>) {
        let parents = [from, to].map(|entry| entry.and_then(|(handle, _)| self.find(handle)));
        let place = |at: usize| {
            let name = [from, to][at].map(|(_, name)| Box::from(name));
            parents[at].as_ref().map(|parent| parent.key()).zip(name)
        };
        if dir && let Some(old) = place(0) {
            let mut state = self.state.lock();
            if let (Some(node), Some(new)) = (state.places.remove(&old), place(1)) {
                state.places.insert(new, node);
            }
        }
        if own {
            return;
        }
        let cookie = self.cookie.fetch_add(1, Ordering::Relaxed).max(FIRST_COOKIE);
        let kind = if dir { event::ISDIR } else { 0 };
        for parent in parents.iter().flatten() {
            parent.has_changed();
        }
        for (at, what) in [event::MOVED_FROM, event::MOVED_TO].into_iter().enumerate() {
            if let (Some(parent), Some((_, name))) = (&parents[at], [from, to][at]) {
                tell(&**parent, what | kind, cookie, name);
            }
        }
    }

    fn overflow(&self) {
        let all: Vec<_> = {
            let state = self.state.lock();
            state
                .marked
                .values()
                .filter_map(|marked| marked.nodes.first())
                .map(|(node, _)| node.clone())
                .collect()
        };
        for node in all.iter().filter_map(Weak::upgrade) {
            node.has_changed();
            notify::lost_outside(node.attachments());
        }
    }
}

/// Events of a name, in the order in which they are passed on. When it has come and gone, what is true now came last.
fn names(dir: &dyn Observed, name: &[u8], events: u32) -> impl Iterator<Item = u32> {
    let both = event::CREATE | event::DELETE;
    let order = match events & both == both && dir.has(name) {
        true => [event::DELETE, event::CREATE],
        false => [event::CREATE, event::DELETE],
    };
    order.into_iter().filter(move |one| events & one != 0)
}

fn tell(node: &dyn Observed, mask: u32, cookie: u32, name: &[u8]) {
    notify::from_outside(node.attachments(), mask, cookie, name);
}

fn is_same(known: &WeakObject, node: &Object) -> bool {
    std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(node))
}

/// The host's events that a watch needs.
fn host_mask(mask: u32, dir: bool) -> u64 {
    let all = if dir { DIRECTORY_MASK } else { OBJECT_MASK };
    let moves = if mask & (event::MOVED_FROM | event::MOVED_TO) != 0 { RENAME } else { 0 };
    let own = libc::FAN_DELETE_SELF | libc::FAN_ATTRIB | libc::FAN_EVENT_ON_CHILD | libc::FAN_ONDIR;
    (u64::from(mask) | moves | own) & all
}

impl Drop for Observer {
    fn drop(&mut self) {
        let in_dir = |node: &Object| node.place().map(|(dir, name)| (dir.key(), Box::from(&*name)));
        let place = self.node.is_dir().then(|| in_dir(&self.node));
        let (left, running) = {
            let mut state = self.outside.state.lock();
            let Some(marked) = state.marked.get_mut(&self.handle) else { return };
            for (node, observers) in &mut marked.nodes {
                *observers -= usize::from(is_same(node, &self.node));
            }
            marked.nodes.retain(|(_, observers)| *observers != 0);
            let left = !marked.nodes.is_empty();
            if !left {
                state.marked.remove(&self.handle);
                if let Some(place) = place {
                    self.leave(place, &mut state);
                }
            }
            let ended = state.marked.is_empty();
            if ended {
                state.places.clear();
            }
            (left, if ended { state.running.take() } else { None })
        };
        if let Some(running) = running {
            // The thread lets go of the group, which may take a while when there are marks.
            running.end.ring();
        } else if !left {
            self.forget();
        }
    }
}

impl Observer {
    /// The directory is not watched any more: nothing leads to it by its name, which was `place` last.
    fn leave(&self, place: Option<Place>, state: &mut State) {
        let known = place.and_then(|place| state.places.remove(&place));
        if known.is_none_or(|known| !is_same(&known, &self.node)) {
            // It has been moved, or removed.
            state.places.retain(|_, known| !is_same(known, &self.node));
        }
    }

    /// Takes the mark back. One of an object that has moved out of reach stays, and what it reports is known to none.
    fn forget(&self) {
        let _marking = self.outside.marking.lock();
        let group = {
            let state = self.outside.state.lock();
            if state.marked.contains_key(&self.handle) {
                return;
            }
            state.running.as_ref().map(|running| running.group.clone())
        };
        let all = if self.node.is_dir() { DIRECTORY_MASK } else { OBJECT_MASK };
        if let Some(group) = group
            && let Err(e) = self.node.unmark(&group, all)
            && e != Errno::ENOENT
        {
            log::debug!("a mark on an object of the host stays: {e}");
        }
    }
}

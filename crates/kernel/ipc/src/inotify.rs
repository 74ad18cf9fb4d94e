//! inotify instances. See inotify(7).
//!
//! An instance is a queue of events and a table of watches; `vfs::notify` delivers the events. Lock rank: leaf; the
//! wait queue is notified after the lock is released. A checkpoint keeps [`InotifyState`].

use abi::{Errno, Result};
use caller::UserMemory;
use caller::quota::{Account, Charge, Kind, Limit};
use lock_order::{Mutex, rank};
use std::any::Any;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use user_ns::{NamespaceCount, UserNamespace};
use vfs::notify::{self, Listener, Watch, event};
use vfs::{Caller, FileOps, InodeRef, Known, KnownPlace, OpenFile, Path, StreamOps};
use wait::{Events, WaitQueue};

const IN_Q_OVERFLOW: u32 = 0x4000;
const IN_IGNORED: u32 = 0x8000;
const IN_MASK_CREATE: u32 = 0x1000_0000;
const IN_MASK_ADD: u32 = 0x2000_0000;
const IN_ONESHOT: u32 = 0x8000_0000;
const FIONREAD: u32 = 0x541b;
/// What a watch keeps of its mask.
const KEEP: u32 = event::ALL | event::EXCL_UNLINK | IN_ONESHOT;
const NAME_MAX: usize = 255;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Event {
    watch: i32,
    mask: u32,
    cookie: u32,
    #[serde(with = "serde_bytes")]
    name: Vec<u8>,
}

/// An instance as plain data, but for its watches.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct InotifyState {
    /// The user that pays for it.
    user: u32,
    /// Events that wait.
    events: Vec<Event>,
    /// The watch made last.
    last: i32,
}

/// A watch for a checkpoint.
pub struct Watched {
    /// Its number.
    pub id: i32,
    /// Its mask.
    pub mask: u32,
    /// What it is on.
    pub inode: InodeRef,
    /// What is known of the place by which it was made.
    pub place: Known,
}

impl Event {
    /// Events were lost.
    fn lost() -> Event {
        Event { watch: -1, mask: IN_Q_OVERFLOW, cookie: 0, name: Vec::new() }
    }

    /// Size of `struct inotify_event` with its name padded.
    fn size(&self) -> usize {
        let name = if self.name.is_empty() { 0 } else { (self.name.len() + 1).next_multiple_of(16) };
        16 + name
    }

    fn put(&self, out: &mut [u8]) {
        out.fill(0);
        let len = (out.len() - 16) as u32;
        out[..4].copy_from_slice(&self.watch.to_ne_bytes());
        out[4..8].copy_from_slice(&self.mask.to_ne_bytes());
        out[8..12].copy_from_slice(&self.cookie.to_ne_bytes());
        out[12..16].copy_from_slice(&len.to_ne_bytes());
        out[16..16 + self.name.len()].copy_from_slice(&self.name);
    }
}

struct WatchEntry {
    inode: InodeRef,
    watch: Arc<Watch>,
    place: KnownPlace,
    _charge: Charge,
    _counted: NamespaceCount,
}

fn address(inode: &InodeRef) -> usize {
    Arc::as_ptr(inode).cast::<()>() as usize
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    watches: BTreeMap<i32, WatchEntry>,
    /// Watches by the address of their inode, which they keep in its place.
    by_inode: HashMap<usize, i32>,
    last: i32,
}

impl State {
    /// Ids ascend and begin again after the last one.
    fn next_id(&self) -> i32 {
        let after = |last: i32| last.checked_add(1).unwrap_or(1);
        let mut id = after(self.last);
        while self.watches.contains_key(&id) {
            id = after(id);
        }
        id
    }
}

/// An instance.
pub struct Inotify {
    me: Weak<Inotify>,
    state: Mutex<State, { rank::INOTIFY }>,
    queue: WaitQueue,
    /// Events that may wait; what comes then is lost.
    max_events: usize,
    /// The account that pays for the watches, and its user.
    user: Arc<Account>,
    uid: u32,
    /// The user namespace and effective user that made it, which have limits of their own.
    maker: (Arc<UserNamespace>, u32),
    _charge: Charge,
    _counted: NamespaceCount,
}

impl Inotify {
    /// A new instance as an open file; `flags` are O_NONBLOCK or none. EMFILE when the user has too many.
    pub fn open(cx: &dyn Caller, flags: i32) -> Result<Arc<OpenFile>> {
        let i = Inotify::with(cx, cx.creds().uid, State::default())?;
        Ok(OpenFile::new(None, Some(cx.vfs().anonymous_inode()), i, flags | libc::O_RDONLY))
    }

    fn with(cx: &dyn Caller, uid: u32, state: State) -> Result<Arc<Inotify>> {
        let quotas = cx.quotas();
        let user = quotas.account(uid);
        let charge = user.charge(Kind::InotifyInstances, 1).ok_or(Errno::EMFILE)?;
        let creds = cx.creds();
        let maker = (creds.user_ns.clone(), creds.euid);
        let counted = NamespaceCount::new(&maker.0, maker.1, user_ns::Kind::InotifyInstances);
        let counted = counted.map_err(|_| Errno::EMFILE)?;
        let max_events = quotas.limit(Limit::InotifyEvents) as usize;
        Ok(Arc::new_cyclic(|me| Inotify {
            me: me.clone(),
            state: Mutex::new(state),
            queue: WaitQueue::new(),
            max_events,
            user,
            uid,
            maker,
            _charge: charge,
            _counted: counted,
        }))
    }

    /// As plain data, and its watches.
    pub fn state(&self) -> (InotifyState, Vec<Watched>) {
        let s = self.state.lock();
        let watched = |(id, held): (&i32, &WatchEntry)| Watched {
            id: *id,
            mask: held.watch.mask.load(Ordering::Relaxed),
            inode: held.inode.clone(),
            place: held.place.now(),
        };
        let state = InotifyState { user: self.uid, events: s.events.iter().cloned().collect(), last: s.last };
        (state, s.watches.iter().map(watched).collect())
    }

    /// Back from plain data, without watches. EMFILE, and EINVAL for what cannot be.
    pub fn restore(cx: &dyn Caller, saved: &InotifyState) -> Result<Arc<dyn FileOps>> {
        let max_events = cx.quotas().limit(Limit::InotifyEvents);
        let fits = saved.events.iter().all(|event| event.name.len() <= NAME_MAX);
        if !fits || saved.last < 0 || saved.events.len() as u64 > max_events.saturating_add(1) {
            return Err(Errno::EINVAL);
        }
        let events = saved.events.iter().cloned().collect();
        let state = State { events, last: saved.last, ..State::default() };
        Ok(Inotify::with(cx, saved.user, state)?)
    }

    /// A watch back, with its number. ENOSPC when the user has too many, EINVAL for one that cannot be.
    pub fn restore_watch(&self, id: i32, place: &Path, mask: u32) -> Result<()> {
        let mut s = self.state.lock();
        if id < 1 || mask & event::ALL == 0 || s.watches.contains_key(&id) {
            return Err(Errno::EINVAL);
        }
        let watch = self.watch(&mut s, id, place, mask)?;
        drop(s);
        notify::look_outside(place.inode(), &watch);
        Ok(())
    }

    fn watch(&self, s: &mut State, id: i32, place: &Path, mask: u32) -> Result<Arc<Watch>> {
        let inode = place.inode();
        let charge = self.user.charge(Kind::InotifyWatches, 1).ok_or(Errno::ENOSPC)?;
        let counted = NamespaceCount::new(&self.maker.0, self.maker.1, user_ns::Kind::InotifyWatches)?;
        let to: Weak<dyn Listener> = self.me.clone();
        let watch = Watch::new(&place.dentry, id, mask & KEEP, to);
        if !notify::add(inode, watch.clone()) {
            return Err(Errno::EINVAL);
        }
        s.by_inode.insert(address(inode), id);
        let place = KnownPlace::of(place);
        let entry = WatchEntry {
            inode: inode.clone(),
            watch: watch.clone(),
            place,
            _charge: charge,
            _counted: counted,
        };
        s.watches.insert(id, entry);
        Ok(watch)
    }

    /// The instance behind an open file, if it is one.
    pub fn of(file: &OpenFile) -> Option<&Inotify> {
        file.ops.as_any().downcast_ref()
    }

    /// inotify_add_watch(2) on a place found and checked before.
    pub fn add(&self, place: &Path, mask: u32) -> Result<i32> {
        if mask & event::ALL == 0 || mask & IN_MASK_ADD != 0 && mask & IN_MASK_CREATE != 0 {
            return Err(Errno::EINVAL);
        }
        let inode = place.inode();
        let mut s = self.state.lock();
        if let Some((id, h)) = s.by_inode.get(&address(inode)).and_then(|id| s.watches.get_key_value(id)) {
            if mask & IN_MASK_CREATE != 0 {
                return Err(Errno::EEXIST);
            }
            let old = if mask & IN_MASK_ADD != 0 { h.watch.mask.load(Ordering::Relaxed) } else { 0 };
            h.watch.mask.store(old | mask & KEEP, Ordering::Relaxed);
            let (id, watch) = (*id, h.watch.clone());
            drop(s);
            notify::look_outside(inode, &watch);
            return Ok(id);
        }
        let id = s.next_id();
        let watch = self.watch(&mut s, id, place, mask)?;
        s.last = id;
        drop(s);
        notify::look_outside(inode, &watch);
        Ok(id)
    }

    /// inotify_rm_watch(2).
    pub fn remove(&self, id: i32) -> Result<()> {
        let h = {
            let mut s = self.state.lock();
            let h = s.watches.remove(&id).ok_or(Errno::EINVAL)?;
            s.by_inode.remove(&address(&h.inode));
            h
        };
        notify::remove(&h.inode, &h.watch);
        self.push(Event { watch: id, mask: IN_IGNORED, cookie: 0, name: Vec::new() });
        Ok(())
    }

    fn push(&self, e: Event) {
        {
            let mut s = self.state.lock();
            // An event equal to the last one tells nothing new.
            if s.events.back() == Some(&e) {
                return;
            }
            if s.events.len() >= self.max_events {
                let lost = Event::lost();
                if s.events.back() != Some(&lost) {
                    s.events.push_back(lost);
                }
                return;
            }
            s.events.push_back(e);
        }
        self.queue.notify(Events::READABLE);
    }
}

impl Listener for Inotify {
    fn event(&self, watch: i32, mask: u32, cookie: u32, name: &[u8]) {
        self.push(Event { watch, mask, cookie, name: name.to_vec() });
        let once = {
            let s = self.state.lock();
            s.watches.get(&watch).is_some_and(|h| h.watch.mask.load(Ordering::Relaxed) & IN_ONESHOT != 0)
        };
        if once {
            self.gone(watch);
        }
    }
    fn gone(&self, watch: i32) {
        // The first removal reports it.
        let _ = self.remove(watch);
    }
    fn lost(&self) {
        self.push(Event::lost());
    }
}

impl FileOps for Inotify {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_stream(&self) -> Option<&dyn StreamOps> {
        Some(self)
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        let mut s = self.state.lock();
        let mut done = 0;
        while let Some(e) = s.events.front() {
            let n = e.size();
            if done + n > buf.len() {
                if done == 0 {
                    return Err(Errno::EINVAL);
                }
                break;
            }
            e.put(&mut buf[done..done + n]);
            done += n;
            s.events.pop_front();
        }
        if done == 0 { Err(Errno::EAGAIN) } else { Ok(done) }
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        if self.state.lock().events.is_empty() { Events::NONE } else { Events::READABLE }
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
        let n: usize = self.state.lock().events.iter().map(Event::size).sum();
        mem.write_value(arg, &(n as i32))?;
        Ok(0)
    }
    fn fdinfo(&self) -> String {
        let s = self.state.lock();
        let line = |(id, h): (&i32, &WatchEntry)| {
            let a = h.inode.attr().unwrap_or_default();
            let mask = h.watch.mask.load(Ordering::Relaxed);
            // The device number in the kernel's own form: major above 20 bits of minor.
            let dev = u64::from(abi::stat::major(a.dev)) << 20 | u64::from(abi::stat::minor(a.dev));
            format!("inotify wd:{id:x} ino:{:x} sdev:{dev:x} mask:{mask:x} ignored_mask:0 \n", a.ino)
        };
        s.watches.iter().map(line).collect()
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:inotify".into())
    }
}

impl StreamOps for Inotify {
    fn fasync(&self, cx: &dyn Caller, _file: &OpenFile) -> Option<WaitQueue> {
        self.wait_queue(cx)
    }
}

impl Drop for Inotify {
    fn drop(&mut self) {
        for h in self.state.get_mut().watches.values() {
            notify::remove(&h.inode, &h.watch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_numbers_begin_again() {
        let s = State { last: i32::MAX, ..State::default() };
        assert_eq!(s.next_id(), 1);
    }

    #[test]
    fn hostile_states() {
        let cx = vfs::testing::TestCaller::root();
        let event = Event { watch: 1, mask: 1, cookie: 0, name: vec![b'x'; 256] };
        let good = InotifyState { user: 0, events: Vec::new(), last: 3 };
        let restored = |saved: &InotifyState| Inotify::restore(&cx, saved).map(drop);
        assert_eq!(restored(&good), Ok(()));
        let bad = [InotifyState { last: -1, ..good.clone() }, InotifyState { events: vec![event], ..good }];
        assert_eq!(bad.map(|saved| restored(&saved)), [Err(Errno::EINVAL); 2]);
    }
}

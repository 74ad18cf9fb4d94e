//! epoll(7).
//!
//! An [`Epoll`] holds items, one per (description, descriptor number). A watched file's wait queue wakes its item,
//! which puts itself on the ready list and wakes the epoll's own queue. Collecting events polls the items on that list:
//! items that are not ready any more are removed; level-triggered items go back to its end.
//!
//! Items hold their file weakly: closing the description for good removes them.
//! Locks: `scan` serialises collectors and is held while files are polled (files never
//! call back into an epoll that contains them); `items` and `ready` are leaves.
//! A checkpoint keeps the items' keys, masks, data and one-shot state.

mod item;
mod nest;
mod state;

use abi::{Errno, Result};
use caller::UserMemory;
use caller::quota::{Account, Kind};
use item::Item;
use lock_order::{Mutex, rank};
pub use state::{EpollState, ItemState};
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;
use vfs::{Caller, FileOps, OpenFile};
use wait::{Events, Stop, WaitQueue};

/// Flags of an event mask that are not events.
const FLAGS: u32 = (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLWAKEUP | libc::EPOLLEXCLUSIVE) as u32;
/// What EPOLLEXCLUSIVE may be combined with.
const EXCLUSIVE_OK: u32 =
    FLAGS & !ONESHOT | (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP) as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
const EDGE: u32 = libc::EPOLLET as u32;

/// `struct epoll_event`: mask and user data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Event {
    /// EPOLL* bits.
    pub events: u32,
    /// Whatever the program stored with the item.
    pub data: u64,
}

/// An item's key: address of the description (which the item's `Weak` keeps from being reused)
/// and descriptor number.
type Key = (usize, i32);

/// An epoll instance.
pub struct Epoll {
    items: Mutex<HashMap<Key, Arc<Item>>>,
    ready: Mutex<VecDeque<Arc<Item>>>,
    scan: Mutex<(), { rank::EPOLL_SCAN }>,
    queue: WaitQueue,
    /// Items of other epolls that stand for this one.
    outer: Mutex<Vec<Weak<Item>>>,
    /// The account that pays for the items.
    user: Arc<Account>,
    me: Weak<Epoll>,
}

impl Epoll {
    /// epoll_create1(2).
    pub fn create(cx: &dyn Caller) -> Arc<OpenFile> {
        let user = cx.quotas().account(cx.creds().uid);
        let ops = Arc::new_cyclic(|me| Epoll {
            items: Mutex::default(),
            ready: Mutex::default(),
            scan: Mutex::default(),
            queue: WaitQueue::new(),
            outer: Mutex::default(),
            user,
            me: me.clone(),
        });
        OpenFile::new(None, Some(cx.vfs().anonymous_inode()), ops, libc::O_RDWR)
    }

    /// The instance behind an open file; EINVAL when it is something else.
    pub fn of(file: &OpenFile) -> Result<&Epoll> {
        file.ops.as_any().downcast_ref().ok_or(Errno::EINVAL)
    }

    /// EPOLL_CTL_ADD. ENOSPC when the epoll's user has too many items.
    pub fn add(&self, cx: &dyn Caller, fd: i32, file: &Arc<OpenFile>, ev: Event) -> Result<()> {
        let item = self.insert(cx, fd, file, ev)?;
        self.recheck(cx, &item, file);
        Ok(())
    }

    /// Adds an item that nothing is known of yet.
    fn insert(&self, cx: &dyn Caller, fd: i32, file: &Arc<OpenFile>, ev: Event) -> Result<Arc<Item>> {
        let target = Epoll::of(file).ok();
        if target.is_some_and(|t| std::ptr::eq(t, self)) {
            return Err(Errno::EINVAL);
        }
        if ev.events & EXCLUSIVE != 0 && (target.is_some() || ev.events & !EXCLUSIVE_OK != 0) {
            return Err(Errno::EINVAL);
        }
        let queue = file.ops.wait_queue(cx).ok_or(Errno::EPERM)?;
        // Adding one epoll to another may close a loop: only one thread at a time may do that.
        let _nesting = match target {
            Some(t) => Some(nest::check(cx, self, t)?),
            None => None,
        };
        let key = (Arc::as_ptr(file) as usize, fd);
        let item = {
            let mut items = self.items.lock();
            if items.contains_key(&key) {
                return Err(Errno::EEXIST);
            }
            let prune = |items: &mut HashMap<Key, Arc<Item>>| items.retain(|_, i| i.file.strong_count() > 0);
            if items.len() >= 64 && items.len().is_power_of_two() {
                prune(&mut items);
            }
            let mut charge = self.user.charge(Kind::EpollWatches, 1);
            if charge.is_none() {
                prune(&mut items);
                charge = self.user.charge(Kind::EpollWatches, 1);
            }
            let charge = charge.ok_or(Errno::ENOSPC)?;
            let item = Arc::new(Item::new(self.me.clone(), file, key, ev, charge));
            items.insert(key, item.clone());
            item
        };
        if let Some(t) = target {
            let mut outer = t.outer.lock();
            if outer.len() == outer.capacity() {
                outer.retain(|w| w.strong_count() != 0);
            }
            outer.push(Arc::downgrade(&item));
        }
        item.subscribe(&queue, ev.events & EXCLUSIVE != 0);
        Ok(item)
    }

    /// EPOLL_CTL_MOD.
    pub fn modify(&self, cx: &dyn Caller, fd: i32, file: &Arc<OpenFile>, ev: Event) -> Result<()> {
        if ev.events & EXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        let key = (Arc::as_ptr(file) as usize, fd);
        let item = self.items.lock().get(&key).cloned().ok_or(Errno::ENOENT)?;
        if item.mask.load(Ordering::SeqCst) & EXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        item.set(ev);
        self.recheck(cx, &item, file);
        Ok(())
    }

    /// EPOLL_CTL_DEL.
    pub fn delete(&self, fd: i32, file: &Arc<OpenFile>) -> Result<()> {
        let key = (Arc::as_ptr(file) as usize, fd);
        let item = self.items.lock().remove(&key).ok_or(Errno::ENOENT)?;
        item.retire();
        Ok(())
    }

    /// Puts the item on the ready list when its file is ready now.
    fn recheck(&self, cx: &dyn Caller, item: &Arc<Item>, file: &OpenFile) {
        if item.wants(file.ops.poll(cx, file)).is_some() {
            self.enqueue(item);
        }
    }

    /// Puts the item on the ready list and wakes a thread that waits. Returns whether one was woken.
    fn enqueue(&self, item: &Arc<Item>) -> bool {
        {
            let mut ready = self.ready.lock();
            if !item.queued.swap(true, Ordering::SeqCst) {
                ready.push_back(item.clone());
            }
        }
        self.queue.notify_exclusive(Events::READABLE)
    }

    fn pop(&self) -> Option<Arc<Item>> {
        let mut ready = self.ready.lock();
        let item = ready.pop_front()?;
        // From here on a wake-up queues it again: nothing that happens after the poll below is lost.
        item.queued.store(false, Ordering::SeqCst);
        Some(item)
    }

    fn requeue(&self, item: Arc<Item>) {
        let mut ready = self.ready.lock();
        if !item.queued.swap(true, Ordering::SeqCst) {
            ready.push_back(item);
        }
    }

    /// Takes up to `max` events of items that are ready now.
    pub fn collect(&self, cx: &dyn Caller, max: usize) -> Vec<Event> {
        let mut out = Vec::new();
        if self.ready.lock().is_empty() {
            return out;
        }
        let _scan = self.scan.lock();
        let mut left = self.ready.lock().len();
        while left > 0 && out.len() < max {
            left -= 1;
            let Some(item) = self.pop() else { break };
            let Some(file) = item.file.upgrade() else {
                self.forget(&item);
                continue;
            };
            let Some(ev) = item.wants(file.ops.poll(cx, &file)) else { continue };
            out.push(ev);
            let mask = item.mask.load(Ordering::SeqCst);
            if mask & ONESHOT != 0 {
                item.disable();
            } else if mask & EDGE == 0 {
                self.requeue(item);
            }
        }
        out
    }

    fn forget(&self, item: &Arc<Item>) {
        let mut items = self.items.lock();
        if items.get(&item.key).is_some_and(|i| Arc::ptr_eq(i, item)) {
            items.remove(&item.key);
        }
        drop(items);
        item.retire();
    }

    /// epoll_wait(2): events, or none at the deadline.
    pub fn wait(&self, cx: &dyn Caller, max: usize, deadline: Option<Instant>) -> Result<Vec<Event>, Stop> {
        let waiter = cx.waiter();
        let attempt = || {
            let v = self.collect(cx, max);
            (!v.is_empty()).then_some(v)
        };
        if let Some(v) = attempt() {
            return Ok(v);
        }
        let sub = self.queue.subscribe_exclusive(Events::READABLE, waiter.clone());
        let got = loop {
            if let Some(v) = attempt() {
                break Ok(v);
            }
            match waiter.sleep(deadline) {
                Ok(()) => {}
                // After an interruption too: the signal may announce the event.
                Err(stop) => match (attempt(), stop) {
                    (Some(v), _) => break Ok(v),
                    (None, Stop::TimedOut) => break Ok(Vec::new()),
                    (None, Stop::Interrupted) => break Err(stop),
                },
            }
        };
        // A wake-up that reached us may have been meant for what we leave: pass it on.
        drop(sub);
        if !self.ready.lock().is_empty() {
            self.queue.notify(Events::READABLE);
        }
        got
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        for (_, item) in self.items.get_mut().drain() {
            item.retire();
        }
    }
}

impl FileOps for Epoll {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn poll(&self, cx: &dyn Caller, _file: &OpenFile) -> Events {
        if self.ready.lock().is_empty() {
            return Events::NONE;
        }
        // An epoll that watches this one may be looking; they make no loop.
        let _scan = self.scan.lock_nested();
        let mut left = self.ready.lock().len();
        while left > 0 {
            left -= 1;
            let Some(item) = self.pop() else { break };
            let Some(file) = item.file.upgrade() else {
                self.forget(&item);
                continue;
            };
            if item.wants(file.ops.poll(cx, &file)).is_some() {
                // Goes back to where it was: looking takes nothing.
                let mut ready = self.ready.lock();
                if !item.queued.swap(true, Ordering::SeqCst) {
                    ready.push_front(item);
                }
                return Events::READABLE;
            }
        }
        Events::NONE
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.queue.clone())
    }
    fn ioctl(
        &self,
        _cx: &dyn Caller,
        _file: &OpenFile,
        _mem: &mut dyn UserMemory,
        _cmd: u32,
        _arg: u64,
    ) -> Result<u64> {
        Err(Errno::EINVAL)
    }
    fn fdinfo(&self) -> String {
        let items: Vec<_> = self.items.lock().values().cloned().collect();
        let mut out = String::new();
        for item in items {
            let Some(file) = item.file.upgrade() else { continue };
            let ev = item.event();
            let pos = file.pos.try_lock().map_or(0, |pos| *pos);
            let (dev, ino) = file.attr().map_or((0, 0), |attr| (attr.dev, attr.ino));
            let dev = abi::stat::major(dev) << 20 | abi::stat::minor(dev);
            let _ = writeln!(
                out,
                "tfd: {:8} events: {:8x} data: {:16x}  pos:{pos} ino:{ino:x} sdev:{dev:x}",
                item.key.1, ev.events, ev.data
            );
        }
        out
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:[eventpoll]".into())
    }
}

#[cfg(test)]
mod tests;

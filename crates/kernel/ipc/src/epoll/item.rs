//! One watched (description, descriptor) pair.

use super::{Epoll, Event, FLAGS, Key};
use caller::quota::Charge;
use lock_order::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::OpenFile;
use wait::{Events, Subscription, WaitQueue, Wake};

/// An entry of the interest list. `mask` and `data` change together only under EPOLL_CTL_MOD;
/// a collector that races with one sees either, as on Linux.
pub(super) struct Item {
    epoll: Weak<Epoll>,
    pub file: Weak<OpenFile>,
    pub key: Key,
    pub mask: AtomicU32,
    data: AtomicU64,
    /// On the ready list. Changes under its lock.
    pub queued: AtomicBool,
    subscription: Mutex<Option<Subscription>>,
    _charge: Charge,
}

impl Item {
    pub fn new(epoll: Weak<Epoll>, file: &Arc<OpenFile>, key: Key, ev: Event, charge: Charge) -> Item {
        let item = Item {
            epoll,
            file: Arc::downgrade(file),
            key,
            mask: AtomicU32::new(0),
            data: AtomicU64::new(0),
            queued: AtomicBool::new(false),
            subscription: Mutex::new(None),
            _charge: charge,
        };
        item.set(ev);
        item
    }

    /// The epoll that it belongs to.
    pub fn epoll(&self) -> Option<Arc<Epoll>> {
        self.epoll.upgrade()
    }

    pub fn set(&self, ev: Event) {
        self.data.store(ev.data, Ordering::SeqCst);
        let always = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        let mask = (ev.events | always) & !(libc::EPOLLWAKEUP as u32);
        self.mask.store(mask, Ordering::SeqCst);
    }

    pub fn event(&self) -> Event {
        Event { events: self.mask.load(Ordering::SeqCst), data: self.data.load(Ordering::SeqCst) }
    }

    pub fn subscribe(self: &Arc<Self>, queue: &WaitQueue, exclusive: bool) {
        // The mask can change later, so the subscription is for everything and `wake` filters.
        let waker = Arc::new(ItemWaker(Arc::downgrade(self)));
        let sub = if exclusive {
            queue.subscribe_exclusive(Events(self.mask.load(Ordering::SeqCst) & !FLAGS), waker)
        } else {
            queue.subscribe(Events::ALL, waker)
        };
        *self.subscription.lock() = Some(sub);
    }

    /// The event to report for this readiness, if the item asks for any of it.
    pub fn wants(&self, now: Events) -> Option<Event> {
        let events = now.0 & self.mask.load(Ordering::SeqCst) & !FLAGS;
        (events != 0).then(|| Event { events, data: self.data.load(Ordering::SeqCst) })
    }

    /// After a one-shot event: asks for nothing until modified.
    pub fn disable(&self) {
        self.mask.fetch_and(FLAGS, Ordering::SeqCst);
    }

    /// Stops watching.
    pub fn retire(&self) {
        self.mask.store(0, Ordering::SeqCst);
        let sub = self.subscription.lock().take();
        drop(sub);
    }
}

/// What hangs on the file's queue: weak, so that a file does not keep epolls alive.
struct ItemWaker(Weak<Item>);

impl Wake for ItemWaker {
    fn wake(&self, events: Events) -> bool {
        let Some(item) = self.0.upgrade() else { return false };
        if item.mask.load(Ordering::SeqCst) & !FLAGS & events.0 == 0 {
            return false;
        }
        // An exclusive item of an epoll without a sleeping thread has its event noted, and leaves the wake-up to
        // others.
        item.epoll.upgrade().is_some_and(|ep| ep.enqueue(&item))
    }
}

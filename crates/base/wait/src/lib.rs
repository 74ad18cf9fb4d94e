//! Wait queues: threads wait for the readiness of an object, and sleep meanwhile.
//!
//! An object that can become ready owns a [`WaitQueue`]. Code that changes its state calls [`WaitQueue::notify`]
//! *after* the change. A waiter subscribes first, then checks the condition, then sleeps: no wake-up is lost. Lock
//! rank: the queue's own lock is a leaf; `Wake::wake` is called without it.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Instant;

/// Readiness bits with the values of poll(2)'s and epoll(7)'s masks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events(pub u32);

impl Events {
    /// No event.
    pub const NONE: Events = Events(0);
    /// POLLIN.
    pub const IN: Events = Events(0x001);
    /// POLLPRI.
    pub const PRI: Events = Events(0x002);
    /// POLLOUT.
    pub const OUT: Events = Events(0x004);
    /// POLLERR.
    pub const ERR: Events = Events(0x008);
    /// POLLHUP.
    pub const HUP: Events = Events(0x010);
    /// POLLRDNORM.
    pub const RDNORM: Events = Events(0x040);
    /// POLLRDBAND.
    pub const RDBAND: Events = Events(0x080);
    /// POLLWRNORM.
    pub const WRNORM: Events = Events(0x100);
    /// POLLWRBAND.
    pub const WRBAND: Events = Events(0x200);
    /// POLLRDHUP.
    pub const RDHUP: Events = Events(0x2000);
    /// IN and RDNORM: what readable objects report.
    pub const READABLE: Events = Events(0x041);
    /// OUT and WRNORM: what writable objects report.
    pub const WRITABLE: Events = Events(0x104);
    /// Urgent data has arrived: a moment, not a state. It becomes SIGURG; poll(2) never reports it.
    pub const URG: Events = Events(0x10_0000);
    /// Every bit of a state.
    pub const ALL: Events = Events(!Events::URG.0);

    /// Bits in both.
    pub const fn intersect(self, o: Events) -> Events {
        Events(self.0 & o.0)
    }
    /// True when any bit is shared.
    pub const fn intersects(self, o: Events) -> bool {
        self.0 & o.0 != 0
    }
    /// True when no bit is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl std::ops::BitOr for Events {
    type Output = Events;
    fn bitor(self, o: Events) -> Events {
        Events(self.0 | o.0)
    }
}

impl std::ops::BitOrAssign for Events {
    fn bitor_assign(&mut self, o: Events) {
        self.0 |= o.0;
    }
}

/// Something that wants to know about readiness: a sleeping thread, an epoll item.
pub trait Wake: Send + Sync {
    /// Called after `events` may have become true. Must not block, and must not
    /// take a lock that is held while subscribing. Returns false when the call woke no thread that was not
    /// woken already: an exclusive wake-up then goes to the next subscriber.
    fn wake(&self, events: Events) -> bool;
}

struct Entry {
    mask: Events,
    exclusive: bool,
    waker: Arc<dyn Wake>,
}

#[derive(Default)]
struct Inner {
    len: AtomicUsize,
    entries: Mutex<Entries>,
}

/// Subscribers in the order in which they came, by ascending id. One that ends leaves a hole, so that ending takes the same
/// time however many there are; holes go when they are half of the list.
#[derive(Default)]
struct Entries {
    last: usize,
    list: Vec<(usize, Option<Entry>)>,
    live: usize,
}

impl Entries {
    fn insert(&mut self, e: Entry) -> usize {
        self.last += 1;
        self.list.push((self.last, Some(e)));
        self.live += 1;
        self.last
    }

    fn remove(&mut self, id: usize) -> Option<Entry> {
        let at = self.list.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        let gone = self.list[at].1.take()?;
        self.live -= 1;
        if at + 1 == self.list.len() {
            self.list.pop();
        }
        if self.live < self.list.len().div_ceil(2) {
            self.list.retain(|(_, e)| e.is_some());
        }
        Some(gone)
    }

    /// Those after `id` that want to hear of `events`.
    fn wanting(&self, id: usize, events: Events) -> impl Iterator<Item = (usize, &Entry)> {
        let from = if id == 0 { 0 } else { self.list.partition_point(|(i, _)| *i <= id) };
        let present = self.list[from..].iter().filter_map(|(id, e)| Some((*id, e.as_ref()?)));
        present.filter(move |(_, e)| e.mask.intersects(events))
    }
}

/// A list of subscribers. Cloning gives another handle to the same list.
#[derive(Clone, Default)]
pub struct WaitQueue(Arc<Inner>);

impl WaitQueue {
    /// An empty queue.
    pub fn new() -> WaitQueue {
        WaitQueue::default()
    }

    /// Adds a subscriber for events in `mask` (ERR and HUP are always included)
    /// until the returned guard is dropped.
    #[must_use]
    pub fn subscribe(&self, mask: Events, waker: Arc<dyn Wake>) -> Subscription {
        self.add(mask, waker, false)
    }

    /// As `subscribe`, but of the exclusive subscribers a notification wakes one: the first that returns true from
    /// [`Wake::wake`]. Those before it have heard of the events without a thread to serve them.
    #[must_use]
    pub fn subscribe_exclusive(&self, mask: Events, waker: Arc<dyn Wake>) -> Subscription {
        self.add(mask, waker, true)
    }

    fn add(&self, mask: Events, waker: Arc<dyn Wake>, exclusive: bool) -> Subscription {
        let mut e = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let id = e.insert(Entry { mask: mask | Events::ERR | Events::HUP, exclusive, waker });
        self.0.len.store(e.live, Ordering::SeqCst);
        Subscription { queue: self.0.clone(), id }
    }

    /// Wakes the subscribers with a mask that meets `events`.
    pub fn notify(&self, events: Events) {
        self.notify_exclusive(events);
    }

    /// As `notify`; returns whether an exclusive subscriber's thread was woken.
    pub fn notify_exclusive(&self, events: Events) -> bool {
        if self.0.len.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut wake: Vec<Arc<dyn Wake>> = Vec::new();
        let mut exclusive = None;
        {
            let e = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
            for (id, x) in e.wanting(0, events) {
                if !x.exclusive {
                    wake.push(x.waker.clone());
                } else if exclusive.is_none() {
                    exclusive = Some((id, x.waker.clone()));
                }
            }
        }
        for w in wake {
            w.wake(events);
        }
        while let Some((id, w)) = exclusive {
            if w.wake(events) {
                return true;
            }
            exclusive = self.exclusive_after(id, events);
        }
        false
    }

    /// The next exclusive subscriber for `events`.
    fn exclusive_after(&self, id: usize, events: Events) -> Option<(usize, Arc<dyn Wake>)> {
        let e = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (id, next) = e.wanting(id, events).find(|(_, x)| x.exclusive)?;
        Some((id, next.waker.clone()))
    }

    /// True when the queue has no subscriber.
    pub fn is_empty(&self) -> bool {
        self.0.len.load(Ordering::SeqCst) == 0
    }
}

/// Keeps a subscription alive; dropping it unsubscribes.
pub struct Subscription {
    queue: Arc<Inner>,
    id: usize,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let gone = {
            let mut e = self.queue.entries.lock().unwrap_or_else(PoisonError::into_inner);
            let gone = e.remove(self.id);
            self.queue.len.store(e.live, Ordering::SeqCst);
            gone
        };
        drop(gone);
    }
}

/// Why a sleep ended without a wake-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// A signal (or exit, or stop) wants the thread's attention.
    Interrupted,
    /// The deadline passed.
    TimedOut,
}

/// The sleeping side of one thread: a wake-up token and an interrupt flag.
///
/// The interrupt flag is a level: it stays until [`Waiter::set_interrupted`]
/// clears it, and every interruptible sleep ends at once while it is set.
#[derive(Default)]
pub struct Waiter {
    thread: Mutex<Option<Thread>>,
    token: AtomicBool,
    interrupted: AtomicBool,
    asleep: AtomicBool,
    sleeps: AtomicU64,
    interrupted_deadline: Mutex<Option<Instant>>,
}

impl Waiter {
    /// A waiter not yet bound to a thread; the first sleep binds it.
    pub fn new() -> Arc<Waiter> {
        Arc::new(Waiter::default())
    }

    fn unpark(&self) {
        if let Some(t) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            t.unpark();
        }
    }

    /// Sets or clears the interrupt flag; setting it ends a sleep.
    pub fn set_interrupted(&self, on: bool) {
        self.interrupted.store(on, Ordering::SeqCst);
        if on {
            self.unpark();
        }
    }

    /// Reads the interrupt flag.
    pub fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// The deadline of the sleep that was interrupted last.
    pub fn interrupted_deadline(&self) -> Option<Instant> {
        *self.interrupted_deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the thread has slept here.
    pub fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::Relaxed)
    }

    /// True while the thread sleeps here (state S of /proc/PID/stat).
    pub fn asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Sleeps until woken, interrupted or past the deadline. Consumes one wake-up token;
    /// returns at once when one is there. May return `Ok` spuriously: check the condition again.
    pub fn sleep(&self, deadline: Option<Instant>) -> Result<(), Stop> {
        self.sleep_inner(deadline, true)
    }

    /// As `sleep`, but signals do not end it (for short, bounded waits only).
    pub fn sleep_uninterruptible(&self, deadline: Option<Instant>) -> Result<(), Stop> {
        self.sleep_inner(deadline, false)
    }

    fn sleep_inner(&self, deadline: Option<Instant>, interruptible: bool) -> Result<(), Stop> {
        {
            let mut t = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            let me = thread::current();
            if t.as_ref().map(Thread::id) != Some(me.id()) {
                *t = Some(me);
            }
        }
        let mut slept = 0;
        let end = loop {
            if self.token.swap(false, Ordering::SeqCst) {
                break Ok(());
            }
            if interruptible && self.interrupted() {
                *self.interrupted_deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
                break Err(Stop::Interrupted);
            }
            self.asleep.store(true, Ordering::Relaxed);
            slept = 1;
            match deadline {
                None => thread::park(),
                Some(d) => {
                    let now = Instant::now();
                    if now >= d {
                        break Err(Stop::TimedOut);
                    }
                    thread::park_timeout(d - now);
                }
            }
        };
        self.asleep.store(false, Ordering::Relaxed);
        // The thread alone changes it.
        self.sleeps.store(self.sleeps() + slept, Ordering::Relaxed);
        end
    }

    /// Repeats `attempt` until it gives `Some`, sleeping on `queue` for `mask` in between. An interruption or the deadline
    /// is followed by a last attempt: what was waited for may have happened before the signal that announces it.
    pub fn wait_on<T>(
        self: &Arc<Self>,
        queue: &WaitQueue,
        mask: Events,
        deadline: Option<Instant>,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> Result<T, Stop> {
        if let Some(v) = attempt() {
            return Ok(v);
        }
        let _sub = queue.subscribe(mask, self.clone());
        loop {
            if let Some(v) = attempt() {
                return Ok(v);
            }
            if let Err(stop) = self.sleep(deadline) {
                return attempt().ok_or(stop);
            }
        }
    }
}

impl Wake for Waiter {
    fn wake(&self, _events: Events) -> bool {
        let first = !self.token.swap(true, Ordering::SeqCst);
        self.unpark();
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn notify_wakes_a_sleeper() {
        let q = WaitQueue::new();
        let flag = Arc::new(AtomicBool::new(false));
        let (q2, f2) = (q.clone(), flag.clone());
        let t = thread::spawn(move || {
            let w = Waiter::new();
            w.wait_on(&q2, Events::IN, None, || f2.load(Ordering::SeqCst).then_some(7))
        });
        flag.store(true, Ordering::SeqCst);
        q.notify(Events::IN);
        assert_eq!(t.join().unwrap(), Ok(7));
        assert!(q.is_empty());
    }

    #[test]
    fn many_subscribers_end_in_any_order() {
        // A list that is searched for each would take minutes.
        let (q, w) = (WaitQueue::new(), Waiter::new());
        let mut subs: Vec<_> = (0..200_000).map(|_| q.subscribe(Events::IN, w.clone())).collect();
        subs.drain(..100_000);
        subs.reverse();
        subs.truncate(1);
        assert!(!q.is_empty());
        drop(subs);
        assert!(q.is_empty());
    }

    struct Busy(AtomicUsize);
    impl Wake for Busy {
        fn wake(&self, _events: Events) -> bool {
            self.0.fetch_add(1, Ordering::SeqCst);
            false
        }
    }

    #[test]
    fn an_exclusive_wake_up_goes_on_to_a_sleeper() {
        let q = WaitQueue::new();
        let (busy, a, b) = (Arc::new(Busy(AtomicUsize::new(0))), Waiter::new(), Waiter::new());
        let _subs = [
            q.subscribe_exclusive(Events::IN, busy.clone()),
            q.subscribe_exclusive(Events::IN, a.clone()),
            q.subscribe_exclusive(Events::IN, b.clone()),
        ];
        let woken = || [&a, &b].map(|w| w.token.load(Ordering::SeqCst));
        q.notify(Events::IN);
        assert_eq!(woken(), [true, false]);
        // The first has not run yet: the second event is for the next one.
        q.notify(Events::IN);
        assert_eq!(woken(), [true, true]);
        q.notify(Events::IN);
        assert_eq!(busy.0.load(Ordering::SeqCst), 3);
        assert_eq!(a.sleep(None), Ok(()));
        q.notify(Events::IN);
        assert_eq!(woken(), [true, true]);
    }

    #[test]
    fn the_last_look_comes_after_the_interruption() {
        let (q, w) = (WaitQueue::new(), Waiter::new());
        w.set_interrupted(true);
        // The event of the third look: one before the subscription, one before the sleep, one after it.
        let mut looks = 0;
        let third = || {
            looks += 1;
            (looks == 3).then_some(looks)
        };
        assert_eq!(w.wait_on(&q, Events::IN, None, third), Ok(3));
        assert_eq!(w.wait_on(&q, Events::IN, None, || None::<()>), Err(Stop::Interrupted));
        let mut looks = 0;
        let third = || {
            looks += 1;
            (looks == 3).then_some(looks)
        };
        w.set_interrupted(false);
        let soon = Some(Instant::now() + Duration::from_millis(1));
        assert_eq!(w.wait_on(&q, Events::IN, soon, third), Ok(3));
    }

    #[test]
    fn deadline_and_interrupt_end_a_sleep() {
        let w = Waiter::new();
        assert_eq!(w.sleep(Some(Instant::now() + Duration::from_millis(1))), Err(Stop::TimedOut));
        w.set_interrupted(true);
        assert_eq!(w.sleep(None), Err(Stop::Interrupted));
        w.set_interrupted(false);
        w.wake(Events::IN);
        assert_eq!(w.sleep(None), Ok(()));
    }
}

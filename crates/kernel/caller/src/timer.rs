//! The timer service: one thread that runs callbacks at deadlines.
//!
//! Interval timers, POSIX timers, timerfd and terminal timeouts schedule here. A
//! callback runs once, on the service's thread, without any lock of the service
//! held; it must not block (set state, notify a wait queue, post a signal) and may
//! schedule again. Deadlines are moments of the kernel's clock ([`ktime`]).
//! Lock rank: `TIMER_SERVICE`; nothing is taken inside it. A checkpoint keeps nothing of it: owners schedule anew.

use ktime::{Clock, Ktime};
use lock_order::{Condvar, Mutex, MutexGuard, rank};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type Callback = Box<dyn FnOnce() + Send>;
type Key = (Ktime, u64);

#[derive(Default)]
struct State {
    next_id: u64,
    pending: BTreeMap<Key, Callback>,
    /// The thread runs.
    started: bool,
    /// The owner is gone: the thread ends.
    over: bool,
    /// A callback runs.
    running: bool,
    /// How many [`Held`] there are.
    held: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State, { rank::TIMER_SERVICE }>,
    /// The earliest deadline changed, or callbacks may run again.
    changed: Condvar,
    /// A callback has returned.
    returned: Condvar,
    clock: Clock,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State, { rank::TIMER_SERVICE }> {
        self.state.lock()
    }
}

/// A thread with a list of deadlines, which starts with the first of them and ends with the service.
#[derive(Default)]
pub struct TimerService {
    shared: Arc<Shared>,
}

impl Drop for TimerService {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_one();
    }
}

impl TimerService {
    /// With deadlines of this clock.
    pub fn new(clock: Clock) -> TimerService {
        TimerService { shared: Arc::new(Shared { clock, ..Shared::default() }) }
    }

    /// The clock of its deadlines.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// No callback runs from here on until this is dropped: what is due runs then. Not to be called by a callback.
    pub fn hold(&self) -> Held {
        let mut s = self.shared.lock();
        s.held += 1;
        while s.running {
            self.shared.returned.wait(&mut s);
        }
        drop(s);
        Held(self.shared.clone())
    }

    fn start(&self) {
        let s = self.shared.clone();
        if let Err(e) = std::thread::Builder::new().name("timers".into()).spawn(move || {
            hostsys::cpu::roam();
            run(&s);
        }) {
            log::error!("timer thread: {e}; nothing that needs a timer will fire");
        }
    }

    /// How long something that goes on by itself waits at least: all that is pending could run that often and leave the
    /// thread half of its time.
    pub fn shortest_period(&self) -> Duration {
        let pending = self.shared.lock().pending.len();
        Duration::from_micros(10 + 4 * pending as u64)
    }

    /// Runs `callback` as soon as what is due has run; it cannot be cancelled.
    pub fn post(&self, callback: impl FnOnce() + Send + 'static) {
        self.insert(self.clock().now(), Box::new(callback));
    }

    /// Runs `callback` at `deadline` (at once when that has passed). Dropping the handle cancels.
    #[must_use = "dropping the handle cancels the timer"]
    pub fn schedule(&self, deadline: Ktime, callback: impl FnOnce() + Send + 'static) -> TimerHandle {
        TimerHandle { shared: self.shared.clone(), key: self.insert(deadline, Box::new(callback)) }
    }

    /// Runs `callback` when `delay` has passed. Dropping the handle cancels.
    #[must_use = "dropping the handle cancels the timer"]
    pub fn schedule_after(&self, delay: Duration, callback: impl FnOnce() + Send + 'static) -> TimerHandle {
        self.schedule(self.clock().now().plus(delay), callback)
    }

    fn insert(&self, deadline: Ktime, callback: Callback) -> Key {
        let mut s = self.shared.lock();
        if !std::mem::replace(&mut s.started, true) {
            self.start();
        }
        s.next_id += 1;
        let key = (deadline, s.next_id);
        let first = s.pending.first_key_value().is_none_or(|(k, _)| key < *k);
        s.pending.insert(key, callback);
        drop(s);
        if first {
            self.shared.changed.notify_one();
        }
        key
    }
}

fn run(shared: &Shared) {
    let mut s = shared.lock();
    loop {
        if s.over {
            let pending = std::mem::take(&mut s.pending);
            drop(s);
            drop(pending);
            return;
        }
        if s.held > 0 {
            shared.changed.wait(&mut s);
            continue;
        }
        let Some((&key, _)) = s.pending.first_key_value() else {
            shared.changed.wait(&mut s);
            continue;
        };
        if key.0 > shared.clock.now() {
            shared.changed.wait_until(&mut s, shared.clock.instant(key.0));
            continue;
        }
        let callback = s.pending.remove(&key);
        s.running = true;
        drop(s);
        if let Some(f) = callback {
            f();
        }
        s = shared.lock();
        s.running = false;
        if s.held > 0 {
            shared.returned.notify_all();
        }
    }
}

/// Callbacks wait until this is dropped. See [`TimerService::hold`].
pub struct Held(Arc<Shared>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lock().held -= 1;
        self.0.changed.notify_one();
    }
}

/// A scheduled callback. Dropping it cancels the callback if it has not started.
pub struct TimerHandle {
    shared: Arc<Shared>,
    key: Key,
}

impl TimerHandle {
    /// When the callback runs.
    pub fn deadline(&self) -> Ktime {
        self.key.0
    }
}

impl Drop for TimerHandle {
    fn drop(&mut self) {
        // The closure is dropped outside the lock: it may own what schedules or cancels timers.
        let gone = self.shared.lock().pending.remove(&self.key);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Instant;

    #[test]
    fn fires_in_order_and_cancels() {
        let t = TimerService::default();
        let (tx, rx) = mpsc::channel();
        let (now, start) = (t.clock().now(), Instant::now());
        let fire = |n: i32, ms: u64| {
            let tx = tx.clone();
            t.schedule(now.plus(Duration::from_millis(ms)), move || tx.send(n).unwrap())
        };
        let _b = fire(2, 40);
        let _a = fire(1, 10);
        let c = fire(3, 20);
        drop(c);
        assert_eq!(rx.recv_timeout(Duration::from_secs(5)), Ok(1));
        assert_eq!(rx.recv_timeout(Duration::from_secs(5)), Ok(2));
        assert!(start.elapsed() >= Duration::from_millis(40));
        assert!(rx.recv_timeout(Duration::from_millis(5)).is_err());
    }

    #[test]
    fn what_is_due_waits_while_it_is_held() {
        let t = TimerService::default();
        let (tx, rx) = mpsc::channel();
        let began = tx.clone();
        t.post(move || {
            began.send(1).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            began.send(2).unwrap();
        });
        assert_eq!(rx.recv_timeout(Duration::from_secs(5)), Ok(1));
        let held = t.hold();
        // The one that ran has returned.
        assert_eq!(rx.try_recv(), Ok(2));
        t.post(move || tx.send(3).unwrap());
        assert!(rx.recv_timeout(Duration::from_millis(20)).is_err());
        drop(held);
        assert_eq!(rx.recv_timeout(Duration::from_secs(5)), Ok(3));
    }

    #[test]
    fn the_thread_ends_with_its_owner() {
        let t = TimerService::default();
        let owned = Arc::new(());
        let weak = Arc::downgrade(&owned);
        let handle = t.schedule_after(Duration::from_secs(3600), move || drop(owned));
        drop(t);
        let late = Instant::now() + Duration::from_secs(5);
        while weak.upgrade().is_some() && Instant::now() < late {
            std::thread::yield_now();
        }
        assert!(weak.upgrade().is_none());
        drop(handle);
    }
}

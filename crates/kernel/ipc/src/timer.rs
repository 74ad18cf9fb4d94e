//! The timer service: one thread that runs callbacks at deadlines.
//!
//! Interval timers, POSIX timers, timerfd and terminal timeouts schedule here. A
//! callback runs once, on the service's thread, without any lock of the service
//! held; it must not block (set state, notify a wait queue, post a signal) and may
//! schedule again. Deadlines are moments of CLOCK_MONOTONIC.
//! Lock rank: leaf. A checkpoint keeps nothing of it: owners schedule anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

type Callback = Box<dyn FnOnce() + Send>;
type Key = (Instant, u64);

#[derive(Default)]
struct State {
    next_id: u64,
    pending: BTreeMap<Key, Callback>,
    /// Entry whose callback is being run.
    running: Option<u64>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The earliest deadline changed.
    changed: Condvar,
    /// A callback returned.
    done: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread with a list of deadlines.
pub struct TimerService {
    shared: Arc<Shared>,
}

impl TimerService {
    /// The sentry's timer service; its thread starts with the first use.
    pub fn global() -> &'static TimerService {
        static GLOBAL: OnceLock<TimerService> = OnceLock::new();
        GLOBAL.get_or_init(TimerService::start)
    }

    fn start() -> TimerService {
        let shared = Arc::new(Shared::default());
        let s = shared.clone();
        if let Err(e) = std::thread::Builder::new().name("timers".into()).spawn(move || {
            hostsys::cpu::roam();
            run(&s);
        }) {
            log::error!("timer thread: {e}; nothing that needs a timer will fire");
        }
        TimerService { shared }
    }

    /// How long something that goes on by itself waits at least: all that is pending could run that often and leave the
    /// thread half of its time.
    pub fn shortest_period(&self) -> Duration {
        let pending = self.shared.lock().pending.len();
        Duration::from_micros(10 + 4 * pending as u64)
    }

    /// Runs `callback` at `deadline` (at once when that has passed). Dropping the handle cancels.
    #[must_use = "dropping the handle cancels the timer"]
    pub fn schedule(&self, deadline: Instant, callback: impl FnOnce() + Send + 'static) -> TimerHandle {
        let mut s = self.shared.lock();
        s.next_id += 1;
        let key = (deadline, s.next_id);
        let first = s.pending.first_key_value().is_none_or(|(k, _)| key < *k);
        s.pending.insert(key, Box::new(callback));
        drop(s);
        if first {
            self.shared.changed.notify_one();
        }
        TimerHandle { shared: self.shared.clone(), key }
    }
}

fn run(shared: &Shared) {
    let mut s = shared.lock();
    loop {
        let Some((&key, _)) = s.pending.first_key_value() else {
            s = shared.changed.wait(s).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let now = Instant::now();
        if key.0 > now {
            s = shared.changed.wait_timeout(s, key.0 - now).unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        let callback = s.pending.remove(&key);
        s.running = Some(key.1);
        drop(s);
        if let Some(f) = callback {
            f();
        }
        s = shared.lock();
        s.running = None;
        shared.done.notify_all();
    }
}

/// A scheduled callback. Dropping it cancels the callback if it has not started.
pub struct TimerHandle {
    shared: Arc<Shared>,
    key: Key,
}

impl TimerHandle {
    /// When the callback runs.
    pub fn deadline(&self) -> Instant {
        self.key.0
    }

    /// Cancels, and waits for the callback to return when it is just running. Must not be called
    /// with a lock held that the callback takes, nor from the callback.
    pub fn cancel_sync(self) {
        let mut s = self.shared.lock();
        let gone = s.pending.remove(&self.key);
        while s.running == Some(self.key.1) {
            s = self.shared.done.wait(s).unwrap_or_else(PoisonError::into_inner);
        }
        drop(s);
        drop(gone);
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

    #[test]
    fn fires_in_order_and_cancels() {
        let t = TimerService::global();
        let (tx, rx) = mpsc::channel();
        let now = Instant::now();
        let fire = |n: i32, ms: u64| {
            let tx = tx.clone();
            t.schedule(now + Duration::from_millis(ms), move || tx.send(n).unwrap())
        };
        let _b = fire(2, 40);
        let _a = fire(1, 10);
        let c = fire(3, 20);
        drop(c);
        assert_eq!(rx.recv_timeout(Duration::from_secs(5)), Ok(1));
        assert_eq!(rx.recv_timeout(Duration::from_secs(5)), Ok(2));
        assert!(now.elapsed() >= Duration::from_millis(40));
        assert!(rx.recv_timeout(Duration::from_millis(5)).is_err());
    }

    #[test]
    fn cancel_sync_waits_for_a_running_callback() {
        let t = TimerService::global();
        let (tx, rx) = mpsc::channel();
        let h = t.schedule(Instant::now(), move || {
            tx.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            tx.send(()).unwrap();
        });
        rx.recv().unwrap();
        h.cancel_sync();
        assert_eq!(rx.try_recv(), Ok(()));
    }
}

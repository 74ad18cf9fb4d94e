//! POSIX timers of a process. See timer_create(2), timer_getoverrun(2).
//!
//! Timers of the host's clocks run on the timer service. Like Linux, a periodic one is armed again when its signal is delivered, not
//! before: however short the period is, it costs no more than its signals do. Those of processor time are sampled: the service looks again when the
//! remaining time could have passed. The clock of a thread is only known to the thread itself, so the service has the thread
//! look. Signals are sent without a timer's lock.

mod state;

use crate::current::Current;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use crate::timers::{Which, wait_for};
use abi::{Errno, Result, SigInfo, Signal};
use caller::HasCredentials;
use caller::timer::TimerHandle;
use ranked::{Mutex, rank};
use signal::{Charge, Expiry};
pub use state::{ClockState, PosixTimerState, PosixTimersState};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How a POSIX timer tells of its expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// SIGEV_NONE.
    None,
    /// SIGEV_SIGNAL: the process.
    Process(Signal),
    /// SIGEV_THREAD_ID: one thread.
    Thread(Signal, i32),
}

impl Notify {
    fn signal(self) -> Option<Signal> {
        match self {
            Notify::None => None,
            Notify::Process(sig) | Notify::Thread(sig, _) => Some(sig),
        }
    }
}

/// What a timer counts.
#[derive(Clone)]
pub enum Clock {
    /// A clock of the host.
    Host(i32),
    /// Processor time of a process; true for user time alone.
    Process(Weak<ThreadGroup>, bool),
    /// Processor time of a thread of the timer's own process; true for user time alone.
    Thread(i32, bool),
}

/// The timers of a process.
#[derive(Default)]
pub struct PosixTimers(Mutex<Table>);

#[derive(Default)]
struct Table {
    timers: BTreeMap<i32, Arc<PosixTimer>>,
    next: i32,
}

impl Table {
    /// Ids ascend, and are used again after the last one only.
    fn free_id(&mut self) -> Option<i32> {
        for _ in 0..=self.timers.len() {
            let id = self.next;
            self.next = id.checked_add(1).unwrap_or(0);
            if !self.timers.contains_key(&id) {
                return Some(id);
            }
        }
        None
    }
}

/// A timer made by timer_create(2).
pub struct PosixTimer {
    id: i32,
    clock: Clock,
    notify: Notify,
    value: u64,
    group: Weak<ThreadGroup>,
    state: Mutex<State, { rank::POSIX_TIMER }>,
    _charge: Charge,
}

#[derive(Default)]
struct State {
    handle: Option<TimerHandle>,
    /// Changes with every setting: callbacks and signals of an earlier one do nothing.
    serial: u64,
    deadline: u64,
    interval: u64,
    /// The signal of an expiry is pending.
    queued: bool,
    /// The last expiry's signal was ignored: the timer goes on when the signal gets an action.
    ignored: bool,
    overrun: i32,
    /// Overruns of the expiry delivered last, for timer_getoverrun(2).
    last_overrun: i32,
}

impl signal::Timer for PosixTimer {
    fn id(&self) -> i32 {
        self.id
    }

    fn deliver(self: Arc<Self>, serial: u64, info: &mut SigInfo) -> bool {
        let mut s = self.state.lock();
        if s.serial != serial {
            return false;
        }
        s.queued = false;
        self.go_on(&mut s);
        s.last_overrun = std::mem::take(&mut s.overrun);
        let told = SigInfo::timer(Signal::SIGALRM, self.id, s.last_overrun, self.value);
        info.fields = told.fields;
        true
    }

    fn is_current(&self, serial: u64) -> bool {
        self.state.lock().serial == serial
    }

    fn discard(&self, serial: u64) {
        let mut s = self.state.lock();
        if s.serial == serial {
            s.queued = false;
            s.ignored = true;
        }
    }
}

impl PosixTimers {
    /// timer_create(2): `value` is sigev_value, `None` for the timer's own id.
    pub fn create(&self, c: &Current, clock: Clock, notify: Notify, value: Option<u64>) -> Result<i32> {
        let g = &c.task.group;
        let limit = g.rlimit(libc::RLIMIT_SIGPENDING as i32);
        let charge = c.kernel().queued.charge(c.creds().uid, limit).ok_or(Errno::EAGAIN)?;
        let mut t = self.0.lock();
        let id = t.free_id().ok_or(Errno::EAGAIN)?;
        let timer = PosixTimer {
            id,
            clock,
            notify,
            value: value.unwrap_or(id as u64),
            group: Arc::downgrade(g),
            state: Mutex::default(),
            _charge: charge,
        };
        t.timers.insert(id, Arc::new(timer));
        Ok(id)
    }

    /// The timer with this id; EINVAL when there is none.
    pub fn find(&self, id: i32) -> Result<Arc<PosixTimer>> {
        self.0.lock().timers.get(&id).cloned().ok_or(Errno::EINVAL)
    }

    /// timer_delete(2).
    pub fn delete(&self, id: i32) -> Result<()> {
        let t = self.0.lock().timers.remove(&id).ok_or(Errno::EINVAL)?;
        t.disarm();
        Ok(())
    }

    /// Deletes all.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut self.0.lock().timers);
        gone.values().for_each(|t| t.disarm());
    }

    /// A signal that may have been ignored until now gets an action: its timers go on.
    pub fn unignore(&self, sig: Signal) {
        let of = |t: &&Arc<PosixTimer>| t.notify.signal() == Some(sig);
        let own: Vec<_> = self.0.lock().timers.values().filter(of).cloned().collect();
        for t in own {
            let mut s = t.state.lock();
            if std::mem::take(&mut s.ignored) {
                s.overrun = 0;
                t.go_on(&mut s);
            }
        }
    }

    /// The timers that count a thread's processor time.
    fn of_thread(&self, tid: i32) -> Vec<Arc<PosixTimer>> {
        let t = self.0.lock();
        let of = |t: &&Arc<PosixTimer>| matches!(t.clock, Clock::Thread(id, _) if id == tid);
        t.timers.values().filter(of).cloned().collect()
    }
}

impl Current {
    /// Looks at the timers that count this thread's processor time.
    pub(crate) fn look_at_own_timers(&mut self) {
        for t in self.task.group.timers.posix.of_thread(self.task.tid()) {
            let now = t.now(self);
            let serial = t.state.lock().serial;
            t.look(serial, now);
        }
    }
}

fn sum(user_alone: bool, (user, system): (u64, u64)) -> u64 {
    if user_alone { user } else { user.saturating_add(system) }
}

impl PosixTimer {
    /// Nanoseconds of the timer's clock.
    fn now(&self, c: &mut Current) -> u64 {
        match &self.clock {
            Clock::Thread(tid, user) => {
                let tid = *tid;
                let task = c.kernel().task(tid);
                task.map_or(0, |t| sum(*user, c.times_of(&t)))
            }
            _ => self.now_from_outside(),
        }
    }

    /// As [`PosixTimer::now`], the last that was known for a thread's clock.
    fn now_from_outside(&self) -> u64 {
        match &self.clock {
            Clock::Host(c) => hostsys::clock::gettime_ns(*c).unwrap_or(0) as u64,
            Clock::Process(g, user) => g.upgrade().map_or(0, |g| sum(*user, g.cpu_times())),
            Clock::Thread(_, user) => {
                self.thread().map_or(0, |t| sum(*user, (t.last_user_time(), t.sentry_time())))
            }
        }
    }

    /// The moment of the timer's clock that the caller's time namespace shows as `at`, in nanoseconds; 0 for one before the
    /// clock's zero.
    pub fn host_time(&self, c: &Current, at: u64) -> u64 {
        let Clock::Host(clock) = self.clock else { return at };
        match c.clock_offset(clock) {
            offset if offset < 0 => at.saturating_add(offset.unsigned_abs()).min(i64::MAX as u64),
            offset => at.saturating_sub(offset.unsigned_abs()),
        }
    }

    fn thread(&self) -> Option<Arc<Task>> {
        let Clock::Thread(tid, _) = &self.clock else { return None };
        self.group.upgrade()?.threads().into_iter().find(|t| t.tid() == *tid)
    }

    /// Remaining time and interval in nanoseconds.
    pub fn get(&self, c: &mut Current) -> (u64, u64) {
        let now = self.now(c);
        let s = self.state.lock();
        let left = match s.deadline.checked_sub(now).filter(|left| *left > 0) {
            _ if s.deadline == 0 => 0,
            Some(left) => left,
            // One that is not armed until its signal is delivered, or that tells nobody: the next expiry is computed.
            None if s.handle.is_none() => match (now - s.deadline).checked_rem(s.interval) {
                Some(since) => s.interval - since,
                None => 0,
            },
            None => 1,
        };
        (left, s.interval)
    }

    /// timer_getoverrun(2).
    pub fn reported_overrun(&self) -> i32 {
        self.state.lock().last_overrun
    }

    /// timer_settime(2); gives the old setting.
    pub fn set(self: &Arc<Self>, c: &mut Current, value: u64, interval: u64, absolute: bool) -> (u64, u64) {
        let old = self.get(c);
        let now = self.now(c);
        self.disarm();
        let mut s = self.state.lock();
        s.interval = interval;
        s.deadline = match (value, absolute) {
            (0, _) => 0,
            (v, true) => v,
            (v, false) => now.saturating_add(v),
        };
        if s.deadline != 0 && !matches!(self.notify, Notify::None) {
            let left = s.deadline.saturating_sub(now);
            s.handle = self.schedule(s.serial, left);
        }
        old
    }

    /// Arms a periodic timer of a host's clock again after its signal. What passed meanwhile are overruns.
    fn go_on(self: &Arc<Self>, s: &mut State) {
        if s.deadline == 0 || s.handle.is_some() || s.interval == 0 {
            return;
        }
        let now = self.now_from_outside();
        if let Some(late) = now.checked_sub(s.deadline) {
            let missed = late / s.interval + 1;
            s.overrun = s.overrun.saturating_add(missed.min(i32::MAX as u64) as i32);
            s.deadline = s.deadline.saturating_add(missed.saturating_mul(s.interval));
        }
        s.handle = self.schedule(s.serial, s.deadline.saturating_sub(now));
    }

    /// Whether expiries while the last one's signal is pending are counted when that is delivered.
    fn waits_for_delivery(&self) -> bool {
        matches!(self.clock, Clock::Host(_))
    }

    fn disarm(&self) {
        let gone = {
            let mut s = self.state.lock();
            s.serial += 1;
            s.deadline = 0;
            s.queued = false;
            s.ignored = false;
            s.overrun = 0;
            s.handle.take()
        };
        drop(gone);
    }

    /// `None` once the process is gone.
    fn schedule(self: &Arc<Self>, serial: u64, left: u64) -> Option<TimerHandle> {
        let timers = self.group.upgrade()?.kernel.vfs.resources.timers.clone();
        let me = Arc::downgrade(self);
        let after = match self.clock {
            Clock::Host(_) => Duration::from_nanos(left),
            _ => wait_for(&timers, Which::Prof, left),
        };
        Some(timers.schedule(Instant::now() + after, move || {
            if let Some(t) = me.upgrade() {
                t.look_again(serial);
            }
        }))
    }

    /// The time may be over.
    fn look_again(self: &Arc<Self>, serial: u64) {
        if let Some(t) = self.thread() {
            // One that sleeps uses no time, and has looked before.
            if !t.is_sleeping() {
                t.own_timers.store(true, Ordering::SeqCst);
                t.interrupt_guest();
            }
        }
        self.look(serial, self.now_from_outside());
    }

    /// Judges the setting with this serial number at this moment of the timer's clock.
    fn look(self: &Arc<Self>, serial: u64, now: u64) {
        let Some(g) = self.group.upgrade() else { return };
        let mut s = self.state.lock();
        if s.serial != serial || s.deadline == 0 {
            return;
        }
        let mut expired = 0u64;
        if s.deadline <= now {
            expired = 1;
            match (now - s.deadline).checked_div(s.interval) {
                None => {
                    s.deadline = 0;
                    s.handle = None;
                }
                Some(missed) => {
                    expired += missed;
                    s.deadline = s.deadline.saturating_add(expired.saturating_mul(s.interval));
                }
            }
        }
        // Dropped after the lock: it may be what this runs on.
        let _old = if expired > 0 && self.waits_for_delivery() {
            s.handle.take()
        } else if s.deadline != 0 {
            let h = self.schedule(serial, s.deadline.saturating_sub(now));
            std::mem::replace(&mut s.handle, h)
        } else {
            None
        };
        drop(s);
        if expired > 0 {
            self.tell(&g, serial, expired);
        }
    }

    /// Sends the signal, or counts overruns while the last one is pending.
    fn tell(self: &Arc<Self>, g: &ThreadGroup, serial: u64, expired: u64) {
        let (sig, to): (Signal, Option<Arc<Task>>) = match self.notify {
            Notify::None => return,
            Notify::Process(sig) => (sig, None),
            Notify::Thread(sig, tid) => match g.threads().into_iter().find(|t| t.tid() == tid) {
                Some(t) => (sig, Some(t)),
                None => return,
            },
        };
        {
            let mut s = self.state.lock();
            if s.serial != serial {
                return;
            }
            let more = if s.queued { expired } else { expired - 1 };
            s.overrun = s.overrun.saturating_add(more.min(i32::MAX as u64) as i32);
            if std::mem::replace(&mut s.queued, true) {
                return;
            }
        }
        let info = SigInfo::timer(sig, self.id, 0, self.value);
        let expiry = Expiry { timer: self.clone(), serial };
        if let Err(unsent) = crate::send::send_expiry(g, to.as_deref(), info, expiry) {
            unsent.discard();
        }
    }
}

//! POSIX timers of a process. See timer_create(2), timer_getoverrun(2).
//!
//! Timers of the host's clocks run on the timer service. Like Linux, a periodic one is armed again when its signal is delivered, not
//! before: however short the period is, it costs no more than its signals do. Those of processor time are sampled: the service looks again when the
//! remaining time could have passed. The clock of a thread is only known to the thread itself, so the service has the thread
//! look. Signals are sent without a timer's lock.

use crate::process::{Process, Thread};
use crate::sample::sampled;
use abi::{Errno, Result, SigInfo, Signal};
use caller::timer::TimerHandle;
use lock_order::{Mutex, rank};
use signal::{Charge, Expiry};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How a POSIX timer notifies of its expiry (SIGEV_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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
pub enum Clock<P> {
    /// A clock of the host.
    Host(i32),
    /// Processor time of a process; true for user time alone.
    Process(Weak<P>, bool),
    /// Processor time of a thread of the timer's own process; true for user time alone.
    Thread(i32, bool),
}

/// The timers of a process.
pub struct PosixTimers<P>(pub(crate) Mutex<Table<P>>);

pub(crate) struct Table<P> {
    pub(crate) timers: BTreeMap<i32, Arc<PosixTimer<P>>>,
    /// The ID that is tried next.
    pub(crate) next: i32,
}

impl<P> Default for PosixTimers<P> {
    fn default() -> PosixTimers<P> {
        PosixTimers(Mutex::new(Table { timers: BTreeMap::new(), next: 0 }))
    }
}

impl<P> Table<P> {
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
pub struct PosixTimer<P> {
    pub(crate) id: i32,
    pub(crate) clock: Clock<P>,
    pub(crate) notify: Notify,
    pub(crate) value: u64,
    pub(crate) process: Weak<P>,
    pub(crate) state: Mutex<State, { rank::POSIX_TIMER }>,
    pub(crate) _charge: Charge,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) handle: Option<TimerHandle>,
    /// Changes with every setting: callbacks and signals of an earlier one do nothing.
    pub(crate) serial: u64,
    pub(crate) deadline: u64,
    pub(crate) interval: u64,
    /// The signal of an expiry is pending.
    pub(crate) queued: bool,
    /// The last expiry's signal was ignored: the timer goes on when the signal gets an action.
    pub(crate) ignored: bool,
    pub(crate) overrun: i32,
    /// Overruns of the expiry delivered last, for timer_getoverrun(2).
    pub(crate) last_overrun: i32,
}

impl<P: Process> PosixTimer<P> {
    /// What the pending signal of its present setting tells of.
    pub fn expiry(self: &Arc<Self>) -> signal::Expiry {
        signal::Expiry { timer: self.clone(), serial: self.state.lock().serial }
    }
}

impl<P: Process> signal::Timer for PosixTimer<P> {
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

impl<P: Process> PosixTimers<P> {
    /// timer_create(2): `value` is sigev_value, `None` for the timer's own id. `charge` is what the timer counts as of its user's
    /// RLIMIT_SIGPENDING. EAGAIN.
    pub fn create(
        &self,
        process: &Arc<P>,
        charge: Charge,
        clock: Clock<P>,
        notify: Notify,
        value: Option<u64>,
    ) -> Result<i32> {
        let mut t = self.0.lock();
        let id = t.free_id().ok_or(Errno::EAGAIN)?;
        let timer = PosixTimer {
            id,
            clock,
            notify,
            value: value.unwrap_or(id as u64),
            process: Arc::downgrade(process),
            state: Mutex::default(),
            _charge: charge,
        };
        t.timers.insert(id, Arc::new(timer));
        Ok(id)
    }

    /// The timer with this id; EINVAL when there is none.
    pub fn find(&self, id: i32) -> Result<Arc<PosixTimer<P>>> {
        self.0.lock().timers.get(&id).cloned().ok_or(Errno::EINVAL)
    }

    /// timer_delete(2).
    pub fn delete(&self, id: i32) -> Result<()> {
        let t = self.0.lock().timers.remove(&id).ok_or(Errno::EINVAL)?;
        t.disarm();
        Ok(())
    }

    /// Deletes all.
    pub fn clear(&self) {
        let gone = std::mem::take(&mut self.0.lock().timers);
        gone.values().for_each(|t| t.disarm());
    }

    /// A signal that may have been ignored until now gets an action: its timers go on.
    pub fn unignore(&self, sig: Signal) {
        let of = |t: &&Arc<PosixTimer<P>>| t.notify.signal() == Some(sig);
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
    fn of_thread(&self, tid: i32) -> Vec<Arc<PosixTimer<P>>> {
        let t = self.0.lock();
        let of = |t: &&Arc<PosixTimer<P>>| matches!(t.clock, Clock::Thread(id, _) if id == tid);
        t.timers.values().filter(of).cloned().collect()
    }
}

impl<P: Process> PosixTimers<P> {
    /// Looks at the timers that count the processor time of the calling thread `tid`.
    pub fn look_at_own(&self, tid: i32, thread: &mut impl Thread) {
        for t in self.of_thread(tid) {
            let now = t.now(thread);
            let serial = t.state.lock().serial;
            t.look(serial, now);
        }
    }
}

fn sum(user_alone: bool, (user, system): (u64, u64)) -> u64 {
    if user_alone { user } else { user.saturating_add(system) }
}

impl<P: Process> PosixTimer<P> {
    /// Nanoseconds of the timer's clock.
    fn now(&self, c: &mut impl Thread) -> u64 {
        match &self.clock {
            Clock::Thread(tid, user) => c.times_of(*tid).map_or(0, |times| sum(*user, times)),
            _ => self.now_from_outside(),
        }
    }

    /// As [`PosixTimer::now`], for a thread's clock as it was read last.
    pub(crate) fn now_from_outside(&self) -> u64 {
        match &self.clock {
            Clock::Host(c) => hostsys::clock::gettime_ns(*c).unwrap_or(0) as u64,
            Clock::Process(g, user) => g.upgrade().map_or(0, |g| sum(*user, g.cpu_times())),
            Clock::Thread(tid, user) => {
                let process = self.process.upgrade();
                process.and_then(|p| p.last_times_of(*tid)).map_or(0, |times| sum(*user, times))
            }
        }
    }

    /// The moment of the timer's clock that the caller's time namespace shows as `at`, in nanoseconds; 0 for one before the
    /// clock's zero.
    pub fn host_time(&self, c: &impl Thread, at: u64) -> u64 {
        let Clock::Host(clock) = self.clock else { return at };
        match c.clock_offset(clock) {
            offset if offset < 0 => at.saturating_add(offset.unsigned_abs()).min(i64::MAX as u64),
            offset => at.saturating_sub(offset.unsigned_abs()),
        }
    }

    /// Remaining time and interval in nanoseconds.
    pub fn get(&self, c: &mut impl Thread) -> (u64, u64) {
        let now = self.now(c);
        let s = self.state.lock();
        let left = match s.deadline.checked_sub(now).filter(|left| *left > 0) {
            _ if s.deadline == 0 => 0,
            Some(left) => left,
            // One that is not armed until its signal is delivered, or that has no signal: the next expiry is computed.
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
    pub fn set(
        self: &Arc<Self>,
        c: &mut impl Thread,
        value: u64,
        interval: u64,
        absolute: bool,
    ) -> (u64, u64) {
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
    pub(crate) fn schedule(self: &Arc<Self>, serial: u64, left: u64) -> Option<TimerHandle> {
        let timers = self.process.upgrade()?.timer_service().clone();
        let me = Arc::downgrade(self);
        let after = match self.clock {
            Clock::Host(_) => Duration::from_nanos(left),
            _ => sampled(&timers, left),
        };
        Some(timers.schedule_after(after, move || {
            if let Some(t) = me.upgrade() {
                t.look_again(serial);
            }
        }))
    }

    /// The time may be over.
    fn look_again(self: &Arc<Self>, serial: u64) {
        if let Clock::Thread(tid, _) = &self.clock
            && let Some(process) = self.process.upgrade()
        {
            process.have_thread_look(*tid);
        }
        self.look(serial, self.now_from_outside());
    }

    /// Judges the setting with this serial number at this moment of the timer's clock.
    fn look(self: &Arc<Self>, serial: u64, now: u64) {
        let Some(process) = self.process.upgrade() else { return };
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
            self.notify(&process, serial, expired);
        }
    }

    /// Sends the signal, or counts overruns while the last one is pending.
    fn notify(self: &Arc<Self>, process: &P, serial: u64, expired: u64) {
        let (sig, to) = match self.notify {
            Notify::None => return,
            Notify::Process(sig) => (sig, None),
            Notify::Thread(sig, tid) if process.has_thread(tid) => (sig, Some(tid)),
            Notify::Thread(..) => return,
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
        if let Err(unsent) = process.send_expiry(to, info, expiry) {
            unsent.discard();
        }
    }
}

//! timerfd_create(2) and its relatives.
//!
//! The next expiry is kept in the timer's own clock; the timer service only wakes waiters. Ticks are counted at the
//! next read, so a periodic timer that is never read costs one wake-up, not one a period. Lock rank: leaf; the timer
//! service and the wait queue are called without it. A checkpoint keeps clock, setting and ticks.

use crate::clock::Clock;
use abi::time::{Itimerspec, Timespec};
use abi::{Errno, Result};
use caller::UserMemory;
use caller::timer::{TimerHandle, TimerService};
use lock_order::{Mutex, rank};
use rights::Cap;
use std::any::Any;
use std::sync::{Arc, Weak};
use vfs::{Caller, FileOps, OpenFile};
use wait::{Events, WaitQueue};

/// `_IOW('T', 0, u64)`: sets the number of ticks.
const TFD_IOC_SET_TICKS: u32 = 0x4008_5400;

/// The arithmetic of a timer, on one clock, in nanoseconds.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Schedule {
    /// Next expiry; `None` when disarmed.
    pub next: Option<i64>,
    /// Period, 0 for a single expiry.
    pub interval: i64,
}

impl Schedule {
    /// Moves past every expiry up to `now` and returns how many there were.
    pub fn advance(&mut self, now: i64) -> u64 {
        let Some(next) = self.next else { return 0 };
        if now < next {
            return 0;
        }
        if self.interval == 0 {
            self.next = None;
            return 1;
        }
        let n = (now - next) / self.interval + 1;
        self.next = Some(next.saturating_add(n.saturating_mul(self.interval)));
        n as u64
    }

    /// The setting as timerfd_gettime(2) and timer_gettime(2) show it: time left and period.
    pub fn left(&self, now: i64) -> Itimerspec {
        let value = self.next.map_or(0, |n| (n - now).max(1));
        Itimerspec { interval: Timespec::from_ns(self.interval), value: Timespec::from_ns(value) }
    }

    /// From a new setting, with `value` relative to `now` or absolute. EINVAL for bad times.
    pub fn new(set: &Itimerspec, absolute: bool, now: i64) -> Result<Schedule> {
        let value = set.value.to_duration()?;
        let interval = set.interval.to_duration()?;
        let ns = |d: std::time::Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
        if value.is_zero() {
            return Ok(Schedule { next: None, interval: ns(interval) });
        }
        let at = if absolute { ns(value) } else { now.saturating_add(ns(value)) };
        Ok(Schedule { next: Some(at), interval: ns(interval) })
    }
}

#[derive(Default)]
struct State {
    schedule: Schedule,
    ticks: u64,
    settime_flags: i32,
    handle: Option<TimerHandle>,
}

/// A timerfd as plain data, for a checkpoint. Whether it blocks is the open file's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TimerFdState {
    /// CLOCK_* that it was made with.
    pub clock_id: i32,
    /// The setting, in nanoseconds of that clock.
    pub schedule: Schedule,
    /// What the clock showed when the setting was taken. One that is not of CLOCK_REALTIME and absolute goes on with what
    /// then remained: clocks of another host show something else.
    pub now: i64,
    /// Expiries that have not been read.
    pub ticks: u64,
    /// TFD_TIMER_* of the setting.
    pub settime_flags: i32,
}

/// The timer behind a timerfd.
pub struct TimerFd {
    clock: Clock,
    clock_id: i32,
    state: Mutex<State, { rank::TIMER }>,
    queue: WaitQueue,
    timers: Arc<TimerService>,
    me: Weak<TimerFd>,
}

impl TimerFd {
    /// timerfd_create(2).
    pub fn create(cx: &dyn Caller, clock_id: i32, flags: i32) -> Result<Arc<OpenFile>> {
        if flags & !(libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        let clock = Clock::from_id(clock_id)?;
        let alarm = matches!(clock_id, libc::CLOCK_REALTIME_ALARM | libc::CLOCK_BOOTTIME_ALARM);
        if alarm && !cx.creds().capable(Cap::WAKE_ALARM) {
            return Err(Errno::EPERM);
        }
        let ops = TimerFd::new(clock, clock_id, State::default(), cx.resources().timers.clone());
        let keep = flags & libc::TFD_NONBLOCK;
        Ok(OpenFile::new(None, Some(cx.vfs().anonymous_inode()), ops, libc::O_RDWR | keep))
    }

    fn new(clock: Clock, clock_id: i32, state: State, timers: Arc<TimerService>) -> Arc<TimerFd> {
        let (state, queue) = (Mutex::new(state), WaitQueue::new());
        Arc::new_cyclic(|me| TimerFd { clock, clock_id, state, queue, timers, me: me.clone() })
    }

    /// As plain data.
    pub fn state(&self) -> TimerFdState {
        let now = self.clock.now_ns();
        let mut s = self.state.lock();
        s.ticks = s.ticks.saturating_add(s.schedule.advance(now));
        let State { schedule, ticks, settime_flags, .. } = *s;
        TimerFdState { clock_id: self.clock_id, schedule, now, ticks, settime_flags }
    }

    /// Back from plain data, running on `timers`. EINVAL for a clock that there is none of, and for a
    /// setting that there cannot be.
    pub fn restore(saved: TimerFdState, timers: &Arc<TimerService>) -> Result<Arc<TimerFd>> {
        let clock = Clock::from_id(saved.clock_id)?;
        if saved.schedule.interval < 0 || saved.schedule.next.is_some_and(|next| next < 0) {
            return Err(Errno::EINVAL);
        }
        let absolute = saved.settime_flags & libc::TFD_TIMER_ABSTIME != 0 && clock == Clock::Realtime;
        let passed = if absolute { 0 } else { clock.now_ns().saturating_sub(saved.now) };
        let next = saved.schedule.next.map(|next| next.saturating_add(passed));
        let schedule = Schedule { next, ..saved.schedule };
        let state = State { schedule, ticks: saved.ticks, settime_flags: saved.settime_flags, handle: None };
        let timer = TimerFd::new(clock, saved.clock_id, state, timers.clone());
        let mut s = timer.state.lock();
        let none = timer.arm(&mut s);
        drop(s);
        drop(none);
        Ok(timer)
    }

    /// The timer behind an open file; EINVAL when it is something else.
    pub fn of(file: &OpenFile) -> Result<&TimerFd> {
        file.ops.as_any().downcast_ref().ok_or(Errno::EINVAL)
    }

    /// timerfd_settime(2): arms or disarms, returns the old setting. `offset` gives the nanoseconds that the caller's time namespace
    /// adds to a clock (CLOCK_*).
    pub fn set(&self, flags: i32, new: &Itimerspec, offset: impl Fn(i32) -> i64) -> Result<Itimerspec> {
        if flags & !(libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET) != 0 {
            return Err(Errno::EINVAL);
        }
        let now = self.clock.now_ns();
        let absolute = flags & libc::TFD_TIMER_ABSTIME != 0;
        let mut schedule = Schedule::new(new, absolute, now)?;
        if absolute {
            schedule.next = schedule.next.map(|at| at.saturating_sub(offset(self.clock_id)).max(0));
        }
        let mut s = self.state.lock();
        s.schedule.advance(now);
        let old = s.schedule.left(now);
        s.schedule = schedule;
        s.ticks = 0;
        s.settime_flags = flags;
        let stale = self.arm(&mut s);
        drop(s);
        drop(stale);
        Ok(old)
    }

    /// timerfd_gettime(2).
    pub fn get(&self) -> Itimerspec {
        let now = self.clock.now_ns();
        let mut s = self.state.lock();
        s.ticks += s.schedule.advance(now);
        let v = s.schedule.left(now);
        let stale = self.arm(&mut s);
        drop(s);
        drop(stale);
        v
    }

    /// Schedules the wake-up for the next expiry; the old one is to be dropped outside the lock.
    fn arm(&self, s: &mut State) -> Option<TimerHandle> {
        let handle = s.schedule.next.map(|next| {
            let me = self.me.clone();
            self.timers.schedule_after(self.clock.left(next), move || {
                if let Some(t) = me.upgrade() {
                    t.expire();
                }
            })
        });
        std::mem::replace(&mut s.handle, handle)
    }

    fn expire(&self) {
        let now = self.clock.now_ns();
        let mut s = self.state.lock();
        s.ticks += s.schedule.advance(now);
        if s.ticks == 0 {
            // The clock went back, or the host woke us early: try again.
            let stale = self.arm(&mut s);
            drop(s);
            drop(stale);
            return;
        }
        drop(s);
        self.queue.notify(Events::READABLE);
    }
}

impl FileOps for TimerFd {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        if buf.len() < 8 {
            return Err(Errno::EINVAL);
        }
        let now = self.clock.now_ns();
        let mut s = self.state.lock();
        s.ticks += s.schedule.advance(now);
        if s.ticks == 0 {
            return Err(Errno::EAGAIN);
        }
        buf[..8].copy_from_slice(&s.ticks.to_ne_bytes());
        s.ticks = 0;
        let stale = if s.schedule.next.is_some() { self.arm(&mut s) } else { s.handle.take() };
        drop(s);
        drop(stale);
        Ok(8)
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        let mut s = self.state.lock();
        s.ticks += s.schedule.advance(self.clock.now_ns());
        if s.ticks > 0 { Events::IN } else { Events::NONE }
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
        if cmd != TFD_IOC_SET_TICKS {
            return Err(Errno::ENOTTY);
        }
        let ticks: u64 = mem.read_value(arg)?;
        if ticks == 0 {
            return Err(Errno::EINVAL);
        }
        self.state.lock().ticks = ticks;
        self.queue.notify(Events::READABLE);
        Ok(0)
    }
    fn fdinfo(&self) -> String {
        let now = self.clock.now_ns();
        let s = self.state.lock();
        let left = s.schedule.left(now);
        format!(
            "clockid: {}\nticks: {}\nsettime flags: 0{:o}\nit_value: ({}, {})\nit_interval: ({}, {})\n",
            self.clock_id,
            s.ticks,
            s.settime_flags,
            left.value.sec,
            left.value.nsec,
            left.interval.sec,
            left.interval.nsec
        )
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:[timerfd]".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caller::Blocking;
    use std::time::Instant;
    use vfs::testing::TestCaller;

    #[test]
    fn schedule_counts_missed_periods() {
        let mut s = Schedule { next: Some(100), interval: 10 };
        assert_eq!((s.advance(99), s.advance(100), s.advance(135)), (0, 1, 3));
        assert_eq!(s.next, Some(140));
        let mut once = Schedule { next: Some(5), interval: 0 };
        assert_eq!((once.advance(9), once.advance(10), once.next), (1, 0, None));
    }

    #[test]
    fn state_and_back() {
        let timers = Arc::<TimerService>::default();
        let hour = 3_600_000_000_000;
        let realtime = Clock::Realtime.now_ns();
        // A moment of the calendar stays where it is.
        let state = TimerFdState {
            clock_id: libc::CLOCK_REALTIME,
            schedule: Schedule { next: Some(realtime + hour), interval: 7 },
            now: realtime - hour,
            ticks: 3,
            settime_flags: libc::TFD_TIMER_ABSTIME,
        };
        let again = TimerFd::restore(state, &timers).unwrap().state();
        assert_eq!(TimerFdState { now: state.now, ..again }, state);
        // What remains of other settings remains.
        let state = TimerFdState {
            clock_id: libc::CLOCK_MONOTONIC,
            schedule: Schedule { next: Some(hour), interval: 0 },
            now: 0,
            ..state
        };
        let again = TimerFd::restore(state, &timers).unwrap().state();
        let left = again.schedule.next.unwrap() - again.now;
        assert!(left <= hour && left > hour / 2, "{left}");
        assert_eq!(TimerFdState { schedule: state.schedule, now: 0, ..again }, state);
        // One that is not armed.
        let state = TimerFdState { schedule: Schedule::default(), ..state };
        let again = TimerFd::restore(state, &timers).unwrap().state();
        assert_eq!(TimerFdState { now: 0, ..again }, state);
    }

    #[test]
    fn wakes_a_reader() {
        let cx = TestCaller::with_caps(0);
        let f = TimerFd::create(&cx, libc::CLOCK_MONOTONIC, 0).unwrap();
        let t = TimerFd::of(&f).unwrap();
        let ms = Timespec::from_ns(5_000_000);
        let set = Itimerspec { value: ms, interval: ms };
        assert_eq!(t.set(0, &set, |_| 0).unwrap(), Itimerspec::default());
        let start = Instant::now();
        let mut b = [0; 8];
        let n = cx
            .waiter()
            .wait_on(&f.ops.wait_queue(&cx).unwrap(), Events::READABLE, None, || {
                f.ops.read(&cx, &f, &mut b, 0).ok()
            })
            .unwrap();
        assert_eq!(n, 8);
        assert!(start.elapsed().as_millis() >= 5);
        assert!(t.get().value.as_ns() <= 5_000_000);
        assert_eq!(t.set(0, &Itimerspec::default(), |_| 0).unwrap().interval, ms);
        assert_eq!(t.get(), Itimerspec::default());
    }
}

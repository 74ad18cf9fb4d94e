//! The POSIX timers of a process as plain data, for a checkpoint.

use crate::posix::{Clock, Notify, PosixTimer, PosixTimers, Table};
use crate::process::Process;
use lock_order::Mutex;
use signal::Charge;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// [`Clock`] as plain data: processes by their numbers in the sandbox's own PID namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ClockState {
    /// A clock of the host.
    Host(i32),
    /// Processor time of a process, `None` for one that is gone; true for user time alone.
    Process(Option<i32>, bool),
    /// Processor time of a thread of the timer's own process; true for user time alone.
    Thread(i32, bool),
}

/// A timer as plain data. Its pending signal is kept with the process's pending signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PosixTimerState {
    /// Its ID.
    pub id: i32,
    /// What it counts.
    pub clock: ClockState,
    /// How it notifies of an expiry.
    pub notify: Notify,
    /// sigev_value.
    pub value: u64,
    /// Nanoseconds until the next expiry, below 0 when it has passed; `None` for one that is not set.
    pub left: Option<i64>,
    /// Period in nanoseconds, 0 for a single expiry.
    pub interval: u64,
    /// It waits for its moment: not for the delivery of its signal, and not for nothing.
    pub armed: bool,
    /// The signal of an expiry is pending.
    pub queued: bool,
    /// The last expiry's signal was ignored.
    pub ignored: bool,
    /// Overruns so far, and those of the expiry delivered last.
    pub overruns: (i32, i32),
}

/// All timers of a process as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PosixTimersState {
    /// By ID.
    pub timers: Vec<PosixTimerState>,
    /// The ID that is tried next.
    pub next: i32,
}

impl<P: Process> PosixTimer<P> {
    fn save(&self) -> PosixTimerState {
        let now = self.now_from_outside();
        let clock = match &self.clock {
            Clock::Host(id) => ClockState::Host(*id),
            Clock::Process(process, user) => ClockState::Process(process.upgrade().map(|p| p.id()), *user),
            Clock::Thread(tid, user) => ClockState::Thread(*tid, *user),
        };
        let s = self.state.lock();
        PosixTimerState {
            id: self.id,
            clock,
            notify: self.notify,
            value: self.value,
            left: (s.deadline != 0).then(|| s.deadline.wrapping_sub(now) as i64),
            interval: s.interval,
            armed: s.handle.is_some(),
            queued: s.queued,
            ignored: s.ignored,
            overruns: (s.overrun, s.last_overrun),
        }
    }

    fn load(
        saved: &PosixTimerState,
        clock: Clock<P>,
        process: Weak<P>,
        charge: Charge,
    ) -> Arc<PosixTimer<P>> {
        let timer = Arc::new(PosixTimer {
            id: saved.id,
            clock,
            notify: saved.notify,
            value: saved.value,
            process,
            state: Mutex::default(),
            _charge: charge,
        });
        let now = timer.now_from_outside();
        let mut s = timer.state.lock();
        // 0 would mean that it is not set.
        s.deadline = saved.left.map_or(0, |left| now.saturating_add_signed(left).max(1));
        s.interval = saved.interval;
        (s.queued, s.ignored) = (saved.queued, saved.ignored);
        (s.overrun, s.last_overrun) = saved.overruns;
        if saved.armed {
            s.handle = timer.schedule(s.serial, s.deadline.saturating_sub(now));
        }
        drop(s);
        timer
    }
}

impl<P: Process> PosixTimers<P> {
    /// As plain data.
    pub fn state(&self) -> PosixTimersState {
        let t = self.0.lock();
        let (timers, next): (Vec<_>, i32) = (t.timers.values().cloned().collect(), t.next);
        drop(t);
        PosixTimersState { timers: timers.iter().map(|timer| timer.save()).collect(), next }
    }

    /// Takes over the timers of plain data, for a process that has none: what remained of each setting then remains
    /// now. `process` finds the one that has its processor time counted; `charge` charges the user for a timer, which
    /// is left out when there is no charge.
    pub fn restore(
        &self,
        saved: &PosixTimersState,
        of: &Weak<P>,
        process: impl Fn(i32) -> Weak<P>,
        mut charge: impl FnMut() -> Option<Charge>,
    ) {
        let mut timers = BTreeMap::new();
        for one in &saved.timers {
            let Some(charge) = charge() else { continue };
            let clock = match one.clock {
                ClockState::Host(id) => Clock::Host(id),
                ClockState::Process(tgid, user) => {
                    Clock::Process(tgid.map_or_else(Weak::new, &process), user)
                }
                ClockState::Thread(tid, user) => Clock::Thread(tid, user),
            };
            timers.insert(one.id, PosixTimer::load(one, clock, of.clone(), charge));
        }
        let old = std::mem::replace(&mut *self.0.lock(), Table { timers, next: saved.next });
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::fake::Nothing;
    use abi::Signal;

    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn state_and_back() {
        let periodic = PosixTimerState {
            id: 3,
            clock: ClockState::Host(libc::CLOCK_REALTIME),
            notify: Notify::Thread(Signal::SIGUSR1, 7),
            value: 9,
            left: Some(-HOUR),
            interval: 11,
            armed: false,
            queued: true,
            ignored: true,
            overruns: (2, 5),
        };
        let unset = PosixTimerState {
            id: 4,
            clock: ClockState::Thread(8, true),
            notify: Notify::None,
            left: None,
            ..periodic
        };
        let gone = PosixTimerState { id: 6, clock: ClockState::Process(None, false), ..unset };
        let state = PosixTimersState { timers: vec![periodic, unset, gone], next: 7 };
        let (timers, queues) = (PosixTimers::<Nothing>::default(), Arc::<signal::Queues>::default());
        timers.restore(&state, &Weak::new(), |_| Weak::new(), || queues.charge(0, 3));
        let mut again = timers.state();
        let left = std::mem::replace(&mut again.timers[0].left, periodic.left);
        assert_eq!(again, state);
        // The clock has gone on.
        assert!(left.is_some_and(|left| left <= -HOUR && left > -2 * HOUR), "{left:?}");
        assert_eq!(queues.of(0), 3);
        timers.restore(&state, &Weak::new(), |_| Weak::new(), || None);
        assert_eq!((timers.state().timers.len(), queues.of(0)), (0, 0));
    }
}

//! The interval timers of setitimer(2) and alarm(2).
//!
//! ITIMER_REAL runs on the timer service; the timers of processor time are sampled (`sample`). A checkpoint keeps
//! [`ItimersState`].

use crate::armed::{Armed, IntervalTimers};
use crate::process::Process;
use crate::sample::sampled;
use abi::{SigInfo, Signal};
use caller::timer::{TimerHandle, TimerService};
use lock_order::{Mutex, rank};
use std::sync::Arc;
use std::time::Duration;

/// Which of setitimer(2)'s timers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// ITIMER_REAL: SIGALRM.
    Real,
    /// ITIMER_VIRTUAL: SIGVTALRM.
    Virtual,
    /// ITIMER_PROF: SIGPROF.
    Prof,
}

impl Which {
    fn signal(self) -> Signal {
        match self {
            Which::Real => Signal::SIGALRM,
            Which::Virtual => Signal::SIGVTALRM,
            Which::Prof => Signal::SIGPROF,
        }
    }

    /// Nanoseconds of the clock this timer counts.
    fn now(self, g: &impl Process) -> u64 {
        match self {
            Which::Real => monotonic(),
            Which::Virtual => g.cpu_times().0,
            Which::Prof => {
                let (u, s) = g.cpu_times();
                u + s
            }
        }
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic() -> u64 {
    hostsys::clock::gettime_ns(libc::CLOCK_MONOTONIC).unwrap_or(0) as u64
}

/// The timers of setitimer(2) as plain data, for a checkpoint: remaining time and interval in nanoseconds, 0 and 0 when disarmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ItimersState {
    /// ITIMER_REAL.
    pub real: (u64, u64),
    /// ITIMER_VIRTUAL.
    pub virt: (u64, u64),
    /// ITIMER_PROF.
    pub prof: (u64, u64),
}

impl IntervalTimers {
    /// setitimer(2)'s timers as plain data.
    pub fn state(&self, g: &impl Process) -> ItimersState {
        ItimersState {
            real: self.get(g, Which::Real),
            virt: self.get(g, Which::Virtual),
            prof: self.get(g, Which::Prof),
        }
    }

    /// Arms setitimer(2)'s timers as they were. The clocks may be others; what remained then remains now.
    pub fn restore(&self, g: &Arc<impl Process>, s: ItimersState) {
        for (which, (value, interval)) in
            [(Which::Real, s.real), (Which::Virtual, s.virt), (Which::Prof, s.prof)]
        {
            self.set(g, which, value, interval);
        }
    }

    fn slot(&self, w: Which) -> &Mutex<Armed, { rank::TIMER }> {
        match w {
            Which::Real => &self.real,
            Which::Virtual => &self.virt,
            Which::Prof => &self.prof,
        }
    }

    /// Remaining time and interval in nanoseconds; (0, _) when disarmed.
    pub fn get(&self, g: &impl Process, w: Which) -> (u64, u64) {
        let now = w.now(g);
        let a = self.slot(w).lock();
        if a.deadline == 0 {
            return (0, 0);
        }
        (a.deadline.saturating_sub(now).max(1), a.interval)
    }

    /// Arms (or disarms with 0) a timer; gives what it was set to.
    pub fn set(&self, g: &Arc<impl Process>, w: Which, value: u64, interval: u64) -> (u64, u64) {
        let old = self.get(&**g, w);
        let now = w.now(&**g);
        let mut a = self.slot(w).lock();
        a.serial += 1;
        a.deadline = if value == 0 { 0 } else { now.saturating_add(value).max(1) };
        a.interval = interval;
        let gone = a.handle.take();
        if value != 0 {
            a.handle = Some(schedule(g, w, a.serial, wait_for(g.timer_service(), w, value)));
        }
        drop(a);
        drop(gone);
        old
    }

    /// Disarms all.
    pub fn clear(&self) {
        for w in [Which::Real, Which::Virtual, Which::Prof] {
            let h = {
                let mut a = self.slot(w).lock();
                a.serial += 1;
                a.deadline = 0;
                a.handle.take()
            };
            drop(h);
        }
    }
}

/// How long the service may sleep before the timer's clock can have advanced by `left`.
fn wait_for(timers: &TimerService, w: Which, left: u64) -> Duration {
    match w {
        Which::Real => Duration::from_nanos(left),
        _ => sampled(timers, left),
    }
}

fn schedule<P: Process>(g: &Arc<P>, w: Which, serial: u64, after: Duration) -> TimerHandle {
    let weak = Arc::downgrade(g);
    g.timer_service().schedule_after(after, move || {
        if let Some(g) = weak.upgrade() {
            fire(&g, w, serial);
        }
    })
}

fn fire<P: Process>(g: &Arc<P>, w: Which, serial: u64) {
    let now = w.now(&**g);
    let mut a = g.interval_timers().slot(w).lock();
    if a.serial != serial || a.deadline == 0 {
        return;
    }
    let due = a.deadline <= now;
    if due {
        match (now - a.deadline).checked_div(a.interval) {
            None => {
                a.deadline = 0;
                a.handle = None;
            }
            Some(missed) => a.deadline += (missed + 1) * a.interval,
        }
    }
    if a.deadline != 0 {
        let timers = g.timer_service();
        let next = wait_for(timers, w, a.deadline.saturating_sub(now)).max(timers.shortest_period());
        drop(a.handle.replace(schedule(g, w, serial, next)));
    }
    drop(a);
    if due {
        g.send(SigInfo::new(w.signal(), libc::SI_KERNEL));
    }
}

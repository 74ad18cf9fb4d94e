//! setitimer(2), alarm(2) and RLIMIT_CPU of a process; POSIX timers are in `posix_timers`.
//!
//! Real-time timers run on the timer service.
//! Processor-time timers are sampled: the service looks at the clock again when
//! the remaining time could have passed at full use of every processor.

use crate::posix_timers::PosixTimers;
use crate::thread_group::ThreadGroup;
use abi::{SigInfo, Signal};
use caller::timer::{TimerHandle, TimerService};
use ranked::{Mutex, rank};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Timers of a process. Signals are sent without their locks.
#[derive(Default)]
pub struct Timers {
    real: Mutex<Armed, { rank::TIMER }>,
    virt: Mutex<Armed, { rank::TIMER }>,
    prof: Mutex<Armed, { rank::TIMER }>,
    cpu_limit: Mutex<Option<TimerHandle>, { rank::TIMER }>,
    /// timer_create(2).
    pub posix: PosixTimers,
}

#[derive(Default)]
struct Armed {
    handle: Option<TimerHandle>,
    /// Generation: a callback of an earlier setting does nothing.
    serial: u64,
    /// Expiry as nanoseconds of the timer's clock.
    deadline: u64,
    interval: u64,
}

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
    fn now(self, g: &ThreadGroup) -> u64 {
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItimersState {
    /// ITIMER_REAL.
    pub real: (u64, u64),
    /// ITIMER_VIRTUAL.
    pub virt: (u64, u64),
    /// ITIMER_PROF.
    pub prof: (u64, u64),
}

impl Timers {
    /// setitimer(2)'s timers as plain data.
    pub fn state(&self, g: &ThreadGroup) -> ItimersState {
        ItimersState {
            real: self.get(g, Which::Real),
            virt: self.get(g, Which::Virtual),
            prof: self.get(g, Which::Prof),
        }
    }

    /// Arms setitimer(2)'s timers as they were. The clocks may be others; what remained then remains now.
    pub fn restore(&self, g: &Arc<ThreadGroup>, s: ItimersState) {
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
    pub fn get(&self, g: &ThreadGroup, w: Which) -> (u64, u64) {
        let now = w.now(g);
        let a = self.slot(w).lock();
        if a.deadline == 0 {
            return (0, 0);
        }
        (a.deadline.saturating_sub(now).max(1), a.interval)
    }

    /// Arms (or disarms with 0) a timer; gives what it was set to.
    pub fn set(&self, g: &Arc<ThreadGroup>, w: Which, value: u64, interval: u64) -> (u64, u64) {
        let old = self.get(g, w);
        let now = w.now(g);
        let mut a = self.slot(w).lock();
        a.serial += 1;
        a.deadline = if value == 0 { 0 } else { now.saturating_add(value).max(1) };
        a.interval = interval;
        let gone = a.handle.take();
        if value != 0 {
            a.handle = Some(schedule(g, w, a.serial, wait_for(&g.kernel.vfs.resources.timers, w, value)));
        }
        drop(a);
        drop(gone);
        old
    }

    /// Disarms everything at exit; POSIX timers alone at execve(2).
    pub fn clear(&self, posix_only: bool) {
        self.posix.clear();
        if !posix_only {
            drop(self.cpu_limit.lock().take());
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
}

/// Watches RLIMIT_CPU of a process: SIGXCPU at the soft limit and every second after it, SIGKILL at the hard one.
pub fn watch_cpu_limit(g: &Arc<ThreadGroup>) {
    let next = cpu_limit(g).map(|limits| check_cpu_limit(g, limits));
    let old = std::mem::replace(&mut *g.timers.cpu_limit.lock(), next);
    drop(old);
}

/// Soft and hard limit, if there is any.
fn cpu_limit(g: &ThreadGroup) -> Option<(u64, u64)> {
    let (soft, hard) = g.rlimits.lock().get(libc::RLIMIT_CPU as i32)?;
    (soft != u64::MAX || hard != u64::MAX).then_some((soft, hard))
}

fn check_cpu_limit(g: &Arc<ThreadGroup>, (mut soft, hard): (u64, u64)) -> TimerHandle {
    const SECOND: u64 = 1_000_000_000;
    let (u, s) = g.cpu_times();
    let used = u + s;
    if used / SECOND >= hard {
        let _ = g.send(SigInfo::new(Signal::SIGKILL, libc::SI_KERNEL));
    } else if used / SECOND >= soft {
        let _ = g.send(SigInfo::new(Signal::SIGXCPU, libc::SI_KERNEL));
        // As Linux does, in the limit itself; unless it has been changed meanwhile.
        let mut limits = g.rlimits.lock();
        if let Some((now, hard)) = limits.get(libc::RLIMIT_CPU as i32)
            && now == soft
        {
            limits.set(libc::RLIMIT_CPU as i32, (soft + 1, hard));
        }
        soft += 1;
    }
    let left = soft.min(hard).saturating_mul(SECOND).saturating_sub(used);
    let weak = Arc::downgrade(g);
    let timers = &g.kernel.vfs.resources.timers;
    timers.schedule(Instant::now() + wait_for(timers, Which::Prof, left), move || {
        let Some(g) = weak.upgrade() else { return };
        if g.signals.lock().life.is_over() {
            return;
        }
        let next = cpu_limit(&g).map(|limits| check_cpu_limit(&g, limits));
        drop(std::mem::replace(&mut *g.timers.cpu_limit.lock(), next));
    })
}

/// How long the service may sleep before the timer's clock can have advanced by `left`.
pub(crate) fn wait_for(timers: &TimerService, w: Which, left: u64) -> Duration {
    match w {
        Which::Real => Duration::from_nanos(left),
        _ => {
            let sample = (left / 4).clamp(1_000_000, 1_000_000_000).min(left.max(1_000_000));
            Duration::from_nanos(sample).max(timers.shortest_period())
        }
    }
}

fn schedule(g: &Arc<ThreadGroup>, w: Which, serial: u64, after: Duration) -> TimerHandle {
    let weak = Arc::downgrade(g);
    g.kernel.vfs.resources.timers.schedule(Instant::now() + after, move || {
        if let Some(g) = weak.upgrade() {
            fire(&g, w, serial);
        }
    })
}

fn fire(g: &Arc<ThreadGroup>, w: Which, serial: u64) {
    let now = w.now(g);
    let mut a = g.timers.slot(w).lock();
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
        let timers = &g.kernel.vfs.resources.timers;
        let next = wait_for(timers, w, a.deadline.saturating_sub(now)).max(timers.shortest_period());
        drop(a.handle.replace(schedule(g, w, serial, next)));
    }
    drop(a);
    if due {
        let _ = g.send(SigInfo::new(w.signal(), libc::SI_KERNEL));
    }
}

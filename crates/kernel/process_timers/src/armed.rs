//! The settings of the timers that a process has from its start. Locks: TIMER. A checkpoint keeps those of setitimer(2) as
//! `ItimersState`.

use caller::timer::TimerHandle;
use lock_order::{Mutex, rank};

/// The interval timers of a process. Signals are sent without their locks.
#[derive(Default)]
pub struct IntervalTimers {
    pub(crate) real: Mutex<Armed, { rank::TIMER }>,
    pub(crate) virt: Mutex<Armed, { rank::TIMER }>,
    pub(crate) prof: Mutex<Armed, { rank::TIMER }>,
}

#[derive(Default)]
pub(crate) struct Armed {
    pub(crate) handle: Option<TimerHandle>,
    /// Generation: a callback of an earlier setting does nothing.
    pub(crate) serial: u64,
    /// Expiry as nanoseconds of the timer's clock.
    pub(crate) deadline: u64,
    pub(crate) interval: u64,
}

/// Looks at the processor time of a process when it can have reached the limit.
#[derive(Default)]
pub struct CpuLimitTimer(pub(crate) Mutex<Option<TimerHandle>, { rank::TIMER }>);

impl CpuLimitTimer {
    /// The process ends.
    pub fn clear(&self) {
        drop(self.0.lock().take());
    }
}

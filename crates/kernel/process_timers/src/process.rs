//! What timers need of the process that has them, and of the thread that makes a call on them.

use crate::armed::{CpuLimitTimer, IntervalTimers};
use abi::SigInfo;
use caller::timer::TimerService;
use lock_order::Mutex;
use sched::Rlimits;
use signal::Expiry;
use std::sync::Arc;

/// A process that has timers.
pub trait Process: Send + Sync + 'static {
    /// Its ID in the kernel's own PID namespace.
    fn id(&self) -> i32;
    /// Runs timers.
    fn timer_service(&self) -> &Arc<TimerService>;
    /// Its timers of setitimer(2).
    fn interval_timers(&self) -> &IntervalTimers;
    /// Its timer for RLIMIT_CPU.
    fn cpu_limit_timer(&self) -> &CpuLimitTimer;
    /// Its resource limits.
    fn rlimits(&self) -> &Mutex<Rlimits>;
    /// User and system time in nanoseconds so far.
    fn cpu_times(&self) -> (u64, u64);
    /// Whether it ends or has ended.
    fn is_over(&self) -> bool;
    /// Sends it a signal.
    fn send(&self, info: SigInfo);
    /// Whether it has a thread with this ID.
    fn has_thread(&self, tid: i32) -> bool;
    /// User and system time of its thread `tid` in nanoseconds, as they were read last.
    fn last_times_of(&self, tid: i32) -> Option<(u64, u64)>;
    /// Has its thread `tid` look at the timers of its own processor time soon, unless it sleeps.
    fn have_thread_look(&self, tid: i32);
    /// Sends a POSIX timer's signal to it, or to its thread `to`. Gives the expiry back when the signal was dropped.
    fn send_expiry(&self, to: Option<i32>, info: SigInfo, expiry: Expiry) -> Result<(), Expiry>;
}

/// The thread that makes a call on a timer.
pub trait Thread {
    /// User and system time in nanoseconds of a thread of the same process.
    fn times_of(&mut self, tid: i32) -> Option<(u64, u64)>;
    /// Nanoseconds that its time namespace adds to what the host's clock (CLOCK_*) shows.
    fn clock_offset(&self, clock: i32) -> i64;
}

#[cfg(test)]
pub(crate) mod fake {
    use super::*;

    /// A process that there is none of.
    pub(crate) enum Nothing {}

    impl Process for Nothing {
        fn id(&self) -> i32 {
            match *self {}
        }
        fn timer_service(&self) -> &Arc<TimerService> {
            match *self {}
        }
        fn interval_timers(&self) -> &IntervalTimers {
            match *self {}
        }
        fn cpu_limit_timer(&self) -> &CpuLimitTimer {
            match *self {}
        }
        fn rlimits(&self) -> &Mutex<Rlimits> {
            match *self {}
        }
        fn cpu_times(&self) -> (u64, u64) {
            match *self {}
        }
        fn is_over(&self) -> bool {
            match *self {}
        }
        fn send(&self, _: SigInfo) {
            match *self {}
        }
        fn has_thread(&self, _: i32) -> bool {
            match *self {}
        }
        fn last_times_of(&self, _: i32) -> Option<(u64, u64)> {
            match *self {}
        }
        fn have_thread_look(&self, _: i32) {
            match *self {}
        }
        fn send_expiry(&self, _: Option<i32>, _: SigInfo, _: Expiry) -> Result<(), Expiry> {
            match *self {}
        }
    }
}

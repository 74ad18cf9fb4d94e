//! Timers of a process: setitimer(2), POSIX timers, RLIMIT_CPU.
//!
//! The timers own their settings and the handles in the timer service; they see their process through [`Process`], which sends
//! signals and reads clocks of processor time, and the thread that makes a call through [`Thread`]. A checkpoint keeps
//! [`ItimersState`] and [`PosixTimersState`].

#![forbid(unsafe_code)]

mod armed;
mod cpu_limit;
mod interval;
mod posix;
mod process;
mod sample;
mod state;

pub use armed::{CpuLimitTimer, IntervalTimers};
pub use cpu_limit::watch_cpu_limit;
pub use interval::{ItimersState, Which, monotonic};
pub use posix::{Clock, Notify, PosixTimer, PosixTimers};
pub use process::{Process, Thread};
pub use state::{ClockState, PosixTimerState, PosixTimersState};

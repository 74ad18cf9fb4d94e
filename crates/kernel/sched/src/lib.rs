//! What tasks may use and what they have used: scheduling attributes (sched(7), ioprio_set(2)), resource limits
//! (getrlimit(2)) and usage (getrusage(2), /proc/PID/io).
//!
//! All of it is recorded and reported here; the host schedules. Nothing knows tasks. `Rlimits` and `Usage` are plain data, and
//! what a checkpoint keeps as they are; `Scheduling` and `IoCounts` say what they are by [`Scheduling::state`] and
//! [`IoCounts::now`].

#![forbid(unsafe_code)]

mod rlimits;
mod scheduling;
mod usage;

pub use rlimits::Rlimits;
pub use scheduling::{RESET_ON_FORK, Scheduling, SchedulingState};
pub use usage::{HostCounts, IoCounts, IoTotals, Usage, add_counts, add_io};

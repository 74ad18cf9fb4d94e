//! The limits and the usage of tasks: scheduling attributes (sched(7), ioprio_set(2)), resource limits (getrlimit(2))
//! and usage (getrusage(2), /proc/PID/io).
//!
//! This crate records and reports; the host schedules. It knows no tasks. A checkpoint keeps `Rlimits` and `Usage`,
//! which are plain data, and the results of [`Scheduling::state`] and [`IoCounts::now`].

#![forbid(unsafe_code)]

mod rlimits;
mod scheduling;
mod usage;

pub use rlimits::Rlimits;
pub use scheduling::{Deadline, RESET_ON_FORK, SCHED_DEADLINE, Scheduling, SchedulingState};
pub use usage::{HostCounts, IoCounts, IoTotals, Usage, add_counts, add_io};

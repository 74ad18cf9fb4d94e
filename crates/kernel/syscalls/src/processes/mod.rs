//! Processes and threads: their making, IDs, scheduling, limits, tracing and end.

pub(crate) mod coredump;
pub(crate) mod corenotes;
pub(crate) mod exec;
pub(crate) mod id;
pub(crate) mod kcmp;
pub(crate) mod limits;
pub(crate) mod prctl;
pub(crate) mod process;
pub(crate) mod ptrace;
pub(crate) mod ptrace_regs;
pub(crate) mod sched;
pub(crate) mod wait4;

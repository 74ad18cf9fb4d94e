//! The state that ptrace(2) has in a traced thread, and the table of traced threads.
//!
//! [`Trace`] is a thread's: flags, options, its stop ([`Stopped`]), debug registers. [`Tracees`] is the kernel's. Both are over
//! the types of processes, threads and running threads, which this crate does not know; the stops themselves, and what a tracer
//! may do with a stopped thread, are in the crate `task`.

#![forbid(unsafe_code)]

mod after;
mod debug_regs;
mod flags;
mod state;
mod stopped;
mod table;
mod trace;

pub use after::After;
pub use debug_regs::DebugRegs;
pub use flags::*;
pub use state::{StopState, TraceState};
pub use stopped::{Job, Stopped};
pub use table::{ThreadZombie, Tracee, Tracees};
pub use trace::{State, Trace, Tracer};

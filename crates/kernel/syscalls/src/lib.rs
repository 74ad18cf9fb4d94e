//! The Linux system call interface: one row per call ([`families`]), thin
//! handlers by family, logic in the subsystems.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "handlers are named after the calls their man pages describe")]

pub mod arg;
pub mod dispatch;
pub mod families;
pub mod families_fs;
pub mod families_ipc;
pub mod table;

mod exec;
mod futex;
mod id;
mod limits;
mod memory;
mod misc;
mod prctl;
mod process;
mod sched;
mod signal;
mod time;
mod wait4;

pub use dispatch::{all_rows, dispatch, missing, row};
pub use table::{Row, Support};

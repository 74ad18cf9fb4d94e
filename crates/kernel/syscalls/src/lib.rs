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

mod epoll;
mod eventfd;
mod exec;
mod futex;
mod id;
mod install;
mod limits;
mod memory;
mod misc;
mod pipe;
mod poll;
mod prctl;
mod process;
mod sched;
mod select;
mod sendrecv;
mod signal;
mod socket;
mod time;
mod timeout;
mod wait4;

pub use dispatch::{all_rows, dispatch, missing, row};
pub use poll::poll_until;
pub use table::{Row, Support};

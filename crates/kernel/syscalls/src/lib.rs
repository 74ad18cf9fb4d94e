//! The Linux system call interface: one row per call ([`families`]), thin handlers by family, logic in the subsystems.
//!
//! A folder for each family has one file for each call, or a few calls that belong together, named after the call. Beside the
//! folders are the table, the dispatcher, and the conversions of arguments that all handlers share.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "handlers are named after the calls their man pages describe")]

pub mod arg;
pub mod dispatch;
pub mod families;
pub mod families_fs;
pub mod families_ipc;
mod parts;
pub mod table;

mod at;
mod events;
mod files;
mod install;
mod iov;
mod ipc;
mod memory;
mod mounts;
mod names;
mod namespaces;
mod points;
mod processes;
mod refused;
mod security;
mod signals;
mod sockets;
mod system;
mod time;
mod timeout;

pub use dispatch::{Calls, all_rows, numbers, row, trace_points};
pub use processes::coredump::dump_running;
pub use table::{Row, Support};

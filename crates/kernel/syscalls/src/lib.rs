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

mod aio;
mod at;
mod attrs;
mod dirs;
mod epoll;
mod eventfd;
mod exec;
mod fcntl;
mod futex;
mod id;
mod inotify;
mod install;
mod ioctl;
mod iov;
mod kcmp;
mod limits;
mod memory;
mod misc;
mod mount;
mod mqueue;
mod names;
mod open;
mod pipe;
mod poll;
mod prctl;
mod process;
mod read_write;
mod refused;
mod sched;
mod seccomp;
mod select;
mod sendrecv;
mod sigio;
mod signal;
mod socket;
mod splice;
mod stat;
mod storage;
mod sysv;
mod time;
mod timeout;
mod transfer;
mod wait4;
mod xattr;

pub use dispatch::{Calls, all_rows, row};
pub use table::{Row, Support};

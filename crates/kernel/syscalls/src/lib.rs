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
mod bpf;
mod coredump;
mod corenotes;
mod dirs;
mod epoll;
mod eventfd;
mod exec;
mod fanotify;
mod fcntl;
mod fs_config;
mod futex;
mod futex2;
mod handles;
mod id;
mod inotify;
mod install;
mod ioctl;
mod iov;
mod kcmp;
mod keyctl;
mod landlock;
mod limits;
mod lsm;
mod memory;
mod mempolicy;
mod misc;
mod mount;
mod mount_fd;
mod mount_query;
mod mqueue;
mod names;
mod ns;
mod open;
mod pipe;
mod poll;
mod prctl;
mod process;
mod ptrace;
mod ptrace_regs;
mod quota;
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
mod syslog;
mod sysv;
mod time;
mod timeout;
mod transfer;
mod wait4;
mod xattr;

pub use dispatch::{Calls, all_rows, row};
pub use table::{Row, Support};

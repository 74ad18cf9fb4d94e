//! Tasks: threads and processes, what they are sent, and their end. Programs are loaded by the crate `exec`, which is above.
//!
//! [`Task`] and [`ThreadGroup`] are shared; [`Current`] is the running thread as
//! its own sentry thread sees it, and what system call handlers get. [`Kernel`]
//! is what all tasks share. The system call table lives above this crate and is
//! called through [`SystemCalls`].
//!
//! Lock order: `Kernel::tree` (TASKS), then a group's `signals` (SIGNALS), its
//! actions, a thread's pending queue, a POSIX timer. Priority-inheritance
//! futexes (`pi`) come before. All else are leaves. `ranked::rank` has the ranks.

#![forbid(unsafe_code)]

mod bandwidth;
mod cgroups;
mod clone;
mod container_tasks;
mod core;
mod cpu;
mod cred_guard;
mod current;
mod exit;
mod frame;
mod futex;
mod holder;
mod inherit;
mod jobs;
mod kernel;
mod life;
pub mod namespaces;
mod own_init;
mod own_transfer;
mod pi;
pub mod pidfd;
mod pidfd_info;
pub mod posix_timers;
mod replace;
mod resource;
mod result;
mod run;
pub mod seccomp;
mod send;
mod signalfd;
pub mod supervisor;
mod task;
mod thread_group;
pub mod timers;
pub mod trace;
mod tree;
mod vdso;

mod waitpid;

pub use cgroups::Mover;
pub use clone::{CLEAR_SIGHAND, CloneArgs};
pub use core::CoreThread;
pub use cred_guard::CredsHeld;
pub use current::{Current, RestartBlock};
pub use exit::abandon;
pub use holder::Holder;
pub use inherit::{ProcessInherited, TaskInherited};
pub use jobs::Jobs;
pub use kernel::{Kernel, Parts, RELEASE, RELEASE_26, SI_HOST, SystemCalls, VERSION, uptime_ns};
pub use life::{Life, Signals, Stop, Zombie};
pub use replace::{NewCreds, ProgramImage};
pub use result::{Restart, SysErr, SysResult};
pub use run::start;
pub use send::Sender;
pub use task::{Task, comm};
pub use thread_group::ThreadGroup;
pub use tree::{Leader, Node, NodeState, Report, Tree};
pub use waitpid::{Change, Whom};

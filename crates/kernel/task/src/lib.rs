//! Tasks: threads and processes, what they are sent, and their end. Programs are loaded by the crate `exec`, which is above.
//!
//! Five modules are the objects and know each other: [`Task`] and [`ThreadGroup`] are shared; [`Current`] is the running thread as
//! its own sentry thread sees it, and what system call handlers get; [`Tree`] has all processes and threads; [`Kernel`] is what all
//! tasks share. The system call table lives above this crate and is called through [`SystemCalls`]. All other modules are in layers:
//!
//! - state without tasks, below the objects: `bandwidth_timer`, `core_thread`, `counts`, `cred_guard`, `inherit`, `late_kills`, `life`,
//!   `notices`, `own_transfer`, `recycling`, `resource`, `vdso`, and the crates `futex_pi`, `process_timers`, `syscall_filter`, `tracee`;
//! - sending: `usage`, `send`, `sigmask`, `signalfd`, `caller` (a task as the caller of subsystems), `exit_report`, `trace_points`, `policing`;
//! - what a thread does by the way: `activity`, `cgroups`, `bandwidth`, `timers`, `pi`, `futex`, `jobs`, `holder`, `hold_creds`, `cpu`, `frame`,
//!   `namespaces`, `container_tasks`, `pidfs`, `pidfd`, `ptrace_stop`, `core`;
//! - `deliver` (signals), then `ptrace_syscall`, `ptrace_watch`, `ptrace_tracer`, `seccomp`, `sigwait`, `waitpid`;
//! - the life of a thread: `reuse`, `exit`, `replace` (execve), `run`, `clone`, `own_init`;
//! - for checkpoints: `standstill` (with `meeting` below the objects), `state`.
//!
//! Lock order: `Kernel::tree` (TASKS), then a group's `signals` (SIGNALS), its
//! actions, a thread's pending queue, a POSIX timer. Priority-inheritance
//! futexes (`futex_pi`) come before. All else are leaves. `lock_order::rank` has the ranks.

#![forbid(unsafe_code)]

mod activity;
mod bandwidth;
mod bandwidth_timer;
mod caller;
mod cgroups;
mod clone;
mod container_tasks;
mod core;
mod core_thread;
mod counts;
mod coverage;
mod cpu;
mod cred_guard;
mod current;
mod deliver;
mod dequeue;
mod exit;
mod exit_report;
mod frame;
mod futex;
mod group_exit;
mod hold_creds;
mod holder;
mod host_figures;
mod inherit;
mod io_signals;
mod jobs;
mod kernel;
mod last_calls;
mod late_kills;
mod life;
mod load;
mod meeting;
mod message_notification;
mod namespace_caller;
pub mod namespaces;
pub mod notices;
mod own_init;
mod own_transfer;
mod pi;
pub mod pidfd;
mod pidfd_info;
mod pidfd_target;
mod pidfs;
pub mod policing;
pub mod ptrace_access;
mod ptrace_exit;
mod ptrace_resumed;
mod ptrace_stop;
mod ptrace_syscall;
mod ptrace_tracer;
mod ptrace_watch;
mod recycling;
mod replace;
mod resource;
mod reuse;
mod run;
pub mod seccomp;
mod send;
mod sigmask;
mod signalfd;
mod sigwait;
mod standstill;
mod state;
mod task;
mod thread_group;
mod timers;
pub mod trace_points;
mod tree;
mod usage;
mod vdso;
mod waitpid;

pub use activity::Activity;
pub use caller::TaskCaller;
pub use cgroups::Mover;
pub use clone::CloneArgs;
pub use container_tasks::{SharedIpc, Shares};
pub use core::Gathered;
pub use core_thread::CoreThread;
pub use counts::Counts;
pub use coverage::{Asked, Coverage};
pub use current::{Current, RestartBlock};
pub use exit::{Stage, end};
pub use hold_creds::CredLock;
pub use holder::Holder;
pub use host_figures::{HostFigures, OwnPages, ResidentKib, ResidentPages, RunTime};
pub use inherit::{ProcessInherited, TaskInherited};
pub use jobs::Jobs;
pub use kernel::{Kernel, MakeNet, Parts, RELEASE, RELEASE_26, SI_HOST, SystemCalls, VERSION, uptime_ns};
pub use last_calls::{LastCall, LastCalls};
pub use life::{Life, Stop, Zombie};
pub use message_notification::message_notification;
pub use namespace_caller::NamespaceCaller;
pub use ptrace_tracer::Resume;
pub use replace::{NewCreds, ProgramImage};
pub use run::start;
pub use send::Sender;
pub use standstill::{Missing, Standstill};
pub use state::{
    CurrentState, FilterState, Numbers, ProcessState, ProcessesState, Resources, SavedParts, TakenPids,
    ThreadState,
};
pub use sysresult::{Restart, SysErr, SysResult};
pub use task::{Task, comm};
pub use thread_group::{Left, Signals, ThreadGroup};
pub use tree::{Leader, Node, NodeState, Report, Tree};
pub use waitpid::{Change, WaitTarget};

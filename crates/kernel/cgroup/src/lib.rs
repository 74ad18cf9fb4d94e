//! Control groups: the tree of cgroup v2 as the kernel's object. See cgroups(7) and the host's
//! Documentation/admin-guide/cgroup-v2.
//!
//! [`Cgroup`] is a group, [`Member`] the place of a task in one, [`Charge`] a task that counts for a limit of the
//! `pids` controller, [`CpuMax`] a limit of the `cpu` controller, [`BpfProgram`] a program that decides about devices.
//! The crate knows no tasks: it counts them, and decides about moves. What it means to be frozen, throttled or killed
//! is in the crate `task`, and the files are in `cgroupfs`.
//!
//! All changes of a tree happen under its one lock (rank CGROUPS, `tree`); the state of each group is behind a
//! leaf, which is read by itself. Readers are not notified of a change under the lock: a change gives [`Changes`], to be told
//! after all locks.
//!
//! State without groups is below: `controllers`, `limit`, `owner`, `notice`, `pids_count`, `cpu`, `programs`, `tree`. [`Cgroup`] is
//! made of it, and each other module has operations on groups.
//!
//! Each container has a root group of its own, a child of a hidden group. A checkpoint keeps groups with
//! their names, owners and settings, and which tasks are in them.

#![forbid(unsafe_code)]

mod changes;
mod control;
mod controllers;
mod cpu;
mod cpu_control;
mod devices;
mod freeze;
mod group;
mod lifetime;
mod limit;
mod limits;
mod member;
mod migration;
mod notice;
mod owner;
mod pids;
mod pids_count;
mod programs;
mod state;
#[cfg(test)]
mod tests;
mod tree;

pub use changes::Changes;
pub use controllers::Controllers;
pub use cpu::{CpuMax, CpuStat};
pub use cpu_control::Look;
pub use devices::MOST_PROGRAMS;
pub use group::Cgroup;
pub use lifetime::{DEEPEST, MOST};
pub use limit::Limit;
pub use member::{Charge, Member};
pub use notice::Notice;
pub use owner::Owner;
pub use pids_count::{MOST_PIDS, Pids};
pub use programs::{Attach, BpfProgram, ProgramInfo, Programs};
pub use state::{CpuState, GroupState, GroupsState, ProgramState};

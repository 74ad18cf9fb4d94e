//! The life cycle of containers: one module for each command of an OCI runtime.
//!
//! Every function takes [`Settings`], which hold for all containers of one caller, and plain options. It finds the
//! container in the state directory ([`directory`]), talks to the container's sentry over its control socket
//! (`sandbox::client`), and writes the new state down. Nothing here reads the command line, and nothing but what `run`
//! and `exec` pass through is written to the standard streams.
//!
//! Invariants: a container changes only under its lock ([`directory::Lock`]). Only its `alive` lock says whether it
//! lives, never a file's content. A failing `create` leaves nothing behind.

#![forbid(unsafe_code)]

mod caller;
mod capture;
mod checkpoint;
mod crash;
mod create;
pub mod debug;
mod delete;
pub mod directory;
mod error;
mod events;
mod exec;
mod figures;
mod find;
mod foreground;
mod groups;
mod host_command;
mod host_name;
mod id_maps;
mod image_files;
mod kill;
mod list;
mod network;
mod overlay;
mod packed_pages;
mod pause;
mod pid_file;
mod pod;
pub mod policy;
mod policy_record;
mod pool;
mod port_forward;
mod ps;
mod record;
mod run;
mod run_hooks;
mod sandbox_log;
mod sentry_core;
mod sessions;
mod settings;
mod snapshots;
mod start;
mod start_hooks;
mod stores;
pub mod trace;
mod update;
mod usage;
mod wait;
mod weights;

#[cfg(test)]
mod testing;

pub use caller::{PassedFd, hostname, limits as callers_limits};
pub use checkpoint::{CheckpointOptions, RestoreOptions, checkpoint, clone, create_from, restore};
pub use create::{CreateOptions, create};
pub use delete::delete;
pub use directory::valid_id;
pub use error::{Error, Result};
pub use events::{Event, events, stats};
pub use exec::{ExecOptions, Program, exec};
pub use figures::{Watcher, sandbox_figures};
pub use foreground::block_signals;
pub use host_command::{ChangeList, CoverageReport, HostLimits, HostRun, HostSnapshot, run_host_command};
pub use image_files::ImageFiles;
pub use kill::kill;
pub use list::{list, list_sandboxes, state};
pub use overlay::{overlay_commit, overlay_diff, overlay_export};
pub use pause::{pause, resume};
pub use pool::{PoolOptions, PoolStatus, pools, serve_pool, take};
pub use port_forward::{Source, port_forward};
pub use ps::{host_processes, processes};
pub use record::{State, Status};
pub use run::{RunOptions, run};
pub use sessions::{SESSION_PROGRAM, Session, Sessions, Step};
pub use settings::{PacketCapture, Settings};
pub use snapshots::{NewSnapshot, SNAPSHOT_LIMIT, SavedCommand, Snapshot, SnapshotInfo, Snapshots};
pub use spec::AfterCheckpoint;
pub use start::start;

pub use update::update;
pub use usage::{Usage, usage};
pub use wait::{Waited, wait, wait_checkpoint, wait_process, wait_restore};

//! The sentry: puts the kernel together from a specification, starts the container's first process and waits for its end.
//!
//! `boot` runs a sandbox: `wire` makes its kernel, `control` is a container as the runtime sees it ([`Running`]), which `build`
//! makes from a specification, `mounts` with the mounts and `process` with the processes. A checkpoint keeps specifications.

#![forbid(unsafe_code)]

mod awaited;
mod boot;
mod build;
mod console;
mod control;
mod copy_up;
mod describe;
mod errors;
mod fds;
mod figures;
mod first;
mod host_side;
mod image;
mod links;
mod machine;
mod mounts;
mod nodes;
mod places;
mod pod;
mod process;
mod process_dump;
mod running;
mod settings;
mod tracing;
mod trees;
mod wire;
mod write_back;

pub use boot::{NetworkFiles, run};
pub use host_side::HostSide;
pub use running::{Attending, Executed, MAX_LAYERS, OnReady, Running, Stdio};

//! The sentry: puts the kernel together from a specification, starts the
//! container's first process and waits for its end.

#![forbid(unsafe_code)]

mod boot;
mod changes;
mod console;
mod control;
mod copy_up;
mod links;
mod mounts;
mod nets;
mod nodes;
mod places;
mod pod;
mod running;
mod settings;
mod wire;

pub use boot::{NetworkFiles, run};
pub use running::{Executed, OnReady, Running, Stdio};

//! The sentry: puts the kernel together from a specification, starts the
//! container's first process and waits for its end.

#![forbid(unsafe_code)]

mod boot;
mod console;
mod control;
mod copy_up;
mod mounts;
mod nodes;
mod pod;
mod settings;
pub mod spec;
mod wire;

pub use boot::run;
pub use hostfs::release_idle as release_idle_files;

//! The life of a sandbox: starting its processes, talking to them, and their own side of it.
//!
//! ```text
//!  command line ── launch ──┬── gofer        opens the container's directories
//!        │                  ├── net-gofer    makes the host's sockets, in host mode
//!        │                  └── init         pid 1 of the sandbox, waits
//!        └── channel ──────────── boot       the sentry: runs the kernel
//! ```
//!
//! A further container of the same sandbox has a gofer of its own, and a process that stands for it ([`member`]).
//!
//! A container in the foreground ends with its command line: the kernel then kills gofer and init, and
//! with init everything in the sandbox's pid namespace. One that `create` made is detached once it is
//! set up: init then holds the gofer, and [`client`] talks to the sentry over a socket in the state directory.

#![forbid(unsafe_code)]

use spec::StartError;

pub mod boot;
pub mod client;
pub mod console;
mod control;
pub mod copies;
mod core_pieces;
pub mod crash;
mod figures;
mod filter;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod init;
pub mod launch;
pub mod logging;
pub mod member;
mod messages;
mod oom;
mod pod;
mod received;
pub mod relay;
pub mod terminal;
mod view;

/// Names of the internal subcommands.
pub mod role {
    /// The gofer.
    pub const GOFER: &str = "gofer";
    /// The network gofer.
    pub const NET_GOFER: &str = "net-gofer";
    /// Pid 1 of the sandbox.
    pub const INIT: &str = "init";
    /// The sentry.
    pub const BOOT: &str = "boot";
    /// Stands for a container in another one's sandbox.
    pub const MEMBER: &str = "member";
    /// Writes changes of a root back.
    pub const WRITE_BACK: &str = "write-back";
    /// Attends to a sink of a trace session.
    pub const TRACE_SINK: &str = "trace-sink";
    /// Stands for a process that `exec --detach` started.
    pub const ATTEND: &str = "attend";
}

/// An error of the sentry as it may be shown on a terminal: one line, not endless, no control characters.
fn shown(error: StartError) -> StartError {
    let message = error.message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(1000).collect();
    StartError { message, ..error }
}

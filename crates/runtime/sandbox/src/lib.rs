//! The life of a sandbox: starting its processes, talking to them, and their own side of it.
//!
//! ```text
//!  command line ── launch ──┬── gofer        opens the container's directories
//!        │                  └── init         pid 1 of the sandbox, waits
//!        └── channel ──────────── boot       the sentry: runs the kernel
//! ```
//!
//! The command line holds the only other end of both sockets. When it ends, for
//! whatever reason, the kernel kills gofer and init, and with init everything
//! in the sandbox's pid namespace.

#![forbid(unsafe_code)]

pub mod boot;
mod filter;
pub mod init;
pub mod launch;
pub mod logging;
mod messages;
pub mod relay;
pub mod state;
pub mod terminal;

/// Names of the internal subcommands.
pub mod role {
    /// The gofer.
    pub const GOFER: &str = "gofer";
    /// Pid 1 of the sandbox.
    pub const INIT: &str = "init";
    /// The sentry.
    pub const BOOT: &str = "boot";
}

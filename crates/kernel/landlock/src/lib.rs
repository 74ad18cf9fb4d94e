//! Landlock: rules by which a program restricts itself, see landlock(7).
//!
//! A [`Ruleset`] collects rules while its descriptor is open. [`Domain::new`] freezes a copy of it as the topmost layer
//! of a domain; credentials hold the domain, so that clone(2) and execve(2) inherit it. Every layer that handles an
//! access must allow it by a rule on the way from the file up to the root. This crate knows objects by number only. The
//! file layer walks up and asks. A domain never changes, so it has no lock. A ruleset has one, a leaf. A checkpoint keeps
//! [`LayerState`]s.

#![forbid(unsafe_code)]

mod domain;
mod fs;
mod ruleset;
mod state;
#[cfg(test)]
mod tests;

pub use domain::{Domain, MAX_LAYERS};
pub use fs::Request;
pub use ruleset::{Handled, Object, ObjectKey, Pool, Ruleset};
pub use state::{LandlockRestorer, LandlockSaver, LayerState};

/// The version of the interface that landlock_create_ruleset(2) tells.
pub const VERSION: u64 = 7;

/// Accesses to files (LANDLOCK_ACCESS_FS_*).
pub mod access {
    /// Executing.
    pub const EXECUTE: u64 = 1;
    /// Opening for writing.
    pub const WRITE_FILE: u64 = 1 << 1;
    /// Opening for reading.
    pub const READ_FILE: u64 = 1 << 2;
    /// Opening a directory.
    pub const READ_DIR: u64 = 1 << 3;
    /// Removing a directory, or moving it away.
    pub const REMOVE_DIR: u64 = 1 << 4;
    /// Removing a file, or moving it away.
    pub const REMOVE_FILE: u64 = 1 << 5;
    /// Making a character device.
    pub const MAKE_CHAR: u64 = 1 << 6;
    /// Making a directory.
    pub const MAKE_DIR: u64 = 1 << 7;
    /// Making a regular file.
    pub const MAKE_REG: u64 = 1 << 8;
    /// Making a socket.
    pub const MAKE_SOCK: u64 = 1 << 9;
    /// Making a named pipe.
    pub const MAKE_FIFO: u64 = 1 << 10;
    /// Making a block device.
    pub const MAKE_BLOCK: u64 = 1 << 11;
    /// Making a symbolic link.
    pub const MAKE_SYM: u64 = 1 << 12;
    /// Linking or moving to another directory.
    pub const REFER: u64 = 1 << 13;
    /// Changing a file's length.
    pub const TRUNCATE: u64 = 1 << 14;
    /// ioctl(2) of devices.
    pub const IOCTL_DEV: u64 = 1 << 15;
    /// All of them.
    pub const ALL: u64 = (1 << 16) - 1;
    /// Those that mean something for what is no directory.
    pub const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
}

/// Accesses to ports (LANDLOCK_ACCESS_NET_*).
pub mod net {
    /// bind(2) of TCP.
    pub const BIND_TCP: u64 = 1;
    /// connect(2) of TCP.
    pub const CONNECT_TCP: u64 = 2;
    /// Both.
    pub const ALL: u64 = 3;
}

/// What stays inside a domain (LANDLOCK_SCOPE_*).
pub mod scope {
    /// Connecting to abstract Unix sockets.
    pub const ABSTRACT_UNIX_SOCKET: u64 = 1;
    /// Sending signals.
    pub const SIGNAL: u64 = 2;
    /// Both.
    pub const ALL: u64 = 3;
}

//! Terminals: pseudoterminal pairs, their line discipline, devpts, /dev/tty.
//!
//! [`ldisc`] is pure. [`Pty`] is the pair with its locks and queues. Processes reach it through the files of `files`,
//! the sentry through a [`ConsolePty`]. A terminal learns of sessions and process groups through [`JobControl`].

#![forbid(unsafe_code)]

mod console;
mod device;
mod devpts;
mod files;
mod ioctl;
pub mod ldisc;
mod pty;
mod slaves;
pub mod termios;

pub use console::ConsolePty;
pub use device::register;
pub use devpts::{Devpts, KNOWN as DEVPTS};
pub use files::{MasterFile, SlaveFile, is_hung, open_peer, pty_of};
pub use pty::{JobControl, Pty, PtyState};

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

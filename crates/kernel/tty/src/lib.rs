//! Terminals: pseudoterminal pairs, their line discipline, devpts, /dev/tty.
//!
//! [`ldisc`] is pure; [`Pty`] is the pair with its locks and queues; processes reach it
//! through the files of `master` and `slave`, the sentry through a [`Console`]. What a
//! terminal must know of sessions and process groups comes through [`JobControl`].

#![forbid(unsafe_code)]

pub mod ldisc;
pub mod termios;

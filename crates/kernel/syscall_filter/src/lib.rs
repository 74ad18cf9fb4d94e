//! Which system calls a thread may make: the mode and filters of seccomp(2), and the supervisors of filters
//! (seccomp_unotify(2)).
//!
//! [`Seccomp`] is a thread's mode and filters. A [`Listener`] is the queue between the threads under a filter and its
//! supervisor. [`open`] makes the supervisor's descriptor. This crate knows threads by their IDs alone; what a filter's
//! verdict does to a call is decided in the crate `task`.

#![forbid(unsafe_code)]

mod listener;
mod listener_file;
mod mode;

pub use listener::{Answer, Listener, Listeners};
pub use listener_file::{ADD_FD, listener_of, open};
pub use mode::{DISABLED, FILTER, STRICT, Seccomp, SeccompState};

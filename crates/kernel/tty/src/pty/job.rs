//! The view of sessions and process groups that terminals need.

use super::Pty;
use abi::Signal;
use std::sync::Arc;

/// Sessions and process groups, as the task layer keeps them. Called without any lock of a terminal.
pub trait JobControl: Send + Sync {
    /// Sends a signal from the kernel to every member of a process group.
    fn signal_pgrp(&self, pgid: i32, sig: Signal);
    /// Sends a signal from the kernel to one process (a session's leader).
    fn signal_process(&self, pid: i32, sig: Signal);
    /// True when the process group exists in the session.
    fn pgrp_in_session(&self, pgid: i32, sid: i32) -> bool;
    /// The session of a process group, if the group exists.
    fn session_of(&self, pgid: i32) -> Option<i32>;
    /// True for a process group without a parent in its session that could continue it after a stop.
    fn is_orphaned(&self, pgid: i32) -> bool;
    /// Controlling terminal of a session.
    fn terminal(&self, sid: i32) -> Option<Arc<Pty>>;
    /// Sets or clears it.
    fn set_terminal(&self, sid: i32, tty: Option<Arc<Pty>>);
}

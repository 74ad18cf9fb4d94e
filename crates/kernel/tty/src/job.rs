//! What terminals must know of sessions and process groups.

use abi::Signal;
use std::any::Any;
use std::sync::{Arc, OnceLock};

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
    /// True for a process group whose stops nobody would notice.
    fn is_orphaned(&self, pgid: i32) -> bool;
    /// Controlling terminal of a session, a [`crate::Pty`].
    fn terminal(&self, sid: i32) -> Option<Arc<dyn Any + Send + Sync>>;
    /// Sets or clears it.
    fn set_terminal(&self, sid: i32, tty: Option<Arc<dyn Any + Send + Sync>>);
}

/// A system without sessions.
struct Nobody;

impl JobControl for Nobody {
    fn signal_pgrp(&self, _pgid: i32, _sig: Signal) {}
    fn signal_process(&self, _pid: i32, _sig: Signal) {}
    fn pgrp_in_session(&self, _pgid: i32, _sid: i32) -> bool {
        false
    }
    fn session_of(&self, _pgid: i32) -> Option<i32> {
        None
    }
    fn is_orphaned(&self, _pgid: i32) -> bool {
        false
    }
    fn terminal(&self, _sid: i32) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
    fn set_terminal(&self, _sid: i32, _tty: Option<Arc<dyn Any + Send + Sync>>) {}
}

static JOBS: OnceLock<Arc<dyn JobControl>> = OnceLock::new();

/// Says who knows about sessions. Called once, before the first terminal is made.
pub fn set_job_control(j: Arc<dyn JobControl>) {
    let _ = JOBS.set(j);
}

/// Who was set, or somebody who knows of none.
pub(crate) fn job_control() -> Arc<dyn JobControl> {
    JOBS.get().cloned().unwrap_or_else(|| Arc::new(Nobody))
}

//! The end of a process begins: it gets its wait status, and its threads are told to leave. See exit_group(2).
//!
//! Each thread then leaves by [`crate::exit`].

use crate::current::Current;
use crate::thread_group::{Signals, ThreadGroup};
use crate::usage::begin_end;

impl Current {
    /// exit_group(2): ends the process with a wait status.
    pub fn exit_group(&mut self, status: i32) {
        let mut s = self.task.group.signals.lock();
        kill_group(&self.task.group, &mut s, status);
        drop(s);
        self.exit_code = Some(status);
    }
}

/// Starts the end of a process with a wait status; every thread leaves as soon as it notices.
pub(crate) fn kill_group(group: &ThreadGroup, s: &mut Signals, status: i32) {
    if !s.end(status) {
        return;
    }
    for t in &s.threads {
        t.kill();
    }
    // A guest that blocks the interrupt in its own stub would never notice: its memory goes when all its users end.
    if let Some(mm) = s.threads.first().map(|t| t.mm()) {
        begin_end(group, &mm);
    }
}

//! Ends of child processes.
//!
//! The shim is a subreaper: what `ringfence` leaves behind (a container's pid 1, processes of `exec`) becomes its
//! child. The shim crate reaps every child and tells here. An end is then taken by exactly one: by whoever waits
//! for a command, or by the container's process. A process can end before its pid is known; such ends are kept
//! while anybody [holds](Exits::hold) them.

use std::collections::HashMap;
use std::io;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(crate) struct Exits {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Commands somebody waits for, with their status once they have ended.
    commands: HashMap<i32, Option<i32>>,
    /// Ends of processes that nobody has asked for yet.
    early: HashMap<i32, i32>,
    holds: usize,
}

/// While it exists ends are kept.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Exits>);

impl Exits {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Keeps ends from now on.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        self.lock().holds += 1;
        Hold(self.clone())
    }

    /// Notes an end. Gives it back when it is no command's: it may be a container's process.
    pub(crate) fn note(&self, pid: i32, status: i32) -> bool {
        let mut state = self.lock();
        if let Some(slot) = state.commands.get_mut(&pid) {
            *slot = Some(status);
            self.changed.notify_all();
            return false;
        }
        if state.holds > 0 {
            state.early.insert(pid, status);
        }
        true
    }

    /// Runs a command to its end, and gives its status.
    pub(crate) fn run(&self, command: &mut Command) -> io::Result<i32> {
        let mut state = self.lock();
        // Nobody can note its end before it is expected: they wait for the lock.
        let pid = command.spawn()?.id() as i32;
        state.commands.insert(pid, None);
        loop {
            if let Some(Some(status)) = state.commands.get(&pid) {
                let status = *status;
                state.commands.remove(&pid);
                return Ok(status);
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

impl Hold {
    /// The end of a process that has just become known.
    pub(crate) fn take(&self, pid: i32) -> Option<i32> {
        self.0.lock().early.remove(&pid)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.holds -= 1;
        if state.holds == 0 {
            state.early.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_ends_are_kept_while_held() {
        let exits = Arc::new(Exits::default());
        assert!(exits.note(1, 0));
        let hold = exits.hold();
        assert_eq!(hold.take(1), None);
        assert!(exits.note(2, 9));
        assert_eq!(hold.take(2), Some(9));
        assert_eq!(hold.take(2), None);
        assert!(exits.note(3, 9));
        drop(hold);
        assert_eq!(exits.hold().take(3), None);
    }
}

//! Ends of child processes.
//!
//! The shim is a subreaper: processes that `ringfence` leaves behind (a container's pid 1, processes of `exec`) become
//! its children. One thread [reaps](Exits::reap) every child. An end is then taken exactly once: by the thread that
//! waits for a command, or by the container's process. A process can end before its pid is known; such ends are kept
//! while a thread [holds](Exits::hold) them.

use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus, wait};
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
    /// Commands that are waited for, with their status once they have ended.
    commands: HashMap<i32, Option<i32>>,
    /// Ends of processes that have not been asked for yet.
    early: HashMap<i32, i32>,
    holds: usize,
    /// How many commands were started.
    started: u64,
}

/// Has ends kept of processes that are not known yet, until it is dropped.
#[derive(Debug)]
pub(crate) struct EarlyExits(Arc<Exits>);

impl Exits {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Keeps ends from now on.
    pub(crate) fn hold(self: &Arc<Self>) -> EarlyExits {
        self.lock().holds += 1;
        EarlyExits(self.clone())
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

    /// Reaps every child for ever, and tells of each its process ID and its exit status, 128 and the signal for one that
    /// was killed. Nothing becomes our child but descendants of the commands, so without a child the next command's start
    /// is waited for.
    pub(crate) fn reap(&self, tell: impl Fn(i32, i32)) {
        loop {
            let started = self.lock().started;
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => {
                    if let Some(status) = exit_status(status) {
                        tell(pid.as_raw_nonzero().get(), status);
                    }
                }
                Err(Errno::CHILD) => {
                    let unchanged = |state: &mut State| state.started == started;
                    drop(self.changed.wait_while(self.lock(), unchanged));
                }
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// Runs a command to its end, and gives its status.
    pub(crate) fn run(&self, command: &mut Command) -> io::Result<i32> {
        let mut state = self.lock();
        // Its end cannot be noted before it is expected, because that needs the lock.
        let pid = command.spawn()?.id() as i32;
        state.commands.insert(pid, None);
        state.started += 1;
        self.changed.notify_all();
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

impl EarlyExits {
    /// The end of a process that has just become known.
    pub(crate) fn take(&self, pid: i32) -> Option<i32> {
        self.0.lock().early.remove(&pid)
    }
}

impl Drop for EarlyExits {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.holds -= 1;
        if state.holds == 0 {
            state.early.clear();
        }
    }
}

fn exit_status(status: WaitStatus) -> Option<i32> {
    status.exit_status().or_else(|| status.terminating_signal().map(|signo| 128 + signo))
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

    #[test]
    fn commands_end() {
        let exits = Arc::new(Exits::default());
        let reaper = exits.clone();
        std::thread::spawn(move || {
            reaper.clone().reap(move |pid, status| {
                reaper.note(pid, status);
            });
        });
        // The second one finds the reaper without a child.
        for (script, status) in [("exit 3", 3), ("kill -9 $$", 137)] {
            assert_eq!(exits.run(Command::new("sh").args(["-c", script])).unwrap(), status);
        }
    }
}

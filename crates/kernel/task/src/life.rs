//! The life of a process, as one state machine under the group's signal lock.
//!
//! ```text
//! Running <-> Dethreading       execve(2) of a process with several threads
//!    |             |
//!    '------+------'
//!           v
//!        Leaving                exit_group(2), a fatal signal, or the end of the last thread
//!           v
//!         Dead                  no thread is left: a zombie
//!           v
//!        Reaped                 waited for, or its parent does not want to know
//! ```
//!
//! `Signals::remove` decides which thread is the last one, in the step that removes it. `Dead` and `Reaped` are entered
//! under the tree's lock as well, so a holder of that lock sees no change between the two. Plain values, which a checkpoint keeps.

use abi::Signal;
use sched::Usage;

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[expect(clippy::large_enum_variant, reason = "there is one in a process, and zombies are read by value")]
pub enum Life {
    /// Its threads run, or are stopped.
    #[default]
    Running,
    /// The thread with this ID executes a program; all others are to leave.
    Dethreading(i32),
    /// Its threads are to leave, or have left and are being cleared away; the process will have this wait status.
    Leaving(i32),
    /// Its last thread has left.
    Dead(Zombie),
    /// It has been waited for, or will not be. It had this wait status.
    Reaped(i32),
}

/// What is left of a process until it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Zombie {
    /// Wait status.
    pub status: i32,
    /// Real user id.
    pub uid: u32,
    /// Processor time and memory used.
    pub usage: Usage,
    /// Name.
    pub comm: [u8; 16],
}

impl Life {
    /// The wait status, once it is certain that the process ends.
    pub fn status(self) -> Option<i32> {
        match self {
            Life::Running | Life::Dethreading(_) => None,
            Life::Leaving(status) | Life::Reaped(status) => Some(status),
            Life::Dead(zombie) => Some(zombie.status),
        }
    }

    /// Whether the process ends or has ended.
    pub fn is_over(self) -> bool {
        self.status().is_some()
    }

    /// Whether the thread with this ID is to leave.
    pub fn ends(self, tid: i32) -> bool {
        match self {
            Life::Dethreading(by) => by != tid,
            _ => self.is_over(),
        }
    }

    /// Whether the process takes new threads, and no other thread executes a program.
    pub fn is_running(self) -> bool {
        matches!(self, Life::Running)
    }
}

/// Whether a process is stopped by a signal. See signal(7), "stop".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Stop {
    /// It is not.
    #[default]
    Not,
    /// This signal stops it, but not all threads have noticed yet.
    Stopping(Signal),
    /// All threads are parked, and the parent has been told.
    Stopped(Signal),
}

impl Stop {
    /// Whether threads are to be parked.
    pub fn is_on(self) -> bool {
        self != Stop::Not
    }

    /// The signal that stops it.
    pub fn signal(self) -> Option<Signal> {
        match self {
            Stop::Not => None,
            Stop::Stopping(sig) | Stop::Stopped(sig) => Some(sig),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn execve_ends_the_other_threads_only() {
        let life = Life::Dethreading(7);
        assert!(life.ends(8) && !life.ends(7) && !life.is_over() && !life.is_running());
        assert!(Life::Leaving(0).ends(7) && Life::Reaped(0).ends(7) && !Life::Running.ends(7));
    }
}

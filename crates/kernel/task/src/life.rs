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
//! [`Signals::remove`] decides which thread is the last one, in the step that removes it. `Dead` and `Reaped` are entered
//! under the tree's lock as well, so whoever holds that sees no change between the two.

use crate::core::Gathering;
use crate::task::Task;
use abi::{SigSet, Signal};
use sched::Usage;
use signal::Pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// It has been waited for, or nobody will. It had this wait status.
    Reaped(i32),
}

/// What is left of a process until it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// What the removal of a thread meant for its group.
pub(crate) struct Departure {
    /// Of the last thread: the process's wait status, and whether the end had begun before.
    pub(crate) last: Option<(i32, bool)>,
    /// All that are left are parked by this signal, and the parent does not know yet.
    pub(crate) stopped: Option<Signal>,
}

/// Signals, threads, stop and life of a process, under one lock.
#[derive(Default)]
pub struct Signals {
    /// Signals sent to the process.
    pub shared: Pending,
    /// Where the process is in its life.
    pub life: Life,
    /// Whether a signal stops it.
    pub stop: Stop,
    /// Threads that take part in the stop: they are parked, or were when their tracer had them go on.
    pub parked: usize,
    /// Counts the stops.
    stops: u32,
    /// Counts SIGCONTs: one that comes between a stop signal's dequeue and its effect makes it void.
    pub(crate) continues: u32,
    /// A core file in the making.
    pub(crate) core: Option<Arc<Gathering>>,
    /// Live threads.
    pub threads: Vec<Arc<Task>>,
}

impl Signals {
    /// Adds a thread.
    pub(crate) fn add(&mut self, task: Arc<Task>) {
        self.threads.push(task);
    }

    /// A thread begins to leave; true when all others have begun, too.
    pub(crate) fn begin_to_leave(&self, task: &Task) -> bool {
        task.begin_to_leave();
        crate::send::retarget(&task.group, self, SigSet::ALL);
        self.threads.iter().all(|t| t.is_leaving())
    }

    /// Removes a thread. The one that leaves nobody behind is the last, and this is where it is decided.
    pub(crate) fn remove(&mut self, task: &Task, own_status: i32) -> Departure {
        self.threads.retain(|t| !std::ptr::eq(&**t, task));
        if self.stop.is_on() && self.is_parked(task) {
            self.parked -= 1;
        }
        if self.threads.is_empty() {
            let begun = self.life.status();
            let status = begun.unwrap_or(own_status);
            self.life = Life::Leaving(status);
            self.stop = Stop::Not;
            return Departure { last: Some((status, begun.is_some())), stopped: None };
        }
        Departure { last: None, stopped: self.all_parked() }
    }

    /// The process is to end with this wait status; false when its end had begun before.
    pub(crate) fn end(&mut self, status: i32) -> bool {
        if self.life.is_over() {
            return false;
        }
        self.life = Life::Leaving(status);
        self.stop = Stop::Not;
        true
    }

    /// Begins a stop, unless there is one or the process ends.
    pub(crate) fn begin_stop(&mut self, sig: Signal) -> bool {
        let begins = !self.life.is_over() && !self.stop.is_on();
        if begins {
            self.stop = Stop::Stopping(sig);
            self.stops = self.stops.wrapping_add(1);
            self.parked = 0;
        }
        begins
    }

    /// Ends a stop; true when there was one.
    pub(crate) fn end_stop(&mut self) -> bool {
        std::mem::take(&mut self.stop).is_on()
    }

    /// Whether a thread takes part in the stop that is on.
    pub(crate) fn is_parked(&self, task: &Task) -> bool {
        task.parked_in.load(Ordering::Relaxed) == self.stops
    }

    /// Parks a thread while there is a stop. The last one gets the signal, to tell the parent.
    pub(crate) fn park(&mut self, task: &Task) -> Option<Signal> {
        if self.is_parked(task) {
            return None;
        }
        task.parked_in.store(self.stops, Ordering::Relaxed);
        self.count_parked()
    }

    fn count_parked(&mut self) -> Option<Signal> {
        self.parked += 1;
        self.all_parked()
    }

    /// Completes a stop that all threads have noticed; gives its signal, once.
    fn all_parked(&mut self) -> Option<Signal> {
        match self.stop {
            Stop::Stopping(sig) if self.parked >= self.threads.len() => {
                self.stop = Stop::Stopped(sig);
                Some(sig)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_begins_once_and_ends_a_stop() {
        let mut s = Signals::default();
        assert!(s.begin_stop(Signal::SIGSTOP) && !s.begin_stop(Signal::SIGTSTP));
        assert!(s.end(9) && !s.end(15));
        assert_eq!((s.life.status(), s.stop), (Some(9), Stop::Not));
        assert!(!s.begin_stop(Signal::SIGSTOP));
    }

    #[test]
    fn the_parent_is_told_of_a_stop_once() {
        let mut s = Signals::default();
        s.begin_stop(Signal::SIGTSTP);
        assert_eq!((s.count_parked(), s.count_parked()), (Some(Signal::SIGTSTP), None));
        assert!(s.end_stop() && !s.end_stop());
    }

    #[test]
    fn execve_ends_the_other_threads_only() {
        let life = Life::Dethreading(7);
        assert!(life.ends(8) && !life.ends(7) && !life.is_over() && !life.is_running());
        assert!(Life::Leaving(0).ends(7) && Life::Reaped(0).ends(7) && !Life::Running.ends(7));
    }
}

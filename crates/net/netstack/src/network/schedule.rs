//! Deadlines of a stack: of its tables and of its sockets.
//!
//! Locks: those of [`Timers`] are leaves. A checkpoint keeps no timer: each object sets its own again.

use crate::timer::{TimerId, Timers};
use ktime::Ktime;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Told when a deadline is set that comes before the one that [`crate::Stack::next_deadline`] returned last.
pub trait Alarm: Send + Sync {
    /// [`crate::Stack::run_timers`] is to be called at `at` already. May be called with locks of the stack held.
    fn earlier(&self, at: Ktime);
}

/// An alarm for callers that ask for the deadline themselves.
#[derive(Debug)]
pub struct NoAlarm;

impl Alarm for NoAlarm {
    fn earlier(&self, _at: Ktime) {}
}

/// A socket with a timer.
pub(crate) trait Expire: Send + Sync {
    /// The timer has fired.
    fn expire(&self, now: Ktime);
}

/// Whose deadline a timer is.
#[derive(Clone)]
pub(crate) enum Target {
    /// The neighbour table.
    Neighbours,
    /// Addresses of interfaces.
    Addresses,
    /// Fragments.
    Reassembly,
    /// Frames that an operation has left.
    Backlog,
    /// Storage kept for queues.
    Spares,
    /// A socket.
    Socket(Weak<dyn Expire>),
}

/// The deadlines, and the alarm that tells the kernel of an earlier one.
pub(crate) struct Schedule {
    timers: Timers<Target>,
    alarm: Arc<dyn Alarm>,
    /// The deadline that the kernel knows, in nanoseconds.
    reported: AtomicU64,
}

impl Schedule {
    /// No deadlines.
    pub(crate) fn new(alarm: Arc<dyn Alarm>) -> Schedule {
        Schedule { timers: Timers::new(), alarm, reported: AtomicU64::new(u64::MAX) }
    }

    /// When timers are to be run next.
    pub(crate) fn next(&self) -> Option<Ktime> {
        // Forgotten first: a deadline that is set from now on either is in the answer or rings the alarm.
        self.reported.store(u64::MAX, Ordering::SeqCst);
        let next = self.timers.next();
        if let Some(next) = next {
            self.reported.fetch_min(next.nanos(), Ordering::SeqCst);
        }
        next
    }

    /// Takes a timer that is due.
    pub(crate) fn pop_due(&self, now: Ktime) -> Option<Target> {
        self.timers.pop_due(now)
    }

    /// Sets a timer, or with `None` stops it.
    pub(crate) fn arm(&self, id: TimerId, at: Option<Ktime>) {
        self.timers.arm(id, at);
        if let Some(at) = at
            && self.reported.fetch_min(at.nanos(), Ordering::SeqCst) > at.nanos()
        {
            self.alarm.earlier(at);
        }
    }

    /// Adds a timer that is not set.
    pub(crate) fn add(&self, target: Target) -> TimerId {
        self.timers.add(target)
    }

    /// Removes a timer.
    pub(crate) fn remove(&self, id: TimerId) {
        self.timers.remove(id);
    }
}

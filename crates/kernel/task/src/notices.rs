//! What programs learn of checkpoints, and ask for: /proc/gvisor/checkpoint and /proc/ringfence/generation.
//!
//! An image keeps nothing of this. A file that was open before has, after a restore, a [`Seen`] that is older than the restore:
//! its reader learns of it. Lock rank: leaf.

use lock_order::Mutex;
use std::sync::Arc;
use std::time::Instant;
use wait::{Events, WaitQueue, Waiter};

/// How a checkpoint went, as programs see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was made, and the program went on.
    Resume,
    /// The program goes on from the image.
    Restore,
    /// It failed, and the program went on.
    Error,
}

impl Outcome {
    /// As /proc/gvisor/checkpoint says it.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Resume => "resume",
            Outcome::Restore => "restore",
            Outcome::Error => "error",
        }
    }
}

/// How many outcomes an open file knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u64);

struct State {
    /// Outcomes so far.
    count: u64,
    last: Outcome,
    /// The kernel comes from an image.
    from_image: bool,
    /// Files that are opened now were open before.
    restoring: bool,
    /// A program asks for a checkpoint.
    asked: bool,
    /// Commands on the host that make one when a program asks.
    attending: usize,
    generation: [u8; 16],
}

/// Of a kernel.
pub struct Notices {
    state: Mutex<State>,
    /// Notified on an outcome.
    outcome: WaitQueue,
    /// Notified when a program asks.
    asked: WaitQueue,
}

impl Default for Notices {
    fn default() -> Notices {
        let mut generation = [0; 16];
        hostsys::fs::random(&mut generation);
        let state = State {
            count: 0,
            last: Outcome::Resume,
            from_image: false,
            restoring: false,
            asked: false,
            attending: 0,
            generation,
        };
        Notices { state: Mutex::new(state), outcome: WaitQueue::new(), asked: WaitQueue::new() }
    }
}

impl Notices {
    /// The kernel is being restored, until [`Notices::restored`].
    pub fn restoring(&self) {
        let mut state = self.state.lock();
        (state.from_image, state.restoring) = (true, true);
        (state.count, state.last) = (1, Outcome::Restore);
    }

    /// All files that were open are open again.
    pub fn restored(&self) {
        self.state.lock().restoring = false;
    }

    /// A number of 128 bits, another one after each restore.
    pub fn generation(&self) -> [u8; 16] {
        self.state.lock().generation
    }

    /// What a file that is opened now knows of.
    pub fn seen(&self) -> Seen {
        let state = self.state.lock();
        Seen(if state.restoring { 0 } else { state.count })
    }

    /// Whether there is a restore that a file does not know of.
    pub fn is_another_generation(&self, seen: Seen) -> bool {
        // Of the outcomes in one kernel a restore is the first.
        seen.0 == 0 && self.state.lock().from_image
    }

    /// The last outcome, if it is not known.
    pub fn outcome_after(&self, seen: Seen) -> Option<Outcome> {
        let state = self.state.lock();
        (state.count > seen.0 && !state.restoring).then_some(state.last)
    }

    /// Notified on an outcome.
    pub fn queue(&self) -> WaitQueue {
        self.outcome.clone()
    }

    /// A checkpoint went like this.
    pub fn tell(&self, outcome: Outcome) {
        let mut state = self.state.lock();
        (state.count, state.last, state.asked) = (state.count + 1, outcome, false);
        drop(state);
        self.outcome.notify(Events::ALL);
    }

    /// A program asks for a checkpoint; false when no command on the host waits for that.
    pub fn ask(&self) -> bool {
        let mut state = self.state.lock();
        if state.attending == 0 {
            return false;
        }
        state.asked = true;
        drop(state);
        self.asked.notify(Events::ALL);
        true
    }

    /// A command on the host waits for programs that ask, or makes the checkpoint, until this is dropped.
    pub fn attend(self: &Arc<Notices>) -> Attendance {
        self.state.lock().attending += 1;
        Attendance(self.clone())
    }

    /// Waits until a deadline for an outcome after those that are known.
    pub fn wait_outcome(&self, seen: Seen, until: Instant) -> Option<Outcome> {
        let attempt = || self.outcome_after(seen);
        Waiter::new().wait_on(&self.outcome, Events::ALL, Some(until), attempt).ok()
    }
}

/// See [`Notices::attend`].
pub struct Attendance(Arc<Notices>);

impl Attendance {
    /// Waits until a deadline for a program that asks; true when one has.
    pub fn wait(&self, until: Instant) -> bool {
        let attempt = || self.0.state.lock().asked.then_some(());
        Waiter::new().wait_on(&self.0.asked, Events::ALL, Some(until), attempt).is_ok()
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.attending -= 1;
        let in_vain = state.attending == 0 && state.asked;
        drop(state);
        if in_vain {
            // The command went before it made a checkpoint: the programs that asked do not wait for one.
            self.0.tell(Outcome::Error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + std::time::Duration::from_millis(1)
    }

    #[test]
    fn a_file_that_was_open_learns_of_the_restore() {
        let notices = Notices::default();
        let fresh = notices.seen();
        assert_eq!((notices.outcome_after(fresh), notices.is_another_generation(fresh)), (None, false));
        let restored = Notices::default();
        restored.restoring();
        let before = restored.seen();
        assert_eq!(restored.outcome_after(before), None);
        restored.restored();
        assert_eq!(restored.outcome_after(before), Some(Outcome::Restore));
        assert!(restored.is_another_generation(before));
        let after = restored.seen();
        assert_eq!((restored.outcome_after(after), restored.is_another_generation(after)), (None, false));
        restored.tell(Outcome::Resume);
        assert_eq!(restored.wait_outcome(after, soon()), Some(Outcome::Resume));
        assert!(!restored.is_another_generation(after));
        assert_ne!(notices.generation(), restored.generation());
    }

    #[test]
    fn a_program_asks_a_command_that_attends() {
        let notices = Arc::new(Notices::default());
        assert!(!notices.ask());
        let attendance = notices.attend();
        assert!(!attendance.wait(soon()));
        assert!(notices.ask());
        assert!(attendance.wait(soon()));
        notices.tell(Outcome::Resume);
        let seen = notices.seen();
        drop(attendance);
        assert_eq!(notices.outcome_after(seen), None);
        assert!(!notices.ask());
    }

    #[test]
    fn a_request_ends_with_the_last_command_that_attends() {
        let notices = Arc::new(Notices::default());
        let (first, second) = (notices.attend(), notices.attend());
        let seen = notices.seen();
        assert!(notices.ask() && first.wait(soon()));
        drop(first);
        assert!(notices.outcome_after(seen).is_none() && second.wait(soon()));
        drop(second);
        assert_eq!(notices.outcome_after(seen), Some(Outcome::Error));
        assert!(!notices.attend().wait(soon()));
    }
}

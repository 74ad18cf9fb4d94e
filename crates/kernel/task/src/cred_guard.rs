//! The lock under which execve(2) computes credentials and puts them into force (Linux's `cred_guard_mutex`).
//!
//! The rights of a program depend on the thread's tracer and filters, and on the users of its root directory. execve(2)
//! looks at these first, and commits when the other threads have ended. In between no thread attaches with ptrace(2),
//! which would look at the old credentials, no other thread sets filters for all, and none makes a process with
//! CLONE_FS. Threads sleep for this lock. They hold no other lock while they do.

use lock_order::Mutex;
use wait::{Events, WaitQueue};

/// What a thread holds the lock for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// execve(2).
    Exec,
    /// A thread becomes a tracer, or sets filters for all threads.
    Other,
}

/// The lock of a process.
#[derive(Default)]
pub(crate) struct CredGuard {
    held: Mutex<Option<Purpose>>,
    /// Notified when it is free.
    pub(crate) queue: WaitQueue,
}

impl CredGuard {
    /// Takes the lock if it is free.
    pub(crate) fn try_take(&self, purpose: Purpose) -> bool {
        let mut held = self.held.lock();
        let free = held.is_none();
        if free {
            *held = Some(purpose);
        }
        free
    }

    /// Whether a thread of the process is in the middle of an execve(2).
    pub(crate) fn in_exec(&self) -> bool {
        *self.held.lock() == Some(Purpose::Exec)
    }

    /// Frees the lock.
    pub(crate) fn release(&self) {
        *self.held.lock() = None;
        self.queue.notify(Events::IN);
    }
}

//! The lock under which execve(2) computes credentials and puts them into force (Linux's `cred_guard_mutex`).
//!
//! What a program may have depends on the thread's tracer and filters, and on who shares its root directory. execve(2)
//! looks at these first, and commits when the other threads have ended. In between nobody attaches with ptrace(2),
//! which would look at the old credentials, no other thread sets filters for all, and none makes a process with
//! CLONE_FS. Threads sleep for this lock. They hold no other lock while they do.

use crate::current::Current;
use crate::result::{Restart, SysErr};
use crate::thread_group::ThreadGroup;
use abi::Errno;
use ranked::Mutex;
use std::sync::Arc;
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
    queue: WaitQueue,
}

impl CredGuard {
    fn try_take(&self, purpose: Purpose) -> bool {
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
}

/// Holds the lock of a process.
pub struct CredsHeld(Arc<ThreadGroup>);

impl Drop for CredsHeld {
    fn drop(&mut self) {
        *self.0.cred_guard.held.lock() = None;
        self.0.cred_guard.queue.notify(Events::IN);
    }
}

impl Current {
    /// Takes the lock of a process. The call is restarted when a signal comes first.
    pub(crate) fn hold_creds(&self, group: &Arc<ThreadGroup>, purpose: Purpose) -> Result<CredsHeld, SysErr> {
        let take = || group.cred_guard.try_take(purpose).then(|| CredsHeld(group.clone()));
        let taken = self.task.waiter.wait_on(&group.cred_guard.queue, Events::IN, None, take);
        taken.map_err(|_| SysErr::Restart(Restart::NoIntr))
    }

    /// Takes the lock of the thread's own process. EINTR when the thread is to end first.
    pub(crate) fn hold_own_creds(&self) -> Result<CredsHeld, Errno> {
        let group = &self.task.group;
        let take = || group.cred_guard.try_take(Purpose::Other).then(|| CredsHeld(group.clone()));
        let _sub = group.cred_guard.queue.subscribe(Events::IN, self.task.waiter.clone());
        loop {
            if let Some(held) = take() {
                return Ok(held);
            }
            if self.dying() {
                return Err(Errno::EINTR);
            }
            let _ = self.task.waiter.sleep_uninterruptible(None);
        }
    }

    /// Begins an execve(2): what its credentials depend on does not change until [`Current::replace_program`] is over.
    pub fn begin_exec(&self) -> Result<CredsHeld, SysErr> {
        self.hold_creds(&self.task.group, Purpose::Exec)
    }
}

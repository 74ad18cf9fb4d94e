//! Holding the lock under which execve(2) computes credentials: see `cred_guard`.

use crate::cred_guard::Purpose;
use crate::current::Current;
use crate::thread_group::ThreadGroup;
use abi::Errno;
use std::sync::Arc;
use sysresult::{Restart, SysErr};
use wait::Events;

/// Holds the lock of a process.
pub struct CredLock(Arc<ThreadGroup>);

impl Drop for CredLock {
    fn drop(&mut self) {
        self.0.cred_guard.release();
    }
}

impl Current {
    /// Takes the lock of a process. The call is restarted when a signal comes first.
    pub(crate) fn hold_creds(&self, group: &Arc<ThreadGroup>, purpose: Purpose) -> Result<CredLock, SysErr> {
        let take = || group.cred_guard.try_take(purpose).then(|| CredLock(group.clone()));
        let taken = self.task.waiter.wait_on(&group.cred_guard.queue, Events::IN, None, take);
        taken.map_err(|_| SysErr::Restart(Restart::NoIntr))
    }

    /// Takes the lock of the thread's own process. EINTR when the thread is to end first.
    pub(crate) fn hold_own_creds(&self) -> Result<CredLock, Errno> {
        let group = &self.task.group;
        let take = || group.cred_guard.try_take(Purpose::Other).then(|| CredLock(group.clone()));
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
    pub fn begin_exec(&self) -> Result<CredLock, SysErr> {
        self.hold_creds(&self.task.group, Purpose::Exec)
    }
}

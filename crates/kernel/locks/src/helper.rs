//! A thread that waits on the host for a lock that a process outside holds, for a thread of a program inside.
//!
//! The helper has a host description of its own. When it gets the lock it notifies the queue on which the program's thread
//! sleeps, and that thread takes the description over ([`HostWait::won`]). A program's thread that stops waiting interrupts
//! the helper. The number of helpers is bounded ([`OutsideWaits::helper`](caller::pace::OutsideWaits::helper)); further
//! waiters ask the host again and again.
//!
//! Lock: the helper's stage, a leaf. The queue is notified without it. A checkpoint keeps nothing.

use abi::{Errno, Result};
use caller::pace::HelperSlot;
use hostsys::fs::{self as host, HostLock};
use hostsys::signals::Interruptible;
use lock_order::Mutex;
use std::sync::Arc;
use std::time::Duration;
use vfs::file::LockFile;
use wait::{Events, WaitQueue};

/// What is waited for.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    /// A range, by its first and last byte.
    Range(HostLock, u64, u64),
    /// The whole file, flock(2).
    File(HostLock),
}

enum Stage {
    /// The thread begins.
    Begins,
    /// It waits.
    Waits(Interruptible),
    /// The lock is not wanted any more.
    Cancelled(Option<Interruptible>),
    /// It has the lock, or cannot have it.
    Done(Result<LockFile>),
    /// The lock was taken over, or the thread has ended without.
    Over,
}

/// A wait for a lock of the host.
pub(crate) struct HostWait(Arc<Mutex<Stage>>);

impl HostWait {
    /// Begins to wait for a lock of `file`, which no other lock uses. `queue` is notified at the end. `None` without a thread.
    pub fn begin(slot: HelperSlot, file: LockFile, wanted: Wanted, queue: &WaitQueue) -> Option<HostWait> {
        let stage = Arc::new(Mutex::new(Stage::Begins));
        let (shared, queue) = (stage.clone(), queue.clone());
        let run = move || {
            let _slot = slot;
            hostsys::cpu::roam();
            wait(&shared, file, wanted);
            queue.notify(Events::ALL);
        };
        std::thread::Builder::new().name("host-lock".into()).spawn(run).ok()?;
        Some(HostWait(stage))
    }

    /// The description with the lock, or why it cannot be had; `None` while there is nothing yet.
    pub fn won(&self) -> Option<Result<LockFile>> {
        let mut stage = self.0.lock();
        if !matches!(*stage, Stage::Done(_)) {
            return None;
        }
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Done(result) => Some(result),
            _ => None,
        }
    }
}

/// Of the helping thread.
fn wait(stage: &Mutex<Stage>, file: LockFile, wanted: Wanted) {
    let me = Interruptible::this();
    let cancelled = || matches!(*stage.lock(), Stage::Cancelled(_));
    {
        let mut stage = stage.lock();
        *stage = match *stage {
            Stage::Begins => Stage::Waits(me),
            _ => Stage::Cancelled(Some(me)),
        };
    }
    let mut result = Err(Errno::EINTR);
    while result == Err(Errno::EINTR) && !cancelled() {
        result = match wanted {
            Wanted::Range(lock, start, end) => host::wait_for_range(&*file.fd, lock, start, end),
            Wanted::File(lock) => host::wait_for_file(&*file.fd, lock),
        };
    }
    let mut stage = stage.lock();
    let kept = match *stage {
        Stage::Cancelled(_) => {
            *stage = Stage::Over;
            Some(file)
        }
        _ => {
            *stage = Stage::Done(result.map(|()| file));
            None
        }
    };
    drop(stage);
    // Closing it gives back what it has.
    drop(kept);
}

impl Drop for HostWait {
    fn drop(&mut self) {
        // A signal that comes right before the helper's call ends nothing, so it is sent until the helper has seen it.
        const TRIES: u32 = 1000;
        for _ in 0..TRIES {
            let mut stage = self.0.lock();
            let at = match &*stage {
                Stage::Begins | Stage::Cancelled(None) => None,
                Stage::Waits(thread) | Stage::Cancelled(Some(thread)) => Some(*thread),
                Stage::Done(_) | Stage::Over => {
                    let lock = std::mem::replace(&mut *stage, Stage::Over);
                    drop(stage);
                    drop(lock);
                    return;
                }
            };
            *stage = Stage::Cancelled(at);
            if let Some(thread) = at {
                thread.interrupt();
            }
            drop(stage);
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

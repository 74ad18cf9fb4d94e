//! The process or thread behind a pidfd, and whether it lives.

use crate::task::Task;
use crate::thread_group::ThreadGroup;
use abi::{Errno, Result};
use std::sync::{Arc, Weak};

/// An open pidfd.
#[derive(Clone)]
pub struct PidFd {
    /// The process.
    pub group: Arc<ThreadGroup>,
    /// The thread of it, with PIDFD_THREAD.
    pub(crate) thread: Option<(i32, Weak<Task>)>,
}

/// A pidfd as plain data, for a checkpoint: of a process or thread that is there.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PidFdState {
    /// The process, by its number in the sandbox's own PID namespace.
    pub process: i32,
    /// The thread of it, with PIDFD_THREAD.
    pub thread: Option<i32>,
    /// Number of its inode, and the attributes that were set on it.
    pub inode: InodeState,
}

/// Number of the inode of a pidfd, and its extended attributes, for a checkpoint.
pub type InodeState = (u64, Vec<(Vec<u8>, Vec<u8>)>);

/// What has become of a process or thread.
#[derive(PartialEq, Eq)]
pub(crate) enum State {
    Alive,
    Zombie,
    Reaped,
}

impl PidFd {
    /// For a process that was found, and one thread of it. A thread that is not in it has gone.
    pub(crate) fn found(group: Arc<ThreadGroup>, thread: Option<i32>) -> PidFd {
        let task = |tid| group.kernel.tree.lock().task(tid).filter(|task| task.tgid() == group.tgid).cloned();
        let thread = thread.map(|tid| (tid, task(tid).map_or_else(Weak::new, |task| Arc::downgrade(&task))));
        PidFd { group, thread }
    }

    pub(crate) fn state(&self) -> State {
        let t = self.group.kernel.tree.lock();
        let node = t.node(self.group.tgid).filter(|n| Arc::ptr_eq(&n.group, &self.group));
        let leader = self.id() == self.group.tgid;
        if let Some((tid, task)) = &self.thread
            && t.task(*tid).is_some_and(|t| std::ptr::eq(Arc::as_ptr(t), task.as_ptr()))
        {
            return State::Alive;
        }
        match node {
            // A thread that is not the leader leaves nothing behind.
            _ if !leader => State::Reaped,
            None => State::Reaped,
            // A leader that ends alone leaves its number to the process, and ends with it.
            Some(n) if n.is_zombie() => State::Zombie,
            Some(_) => State::Alive,
        }
    }

    /// The thread, with PIDFD_THREAD: ESRCH when it has ended. `None` for a descriptor of a process. The leader's number is
    /// taken over by a thread that calls execve(2).
    pub fn thread(&self) -> Option<Result<Arc<Task>>> {
        let (tid, task) = self.thread.as_ref()?;
        let task = match self.leads() {
            true => self.group.kernel.task(*tid).filter(|task| Arc::ptr_eq(&task.group, &self.group)),
            false => task.upgrade(),
        };
        Some(task.filter(|_| self.state() == State::Alive).ok_or(Errno::ESRCH))
    }

    /// A descriptor with PIDFD_THREAD of a leader that has ended, while others of its process live, or its parent has
    /// not waited for it.
    pub fn is_dead_leader(&self) -> bool {
        self.thread().is_some_and(|task| task.is_err()) && self.leads() && !self.is_reaped()
    }

    /// It has the number of its process.
    pub(crate) fn leads(&self) -> bool {
        self.id() == self.group.tgid
    }

    /// Its parent has waited for it, or did not have to.
    pub(crate) fn is_reaped(&self) -> bool {
        self.state() == State::Reaped
    }

    /// Id of the process or thread.
    pub fn id(&self) -> i32 {
        self.thread.as_ref().map_or(self.group.tgid, |(tid, _)| *tid)
    }
}

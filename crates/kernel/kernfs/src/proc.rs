//! The process, or the thread, that a directory belongs to.

use abi::{Errno, Result};
use mm::Mm;
use rights::{Credentials, Creds};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use task::ptrace_access::{Mode, mm_access};
use task::{Kernel, Task, ThreadGroup};
use vfs::Caller;

/// What a /proc/PID or task/TID directory stands for.
pub struct Proc {
    /// The process.
    pub group: Arc<ThreadGroup>,
    /// The thread, for task/TID and for /proc/TID of a thread that leads no process.
    pub thread: Option<Arc<Task>>,
}

impl Proc {
    /// The number in the name.
    pub fn id(&self) -> i32 {
        self.thread.as_ref().map_or(self.group.tgid, |t| t.tid())
    }
    /// Stands for a thread.
    pub fn is_thread(&self) -> bool {
        self.thread.is_some()
    }
    /// Stands for the same.
    pub fn same(&self, o: &Proc) -> bool {
        Arc::ptr_eq(&self.group, &o.group)
            && match (&self.thread, &o.thread) {
                (None, None) => true,
                (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                _ => false,
            }
    }
    /// Not waited for yet; for a thread, still running.
    pub fn exists(&self, k: &Kernel) -> bool {
        let process = || k.group(self.group.tgid).is_some_and(|g| Arc::ptr_eq(&g, &self.group));
        match &self.thread {
            // A leader that has ended is a zombie as long as its process is there.
            Some(t) => {
                k.task(t.tid()).is_some_and(|x| Arc::ptr_eq(&x, t))
                    || t.tid() == self.group.tgid && t.is_leaving() && process()
            }
            None => process(),
        }
    }
    /// The thread that is shown; `None` for a zombie.
    pub fn task(&self) -> Option<Arc<Task>> {
        match &self.thread {
            Some(t) if t.is_leaving() => None,
            Some(t) => Some(t.clone()),
            None => self.group.any_thread().filter(|t| !t.is_leaving()),
        }
    }
    /// The thread with the memory, files and namespaces that are shown: of a process its leader. When that one has ended, nothing is
    /// shown, whatever the other threads do.
    pub fn main_task(&self) -> Option<Arc<Task>> {
        if self.thread.is_some() {
            return self.task();
        }
        let leader = self.group.kernel.task(self.group.tgid);
        leader.filter(|t| Arc::ptr_eq(&t.group, &self.group) && !t.is_leaving())
    }
    /// Credentials, also of a zombie; `None` once it is waited for.
    pub fn creds(&self, k: &Kernel) -> Option<Arc<Credentials>> {
        if let Some(t) = self.task() {
            return Some(Creds::into_inner(t.creds()));
        }
        k.tree.lock().node(self.group.tgid)?.leader_creds()
    }
    /// Memory; `None` for a zombie, and for a process with a leader that is one.
    pub fn mm(&self) -> Option<Arc<Mm>> {
        self.main_task().map(|t| t.mm())
    }
    /// Owner of the files: the effective IDs. When the process must not be looked into: root of the namespace that its
    /// capabilities are taken from; the container's root when that namespace has none.
    pub fn owner(&self, always: bool) -> (u32, u32) {
        let Some(t) = self.task() else { return (0, 0) };
        let mm = t.mm();
        if !always && mm.dumpable.load(Ordering::Relaxed) != 1 {
            return (mm.user_ns.user(0).unwrap_or(0), mm.user_ns.group(0).unwrap_or(0));
        }
        let c = t.creds();
        (c.euid, c.egid)
    }

    /// Whether `cx` may look into the process (ptrace access mode PTRACE_MODE_READ_FSCREDS); see ptrace(2).
    pub fn may_access(&self, cx: &dyn Caller) -> Result<()> {
        self.mm_access(cx).map(drop)
    }

    /// Memory for a caller that may look into the process; `None` as by `mm`.
    pub fn mm_access(&self, cx: &dyn Caller) -> Result<Option<Arc<Mm>>> {
        let Some(t) = self.main_task().or_else(|| self.task()) else { return Ok(None) };
        let mm = mm_access(&cx.creds(), cx.pid(), &t, Mode::Fs).ok_or(Errno::EACCES)?;
        Ok(self.main_task().map(|_| mm))
    }
}

//! An IPC namespace as plain data, for a checkpoint.

use crate::ids::TableState;
use crate::msg::{Queue, QueueState};
use crate::sem::{Set, SetState};
use crate::shm::{Segment, SegmentState};
use crate::{Doer, IpcNamespace, Limits};
use abi::{Errno, Result};
use pid::Pid;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use user_ns::UserNamespace;
use vfs::OpenFile;

/// [`Limits`] as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[expect(missing_docs, reason = "the fields of Limits")]
pub struct LimitsState {
    pub shmmax: u64,
    pub shmall: u64,
    pub shmmni: u64,
    pub msgmax: u64,
    pub msgmnb: u64,
    pub msgmni: u64,
    pub sem: [u64; 4],
    pub next_id: [i32; 3],
}

/// An IPC namespace as plain data. The user namespace is an object of its own.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct IpcState {
    /// /proc/sys/kernel.
    pub limits: LimitsState,
    /// Segments of shared memory.
    pub shm: TableState<SegmentState>,
    /// Semaphore sets.
    pub sem: TableState<SetState>,
    /// Message queues.
    pub msg: TableState<QueueState>,
    /// The number of the next list of adjustments.
    pub next_number: u64,
}

impl Limits {
    fn state(&self) -> LimitsState {
        LimitsState {
            shmmax: self.shmmax.load(Relaxed),
            shmall: self.shmall.load(Relaxed),
            shmmni: self.shmmni.load(Relaxed),
            msgmax: self.msgmax.load(Relaxed),
            msgmnb: self.msgmnb.load(Relaxed),
            msgmni: self.msgmni.load(Relaxed),
            sem: self.sem.each_ref().map(|n| n.load(Relaxed)),
            next_id: self.next_id.each_ref().map(|n| n.load(Relaxed)),
        }
    }

    fn set(&self, saved: &LimitsState) {
        self.shmmax.store(saved.shmmax, Relaxed);
        self.shmall.store(saved.shmall, Relaxed);
        self.shmmni.store(saved.shmmni, Relaxed);
        self.msgmax.store(saved.msgmax, Relaxed);
        self.msgmnb.store(saved.msgmnb, Relaxed);
        self.msgmni.store(saved.msgmni, Relaxed);
        self.sem.iter().zip(saved.sem).for_each(|(limit, saved)| limit.store(saved, Relaxed));
        self.next_id.iter().zip(saved.next_id).for_each(|(id, saved)| id.store(saved, Relaxed));
    }
}

impl IpcNamespace {
    /// As plain data.
    pub fn state(&self) -> IpcState {
        let shm = self.shm.lock().state(Segment::state);
        let sem = self.sem.lock().state(Set::state);
        let msg = self.msg.lock().state(Queue::state);
        let next_number = self.next_number.load(Relaxed);
        IpcState { limits: self.limits.state(), shm, sem, msg, next_number }
    }

    /// Back from plain data, owned by `user_ns`. `pid` gives the process with a number of the sandbox's own PID namespace,
    /// `file` the open file of a segment (ENOENT where there is none). ENOMEM, ENOSPC when objects are too many.
    pub fn restore(
        user_ns: Arc<UserNamespace>,
        memfds: Arc<tmpfs::Memfds>,
        saved: &IpcState,
        pid: impl Fn(i32) -> Doer,
        file: impl Fn(u64) -> Option<Arc<OpenFile>>,
    ) -> Result<Arc<IpcNamespace>> {
        let ns = IpcNamespace::new(user_ns, memfds);
        ns.fill(saved, pid, file)?;
        Ok(ns)
    }

    /// As [`IpcNamespace::restore`], for one that is there and has no objects. EINVAL for objects that cannot be.
    pub fn fill(
        &self,
        saved: &IpcState,
        pid: impl Fn(i32) -> Doer,
        file: impl Fn(u64) -> Option<Arc<OpenFile>>,
    ) -> Result<()> {
        self.limits.set(&saved.limits);
        self.shm
            .lock()
            .restore(&saved.shm, |one| Segment::restore(one, file(one.file).ok_or(Errno::ENOENT)?, &pid))?;
        self.sem.lock().restore(&saved.sem, |one| Set::restore(self, one, &pid))?;
        self.msg.lock().restore(&saved.msg, |one| Queue::restore(self, one, &pid))?;
        self.next_number.store(saved.next_number, Relaxed);
        Ok(())
    }

    /// The processes that objects remember.
    pub fn doers(&self) -> Vec<Arc<Pid>> {
        let mut all: Vec<Doer> = Vec::new();
        self.shm.lock().iter().for_each(|(_, one)| all.extend(one.doers()));
        self.sem.lock().iter().for_each(|(_, one)| all.extend(one.doers()));
        self.msg.lock().iter().for_each(|(_, one)| all.extend(one.doers()));
        all.into_iter().flatten().collect()
    }
}

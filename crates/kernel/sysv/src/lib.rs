//! System V IPC: shared memory, semaphore sets, message queues. See sysvipc(7).
//!
//! An [`IpcNamespace`] holds three tables of objects under ids and keys; everything is reached through it. The calling
//! task is seen through `vfs::Caller`. The crates above do the work that needs its address space (shmat, shmdt).
//!
//! Locks: a table, then an object's state. Both are leaves for other crates. But the end of a mapping takes the table
//! of segments, so nothing may be mapped or unmapped under it.
//!
//! Limits: besides Linux's own (/proc/sys/kernel), the bytes of all messages and the number of all semaphores of a
//! namespace are bounded, because they live in the sentry.
//!
//! A checkpoint keeps what [`IpcState`] has, and each process's [`sem::UndoListState`].

#![forbid(unsafe_code)]

mod control;
mod ids;
pub mod msg;
mod perm;
pub mod sem;
pub mod shm;
mod state;
#[cfg(test)]
mod tests;

pub use ids::TableState;
pub use perm::{IpcPerm, Perm};
pub use state::{IpcState, LimitsState};

use control::Table;
use ids::Ids;
use lock_order::Mutex;
use pid::{Pid, PidNamespace};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use user_ns::UserNamespace;
use vfs::Caller;

/// IPC_PRIVATE.
pub const IPC_PRIVATE: i32 = 0;
/// IPC_RMID.
pub const IPC_RMID: i32 = 0;
/// IPC_SET.
pub const IPC_SET: i32 = 1;
/// IPC_STAT.
pub const IPC_STAT: i32 = 2;
/// IPC_INFO.
pub const IPC_INFO: i32 = 3;

/// Values of /proc/sys/kernel.
#[derive(Debug)]
pub struct Limits {
    /// shmmax.
    pub shmmax: AtomicU64,
    /// shmall.
    pub shmall: AtomicU64,
    /// shmmni.
    pub shmmni: AtomicU64,
    /// msgmax.
    pub msgmax: AtomicU64,
    /// msgmnb.
    pub msgmnb: AtomicU64,
    /// msgmni.
    pub msgmni: AtomicU64,
    /// sem: SEMMSL, SEMMNS, SEMOPM, SEMMNI.
    pub sem: [AtomicU64; 4],
    /// Id that the next object shall have, -1 for any: shm, msg, sem.
    pub next_id: [AtomicI32; 3],
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            shmmax: AtomicU64::new(u64::MAX - (1 << 24)),
            shmall: AtomicU64::new(u64::MAX - (1 << 24)),
            shmmni: AtomicU64::new(4096),
            msgmax: AtomicU64::new(8192),
            msgmnb: AtomicU64::new(16384),
            msgmni: AtomicU64::new(32000),
            sem: [32000, 1_024_000_000, 500, 32000].map(AtomicU64::new),
            next_id: [-1, -1, -1].map(AtomicI32::new),
        }
    }
}

/// One IPC namespace.
pub struct IpcNamespace {
    /// What segments of shared memory are made of.
    memfds: Arc<tmpfs::Memfds>,
    /// Where capabilities over its objects are held.
    user_ns: Arc<UserNamespace>,
    /// /proc/sys/kernel.
    pub limits: Limits,
    shm: Table<shm::Segment>,
    sem: Table<sem::Set>,
    msg: Table<msg::Queue>,
    /// Bytes of all messages.
    msg_bytes: Arc<AtomicU64>,
    /// Semaphores of all sets.
    sems: AtomicU64,
    /// Bytes of all SEM_UNDO adjustments.
    undo_bytes: AtomicU64,
    /// Numbers of lists of adjustments and of calls of semop(2).
    next_number: AtomicU64,
}

impl IpcNamespace {
    /// An empty one that `user_ns` owns; segments of shared memory are files of `memfds`.
    pub fn new(user_ns: Arc<UserNamespace>, memfds: Arc<tmpfs::Memfds>) -> Arc<IpcNamespace> {
        IpcNamespace::with(user_ns, memfds, Limits::default(), Arc::default())
    }

    /// Another one; its messages count together with those of this one.
    pub fn beside(&self, user_ns: Arc<UserNamespace>) -> Arc<IpcNamespace> {
        IpcNamespace::with(user_ns, self.memfds.clone(), Limits::default(), self.msg_bytes.clone())
    }

    fn with(
        user_ns: Arc<UserNamespace>,
        memfds: Arc<tmpfs::Memfds>,
        limits: Limits,
        msg_bytes: Arc<AtomicU64>,
    ) -> Arc<IpcNamespace> {
        Arc::new(IpcNamespace {
            memfds,
            limits,
            shm: Mutex::new(Ids::new(&user_ns)),
            sem: Mutex::new(Ids::new(&user_ns)),
            msg: Mutex::new(Ids::new(&user_ns)),
            user_ns,
            msg_bytes,
            sems: AtomicU64::new(0),
            undo_bytes: AtomicU64::new(0),
            next_number: AtomicU64::new(1),
        })
    }

    /// How many semaphore sets, message queues and segments of shared memory there are.
    pub fn counts(&self) -> (usize, usize, usize) {
        let sets = self.sem.lock().len();
        let queues = self.msg.lock().len();
        (sets, queues, self.shm.lock().len())
    }

    fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }
}

/// Seconds since the epoch.
fn now() -> i64 {
    hostsys::clock::gettime_ns(libc::CLOCK_REALTIME).unwrap_or(0) / 1_000_000_000
}

/// A process that did something; it is remembered beyond its end.
pub type Doer = Option<Arc<Pid>>;

/// The calling process.
fn doer(cx: &dyn Caller) -> Doer {
    cx.find_pid(cx.pid())
}

/// The process's number in the sandbox's own PID namespace.
fn nr(doer: &Doer) -> Option<i32> {
    doer.as_ref().map(|pid| pid.nr())
}

/// The number of a process in a PID namespace; 0 for none or one that cannot be seen there.
fn vnr(doer: &Doer, ns: Option<&PidNamespace>) -> i32 {
    doer.as_ref().zip(ns).map_or(0, |(pid, ns)| pid.nr_in(ns))
}

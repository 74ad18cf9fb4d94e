//! Scheduling parameters of a thread: recorded and reported; the host schedules. See sched(7), ioprio_set(2).

use crate::current::Current;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use crate::tree::Node;
use abi::libc;
use parking_lot::Mutex as Leaf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use vfs::{Caller, Credentials, Creds};

/// SCHED_RESET_ON_FORK.
pub const RESET_ON_FORK: i32 = 0x4000_0000;

/// The parameters of one thread. They outlive it in a zombie.
#[derive(Debug)]
pub struct Scheduling {
    /// Nice value.
    pub nice: AtomicI32,
    /// Policy and priority of sched_setscheduler(2).
    pub policy: Leaf<(i32, i32)>,
    /// I/O priority.
    pub ioprio: AtomicI32,
    /// sched_setaffinity(2) mask, bit per processor.
    pub affinity: AtomicU64,
    /// Time slice of sched_setattr(2) in nanoseconds, 0 for the default.
    pub slice: AtomicU64,
}

impl Default for Scheduling {
    fn default() -> Self {
        Scheduling {
            nice: AtomicI32::new(0),
            policy: Leaf::new((libc::SCHED_OTHER, 0)),
            ioprio: AtomicI32::new(0),
            affinity: AtomicU64::new(u64::MAX),
            slice: AtomicU64::new(0),
        }
    }
}

impl Scheduling {
    /// What a new thread starts with. With SCHED_RESET_ON_FORK real-time policies and negative nice values are not handed on.
    pub(crate) fn inherited(&self) -> Arc<Scheduling> {
        let (policy, priority) = *self.policy.lock();
        let nice = self.nice.load(Relaxed);
        let (policy, nice) = match policy & RESET_ON_FORK {
            0 => ((policy, priority), nice),
            _ if priority > 0 => ((libc::SCHED_OTHER, 0), nice.max(0)),
            _ => ((policy & !RESET_ON_FORK, 0), nice.max(0)),
        };
        Arc::new(Scheduling {
            nice: AtomicI32::new(nice),
            policy: Leaf::new(policy),
            ioprio: AtomicI32::new(self.ioprio.load(Relaxed)),
            affinity: AtomicU64::new(self.affinity.load(Relaxed)),
            slice: AtomicU64::new(self.slice.load(Relaxed)),
        })
    }
}

/// Whom an id stands for: a thread, or what is left of a thread group leader until its process is waited for.
#[derive(Clone)]
pub struct Holder {
    /// The process.
    pub group: Arc<ThreadGroup>,
    /// Scheduling parameters.
    pub scheduling: Arc<Scheduling>,
    /// Credentials.
    pub creds: Arc<Credentials>,
}

impl From<&Arc<Task>> for Holder {
    fn from(t: &Arc<Task>) -> Holder {
        let creds = Creds::into_inner(t.creds());
        Holder { group: t.group.clone(), scheduling: t.scheduling.clone(), creds }
    }
}

impl Holder {
    fn of_leader(n: &Node) -> Option<Holder> {
        let l = n.leader.clone()?;
        Some(Holder { group: n.group.clone(), scheduling: l.scheduling, creds: l.creds })
    }
}

impl Current {
    /// Whom the caller calls by this number, 0 for itself.
    pub fn holder(&self, number: i32) -> Option<Holder> {
        if number == 0 {
            return Some(Holder::from(&self.task));
        }
        let id = self.find_vpid(number);
        let t = self.kernel().tree.lock();
        match t.tasks.get(&id) {
            Some(task) => Some(Holder::from(task)),
            None => t.nodes.get(&id).and_then(Holder::of_leader),
        }
    }

    /// Every thread, and what is left of leaders, of the processes that `wanted` says.
    pub fn holders(&self, wanted: impl Fn(&Node) -> bool) -> Vec<Holder> {
        let t = self.kernel().tree.lock();
        let mut found = Vec::new();
        for n in t.nodes.values().filter(|n| wanted(n)) {
            found.extend(n.group.threads().iter().map(Holder::from));
            found.extend(Holder::of_leader(n));
        }
        found
    }
}

//! The threads that the calls of sched(7) and getpriority(2) name. The attributes themselves are in the crate `sched`.

use crate::current::Current;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use crate::tree::Node;
use caller::Identity;
use rights::{Credentials, Creds};
use sched::Scheduling;
use std::sync::Arc;

/// The object of an ID: a thread, or the remains of a thread group leader until its process is waited for.
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
        let l = n.leader.as_ref()?;
        Some(Holder { group: n.group.clone(), scheduling: l.scheduling.clone(), creds: l.creds.clone() })
    }
}

impl Current {
    /// The thread with this number for the caller, 0 for the caller itself.
    pub fn holder(&self, number: i32) -> Option<Holder> {
        if number == 0 {
            return Some(Holder::from(&self.task));
        }
        let id = self.find_vpid(number);
        let t = self.kernel().tree.lock();
        match t.task(id) {
            Some(task) => Some(Holder::from(task)),
            None => t.node(id).and_then(Holder::of_leader),
        }
    }

    /// Every thread, and what is left of leaders, of the processes that `wanted` says.
    pub fn holders(&self, wanted: impl Fn(&Node) -> bool) -> Vec<Holder> {
        let t = self.kernel().tree.lock();
        let mut found = Vec::new();
        for n in t.nodes().filter(|n| wanted(n)) {
            found.extend(n.group.threads().iter().map(Holder::from));
            found.extend(Holder::of_leader(n));
        }
        found
    }
}

//! All traced threads of a kernel, by their IDs and by their tracers: a part of the process tree, under its lock. A checkpoint
//! keeps it as it is.

use pid::Attached;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A traced thread that has ended, and is not the first one of its process, until its tracer has waited for it.
pub struct ThreadZombie {
    /// Its ID, which stays taken.
    pub pid: Attached,
    /// Its wait status.
    pub status: i32,
    /// Its real user ID.
    pub uid: u32,
}

/// A traced thread.
pub struct Tracee<P, T> {
    /// Process and thread of the tracer.
    pub tracer: (i32, i32),
    /// The thread's process.
    pub group: Arc<P>,
    /// The thread, while it lives.
    pub task: Option<Arc<T>>,
    /// What is reported once it has ended.
    pub zombie: Option<ThreadZombie>,
}

/// All tracees, by thread ID, and by tracer.
pub struct Tracees<P, T> {
    tracees: BTreeMap<i32, Tracee<P, T>>,
    by_tracer: BTreeSet<(i32, i32, i32)>,
}

impl<P, T> Default for Tracees<P, T> {
    fn default() -> Tracees<P, T> {
        Tracees { tracees: BTreeMap::new(), by_tracer: BTreeSet::new() }
    }
}

impl<P, T> Tracees<P, T> {
    /// A traced thread, or what is left of it.
    pub fn get(&self, tid: i32) -> Option<&Tracee<P, T>> {
        self.tracees.get(&tid)
    }

    /// Thread IDs of all tracees of a process.
    pub fn of_group(&self, tgid: i32) -> Vec<i32> {
        self.by_tracer.range((tgid, 0, 0)..(tgid + 1, 0, 0)).map(|t| t.2).collect()
    }

    /// Thread IDs of all tracees of a thread.
    pub fn of_thread(&self, tgid: i32, tid: i32) -> Vec<i32> {
        self.by_tracer.range((tgid, tid, 0)..(tgid, tid + 1, 0)).map(|t| t.2).collect()
    }

    /// A traced thread, to change it.
    pub fn get_mut(&mut self, tid: i32) -> Option<&mut Tracee<P, T>> {
        self.tracees.get_mut(&tid)
    }

    /// The process that traces the thread with this ID.
    pub fn tracing_group(&self, tid: i32) -> Option<i32> {
        self.tracees.get(&tid).map(|t| t.tracer.0)
    }

    /// All traced threads, in order of their IDs.
    pub fn all(&self) -> impl Iterator<Item = (i32, &Tracee<P, T>)> {
        self.tracees.iter().map(|(tid, tracee)| (*tid, tracee))
    }

    /// Enters a traced thread.
    pub fn insert(&mut self, tid: i32, tracee: Tracee<P, T>) {
        let (tgid, tracer) = tracee.tracer;
        self.by_tracer.insert((tgid, tracer, tid));
        self.tracees.insert(tid, tracee);
    }

    /// Forgets a traced thread.
    pub fn take(&mut self, tid: i32) -> Option<Tracee<P, T>> {
        let tracee = self.tracees.remove(&tid)?;
        self.by_tracer.remove(&(tracee.tracer.0, tracee.tracer.1, tid));
        Some(tracee)
    }

    /// Traced threads that have ended and were not waited for, of the processes that `of` says.
    pub fn count_zombies(&self, of: impl Fn(&P) -> bool) -> usize {
        self.tracees.values().filter(|t| t.zombie.is_some() && of(&t.group)).count()
    }
}

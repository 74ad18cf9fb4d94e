//! Semaphore sets and adjustments of SEM_UNDO as plain data, for a checkpoint.

use super::{MAX_SEMS, MAX_UNDO_BYTES, MAX_VALUE, Sem, Set, State, UndoList};
use crate::{Doer, IpcNamespace, Perm, nr};
use abi::{Errno, Result};
use lock_order::Mutex;
use pid::Pid;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wait::WaitQueue;

/// A semaphore as plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SemState {
    /// Its value.
    pub value: i32,
    /// The process that changed it last, by the number in the sandbox's own PID namespace.
    pub pid: Option<i32>,
}

/// A set as plain data. Threads that wait at it make their call again.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SetState {
    /// Its ID, key, owner and mode.
    pub perm: Perm,
    /// Its semaphores.
    pub sems: Vec<SemState>,
    /// Times of the last operation and of the last change.
    pub times: [i64; 2],
    /// Adjustments by the number of the list that they belong to, in order of those.
    pub undo: Vec<(u64, Vec<i16>)>,
}

/// The adjustments that the end of a process makes, as plain data. The sets keep how much is adjusted.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UndoListState {
    /// The number under which the sets know it.
    pub number: u64,
    /// The process, by its number in the sandbox's own PID namespace.
    pub pid: i32,
    /// IDs of the sets that have adjustments of it.
    pub sets: Vec<i32>,
}

impl Set {
    pub(crate) fn doers(&self) -> Vec<Doer> {
        self.state.lock().sems.iter().map(|sem| sem.pid.clone()).collect()
    }

    pub(crate) fn state(&self) -> SetState {
        let s = self.state.lock();
        let mut undo: Vec<_> = s.undo.iter().map(|(number, list)| (*number, list.clone())).collect();
        undo.sort_by_key(|(number, _)| *number);
        SetState {
            perm: s.perm,
            sems: s.sems.iter().map(|sem| SemState { value: sem.value, pid: nr(&sem.pid) }).collect(),
            times: [s.otime, s.ctime],
            undo,
        }
    }

    /// Back from plain data, in a namespace in which its semaphores and adjustments count; ENOSPC when they are
    /// too many, EINVAL for values that cannot be.
    pub(crate) fn restore(ns: &IpcNamespace, saved: &SetState, find: impl Fn(i32) -> Doer) -> Result<Set> {
        let count = saved.sems.len();
        let valid = |sem: &SemState| (0..=MAX_VALUE).contains(&sem.value);
        let whole = saved.undo.iter().all(|(_, list)| list.len() == count);
        if count == 0 || !saved.sems.iter().all(valid) || !whole {
            return Err(Errno::EINVAL);
        }
        let sem = |sem: &SemState| Sem { value: sem.value, pid: sem.pid.and_then(&find) };
        let [otime, ctime] = saved.times;
        let state = State {
            perm: saved.perm,
            sems: saved.sems.iter().map(sem).collect(),
            otime,
            ctime,
            removed: false,
            undo: saved.undo.iter().cloned().collect(),
            waiting: Vec::new(),
        };
        let undo = state.undo.len() as u64;
        let set = Set { state: Mutex::new(state), wait: WaitQueue::new(), count };
        let sems = ns.sems.fetch_add(count as u64, Relaxed) + count as u64;
        let adjusted = undo * set.undo_size();
        let bytes = ns.undo_bytes.fetch_add(adjusted, Relaxed) + adjusted;
        if sems > MAX_SEMS || bytes > MAX_UNDO_BYTES { Err(Errno::ENOSPC) } else { Ok(set) }
    }
}

impl UndoList {
    /// As plain data.
    pub fn state(&self) -> UndoListState {
        UndoListState { number: self.number, pid: self.pid.nr(), sets: self.sets.lock().clone() }
    }

    /// Back from plain data, for the process `pid`, in a restored namespace.
    pub fn restore(namespace: Arc<IpcNamespace>, saved: &UndoListState, pid: Arc<Pid>) -> Arc<UndoList> {
        let sets = Mutex::new(saved.sets.clone());
        Arc::new(UndoList { namespace, number: saved.number, pid, sets })
    }
}

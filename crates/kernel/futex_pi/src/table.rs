//! Contended words with their owners and waiters, over any kind of thread that is a [`PiOwner`].
//!
//! An entry lives while a thread waits for its word. Lock order: the requeue list, an entry's state, the table, the process tree;
//! innermost an entry's owner and then a thread's [`PiTask`]. A checkpoint has nothing to keep: interrupted waiters queue again.

use crate::key::Key;
use abi::{Errno, Result};
use lock_order::{Mutex, rank};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Longest chain of owners that is searched for a circle (max_lock_depth).
const MAX_DEPTH: usize = 1024;

/// The waiter waits.
pub(crate) const WAITING: u8 = 0;
/// The lock is the waiter's and the word says so.
pub(crate) const GRANTED: u8 = 1;
/// The lock is the waiter's; it has to write that to the word itself.
pub(crate) const INHERITED: u8 = 2;

/// A thread as an owner of words and as a waiter for them.
pub trait PiOwner: Sized + Send + Sync {
    /// Its part of the state.
    fn pi(&self) -> &Mutex<PiTask<Self>>;
    /// Its thread ID as the word holds it.
    fn own_tid(&self) -> i32;
    /// Its scheduling priority, which orders waiters.
    fn priority(&self) -> i32;
    /// Wakes it.
    fn wake(&self);
}

/// The contended words of a kernel.
pub struct PiTable<T> {
    entries: Mutex<HashMap<Key, Arc<Entry<T>>>, { rank::PI_TABLE }>,
    /// Threads that wait to be requeued, by the first word.
    pub(crate) requeue: Mutex<HashMap<Key, Vec<Arc<Waiter<T>>>>, { rank::PI_REQUEUE }>,
}

/// A contended word.
pub(crate) struct Entry<T> {
    key: Key,
    pub(crate) state: Mutex<State<T>, { rank::PI_WORD }>,
    /// The owner, while a thread waits.
    pub(crate) owner: Mutex<Option<Arc<T>>, { rank::PI_OWNER }>,
}

pub(crate) struct State<T> {
    pub(crate) waiters: Vec<Arc<Waiter<T>>>,
    /// The new owner has yet to write itself to the word.
    pub(crate) handover: bool,
    /// It is no longer in the table: look again.
    pub(crate) forgotten: bool,
}

/// A thread that waits.
pub(crate) struct Waiter<T> {
    pub(crate) task: Arc<T>,
    pub(crate) outcome: AtomicU8,
    /// What it waits for; none before a requeue.
    pub(crate) entry: Mutex<Option<Arc<Entry<T>>>>,
    /// Where it wants to be requeued to.
    pub(crate) target: Option<Key>,
}

/// A thread's side.
pub struct PiTask<T> {
    /// It has handed over all its locks and takes no more.
    pub(crate) exited: bool,
    pub(crate) owned: Vec<Arc<Entry<T>>>,
    pub(crate) waits_for: Option<Arc<Entry<T>>>,
}

impl<T> PiTask<T> {
    /// It holds no lock, and waits for none.
    pub fn is_idle(&self) -> bool {
        self.owned.is_empty() && self.waits_for.is_none()
    }
}

impl<T> Default for PiTable<T> {
    fn default() -> PiTable<T> {
        PiTable { entries: Mutex::default(), requeue: Mutex::default() }
    }
}

impl<T> Default for State<T> {
    fn default() -> State<T> {
        State { waiters: Vec::new(), handover: false, forgotten: false }
    }
}

impl<T> Default for PiTask<T> {
    fn default() -> PiTask<T> {
        PiTask { exited: false, owned: Vec::new(), waits_for: None }
    }
}

impl<T: PiOwner> PiTable<T> {
    pub(crate) fn get(&self, key: Key) -> Arc<Entry<T>> {
        let new = || Arc::new(Entry { key, state: Mutex::default(), owner: Mutex::default() });
        self.entries.lock().entry(key).or_insert_with(new).clone()
    }

    /// Removes an entry without waiters from the table.
    pub(crate) fn put(&self, entry: &Arc<Entry<T>>) {
        let mut state = entry.state.lock();
        if state.waiters.is_empty() && !state.handover && !state.forgotten {
            state.forgotten = true;
            self.entries.lock().remove(&entry.key);
        }
    }
}

impl<T: PiOwner> Entry<T> {
    /// Makes `task` the owner for as long as a thread waits. ESRCH when it is past handing its locks over.
    pub(crate) fn own(self: &Arc<Self>, task: &Arc<T>) -> Result<()> {
        let mut p = task.pi().lock();
        if p.exited {
            return Err(Errno::ESRCH);
        }
        p.owned.push(self.clone());
        drop(p);
        *self.owner.lock() = Some(task.clone());
        Ok(())
    }

    pub(crate) fn disown(self: &Arc<Self>) {
        if let Some(t) = self.owner.lock().take() {
            t.pi().lock().owned.retain(|e| !Arc::ptr_eq(e, self));
        }
    }

    /// Gives the lock to the first of those with the highest priority.
    pub(crate) fn next(state: &State<T>) -> Option<Arc<Waiter<T>>> {
        let prio = |w: &Arc<Waiter<T>>| w.task.priority();
        let best = state.waiters.iter().map(prio).max()?;
        state.waiters.iter().find(|w| prio(w) == best).cloned()
    }

    pub(crate) fn grant(self: &Arc<Self>, state: &mut State<T>, w: &Arc<Waiter<T>>, outcome: u8) {
        state.waiters.retain(|x| !Arc::ptr_eq(x, w));
        state.handover = outcome == INHERITED;
        self.disown();
        if state.handover || !state.waiters.is_empty() {
            // A waiter has not left yet.
            let _ = self.own(&w.task);
        }
        w.task.pi().lock().waits_for = None;
        w.outcome.store(outcome, Ordering::SeqCst);
        w.task.wake();
    }

    /// True when `task` owns this lock, or waits for a lock with an owner that waits ... for it.
    pub(crate) fn leads_to(self: &Arc<Self>, task: &Arc<T>) -> bool {
        let mut at = self.clone();
        for _ in 0..MAX_DEPTH {
            let Some(owner) = at.owner.lock().clone() else { return false };
            if Arc::ptr_eq(&owner, task) {
                return true;
            }
            let next = owner.pi().lock().waits_for.clone();
            match next {
                Some(e) => at = e,
                None => return false,
            }
        }
        true
    }
}

impl<T> Waiter<T> {
    pub(crate) fn new(task: &Arc<T>, target: Option<Key>) -> Arc<Waiter<T>> {
        let outcome = AtomicU8::new(WAITING);
        Arc::new(Waiter { task: task.clone(), outcome, entry: Mutex::default(), target })
    }
}

//! Priority-inheritance futexes: who owns the word is in guest memory, who waits for it is here.
//!
//! The word changes by compare-and-exchange only, carried out by the calling thread itself, so that a lock or unlock
//! without contention needs no help from here. What Linux guarantees on top of a plain lock is kept: the owner is
//! known, a lock is handed over to the next waiter rather than released, a dead owner's lock goes on with
//! FUTEX_OWNER_DIED, and waiting in a circle is refused. Scheduling priorities are recorded only, so they order the
//! waiters but are not lent.
//!
//! An entry lives while somebody waits. Lock order: the requeue list, an entry's state, the table, the process tree; innermost an
//! entry's owner and then a task's `PiTask`.

use crate::current::Current;
use crate::kernel::Kernel;
use crate::result::{Restart, SysErr};
use crate::task::Task;
use abi::{Errno, Result};
use mm::VmaKind;
use pid::PidNamespace;
use ranked::{Mutex, MutexGuard, rank};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;
use wait::{Events, Stop, Wake};

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const TID_MASK: u32 = 0x3fff_ffff;

/// Longest chain of owners that is searched for a circle (max_lock_depth).
const MAX_DEPTH: usize = 1024;

/// How often a new owner tries to write itself to a word that others keep changing.
const MAX_TRIES: usize = 1000;

const WAITING: u8 = 0;
/// The lock is the waiter's and the word says so.
const GRANTED: u8 = 1;
/// The lock is the waiter's; it has to write that to the word itself.
const INHERITED: u8 = 2;

/// What a futex word is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// Address space and address.
    Private(usize, u64),
    /// Anonymous shared mapping and offset.
    Anonymous(u64, u64),
    /// Device, inode and offset.
    File(u64, u64, u64),
}

/// Contended words of a sandbox.
#[derive(Default)]
pub struct PiTable {
    entries: Mutex<HashMap<Key, Arc<Entry>>, { rank::PI_TABLE }>,
    /// Who waits to be requeued, by the first word.
    requeue: Mutex<HashMap<Key, Vec<Arc<Waiter>>>, { rank::PI_REQUEUE }>,
}

/// A contended word.
struct Entry {
    key: Key,
    state: Mutex<State, { rank::PI_WORD }>,
    /// Who owns it while somebody waits.
    owner: Mutex<Option<Arc<Task>>, { rank::PI_OWNER }>,
}

#[derive(Default)]
struct State {
    waiters: Vec<Arc<Waiter>>,
    /// The new owner has yet to write itself to the word.
    handover: bool,
    /// It is no longer in the table: look again.
    forgotten: bool,
}

/// A thread that waits.
struct Waiter {
    task: Arc<Task>,
    outcome: AtomicU8,
    /// What it waits for; none before a requeue.
    entry: Mutex<Option<Arc<Entry>>>,
    /// Where it wants to be requeued to.
    target: Option<Key>,
}

/// A thread's side.
#[derive(Default)]
pub(crate) struct PiTask {
    /// It has handed over all its locks and takes no more.
    exited: bool,
    owned: Vec<Arc<Entry>>,
    waits_for: Option<Arc<Entry>>,
}

/// What an attempt to lock came to.
enum Step {
    Acquired,
    Queued,
    /// The word changed meanwhile.
    Again,
}

impl PiTable {
    fn get(&self, key: Key) -> Arc<Entry> {
        let new = || Arc::new(Entry { key, state: Mutex::default(), owner: Mutex::default() });
        self.entries.lock().entry(key).or_insert_with(new).clone()
    }

    /// Forgets an entry that nobody waits for.
    fn put(&self, entry: &Arc<Entry>) {
        let mut state = entry.state.lock();
        if state.waiters.is_empty() && !state.handover && !state.forgotten {
            state.forgotten = true;
            self.entries.lock().remove(&entry.key);
        }
    }
}

impl Entry {
    /// Makes `task` the owner for as long as somebody waits. ESRCH when it is past handing its locks over.
    fn own(self: &Arc<Self>, task: &Arc<Task>) -> Result<()> {
        let mut p = task.pi.lock();
        if p.exited {
            return Err(Errno::ESRCH);
        }
        p.owned.push(self.clone());
        drop(p);
        *self.owner.lock() = Some(task.clone());
        Ok(())
    }

    fn disown(self: &Arc<Self>) {
        if let Some(t) = self.owner.lock().take() {
            t.pi.lock().owned.retain(|e| !Arc::ptr_eq(e, self));
        }
    }

    /// Gives the lock to the first of those with the highest priority.
    fn next(state: &State) -> Option<Arc<Waiter>> {
        let prio = |w: &Arc<Waiter>| w.task.scheduling.policy.lock().1;
        let best = state.waiters.iter().map(prio).max()?;
        state.waiters.iter().find(|w| prio(w) == best).cloned()
    }

    fn grant(self: &Arc<Self>, state: &mut State, w: &Arc<Waiter>, outcome: u8) {
        state.waiters.retain(|x| !Arc::ptr_eq(x, w));
        state.handover = outcome == INHERITED;
        self.disown();
        if state.handover || !state.waiters.is_empty() {
            // A waiter has not left yet.
            let _ = self.own(&w.task);
        }
        w.task.pi.lock().waits_for = None;
        w.outcome.store(outcome, Ordering::SeqCst);
        w.task.waiter.wake(Events::IN);
    }

    /// True when `task` owns this lock, or waits for one whose owner waits ... for it.
    fn leads_to(self: &Arc<Self>, task: &Arc<Task>) -> bool {
        let mut at = self.clone();
        for _ in 0..MAX_DEPTH {
            let Some(owner) = at.owner.lock().clone() else { return false };
            if Arc::ptr_eq(&owner, task) {
                return true;
            }
            let next = owner.pi.lock().waits_for.clone();
            match next {
                Some(e) => at = e,
                None => return false,
            }
        }
        true
    }
}

impl Waiter {
    fn new(task: &Arc<Task>, target: Option<Key>) -> Arc<Waiter> {
        let outcome = AtomicU8::new(WAITING);
        Arc::new(Waiter { task: task.clone(), outcome, entry: Mutex::default(), target })
    }
}

impl Kernel {
    fn owner_of(&self, ns: &PidNamespace, word: u32) -> Option<Arc<Task>> {
        self.task(ns.find((word & TID_MASK) as i32)?.nr())
    }
}

impl Current {
    /// The key of a futex word. Words of shared mappings are the same for all who map them.
    pub fn futex_key(&self, addr: u64, private: bool) -> Result<Key> {
        if !addr.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        self.check_range(addr, 4)?;
        let own = Key::Private(Arc::as_ptr(&*self.mm) as usize, addr);
        if private {
            return Ok(own);
        }
        let found = self.mm.with_map(|m| m.find(addr).cloned()).ok_or(Errno::EFAULT)?;
        let offset = addr - found.start + found.offset;
        match (&found.kind, &found.file) {
            _ if !found.shared => Ok(own),
            (VmaKind::SharedAnon(id), _) => Ok(Key::Anonymous(*id, offset)),
            (_, Some(f)) => f.attr().map(|a| Key::File(a.dev, a.ino, offset)),
            _ => Ok(own),
        }
    }

    fn futex_word(&self, addr: u64) -> Result<u32> {
        let mut b = [0; 4];
        if self.mm.space.read(addr, &mut b) == 4 { Ok(u32::from_ne_bytes(b)) } else { Err(Errno::EFAULT) }
    }

    /// One attempt to take the lock for `w`, which is queued when that must wait. `try_only`: EAGAIN instead.
    fn pi_step(
        &mut self,
        entry: &Arc<Entry>,
        s: &mut MutexGuard<'_, State, { rank::PI_WORD }>,
        addr: u64,
        w: &Arc<Waiter>,
        try_only: bool,
    ) -> Result<Step> {
        let tid = w.task.own_tid() as u32;
        let busy = !s.waiters.is_empty() || s.handover;
        let mine = if busy { tid | WAITERS } else { tid };
        let found = self.ctx.compare_exchange(addr, 0, mine)?;
        if found == 0 {
            if busy {
                entry.disown();
                let _ = entry.own(&w.task);
            }
            return Ok(Step::Acquired);
        }
        if found & TID_MASK == tid {
            return Err(Errno::EDEADLK);
        }
        if !busy {
            if found & TID_MASK == 0 {
                // Nobody's: its owner died, or the last of its waiters gave up.
                let seen = self.ctx.compare_exchange(addr, found, found & OWNER_DIED | tid)?;
                return Ok(if seen == found { Step::Acquired } else { Step::Again });
            }
            let Some(owner) = self.kernel().owner_of(self.task.pids(), found) else {
                return if self.futex_word(addr)? == found { Err(Errno::ESRCH) } else { Ok(Step::Again) };
            };
            if try_only {
                return Err(Errno::EAGAIN);
            }
            if found & WAITERS == 0 && self.ctx.compare_exchange(addr, found, found | WAITERS)? != found {
                return Ok(Step::Again);
            }
            if entry.own(&owner).is_err() {
                return if self.futex_word(addr)? == found | WAITERS {
                    Err(Errno::ESRCH)
                } else {
                    Ok(Step::Again)
                };
            }
        } else {
            if try_only {
                return Err(Errno::EAGAIN);
            }
            let owner = entry.owner.lock().as_ref().map_or(0, |t| t.own_tid() as u32);
            if !s.handover && found & TID_MASK != owner && found & OWNER_DIED == 0 {
                return Err(Errno::EINVAL);
            }
            if found & WAITERS == 0 && self.ctx.compare_exchange(addr, found, found | WAITERS)? != found {
                return Ok(Step::Again);
            }
        }
        if entry.leads_to(&w.task) {
            if !busy {
                entry.disown();
            }
            return Err(Errno::EDEADLK);
        }
        w.task.pi.lock().waits_for = Some(entry.clone());
        *w.entry.lock() = Some(entry.clone());
        s.waiters.push(w.clone());
        Ok(Step::Queued)
    }

    /// FUTEX_LOCK_PI, FUTEX_LOCK_PI2, FUTEX_TRYLOCK_PI.
    pub fn pi_lock(
        &mut self,
        addr: u64,
        key: Key,
        try_only: bool,
        deadline: Option<Instant>,
    ) -> Result<(), SysErr> {
        let w = Waiter::new(&self.task, None);
        match self.pi_take(addr, key, &w, try_only)? {
            Step::Queued => self.pi_wait(addr, &w, deadline).map_err(|stop| match stop {
                Stop::TimedOut => SysErr::Errno(Errno::ETIMEDOUT),
                Stop::Interrupted => SysErr::Restart(Restart::NoIntr),
            }),
            _ => Ok(()),
        }
    }

    /// Attempts until the lock is taken or queued for.
    fn pi_take(&mut self, addr: u64, key: Key, w: &Arc<Waiter>, try_only: bool) -> Result<Step, SysErr> {
        let kernel = self.kernel().clone();
        loop {
            if self.dying() {
                return Err(SysErr::Restart(Restart::NoIntr));
            }
            let entry = kernel.pi.get(key);
            let mut s = entry.state.lock();
            let r = match s.forgotten {
                true => Ok(Step::Again),
                false => self.pi_step(&entry, &mut s, addr, w, try_only),
            };
            drop(s);
            if !matches!(r, Ok(Step::Queued)) {
                kernel.pi.put(&entry);
            }
            match r {
                Ok(Step::Again) => std::thread::yield_now(),
                r => return Ok(r?),
            }
        }
    }

    /// Sleeps until the lock is handed to this thread.
    fn pi_wait(&mut self, addr: u64, w: &Arc<Waiter>, deadline: Option<Instant>) -> Result<(), Stop> {
        while w.outcome.load(Ordering::SeqCst) == WAITING {
            if let Err(stop) = self.sleep(deadline)
                && self.pi_give_up(w)
            {
                return Err(stop);
            }
        }
        if w.outcome.load(Ordering::SeqCst) == INHERITED {
            self.pi_write_owner(addr, w);
        }
        Ok(())
    }

    /// Leaves the queue; false when the lock was granted meanwhile.
    fn pi_give_up(&self, w: &Arc<Waiter>) -> bool {
        let Some(entry) = w.entry.lock().clone() else { return true };
        let mut s = entry.state.lock();
        if w.outcome.load(Ordering::SeqCst) != WAITING {
            return false;
        }
        s.waiters.retain(|x| !Arc::ptr_eq(x, w));
        w.task.pi.lock().waits_for = None;
        if s.waiters.is_empty() && !s.handover {
            entry.disown();
        }
        drop(s);
        self.kernel().pi.put(&entry);
        true
    }

    /// The owner died: the word still names it.
    fn pi_write_owner(&mut self, addr: u64, w: &Arc<Waiter>) {
        let Some(entry) = w.entry.lock().clone() else { return };
        let tid = self.task.own_tid() as u32;
        let mut s = entry.state.lock();
        for _ in 0..MAX_TRIES {
            let Ok(word) = self.futex_word(addr) else { break };
            let waiters = if s.waiters.is_empty() { word & WAITERS } else { WAITERS };
            match self.ctx.compare_exchange(addr, word, OWNER_DIED | waiters | tid) {
                Ok(seen) if seen != word => {}
                _ => break,
            }
        }
        s.handover = false;
        if s.waiters.is_empty() {
            entry.disown();
        }
        drop(s);
        self.kernel().pi.put(&entry);
    }

    /// FUTEX_UNLOCK_PI.
    pub fn pi_unlock(&mut self, addr: u64, key: Key) -> Result<(), SysErr> {
        let kernel = self.kernel().clone();
        let tid = self.task.own_tid() as u32;
        loop {
            let word = self.futex_word(addr)?;
            if word & TID_MASK != tid {
                return Err(Errno::EPERM.into());
            }
            let entry = kernel.pi.get(key);
            let r = {
                let mut s = entry.state.lock();
                if s.forgotten { Ok(false) } else { self.pi_release(&entry, &mut s, addr, word) }
            };
            kernel.pi.put(&entry);
            if r? {
                return Ok(());
            }
            if self.dying() {
                return Err(SysErr::Restart(Restart::NoIntr));
            }
        }
    }

    /// Gives the lock to the next waiter or to nobody; false when the word changed meanwhile.
    fn pi_release(&mut self, entry: &Arc<Entry>, s: &mut State, addr: u64, word: u32) -> Result<bool> {
        match Entry::next(s) {
            Some(next) => {
                let found = self.ctx.compare_exchange(addr, word, next.task.own_tid() as u32 | WAITERS)?;
                if found == word {
                    entry.grant(s, &next, GRANTED);
                } else if found & TID_MASK != word & TID_MASK {
                    return Err(Errno::EINVAL);
                }
                Ok(found == word)
            }
            None => Ok(self.ctx.compare_exchange(addr, word, 0)? == word),
        }
    }

    /// Hands every contended lock of this thread over (exit, execve(2)).
    pub(crate) fn pi_hand_over(&mut self, exiting: bool) {
        let owned = {
            let mut p = self.task.pi.lock();
            p.exited = exiting;
            std::mem::take(&mut p.owned)
        };
        for entry in owned {
            let mut s = entry.state.lock();
            let mine = entry.owner.lock().as_ref().is_some_and(|o| Arc::ptr_eq(o, &self.task));
            match Entry::next(&s) {
                Some(next) if mine => entry.grant(&mut s, &next, INHERITED),
                _ if mine => {
                    s.handover = false;
                    *entry.owner.lock() = None;
                }
                _ => {}
            }
            drop(s);
            self.kernel().pi.put(&entry);
        }
    }

    /// FUTEX_WAIT_REQUEUE_PI: waits on one word to be given the lock of another.
    pub fn pi_wait_requeue(
        &mut self,
        (addr, key): (u64, Key),
        value: u32,
        deadline: Option<Instant>,
        (addr2, key2): (u64, Key),
    ) -> Result<(), SysErr> {
        if key == key2 {
            return Err(Errno::EINVAL.into());
        }
        let kernel = self.kernel().clone();
        let w = Waiter::new(&self.task, Some(key2));
        {
            let mut q = kernel.pi.requeue.lock();
            if self.futex_word(addr)? != value {
                return Err(Errno::EAGAIN.into());
            }
            q.entry(key).or_default().push(w.clone());
        }
        loop {
            if w.outcome.load(Ordering::SeqCst) != WAITING {
                break;
            }
            let Err(stop) = self.sleep(deadline) else { continue };
            let early = {
                let mut q = kernel.pi.requeue.lock();
                let list = q.get_mut(&key);
                let at = list.as_ref().and_then(|l| l.iter().position(|x| Arc::ptr_eq(x, &w)));
                if let (Some(list), Some(at)) = (list, at) {
                    list.remove(at);
                    if list.is_empty() {
                        q.remove(&key);
                    }
                }
                at.is_some()
            };
            match stop {
                Stop::TimedOut if early || self.pi_give_up(&w) => return Err(Errno::ETIMEDOUT.into()),
                Stop::Interrupted if early => return Err(SysErr::Restart(Restart::NoIntr)),
                // The call cannot start again: it has been requeued.
                Stop::Interrupted if self.pi_give_up(&w) => return Err(Errno::EAGAIN.into()),
                _ => {}
            }
        }
        if w.outcome.load(Ordering::SeqCst) == INHERITED {
            self.pi_write_owner(addr2, &w);
        }
        Ok(())
    }

    /// FUTEX_CMP_REQUEUE_PI: gives the lock of `addr2` to the first waiter of `addr`, or queues it and `more` others.
    pub fn pi_requeue(
        &mut self,
        (addr, key): (u64, Key),
        value: u32,
        more: u32,
        (addr2, key2): (u64, Key),
    ) -> Result<u64, SysErr> {
        if key == key2 {
            return Err(Errno::EINVAL.into());
        }
        let kernel = self.kernel().clone();
        let mut q = kernel.pi.requeue.lock();
        if self.futex_word(addr)? != value {
            return Err(Errno::EAGAIN.into());
        }
        let mut moved = 0;
        while moved <= u64::from(more) {
            let Some(w) = q.get(&key).and_then(|l| l.first()).cloned() else { break };
            if w.target != Some(key2) {
                return if moved == 0 { Err(Errno::EINVAL.into()) } else { Ok(moved) };
            }
            let step = self.pi_take(addr2, key2, &w, false);
            if let (Err(e), true) = (&step, moved == 0) {
                return Err(*e);
            }
            let Ok(step) = step else { break };
            if let Some(list) = q.get_mut(&key) {
                list.retain(|x| !Arc::ptr_eq(x, &w));
                if list.is_empty() {
                    q.remove(&key);
                }
            }
            if let Step::Acquired = step {
                w.outcome.store(GRANTED, Ordering::SeqCst);
                w.task.waiter.wake(Events::IN);
            }
            moved += 1;
        }
        Ok(moved)
    }
}

//! FUTEX_LOCK_PI, FUTEX_TRYLOCK_PI, FUTEX_UNLOCK_PI, and handing locks over when a thread ends. See futex(2).

use crate::key::Key;
use crate::table::{Entry, GRANTED, INHERITED, PiOwner, PiTable, State, WAITING, Waiter};
use abi::{Errno, Result};
use lock_order::{MutexGuard, rank};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use sysresult::{Restart, SysErr};
use wait::Stop;

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const TID_MASK: u32 = 0x3fff_ffff;

/// How often a new owner tries to write itself to a word that others keep changing.
const MAX_TRIES: usize = 1000;

/// The thread that makes a call on a word.
pub trait PiLocker {
    /// Threads as owners.
    type Owner: PiOwner;
    /// The thread itself.
    fn this(&self) -> &Arc<Self::Owner>;
    /// The kernel's contended words.
    fn table(&self) -> &Arc<PiTable<Self::Owner>>;
    /// The thread that the caller's PID namespace knows by this ID.
    fn owner(&self, tid: i32) -> Option<Arc<Self::Owner>>;
    /// Reads a word. EFAULT.
    fn read_word(&self, addr: u64) -> Result<u32>;
    /// Replaces a word that is `old`, and gives what it was.
    fn compare_exchange(&mut self, addr: u64, old: u32, new: u32) -> Result<u32>;
    /// Sleeps until woken, interrupted or late.
    fn sleep(&self, deadline: Option<Instant>) -> std::result::Result<(), Stop>;
    /// Whether the thread is to end.
    fn dying(&self) -> bool;
}

/// What an attempt to lock came to.
pub(crate) enum Step {
    Acquired,
    Queued,
    /// The word changed meanwhile.
    Again,
}

/// One attempt to take the lock for `w`, which is queued when that must wait. `try_only`: EAGAIN instead.
fn pi_step<L: PiLocker>(
    c: &mut L,
    entry: &Arc<Entry<L::Owner>>,
    s: &mut MutexGuard<'_, State<L::Owner>, { rank::PI_WORD }>,
    addr: u64,
    w: &Arc<Waiter<L::Owner>>,
    try_only: bool,
) -> Result<Step> {
    let tid = w.task.own_tid() as u32;
    let busy = !s.waiters.is_empty() || s.handover;
    let mine = if busy { tid | WAITERS } else { tid };
    let found = c.compare_exchange(addr, 0, mine)?;
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
            // Without an owner: its owner died, or the last of its waiters gave up.
            let seen = c.compare_exchange(addr, found, found & OWNER_DIED | tid)?;
            return Ok(if seen == found { Step::Acquired } else { Step::Again });
        }
        let Some(owner) = c.owner((found & TID_MASK) as i32) else {
            return if c.read_word(addr)? == found { Err(Errno::ESRCH) } else { Ok(Step::Again) };
        };
        if try_only {
            return Err(Errno::EAGAIN);
        }
        if found & WAITERS == 0 && c.compare_exchange(addr, found, found | WAITERS)? != found {
            return Ok(Step::Again);
        }
        if entry.own(&owner).is_err() {
            return if c.read_word(addr)? == found | WAITERS { Err(Errno::ESRCH) } else { Ok(Step::Again) };
        }
    } else {
        if try_only {
            return Err(Errno::EAGAIN);
        }
        let owner = entry.owner.lock().as_ref().map_or(0, |t| t.own_tid() as u32);
        if !s.handover && found & TID_MASK != owner && found & OWNER_DIED == 0 {
            return Err(Errno::EINVAL);
        }
        if found & WAITERS == 0 && c.compare_exchange(addr, found, found | WAITERS)? != found {
            return Ok(Step::Again);
        }
    }
    if entry.leads_to(&w.task) {
        if !busy {
            entry.disown();
        }
        return Err(Errno::EDEADLK);
    }
    w.task.pi().lock().waits_for = Some(entry.clone());
    *w.entry.lock() = Some(entry.clone());
    s.waiters.push(w.clone());
    Ok(Step::Queued)
}

/// FUTEX_LOCK_PI, FUTEX_LOCK_PI2, FUTEX_TRYLOCK_PI.
pub fn pi_lock<L: PiLocker>(
    c: &mut L,
    addr: u64,
    key: Key,
    try_only: bool,
    deadline: Option<Instant>,
) -> Result<(), SysErr> {
    let w = Waiter::new(c.this(), None);
    match pi_take(c, addr, key, &w, try_only)? {
        Step::Queued => pi_wait(c, addr, &w, deadline).map_err(|stop| match stop {
            Stop::TimedOut => SysErr::Errno(Errno::ETIMEDOUT),
            Stop::Interrupted => SysErr::Restart(Restart::NoIntr),
        }),
        _ => Ok(()),
    }
}

/// Attempts until the lock is taken or queued for.
pub(crate) fn pi_take<L: PiLocker>(
    c: &mut L,
    addr: u64,
    key: Key,
    w: &Arc<Waiter<L::Owner>>,
    try_only: bool,
) -> Result<Step, SysErr> {
    let table = c.table().clone();
    loop {
        if c.dying() {
            return Err(SysErr::Restart(Restart::NoIntr));
        }
        let entry = table.get(key);
        let mut s = entry.state.lock();
        let r = match s.forgotten {
            true => Ok(Step::Again),
            false => pi_step(c, &entry, &mut s, addr, w, try_only),
        };
        drop(s);
        if !matches!(r, Ok(Step::Queued)) {
            table.put(&entry);
        }
        match r {
            Ok(Step::Again) => std::thread::yield_now(),
            r => return Ok(r?),
        }
    }
}

/// Sleeps until the lock is handed to this thread.
fn pi_wait<L: PiLocker>(
    c: &mut L,
    addr: u64,
    w: &Arc<Waiter<L::Owner>>,
    deadline: Option<Instant>,
) -> Result<(), Stop> {
    while w.outcome.load(Ordering::SeqCst) == WAITING {
        if let Err(stop) = c.sleep(deadline)
            && pi_give_up(c, w)
        {
            return Err(stop);
        }
    }
    if w.outcome.load(Ordering::SeqCst) == INHERITED {
        pi_write_owner(c, addr, w);
    }
    Ok(())
}

/// Leaves the queue; false when the lock was granted meanwhile.
pub(crate) fn pi_give_up<L: PiLocker>(c: &L, w: &Arc<Waiter<L::Owner>>) -> bool {
    let Some(entry) = w.entry.lock().clone() else { return true };
    let mut s = entry.state.lock();
    if w.outcome.load(Ordering::SeqCst) != WAITING {
        return false;
    }
    s.waiters.retain(|x| !Arc::ptr_eq(x, w));
    w.task.pi().lock().waits_for = None;
    if s.waiters.is_empty() && !s.handover {
        entry.disown();
    }
    drop(s);
    c.table().put(&entry);
    true
}

/// The owner died: the word still names it.
pub(crate) fn pi_write_owner<L: PiLocker>(c: &mut L, addr: u64, w: &Arc<Waiter<L::Owner>>) {
    let Some(entry) = w.entry.lock().clone() else { return };
    let tid = c.this().own_tid() as u32;
    let mut s = entry.state.lock();
    for _ in 0..MAX_TRIES {
        let Ok(word) = c.read_word(addr) else { break };
        let waiters = if s.waiters.is_empty() { word & WAITERS } else { WAITERS };
        match c.compare_exchange(addr, word, OWNER_DIED | waiters | tid) {
            Ok(seen) if seen != word => {}
            _ => break,
        }
    }
    s.handover = false;
    if s.waiters.is_empty() {
        entry.disown();
    }
    drop(s);
    c.table().put(&entry);
}

/// FUTEX_UNLOCK_PI.
pub fn pi_unlock<L: PiLocker>(c: &mut L, addr: u64, key: Key) -> Result<(), SysErr> {
    let table = c.table().clone();
    let tid = c.this().own_tid() as u32;
    loop {
        let word = c.read_word(addr)?;
        if word & TID_MASK != tid {
            return Err(Errno::EPERM.into());
        }
        let entry = table.get(key);
        let r = {
            let mut s = entry.state.lock();
            if s.forgotten { Ok(false) } else { pi_release(c, &entry, &mut s, addr, word) }
        };
        table.put(&entry);
        if r? {
            return Ok(());
        }
        if c.dying() {
            return Err(SysErr::Restart(Restart::NoIntr));
        }
    }
}

/// Gives the lock to the next waiter, or frees it; false when the word changed meanwhile.
fn pi_release<L: PiLocker>(
    c: &mut L,
    entry: &Arc<Entry<L::Owner>>,
    s: &mut State<L::Owner>,
    addr: u64,
    word: u32,
) -> Result<bool> {
    match Entry::next(s) {
        Some(next) => {
            let found = c.compare_exchange(addr, word, next.task.own_tid() as u32 | WAITERS)?;
            if found == word {
                entry.grant(s, &next, GRANTED);
            } else if found & TID_MASK != word & TID_MASK {
                return Err(Errno::EINVAL);
            }
            Ok(found == word)
        }
        None => Ok(c.compare_exchange(addr, word, 0)? == word),
    }
}

/// Hands every contended lock of this thread over (exit, execve(2)).
pub fn pi_hand_over<L: PiLocker>(c: &mut L, exiting: bool) {
    let owned = {
        let mut p = c.this().pi().lock();
        p.exited = exiting;
        std::mem::take(&mut p.owned)
    };
    for entry in owned {
        let mut s = entry.state.lock();
        let mine = entry.owner.lock().as_ref().is_some_and(|o| Arc::ptr_eq(o, c.this()));
        match Entry::next(&s) {
            Some(next) if mine => entry.grant(&mut s, &next, INHERITED),
            _ if mine => {
                s.handover = false;
                *entry.owner.lock() = None;
            }
            _ => {}
        }
        drop(s);
        c.table().put(&entry);
    }
}

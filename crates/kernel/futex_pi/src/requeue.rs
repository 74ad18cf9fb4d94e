//! FUTEX_WAIT_REQUEUE_PI and FUTEX_CMP_REQUEUE_PI. See futex(2).

use crate::key::Key;
use crate::lock::{PiLocker, Step, pi_give_up, pi_take, pi_write_owner};
use crate::table::{GRANTED, INHERITED, PiOwner, WAITING, Waiter};
use abi::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use sysresult::{Restart, SysErr};
use wait::Stop;

/// FUTEX_WAIT_REQUEUE_PI: waits on one word to be given the lock of another.
pub fn pi_wait_requeue<L: PiLocker>(
    c: &mut L,
    (addr, key): (u64, Key),
    value: u32,
    deadline: Option<Instant>,
    (addr2, key2): (u64, Key),
) -> Result<(), SysErr> {
    if key == key2 {
        return Err(Errno::EINVAL.into());
    }
    let table = c.table().clone();
    let w = Waiter::new(c.this(), Some(key2));
    {
        let mut q = table.requeue.lock();
        if c.read_word(addr)? != value {
            return Err(Errno::EAGAIN.into());
        }
        q.entry(key).or_default().push(w.clone());
    }
    loop {
        if w.outcome.load(Ordering::SeqCst) != WAITING {
            break;
        }
        let Err(stop) = c.sleep(deadline) else { continue };
        let early = {
            let mut q = table.requeue.lock();
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
            Stop::TimedOut if early || pi_give_up(c, &w) => return Err(Errno::ETIMEDOUT.into()),
            Stop::Interrupted if early => return Err(SysErr::Restart(Restart::NoIntr)),
            // The call cannot start again: it has been requeued.
            Stop::Interrupted if pi_give_up(c, &w) => return Err(Errno::EAGAIN.into()),
            _ => {}
        }
    }
    if w.outcome.load(Ordering::SeqCst) == INHERITED {
        pi_write_owner(c, addr2, &w);
    }
    Ok(())
}

/// FUTEX_CMP_REQUEUE_PI: gives the lock of `addr2` to the first waiter of `addr`, or queues it and `more` others.
pub fn pi_requeue<L: PiLocker>(
    c: &mut L,
    (addr, key): (u64, Key),
    value: u32,
    more: u32,
    (addr2, key2): (u64, Key),
) -> Result<u64, SysErr> {
    if key == key2 {
        return Err(Errno::EINVAL.into());
    }
    let table = c.table().clone();
    let mut q = table.requeue.lock();
    if c.read_word(addr)? != value {
        return Err(Errno::EAGAIN.into());
    }
    let mut moved = 0;
    while moved <= u64::from(more) {
        let Some(w) = q.get(&key).and_then(|l| l.first()).cloned() else { break };
        if w.target != Some(key2) {
            return if moved == 0 { Err(Errno::EINVAL.into()) } else { Ok(moved) };
        }
        let step = pi_take(c, addr2, key2, &w, false);
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
            w.task.wake();
        }
        moved += 1;
    }
    Ok(moved)
}

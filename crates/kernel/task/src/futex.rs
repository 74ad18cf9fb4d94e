//! Futex operations that carry thread ids: robust lists and priority
//! inheritance. Plain wait and wake run on the host's own futex in the
//! platform. See futex(2), get_robust_list(2).

use crate::current::Current;
use crate::result::SysErr;
use abi::Errno;
use parking_lot::Mutex;
use platform::Action;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use wait::{Events, Stop, WaitQueue};

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const TID_MASK: u32 = 0x3fff_ffff;
/// Longest robust list that is walked.
const ROBUST_LIMIT: usize = 2048;

/// Walks the robust list of an exiting thread: held locks are marked and one waiter woken.
pub(crate) fn release_robust(c: &mut Current) {
    let head = c.task.robust_list.load(std::sync::atomic::Ordering::Relaxed);
    if head == 0 {
        return;
    }
    let Ok([first, offset, pending]) = c.read_value::<[u64; 3]>(head) else { return };
    let mut entry = first;
    for _ in 0..ROBUST_LIMIT {
        if entry & !1 == head {
            break;
        }
        let next = c.read_value::<u64>(entry & !1);
        if entry & !1 != pending & !1 {
            release_one(c, (entry & !1).wrapping_add(offset), entry & 1 != 0, false);
        }
        match next {
            Ok(n) => entry = n,
            Err(_) => break,
        }
    }
    if pending & !1 != 0 {
        release_one(c, (pending & !1).wrapping_add(offset), pending & 1 != 0, true);
    }
    // Whoever learns of this thread's end must find the locks released.
    let _ = c.ctx.flush();
}

fn release_one(c: &mut Current, addr: u64, pi: bool, pending: bool) {
    let Ok(word) = c.read_value::<u32>(addr) else { return };
    // A thread that died between unlocking and unlinking must still wake a waiter.
    if pending && !pi && word == 0 {
        c.ctx.queue(Action::StoreAndWake { addr, value: None, wake: 1 });
        return;
    }
    if word & TID_MASK != c.task.tid() as u32 {
        return;
    }
    let value = Some(word & WAITERS | OWNER_DIED);
    let wake = u32::from(word & WAITERS != 0 && !pi);
    c.ctx.queue(Action::StoreAndWake { addr, value, wake });
    if pi {
        let _ = c.ctx.flush();
        queue_of(c, addr).notify(Events::ALL);
    }
}

/// Waiters of priority-inheritance futexes by address space and address. The kernel's scheduler is the
/// host's, so no priority is inherited; ownership and hand-over are exact.
static PI_QUEUES: LazyLock<Mutex<PiQueues>> = LazyLock::new(Mutex::default);

/// Queue and number of waiters by futex.
type PiQueues = HashMap<(usize, u64), (WaitQueue, usize)>;

fn key(c: &Current, addr: u64) -> (usize, u64) {
    // Shared mappings are found by their file, private ones by the address space.
    let shared = c.mm.with_map(|m| {
        m.find(addr).filter(|v| v.shared).and_then(|v| {
            v.file.as_ref().map(|f| (Arc::as_ptr(f) as *const u8 as usize, addr - v.start + v.offset))
        })
    });
    shared.unwrap_or((Arc::as_ptr(&c.mm) as usize, addr))
}

fn queue_of(c: &Current, addr: u64) -> WaitQueue {
    PI_QUEUES.lock().get(&key(c, addr)).map(|q| q.0.clone()).unwrap_or_default()
}

struct Registered((usize, u64), WaitQueue);

impl Registered {
    fn new(k: (usize, u64)) -> Registered {
        let mut m = PI_QUEUES.lock();
        let e = m.entry(k).or_default();
        e.1 += 1;
        Registered(k, e.0.clone())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut m = PI_QUEUES.lock();
        if let Some(e) = m.get_mut(&self.0) {
            e.1 -= 1;
            if e.1 == 0 {
                m.remove(&self.0);
            }
        }
    }
}

/// Serialises the read-modify-write of lock words among the kernel's own threads; the guest's fast path
/// uses compare-and-exchange on words whose WAITERS bit is clear.
static PI_WORDS: Mutex<()> = Mutex::new(());

impl Current {
    /// FUTEX_LOCK_PI and FUTEX_TRYLOCK_PI.
    pub fn futex_lock_pi(
        &mut self,
        addr: u64,
        deadline: Option<Instant>,
        try_only: bool,
    ) -> Result<u64, SysErr> {
        if !addr.is_multiple_of(4) {
            return Err(Errno::EINVAL.into());
        }
        let tid = self.task.tid() as u32;
        let reg = Registered::new(key(self, addr));
        let _sub = reg.1.subscribe(Events::ALL, self.task.waiter.clone());
        loop {
            {
                let _w = PI_WORDS.lock();
                let word: u32 = self.read_value(addr)?;
                let owner = word & TID_MASK;
                if owner == tid {
                    return Err(Errno::EDEADLK.into());
                }
                if owner == 0 {
                    let keep = word & OWNER_DIED;
                    let others =
                        if PI_QUEUES.lock().get(&reg.0).is_some_and(|e| e.1 > 1) { WAITERS } else { 0 };
                    self.write_now(addr, &(tid | keep | others).to_le_bytes())?;
                    return Ok(0);
                }
                if try_only {
                    return Err(Errno::EAGAIN.into());
                }
                if self.kernel().task(owner as i32).is_none() {
                    return Err(Errno::ESRCH.into());
                }
                if word & WAITERS == 0 {
                    self.write_now(addr, &(word | WAITERS).to_le_bytes())?;
                    // The owner may just have unlocked in user space: look again.
                    if self.read_value::<u32>(addr)? != word | WAITERS {
                        continue;
                    }
                }
            }
            match self.sleep(deadline) {
                Ok(()) => {}
                Err(Stop::TimedOut) => return Err(Errno::ETIMEDOUT.into()),
                Err(Stop::Interrupted) => return Err(SysErr::Restart(crate::result::Restart::NoIntr)),
            }
        }
    }

    /// FUTEX_UNLOCK_PI.
    pub fn futex_unlock_pi(&mut self, addr: u64) -> Result<u64, SysErr> {
        if !addr.is_multiple_of(4) {
            return Err(Errno::EINVAL.into());
        }
        let _w = PI_WORDS.lock();
        let word: u32 = self.read_value(addr)?;
        if word & TID_MASK != self.task.tid() as u32 {
            return Err(Errno::EPERM.into());
        }
        self.write_now(addr, &0u32.to_le_bytes())?;
        queue_of(self, addr).notify(Events::ALL);
        Ok(0)
    }
}

//! Memory that mlock(2) and its relatives lock: recorded, counted, limited and read in. Nothing is pinned: the host
//! may swap.

use crate::map::{MemoryMap, TRAMPOLINES, Vma};
use crate::ops::Mm;
use abi::{Errno, Result};
use platform::{Action, Context};
use rights::Cap;
use vfs::Caller;

/// MCL_CURRENT, MCL_FUTURE and MCL_ONFAULT of mlockall(2), as far as they matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockAll {
    /// What is mapped now.
    pub current: bool,
    /// What will be mapped.
    pub future: bool,
}

fn limit(cx: &dyn Caller) -> u64 {
    if cx.creds().capable(Cap::IPC_LOCK) { u64::MAX } else { cx.rlimit(libc::RLIMIT_MEMLOCK as i32) }
}

impl MemoryMap {
    /// Bytes that are locked.
    pub fn locked(&self) -> u64 {
        self.iter().filter(|v| v.locked).map(Vma::len).sum()
    }

    /// EAGAIN when `more` bytes cannot be locked in addition.
    pub(crate) fn room_to_lock(&self, cx: &dyn Caller, more: u64) -> Result<()> {
        let limit = limit(cx);
        if limit == u64::MAX || self.locked().saturating_add(more) <= limit {
            Ok(())
        } else {
            Err(Errno::EAGAIN)
        }
    }

    /// Whether a new mapping is locked: `asked` says MAP_LOCKED.
    pub(crate) fn locks_new(&self, cx: &dyn Caller, asked: bool, len: u64) -> Result<bool> {
        if asked && limit(cx) == 0 {
            return Err(Errno::EPERM);
        }
        let locked = asked || self.lock_future;
        if locked {
            self.room_to_lock(cx, len)?;
        }
        Ok(locked)
    }
}

impl Mm {
    /// mlock(2), or mlock2(2) with `on_fault`. As Linux does, what cannot be read in is locked and reported.
    pub fn lock(&self, cx: &dyn Caller, start: u64, end: u64, on_fault: bool) -> Result<()> {
        let limit = limit(cx);
        if limit == 0 {
            return Err(Errno::EPERM);
        }
        let mut m = self.map.lock();
        let again: u64 =
            m.overlapping(start, end).filter(|v| v.locked).map(|v| v.end.min(end) - v.start.max(start)).sum();
        if limit != u64::MAX && m.locked() - again + (end - start) > limit {
            return Err(Errno::ENOMEM);
        }
        if start < end && !m.covered(start, end) {
            return Err(Errno::ENOMEM);
        }
        m.update(start, end, |v| v.locked = true);
        let any = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let no_access = m.overlapping(start, end).any(|v| v.prot & any == 0);
        if no_access && !on_fault { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Has the guest thread read a locked range in, as far as it can be accessed. As mlock(2) answers it: ENOMEM for
    /// what
    /// cannot be read in, EAGAIN for what there is no memory for.
    pub fn read_in(&self, ctx: &mut dyn Context, start: u64, end: u64) -> Result<()> {
        let any = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let parts: Vec<(u64, u64, i32)> = {
            let m = self.map.lock();
            let own = m.overlapping(start, end).filter(|v| v.prot & any != 0 && v.flags & TRAMPOLINES == 0);
            let advice = |v: &Vma| match v.prot & libc::PROT_WRITE != 0
                && (!v.shared || v.prot & libc::PROT_READ == 0)
            {
                true => libc::MADV_POPULATE_WRITE,
                false => libc::MADV_POPULATE_READ,
            };
            own.map(|v| (v.start.max(start), v.end.min(end), advice(v))).collect()
        };
        for (a, b, advice) in parts {
            ctx.queue(Action::Advise { addr: a, len: b - a, advice });
        }
        ctx.flush().map_err(|e| match e {
            Errno::ENOMEM => Errno::EAGAIN,
            Errno::ESRCH => Errno::ESRCH,
            _ => Errno::ENOMEM,
        })
    }

    /// munlock(2).
    pub fn unlock(&self, start: u64, end: u64) -> Result<()> {
        let mut m = self.map.lock();
        if start < end && !m.covered(start, end) {
            return Err(Errno::ENOMEM);
        }
        m.update(start, end, |v| v.locked = false);
        Ok(())
    }

    /// mlockall(2).
    pub fn lock_all(&self, cx: &dyn Caller, which: LockAll) -> Result<()> {
        let limit = limit(cx);
        if limit == 0 {
            return Err(Errno::EPERM);
        }
        let mut m = self.map.lock();
        if which.current && m.total() > limit {
            return Err(Errno::ENOMEM);
        }
        m.lock_future = which.future;
        if which.current {
            let (min, max) = (m.min, m.max);
            m.update(min, max, |v| v.locked = true);
        }
        Ok(())
    }

    /// munlockall(2).
    pub fn unlock_all(&self) {
        let mut m = self.map.lock();
        m.lock_future = false;
        let (min, max) = (m.min, m.max);
        m.update(min, max, |v| v.locked = false);
    }
}

//! Robust futex lists, see get_robust_list(2). Wait and wake run on the host's
//! own futex in the platform.

use crate::current::Current;
use platform::Action;

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
}

//! Robust futex lists, see get_robust_list(2). Wait and wake run on the host's
//! own futex in the platform.

use crate::current::Current;
use platform::{Action, Word};

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const TID_MASK: u32 = 0x3fff_ffff;
/// How often a word that others keep changing is tried.
const MAX_TRIES: usize = 1000;
/// Longest robust list that is walked.
const ROBUST_LIMIT: usize = 2048;

/// Gives up the futexes that a thread holds when it leaves its memory, for good or by execve(2).
pub(crate) fn release(c: &mut Current, exiting: bool) {
    release_robust(c);
    futex_pi::pi_hand_over(c, exiting);
}

/// Walks the robust list: held locks are marked and one waiter woken.
fn release_robust(c: &mut Current) {
    let head = c.task.word(Word::RobustList);
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
    // A process that learns of this thread's end must find the locks released.
    let _ = c.ctx.flush();
}

fn release_one(c: &mut Current, addr: u64, pi: bool, pending: bool) {
    for _ in 0..MAX_TRIES {
        let Ok(word) = c.read_value::<u32>(addr) else { return };
        // A thread that died between unlocking and unlinking must still wake a waiter.
        if pending && !pi && word == 0 {
            c.ctx.queue(Action::StoreAndWake { addr, value: None, wake: 1 });
            return;
        }
        if word & TID_MASK != c.task.own_tid() as u32 {
            return;
        }
        // A waiter may announce itself meanwhile.
        match c.ctx.compare_exchange(addr, word, word & WAITERS | OWNER_DIED) {
            Ok(seen) if seen == word => {
                if word & WAITERS != 0 && !pi {
                    c.ctx.queue(Action::StoreAndWake { addr, value: None, wake: 1 });
                }
                return;
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

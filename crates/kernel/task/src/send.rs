//! Making signals pending. See kill(2), tgkill(2), signal(7).

use crate::pids;
use crate::signal::STOP_SIGNALS;
use crate::task::{Life, Signals, Task, ThreadGroup};
use abi::{Errno, Result, SigInfo, SigSet, Signal};
use std::sync::atomic::Ordering;
use wait::Events;

/// Makes a signal pending for a process, or for one thread of it, and gets the
/// attention of a thread that can take it. Signals that would be ignored are dropped at once.
pub(crate) fn send(group: &ThreadGroup, to: Option<&Task>, info: SigInfo) -> Result<()> {
    let sig = Signal::new(info.signo).ok_or(Errno::EINVAL)?;
    let mut continued = false;
    {
        let mut s = group.signals.lock();
        if s.threads.is_empty() || s.life.is_over() {
            return Ok(());
        }
        if sig == Signal::SIGKILL {
            // Init is safe from its own namespace, and from itself.
            if pids::is_init(group.tgid) && info.code <= 0 {
                return Ok(());
            }
            kill_group(group, &mut s, Signal::SIGKILL.raw());
            return Ok(());
        }
        if STOP_SIGNALS.has(sig) {
            discard(group, &mut s, SigSet::of(Signal::SIGCONT));
        } else if sig == Signal::SIGCONT {
            discard(group, &mut s, STOP_SIGNALS);
            continued = resume(&mut s);
        }
        let blocked = match to {
            Some(t) => t.blocked().has(sig),
            None => s.threads.iter().all(|t| t.blocked().has(sig)),
        };
        let forced = info.code > 0 && to.is_some();
        let init_immune = pids::is_init(group.tgid)
            && group.handlers().lock().get(sig).handler == crate::signal::SIG_DFL
            && !forced
            && !blocked
            && info.code != crate::kernel::SI_HOST;
        let dropped = !blocked && (group.handlers().lock().ignores(sig) || init_immune);
        if !dropped {
            let limit = group.rlimit(libc::RLIMIT_SIGPENDING as i32).min(1 << 20) as usize;
            match to {
                Some(t) => {
                    t.pending.lock().push(sig, info, limit)?;
                    t.note_pending();
                }
                None => {
                    s.shared.push(sig, info, limit)?;
                    group.shared_set.store(s.shared.set().0, Ordering::SeqCst);
                    s.threads.iter().for_each(|t| t.note_pending());
                }
            }
            match to {
                Some(t) if t.wants(sig) => t.kick(),
                Some(_) => {}
                None => {
                    let main = s.threads.iter().find(|t| t.tid() == group.tgid && t.wants(sig));
                    let t = main.or_else(|| s.threads.iter().find(|t| t.wants(sig)));
                    if let Some(t) = t {
                        t.kick();
                    }
                }
            }
        }
    }
    group.signal_wait.notify(Events::READABLE);
    if continued {
        group.kernel.clone().tell_parent_continued(group);
    }
    Ok(())
}

/// Removes pending signals from the group and all its threads.
pub(crate) fn discard(group: &ThreadGroup, s: &mut Signals, which: SigSet) {
    s.shared.remove(which);
    group.shared_set.store(s.shared.set().0, Ordering::SeqCst);
    for t in &s.threads {
        t.pending.lock().remove(which);
    }
}

/// Ends a group stop. True when there was one.
pub(crate) fn resume(s: &mut Signals) -> bool {
    if s.stop.take().is_none() {
        return false;
    }
    s.stop_told = false;
    for t in &s.threads {
        t.kick_fatal();
    }
    true
}

/// Starts the end of a process with a wait status; every thread leaves as soon as it notices.
pub(crate) fn kill_group(group: &ThreadGroup, s: &mut Signals, status: i32) {
    if s.life.is_over() {
        return;
    }
    s.life = Life::Ending(status);
    s.stop = None;
    for t in &s.threads {
        t.kick_fatal();
    }
    // A guest that blocks the interrupt in its own stub would never notice: its memory goes then, when all who share it end.
    if let Some(mm) = s.threads.first().map(|t| t.mm()) {
        crate::exit::begin_end(group, &mm);
    }
}

//! Making signals pending. See kill(2), tgkill(2), signal(7).

use crate::group_exit::kill_group;
use crate::kernel::{Kernel, SI_HOST};
use crate::task::Task;
use crate::thread_group::{Signals, ThreadGroup};
use crate::tree::{Report, Tree};
use abi::{Errno, Result, SigInfo, SigSet, Signal};
use container::Container;
use signal::{Charge, DefaultAction, Expiry, SIG_IGN, STOP_SIGNALS, default_action};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracee::NOTIFY;
use wait::Events;

/// Where a signal comes from, as far as init cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// A process or timer of init's own PID namespace, or of one inside.
    Inside,
    /// A process of a namespace around, or an operator outside of the sandbox.
    Around,
    /// The kernel: a fault, a limit, the end of the container.
    Kernel,
}

impl Sender {
    /// Of a signal that is sent to one thread (`directed`) or to a process.
    pub(crate) fn of(info: &SigInfo, directed: bool) -> Sender {
        // The sender has no number where the receiver is.
        let by_hand = matches!(info.code, libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE);
        if by_hand && info.pid() == 0 {
            return Sender::Around;
        }
        let forced = info.code > 0 && directed;
        if forced || info.code == SI_HOST { Sender::Kernel } else { Sender::Inside }
    }
}

impl ThreadGroup {
    /// Whether a signal does nothing because the process is init of its PID namespace and has no handler for it: the one place
    /// where that is decided. From around its namespace SIGKILL and SIGSTOP reach it. See pid_namespaces(7).
    pub fn is_immune(&self, sig: Signal, sender: Sender) -> bool {
        let from_there = match sender {
            Sender::Inside => true,
            Sender::Around => !SigSet::UNBLOCKABLE.has(sig),
            Sender::Kernel => false,
        };
        from_there && self.is_init() && self.by_default(sig)
    }
}

/// Makes a signal pending for a process, or for one thread of it, and gets the
/// attention of a thread that can take it. Signals that would be ignored are dropped at once.
pub(crate) fn send(group: &ThreadGroup, to: Option<&Task>, info: SigInfo) -> Result<()> {
    let sig = Signal::new(info.signo).ok_or(Errno::EINVAL)?;
    let info = for_receiver(group, info);
    let push = |s: &mut Signals| {
        let charge = || charge(group, s.threads.first(), sig, &info);
        match to {
            Some(t) => t.pending.lock().push(sig, info, charge),
            None => s.shared.push(sig, info, charge),
        }
    };
    send_with(group, to, info, sig, push).map(|_queued| ())
}

/// With the sender's user ID as the receiver's user namespace has it.
fn for_receiver(group: &ThreadGroup, mut info: SigInfo) -> SigInfo {
    let child = info.signo == Signal::SIGCHLD.raw() && (1..=libc::CLD_CONTINUED).contains(&info.code);
    let by_hand = info.code <= 0 && !matches!(info.code, libc::SI_TIMER | libc::SI_SIGIO | libc::SI_ASYNCIO);
    if (child || by_hand)
        && let Some(to) = group.any_thread()
    {
        let creds = to.creds();
        if !creds.user_ns.is_initial() {
            info = info.with_sender(info.pid(), creds.user_ns.show_user(info.uid()));
        }
    }
    info
}

/// As [`send`], for a POSIX timer's signal. Gives the expiry back when the signal was dropped.
pub(crate) fn send_expiry(
    group: &ThreadGroup,
    to: Option<&Task>,
    info: SigInfo,
    expiry: Expiry,
) -> std::result::Result<(), Expiry> {
    let mut expiry = Some(expiry);
    let push = |s: &mut Signals| {
        if let (Some(sig), Some(e)) = (Signal::new(info.signo), expiry.take()) {
            match to {
                Some(t) => t.pending.lock().push_expiry(sig, info, e),
                None => s.shared.push_expiry(sig, info, e),
            }
        }
        Ok(())
    };
    if let Some(sig) = Signal::new(info.signo) {
        let _ = send_with(group, to, info, sig, push);
    }
    expiry.map_or(Ok(()), Err)
}

/// Charges a queued signal to the user that it is sent to. Standard signals that a process did not make up are always queued.
fn charge(group: &ThreadGroup, one: Option<&Arc<Task>>, sig: Signal, info: &SigInfo) -> Option<Charge> {
    let uid = one.map_or(0, |t| t.creds().uid);
    let always = !sig.is_realtime() && info.code >= 0;
    let limit = if always { u64::MAX } else { group.rlimit(libc::RLIMIT_SIGPENDING as i32) };
    group.kernel.queued.charge(uid, limit)
}

fn send_with(
    group: &ThreadGroup,
    to: Option<&Task>,
    info: SigInfo,
    sig: Signal,
    push: impl FnOnce(&mut Signals) -> Result<()>,
) -> Result<()> {
    let mut continued = false;
    {
        let mut s = group.signals.lock();
        if s.threads.is_empty() || s.life.is_over() {
            return Ok(());
        }
        if sig == Signal::SIGKILL {
            if group.is_immune(sig, Sender::of(&info, to.is_some())) {
                return Ok(());
            }
            kill_group(group, &mut s, Signal::SIGKILL.raw());
            return Ok(());
        }
        if STOP_SIGNALS.has(sig) {
            discard(group, &mut s, SigSet::of(Signal::SIGCONT));
        } else if sig == Signal::SIGCONT {
            discard(group, &mut s, STOP_SIGNALS);
            s.continues = s.continues.wrapping_add(1);
            continued = resume(&mut s);
            s.threads.iter().for_each(|t| group_stop_changed(t));
        }
        if !is_dropped(group, &s, to, sig, &info) {
            push(&mut s)?;
            match to {
                Some(t) => t.note_pending(),
                None => {
                    group.shared_set.store(s.shared.set().0, Ordering::SeqCst);
                    s.threads.iter().for_each(|t| t.note_pending());
                }
            }
            wake_one(group, &s, to, sig);
        }
    }
    group.signal_wait.notify(Events::READABLE);
    if continued {
        tell_parent_continued(group);
    }
    Ok(())
}

/// Whether a signal has no effect on its target: ignored and not blocked, or sent to init.
fn is_dropped(group: &ThreadGroup, s: &Signals, to: Option<&Task>, sig: Signal, info: &SigInfo) -> bool {
    let main = || s.threads.iter().find(|t| t.tid() == group.tgid).or(s.threads.first());
    // A tracer is told of signals that are ignored, too.
    if to.map_or_else(|| main().is_some_and(|t| t.trace.is_traced()), |t| t.trace.is_traced()) {
        return false;
    }
    let blocked = match to {
        Some(t) => t.blocked().has(sig),
        None => s.threads.iter().all(|t| t.blocked().has(sig)),
    };
    let immune = || group.is_immune(sig, Sender::of(info, to.is_some()));
    !blocked && (group.handlers().lock().ignores(sig) || immune())
}

/// Gets the attention of a thread that can take the signal.
fn wake_one(group: &ThreadGroup, s: &Signals, to: Option<&Task>, sig: Signal) {
    let fatal = |t: &Task| {
        default_action(sig) == DefaultAction::Terminate && !t.trace.is_traced() && group.by_default(sig)
    };
    let kick = |t: &Task| if fatal(t) { t.doom() } else { t.kick() };
    match to {
        Some(t) if t.wants(sig) => kick(t),
        Some(_) => {}
        None => {
            // One that its tracer has stopped, or that leaves, would not come to it.
            let free = |t: &&Arc<Task>| t.wants(sig) && !t.is_leaving() && !t.trace.is_stopped();
            let main = s.threads.iter().find(|t| t.tid() == group.tgid).filter(free);
            let t = main.or_else(|| s.threads.iter().find(free));
            if let Some(t) = t {
                kick(t);
            }
        }
    }
}

/// Gets the attention of other threads for signals of the process: a thread that may have been chosen for them is leaving
/// or now blocks them.
pub(crate) fn retarget(group: &ThreadGroup, s: &Signals, which: SigSet) {
    if s.threads.len() > 1 && !s.life.is_over() {
        let left = SigSet(s.shared.set().0 & which.0);
        for sig in (1..=64).filter_map(Signal::new).filter(|sig| left.has(*sig)) {
            wake_one(group, s, None, sig);
        }
    }
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
    if !s.end_stop() {
        return false;
    }
    for t in &s.threads {
        t.kick_fatal();
    }
    true
}

/// Tells the parent that a stopped child goes on.
fn tell_parent_continued(group: &ThreadGroup) {
    let mut t = group.kernel.tree.lock();
    let Some(n) = t.node_mut(group.tgid) else { return };
    n.report = Some(Report::Continued);
    let parent = n.parent();
    notify_stop_change(&t, group.tgid, parent, libc::CLD_CONTINUED, Signal::SIGCONT.raw());
}

/// Records that every thread of the group is stopped and tells the parent.
pub(crate) fn tell_parent_stopped(group: &ThreadGroup, sig: Signal) {
    let mut t = group.kernel.tree.lock();
    let Some(n) = t.node_mut(group.tgid) else { return };
    n.report = Some(Report::Stopped(sig));
    let parent = n.parent();
    notify_stop_change(&t, group.tgid, parent, libc::CLD_STOPPED, sig.raw());
}

/// SIGCHLD for a stop or continue, unless SA_NOCLDSTOP; wakes waiters in any case.
fn notify_stop_change(t: &Tree, tgid: i32, parent: i32, code: i32, status: i32) {
    let Some(p) = t.node(parent) else { return };
    let Some(n) = t.node(tgid) else { return };
    let act = p.group.handlers().lock().get(Signal::SIGCHLD);
    if act.handler != SIG_IGN && act.flags & libc::SA_NOCLDSTOP as u64 == 0 {
        let uid = n.uid();
        let _ = p.group.send(SigInfo::child(code, n.group.pid_for(&p.group), uid, status, 0, 0));
    }
    p.group.child_wait.notify(Events::IN);
}

/// The other threads of a process, when one begins to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Others {
    /// There is none.
    None,
    /// All have begun to leave.
    Leave,
    /// There is one that has not.
    Stay,
}

/// A thread begins to leave.
pub(crate) fn begin_to_leave(s: &Signals, task: &Task) -> Others {
    task.begin_to_leave();
    retarget(&task.group, s, SigSet::ALL);
    if s.threads.len() <= 1 {
        Others::None
    } else if s.threads.iter().all(|t| t.is_leaving()) {
        Others::Leave
    } else {
        Others::Stay
    }
}

/// A group stop has begun or ended: a seized thread reports that. Under the signal lock.
pub(crate) fn group_stop_changed(task: &Task) {
    if task.trace.is_seized() {
        task.trace.set(NOTIFY, true);
        task.kick_fatal();
    }
}

impl Task {
    /// Sends a signal to this thread alone.
    pub fn send(&self, info: SigInfo) -> Result<()> {
        send(&self.group, Some(self), info)
    }
}

impl ThreadGroup {
    /// Sends a signal to the process. Permission was checked.
    pub fn send(&self, info: SigInfo) -> Result<()> {
        send(self, None, info)
    }

    /// Forgets pending signals of the group and its threads (a disposition became "ignore").
    pub fn discard_signals(&self, which: SigSet) {
        let mut s = self.signals.lock();
        discard(self, &mut s, which);
    }
}

impl Kernel {
    /// Sends a signal to every live process of a process group; true when there was one.
    pub fn signal_pgrp(&self, pgid: i32, info: SigInfo) -> bool {
        let members: Vec<_> = {
            let t = self.tree.lock();
            t.nodes().filter(|n| n.pgid() == pgid).map(|n| n.group.clone()).collect()
        };
        for g in &members {
            let _ = g.send(info);
        }
        !members.is_empty()
    }

    /// Sends a signal from outside to every process of a container that `wanted` says.
    pub fn signal_container(&self, c: &Container, info: SigInfo, wanted: impl Fn(i32) -> bool) {
        let groups: Vec<_> = {
            let t = self.tree.lock();
            let of = |g: &ThreadGroup| g.container.index() == c.index() && wanted(g.tgid);
            t.nodes().filter(|n| of(&n.group)).map(|n| n.group.clone()).collect()
        };
        for g in groups {
            let _ = g.send(info);
        }
    }
}

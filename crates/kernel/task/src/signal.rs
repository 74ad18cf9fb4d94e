//! Signal dispositions and pending queues. See signal(7), sigaction(2).

use abi::{Errno, Result, SigInfo, SigSet, Signal};
use std::collections::VecDeque;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct kernel_sigaction` of x86-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SigAction {
    /// SIG_DFL (0), SIG_IGN (1) or the handler's address.
    pub handler: u64,
    /// SA_* flags.
    pub flags: u64,
    /// Address that the handler returns to.
    pub restorer: u64,
    /// Signals blocked while the handler runs.
    pub mask: SigSet,
}

/// SIG_DFL.
pub const SIG_DFL: u64 = 0;
/// SIG_IGN.
pub const SIG_IGN: u64 = 1;

/// The dispositions of a thread group (shared by CLONE_SIGHAND).
pub struct Handlers {
    actions: [SigAction; 64],
}

impl Default for Handlers {
    fn default() -> Self {
        Handlers { actions: [SigAction::default(); 64] }
    }
}

impl Clone for Handlers {
    fn clone(&self) -> Self {
        Handlers { actions: self.actions }
    }
}

impl Handlers {
    /// Disposition of a signal.
    pub fn get(&self, s: Signal) -> SigAction {
        self.actions[s.raw() as usize - 1]
    }
    /// Changes it.
    pub fn set(&mut self, s: Signal, a: SigAction) {
        self.actions[s.raw() as usize - 1] = a;
    }
    /// execve(2): handled signals fall back to the default, ignored ones stay ignored.
    pub fn reset_for_exec(&mut self) {
        for a in &mut self.actions {
            let ignored = a.handler == SIG_IGN;
            *a = SigAction { handler: if ignored { SIG_IGN } else { SIG_DFL }, ..SigAction::default() };
        }
    }
    /// CLONE_CLEAR_SIGHAND: every handled signal to the default.
    pub fn clear_handled(&mut self) {
        self.reset_for_exec();
    }
    /// True when sending `s` has no effect (ignored explicitly or by default).
    pub fn ignores(&self, s: Signal) -> bool {
        match self.get(s).handler {
            SIG_IGN => !SigSet::UNBLOCKABLE.has(s),
            SIG_DFL => default_action(s) == DefaultAction::Ignore,
            _ => false,
        }
    }
}

/// What an unhandled signal does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultAction {
    /// Nothing.
    Ignore,
    /// Ends the process.
    Terminate,
    /// Ends the process; the wait status has the core bit where a core file would be written.
    Core,
    /// Stops the process.
    Stop,
    /// Continues it.
    Continue,
}

/// The default action of a signal.
pub fn default_action(s: Signal) -> DefaultAction {
    match s {
        Signal::SIGCHLD | Signal::SIGURG | Signal::SIGWINCH => DefaultAction::Ignore,
        Signal::SIGCONT => DefaultAction::Continue,
        Signal::SIGSTOP | Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => DefaultAction::Stop,
        Signal::SIGQUIT
        | Signal::SIGILL
        | Signal::SIGTRAP
        | Signal::SIGABRT
        | Signal::SIGBUS
        | Signal::SIGFPE
        | Signal::SIGSEGV
        | Signal::SIGXCPU
        | Signal::SIGXFSZ
        | Signal::SIGSYS => DefaultAction::Core,
        _ => DefaultAction::Terminate,
    }
}

/// SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU.
pub const STOP_SIGNALS: SigSet = SigSet(1 << 18 | 1 << 19 | 1 << 20 | 1 << 21);
/// Signals that a fault raises; delivered before others.
pub const SYNCHRONOUS: SigSet = SigSet(1 << 10 | 1 << 6 | 1 << 3 | 1 << 4 | 1 << 7 | 1 << 30);

/// Signals waiting for delivery to a thread or a group.
#[derive(Default)]
pub struct Pending {
    queue: VecDeque<SigInfo>,
    set: SigSet,
}

impl Pending {
    /// The pending set.
    pub fn set(&self) -> SigSet {
        self.set
    }

    /// Number of queued entries.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// True when nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Queues a signal. A standard signal already pending is dropped; a real-time one beyond
    /// `limit` entries answers EAGAIN when it came from sigqueue(3) and loses its info otherwise.
    pub fn push(&mut self, s: Signal, info: SigInfo, limit: usize) -> Result<()> {
        if !s.is_realtime() && self.set.has(s) {
            return Ok(());
        }
        if s.is_realtime() && self.queue.len() >= limit {
            if info.code < 0 && info.code != libc::SI_TIMER {
                return Err(Errno::EAGAIN);
            }
            self.set.add(s);
            return Ok(());
        }
        self.set.add(s);
        self.queue.push_back(info);
        Ok(())
    }

    /// Takes the next signal out of `allowed`: synchronous ones first, then the lowest number,
    /// entries of one number in order.
    pub fn take(&mut self, allowed: SigSet) -> Option<SigInfo> {
        let ready = self.set.intersect(allowed);
        let s = ready.intersect(SYNCHRONOUS).first().or_else(|| ready.first())?;
        let at = self.queue.iter().position(|i| i.signo == s.raw());
        let info = at.and_then(|i| self.queue.remove(i));
        if !self.queue.iter().any(|i| i.signo == s.raw()) {
            self.set.del(s);
        }
        Some(info.unwrap_or(SigInfo::user(s, libc::SI_USER, 0, 0)))
    }

    /// Removes every entry of the given signals.
    pub fn remove(&mut self, signals: SigSet) {
        if self.set.intersect(signals).is_empty() {
            return;
        }
        self.set = self.set.minus(signals);
        self.queue.retain(|i| Signal::new(i.signo).is_some_and(|s| !signals.has(s)));
    }

    /// Removes entries that a POSIX timer queued.
    pub fn remove_timer(&mut self, id: i32) {
        self.queue.retain(|i| !(i.code == libc::SI_TIMER && i.fields[0] as u32 as i32 == id));
        let mut set = SigSet::EMPTY;
        for i in &self.queue {
            if let Some(s) = Signal::new(i.signo) {
                set.add(s);
            }
        }
        self.set = set;
    }

    /// A pending entry of a POSIX timer, to count overruns in.
    pub fn has_timer(&self, id: i32) -> bool {
        self.queue.iter().any(|i| i.code == libc::SI_TIMER && i.fields[0] as u32 as i32 == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_merging() {
        let mut p = Pending::default();
        let rt = Signal::new(40).unwrap();
        for v in 0..3 {
            p.push(rt, SigInfo::queue(rt, libc::SI_QUEUE, 1, 0, v), 10).unwrap();
        }
        p.push(Signal::SIGUSR1, SigInfo::user(Signal::SIGUSR1, 0, 1, 0), 10).unwrap();
        p.push(Signal::SIGUSR1, SigInfo::user(Signal::SIGUSR1, 0, 2, 0), 10).unwrap();
        p.push(Signal::SIGSEGV, SigInfo::fault(Signal::SIGSEGV, 1, 0), 10).unwrap();
        assert_eq!(p.take(SigSet::ALL).unwrap().signo, 11);
        let u = p.take(SigSet::ALL).unwrap();
        assert_eq!((u.signo, u.pid()), (10, 1));
        for v in 0..3 {
            assert_eq!(p.take(SigSet::ALL).unwrap().fields[1], v);
        }
        assert!(p.take(SigSet::ALL).is_none() && p.is_empty());
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut p = Pending::default();
        let rt = Signal::new(40).unwrap();
        let i = SigInfo::queue(rt, libc::SI_QUEUE, 1, 0, 0);
        p.push(rt, i, 1).unwrap();
        assert_eq!(p.push(rt, i, 1), Err(Errno::EAGAIN));
    }
}

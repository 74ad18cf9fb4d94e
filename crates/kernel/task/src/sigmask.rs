//! Blocked signals of a thread. See sigprocmask(2), sigsuspend(2).

use crate::current::Current;
use crate::send::retarget;
use crate::task::Task;
use abi::SigSet;
use platform::Word;

impl Task {
    /// Sets the blocked signals (SIGKILL and SIGSTOP stay unblocked) and looks whether any pending
    /// one can now be delivered.
    pub fn set_blocked(&self, s: SigSet) {
        let now = s.minus(SigSet::UNBLOCKABLE);
        if self.word(Word::Pending) == 0 {
            self.set_word(Word::Blocked, now.0);
        } else {
            let signals = self.group.signals.lock();
            self.note_pending();
            let newly = now.minus(self.blocked());
            self.set_word(Word::Blocked, now.0);
            retarget(&self.group, &signals, newly);
        }
        self.recheck();
    }
}

impl Current {
    /// Changes the signal mask until the call is over: a delivered handler saves the old one,
    /// otherwise it is restored before the guest resumes (sigsuspend, ppoll, pselect, epoll_pwait).
    pub fn set_temporary_mask(&mut self, mask: SigSet) {
        if self.saved_mask.is_none() {
            self.saved_mask = Some(self.task.blocked());
        }
        self.task.set_blocked(mask);
    }

    /// Puts the mask of `set_temporary_mask` back at once: the call was not interrupted.
    pub fn restore_mask(&mut self) {
        if let Some(m) = self.saved_mask.take() {
            self.task.set_blocked(m);
        }
    }
}

//! The order in which pending signals are taken: those of the thread before those of its process, for handlers,
//! sigtimedwait(2) and signalfd(2) alike. Within a set, `signal::Pending` decides.

use crate::task::Task;
use abi::{SigInfo, SigSet};
use std::sync::atomic::Ordering;

impl Task {
    /// Takes the next pending signal of `allowed`.
    pub(crate) fn dequeue(&self, allowed: SigSet) -> Option<SigInfo> {
        self.dequeue_counted(allowed).map(|(info, _)| info)
    }

    /// As [`Task::dequeue`], with the number of SIGCONTs so far.
    pub(crate) fn dequeue_counted(&self, allowed: SigSet) -> Option<(SigInfo, u32)> {
        let g = &self.group;
        let mut s = g.signals.lock();
        let own = self.pending.lock().take(allowed);
        let taken = own.or_else(|| s.shared.take(allowed));
        g.shared_set.store(s.shared.set().0, Ordering::SeqCst);
        self.note_pending();
        if taken.is_some() {
            self.counts.signal();
        }
        taken.map(|info| (info, s.continues))
    }
}

//! A thread's pending signals as signalfd(2) reads them.

use crate::task::Task;
use abi::{SigInfo, SigSet};
use caller::SignalSource;
use std::sync::atomic::Ordering;
use wait::WaitQueue;

impl SignalSource for Task {
    fn dequeue(&self, mask: SigSet) -> Option<SigInfo> {
        Task::dequeue(self, mask)
    }

    fn peek(&self, mask: SigSet) -> SigSet {
        let shared = SigSet(self.group.shared_set.load(Ordering::SeqCst));
        self.pending.lock().set().union(shared).intersect(mask)
    }

    fn wait_queue(&self) -> WaitQueue {
        self.group.signal_wait.clone()
    }
}

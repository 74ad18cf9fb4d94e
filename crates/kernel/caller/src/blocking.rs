//! How a caller sleeps, and what ends its sleep.

use abi::{SigInfo, SigSet, Signal};
use std::sync::Arc;
use std::time::Instant;
use wait::{WaitQueue, Waiter};

/// The pending signals of a thread, those of its process included.
pub trait SignalSource: Send + Sync {
    /// Takes the next pending signal of `mask`.
    fn dequeue(&self, mask: SigSet) -> Option<SigInfo>;
    /// The signals of `mask` that are pending.
    fn peek(&self, mask: SigSet) -> SigSet;
    /// Notified with READABLE when a signal becomes pending.
    fn wait_queue(&self) -> WaitQueue;
}

/// A caller that can sleep and be interrupted by signals.
pub trait Blocking {
    /// The sleeping side of this thread.
    fn waiter(&self) -> Arc<Waiter>;
    /// Sends a signal to the calling thread (SIGPIPE, SIGXFSZ).
    fn raise(&self, sig: Signal);
    /// The caller's pending signals (signalfd); the kernel itself has none.
    fn signals(&self) -> Option<&dyn SignalSource> {
        None
    }
    /// True when `sig` is blocked or ignored by the caller (job control checks).
    fn blocks_or_ignores(&self, sig: Signal) -> bool;
    /// The thread is about to end, so nothing that it waits for matters any more. Takes no lock.
    fn is_killed(&self) -> bool {
        false
    }
    /// When the caller stops waiting for programs that serve others. A process that is being made from outside has a
    /// deadline, because it has no thread yet that a signal could end.
    fn deadline(&self) -> Option<Instant> {
        None
    }
    /// When a caller that is about to end stops waiting for programs that serve others. One deadline covers all that the
    /// caller does on its way out.
    fn end_deadline(&self) -> Instant {
        Instant::now()
    }
}

//! From the stack's events to the kernel's wait queues.

use netstack::notify::{self, Notify};
use std::sync::Arc;
use wait::{Events, WaitQueue};

/// Wakes the waiters of a socket.
pub(crate) struct Waiters(WaitQueue);

impl Waiters {
    /// A queue, and what notifies it.
    pub(crate) fn new() -> (WaitQueue, Arc<Waiters>) {
        let queue = WaitQueue::new();
        (queue.clone(), Arc::new(Waiters(queue)))
    }
}

impl Notify for Waiters {
    fn changed(&self, events: notify::Events) {
        self.0.notify(shown(events));
    }
}

/// Readiness as poll(2) reports it.
pub(crate) fn shown(events: notify::Events) -> Events {
    let mut out = Events(events.bits());
    if events.contains(notify::Events::IN) {
        out |= Events::RDNORM;
    }
    if events.contains(notify::Events::OUT) {
        out |= Events::WRNORM;
    }
    out
}

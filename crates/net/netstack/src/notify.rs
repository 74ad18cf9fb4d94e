//! What a socket tells the kernel: the events of poll(2).

use std::sync::Arc;

bitflags::bitflags! {
    /// Readiness of a socket. The bits are those of poll(2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Events: u32 {
        /// Data, a connection or an end of file can be read (`POLLIN`).
        const IN = 0x1;
        /// Urgent data is waiting (`POLLPRI`).
        const PRI = 0x2;
        /// Data can be written (`POLLOUT`).
        const OUT = 0x4;
        /// An error is pending, or the error queue is not empty (`POLLERR`).
        const ERR = 0x8;
        /// Both directions are closed (`POLLHUP`).
        const HUP = 0x10;
        /// The peer closed its direction (`POLLRDHUP`).
        const RDHUP = 0x2000;
        /// Urgent data has arrived: a moment, not a state (`SIGURG`).
        const URG = 0x10_0000;
    }
}

impl Events {
    /// Every state, for changes that may have any effect.
    pub const ANY: Events = Events::all().difference(Events::URG);
}

/// Receives changes of a socket's readiness.
///
/// It is called after a change, from whichever thread caused it and maybe while that thread holds locks of the stack. An
/// implementation wakes waiters and returns; it must not call into the stack.
pub trait Notify: Send + Sync {
    /// Some of `events` may have become true.
    fn changed(&self, events: Events);
}

/// A notifier for sockets without waiters.
#[derive(Debug)]
pub struct Silent;

impl Notify for Silent {
    fn changed(&self, _events: Events) {}
}

/// A shared notifier.
pub type Notifier = Arc<dyn Notify>;

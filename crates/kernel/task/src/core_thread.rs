//! A thread as a core file shows it, and the place where the threads of a process that dies come together. Plain state: the
//! operations are in `core`. A checkpoint is not made while a core file is.

use abi::SigSet;
use lock_order::Mutex;
use platform::Regs;
use std::sync::atomic::AtomicBool;
use wait::WaitQueue;

/// A thread as a core file shows it.
pub struct CoreThread {
    /// Its ID as it knows it.
    pub tid: i32,
    /// Registers.
    pub regs: Regs,
    /// Extended state in the form of a signal frame; empty when it could not be read.
    pub xstate: Vec<u8>,
    /// Pending signals.
    pub pending: SigSet,
    /// Blocked signals.
    pub blocked: SigSet,
}

/// A core file in the making.
pub(crate) struct Gathering {
    /// The thread that makes it; 0 for a process that goes on.
    pub(crate) by: i32,
    /// Threads that have come together.
    pub(crate) threads: Mutex<Vec<CoreThread>>,
    /// Notified when a thread has come.
    pub(crate) came: WaitQueue,
    /// The file is written, or will not be.
    pub(crate) done: AtomicBool,
}

//! System V IPC, POSIX message queues, futexes.

pub(crate) mod futex;
pub(crate) mod futex2;
pub(crate) mod mqueue;
pub(crate) mod sysv;

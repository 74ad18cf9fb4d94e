//! POSIX message queues and the file system they are named in. See mq_overview(7).
//!
//! One [`Mqueues`] is one IPC namespace's: a flat directory of queues, which mq_open(2) uses directly and which
//! can be mounted any number of times. A queue is opened as a file ([`QueueFile`]), which poll(2) and close(2)
//! know how to handle; sending and receiving have calls of their own.
//!
//! Locks: the directory, then a queue; both are leaves for other crates.
//!
//! Limits: those of /proc/sys/fs/mqueue and RLIMIT_MSGQUEUE count the capacity of a queue. A guest's administrator may
//! raise those. So the bytes in all queues ([`MAX_BYTES`]) and the number of queues ([`MAX_QUEUES`]) are bounded as
//! well.
//!
//! A checkpoint keeps what [`MqueuesState`] has.

#![forbid(unsafe_code)]

mod fs;
mod queue;
#[cfg(test)]
mod tests;

pub use fs::{Mqueues, MqueuesState, Restored};
pub use queue::{Attributes, COOKIE, Notification, NotificationState, NotifyReason, QueueFile, QueueState};

/// Most bytes of messages in all queues of a namespace, each counted with some more.
pub const MAX_BYTES: u64 = 64 << 20;
/// Most queues of a namespace.
pub const MAX_QUEUES: usize = 32768;
/// Highest priority plus one (MQ_PRIO_MAX).
pub const PRIORITIES: u32 = 32768;

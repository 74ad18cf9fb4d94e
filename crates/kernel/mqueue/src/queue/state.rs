//! A queue as plain data, for a checkpoint.

use super::{Notification, OVERHEAD, Queue};
use crate::MAX_BYTES;
use crate::fs::Mqueues;
use abi::stat::Attr;
use abi::{Errno, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// [`Notification`] as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotificationState {
    /// Process ID of the process that asked, in the sandbox's own PID namespace.
    pub pid: i32,
    /// sigev_notify.
    pub how: i32,
    /// sigev_signo.
    pub signo: i32,
    /// sigev_value.
    pub value: u64,
}

/// A queue as plain data. Threads that wait at it make their call again.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueState {
    /// Owner, mode, times and inode number.
    pub attr: Attr,
    /// Most messages, and most bytes of one.
    pub limits: (i64, i64),
    /// The user that made it, and what it counts for in RLIMIT_MSGQUEUE.
    pub charge: (u32, u64),
    /// Messages with their priorities, in the order in which they will be received.
    pub messages: Vec<(u32, Vec<u8>)>,
    /// The process that is notified of the next message.
    pub notification: Option<NotificationState>,
}

fn notification(n: &Notification) -> NotificationState {
    NotificationState { pid: n.pid, how: n.how, signo: n.signo, value: n.value }
}

impl Queue {
    pub(crate) fn state(&self) -> QueueState {
        let attr = *self.attr.lock();
        let s = self.state.lock();
        let by_priority = s.messages.iter().rev();
        let messages =
            by_priority.flat_map(|(&priority, texts)| texts.iter().map(move |t| (priority, t.clone())));
        QueueState {
            attr,
            limits: (self.maxmsg, self.msgsize),
            charge: self.charge,
            messages: messages.collect(),
            notification: s.notify.as_ref().map(notification),
        }
    }

    /// Back from plain data, in a directory with this device number. `tell` gives what tells a process, unless the process
    /// is gone. ENOMEM when the messages are too many.
    pub(crate) fn restore(
        owner: Arc<Mqueues>,
        saved: &QueueState,
        dev: u64,
        tell: impl Fn(&NotificationState) -> Option<Notification>,
    ) -> Result<Arc<Queue>> {
        let (maxmsg, msgsize) = saved.limits;
        owner.charge(saved.charge);
        let queue = Queue::new(owner, Attr { dev, ..saved.attr }, maxmsg, msgsize, saved.charge);
        let mut s = queue.state.lock();
        for (priority, text) in &saved.messages {
            s.messages.entry(*priority).or_default().push_back(text.clone());
            s.count += 1;
            s.bytes += text.len() as u64 + OVERHEAD;
        }
        s.notify = saved.notification.as_ref().and_then(tell);
        let bytes = s.bytes;
        drop(s);
        let all = queue.bytes().fetch_add(bytes, Ordering::Relaxed) + bytes;
        if all > MAX_BYTES { Err(Errno::ENOMEM) } else { Ok(queue) }
    }
}

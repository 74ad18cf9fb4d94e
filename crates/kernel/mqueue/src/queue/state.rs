//! A queue as plain data, for a checkpoint.

use super::{COOKIE, Notification, OVERHEAD, Queue};
use crate::fs::{HARD, Mqueues, size_counted};
use crate::{MAX_BYTES, PRIORITIES};
use abi::stat::{Attr, S_IFMT, S_IFREG};
use abi::{Errno, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// [`Notification`] as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NotificationState {
    /// Process ID of the process that asked, in the sandbox's own PID namespace.
    pub pid: i32,
    /// sigev_notify.
    pub how: i32,
    /// sigev_signo.
    pub signo: i32,
    /// sigev_value.
    pub value: u64,
    /// SIGEV_THREAD: the netlink socket by its identity ([`OpenFile::id`](vfs::OpenFile::id)), and the cookie that it gets.
    #[serde(default)]
    pub message: Option<(u64, [u8; COOKIE])>,
}

/// A queue as plain data. Threads that wait at it make their call again.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
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
    NotificationState { pid: n.pid, how: n.how, signo: n.signo, value: n.value, message: n.message }
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

    /// Back from plain data, with these attributes. `tell` gives what tells a process, unless the process is gone. ENOMEM when the
    /// messages are too many, EINVAL for what cannot be.
    pub(crate) fn restore(
        owner: Arc<Mqueues>,
        saved: &QueueState,
        attr: Attr,
        tell: impl Fn(&NotificationState) -> Option<Notification>,
    ) -> Result<Arc<Queue>> {
        let (maxmsg, msgsize) = saved.limits;
        let fits = |(priority, text): &(u32, Vec<u8>)| *priority < PRIORITIES && text.len() as i64 <= msgsize;
        if !(1..=HARD.0).contains(&maxmsg)
            || !(1..=HARD.1).contains(&msgsize)
            || saved.messages.len() as i64 > maxmsg
            || !saved.messages.iter().all(fits)
            || attr.mode & S_IFMT != S_IFREG
        {
            return Err(Errno::EINVAL);
        }
        let charge = (saved.charge.0, size_counted(maxmsg, msgsize));
        owner.charge(charge);
        let queue = Queue::new(owner, attr, maxmsg, msgsize, charge);
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

//! A message queue as plain data, for a checkpoint.

use super::{MAX_BYTES, Message, MsqidDs, OVERHEAD, Queue, State};
use crate::{Doer, IpcNamespace, Perm, nr};
use abi::{Errno, Result};
use lock_order::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use wait::WaitQueue;

/// A message queue as plain data. Threads that wait at it make their call again.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QueueState {
    /// Its ID, key, owner and mode.
    pub perm: Perm,
    /// The messages, the oldest one first.
    pub messages: Vec<Message>,
    /// The processes that sent and received last, by numbers in the sandbox's own PID namespace.
    pub doers: [Option<i32>; 2],
    /// Times and limits; owner, processes and the number of messages are not in here.
    pub ds: MsqidDs,
}

impl Queue {
    pub(crate) fn doers(&self) -> [Doer; 2] {
        let s = self.state.lock();
        [s.sender.clone(), s.receiver.clone()]
    }

    pub(crate) fn state(&self) -> QueueState {
        let s = self.state.lock();
        QueueState {
            perm: s.perm,
            messages: s.messages.iter().cloned().collect(),
            doers: [nr(&s.sender), nr(&s.receiver)],
            ds: s.ds,
        }
    }

    /// Back from plain data, in a namespace in which its messages count; ENOMEM when they are too many.
    pub(crate) fn restore(
        ns: &IpcNamespace,
        saved: &QueueState,
        find: impl Fn(i32) -> Doer,
    ) -> Result<Queue> {
        let bytes: u64 = saved.messages.iter().map(|m| m.text.len() as u64 + OVERHEAD).sum();
        if ns.msg_bytes.fetch_add(bytes, Relaxed) + bytes > MAX_BYTES {
            return Err(Errno::ENOMEM);
        }
        let cbytes = saved.messages.iter().map(|m| m.text.len() as u64).sum();
        let [sender, receiver] = saved.doers.map(|pid| pid.and_then(&find));
        let state = State {
            perm: saved.perm,
            messages: saved.messages.iter().cloned().collect(),
            removed: false,
            sender,
            receiver,
            ds: MsqidDs { cbytes, ..saved.ds },
        };
        Ok(Queue { state: Mutex::new(state), wait: WaitQueue::new() })
    }
}

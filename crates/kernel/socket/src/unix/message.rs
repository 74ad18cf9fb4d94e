//! Messages in a receive queue, and their charge to the sender.

use super::addr::Addr;
use super::rights::Rights;
use super::sock::Sock;
use crate::ops::PeerCred;
use abi::{Errno, Result};
use netstack::truesize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wait::Events;

/// What a message of `len` bytes takes of the send buffer of a socket of this kind.
pub(super) fn cost(kind: i32, len: usize) -> usize {
    if kind == libc::SOCK_STREAM { truesize::piece(len) } else { truesize::record(len) }
}

/// Send buffer space in use; given back when the message is gone.
pub(super) struct Charge {
    sock: Arc<Sock>,
    amount: usize,
}

impl Charge {
    /// ENOBUFS when the queues of all sockets together take what they may.
    pub fn new(sock: &Arc<Sock>, len: usize) -> Result<Charge> {
        Charge::of(sock, cost(sock.kind, len))
    }

    /// As much of the send buffer, whatever the length.
    pub fn of(sock: &Arc<Sock>, amount: usize) -> Result<Charge> {
        let home = &sock.home;
        if home.queued.fetch_add(amount, Ordering::Relaxed) + amount > home.queue_limit {
            home.queued.fetch_sub(amount, Ordering::Relaxed);
            return Err(Errno::ENOBUFS);
        }
        sock.wmem.fetch_add(amount, Ordering::SeqCst);
        Ok(Charge { sock: sock.clone(), amount })
    }

    /// The send buffer, and the amount.
    pub fn parts(&self) -> (&Arc<Sock>, usize) {
        (&self.sock, self.amount)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.sock.home.queued.fetch_sub(self.amount, Ordering::Relaxed);
        self.sock.wmem.fetch_sub(self.amount, Ordering::SeqCst);
        if self.sock.send_room() {
            self.sock.queue.notify(Events::WRITABLE);
        }
    }
}

/// One send, or what is left of it.
pub(super) struct Message {
    pub data: Vec<u8>,
    /// Bytes already read (streams).
    pub start: usize,
    pub from: Option<Arc<Addr>>,
    pub cred: Option<PeerCred>,
    pub rights: Option<Rights>,
    /// The byte that MSG_OOB receives (streams).
    pub urgent: bool,
    /// Looked at with MSG_PEEK (records).
    pub peeked: bool,
    /// When it was sent, in nanoseconds of the wall clock, if the receiver wanted to know by then.
    pub at: Option<i64>,
    pub charge: Charge,
}

impl Message {
    /// The sender's name: what it is bound to now, or was when it sent. Not with the state of a socket locked.
    pub fn sender(sock: &Sock, from: Option<Arc<Addr>>) -> Option<Arc<Addr>> {
        sock.state.lock().addr.clone().or(from)
    }

    /// The unread bytes.
    pub fn unread(&self) -> &[u8] {
        &self.data[self.start..]
    }
}

//! What a listening socket has beside its options: half-open connections and the accept queue. Plain data, generic over the socket `S`
//! that a handshake makes.

use super::table::Tuple;
use crate::wire::seq::Seq;
use crate::wire::tcp::{Cookie, Segment};
use ktime::Ktime;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// A half-open connection (RFC 9293, SYN-RECEIVED). Plain data.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Request {
    pub(super) syn: Segment,
    pub(super) iss: Seq,
    pub(super) sent_at: Ktime,
    pub(super) retries: u32,
    pub(super) deadline: Ktime,
    pub(super) ecn: bool,
    /// The cookie that the peer asked for.
    pub(super) offer: Option<Cookie>,
    /// The handshake is complete, but data is waited for (`TCP_DEFER_ACCEPT`).
    pub(super) acked: bool,
}

/// What a listening socket has beside its options.
#[derive(Debug)]
pub(super) struct Listener<S> {
    pub(super) backlog: usize,
    pub(super) requests: HashMap<Tuple, Request>,
    pub(super) accept: VecDeque<Arc<S>>,
    /// The earliest deadline of a request, or earlier.
    pub(super) deadline: Option<Ktime>,
    /// When a cookie was sent last.
    pub(super) cookies_at: Option<Ktime>,
    /// Connections that were accepted with their SYN.
    pub(super) fast: Vec<Weak<S>>,
}

impl<S> Listener<S> {
    pub(super) fn new(backlog: usize) -> Listener<S> {
        Listener {
            backlog,
            requests: HashMap::new(),
            accept: VecDeque::new(),
            deadline: None,
            cookies_at: None,
            fast: Vec::new(),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.accept.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<Arc<S>> {
        self.accept.pop_front()
    }

    /// Connections that wait to be accepted, and the bound: what `ss` shows for a listener.
    pub(super) fn lengths(&self) -> (usize, usize) {
        (self.accept.len(), self.backlog)
    }

    pub(super) fn take_all(&mut self) -> VecDeque<Arc<S>> {
        self.requests.clear();
        std::mem::take(&mut self.accept)
    }

    pub(super) fn is_full(&self) -> bool {
        self.accept.len() > self.backlog
    }

    /// An ICMP error ends a half-open connection whose SYN-ACK it quotes.
    pub(super) fn forget(&mut self, tuple: &Tuple, seq: Seq) -> bool {
        let known = self.requests.get(tuple).is_some_and(|request| request.iss == seq);
        known && self.requests.remove(tuple).is_some()
    }
}

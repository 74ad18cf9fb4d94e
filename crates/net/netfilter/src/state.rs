//! What rules use of the filter: connections, lists of the match recent, secrets, and the queue of what waits for the end of an
//! operation.
//!
//! Locks: those of `conntrack`; the queue is a leaf. A checkpoint keeps connections, lists and the secret.

use crate::action::{Action, MAX_WAITING};
use crate::recent;
use account::Account;
use conntrack::Table;
use lock_order::Mutex;
use siphasher::sip::SipHasher13;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state of a packet filter, without its chains.
pub struct FilterState {
    /// The connections.
    pub connections: Table,
    /// Lists of the match recent.
    pub recent: recent::Lists,
    /// What the filters of all namespaces take.
    pub account: Arc<Account>,
    secret: [u8; 16],
    drawn: AtomicU64,
    deferred: Mutex<VecDeque<Action>>,
}

impl FilterState {
    /// No connections. The secret comes from the kernel's random source.
    pub(crate) fn new(secret: [u8; 16], account: Arc<Account>) -> FilterState {
        FilterState {
            connections: Table::new(secret, account.clone()),
            recent: recent::Lists::new(account.clone()),
            account,
            secret,
            drawn: AtomicU64::new(0),
            deferred: Mutex::default(),
        }
    }

    /// Queues what cannot be done while locks are held.
    pub fn defer(&self, action: Action) {
        let mut deferred = self.deferred.lock();
        if deferred.len() < MAX_WAITING {
            deferred.push_back(action);
        }
    }

    /// A number that cannot be guessed from outside.
    pub fn random(&self) -> u64 {
        self.hash(self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    /// A keyed hash.
    pub fn hash(&self, value: impl Hash) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        "netfilter".hash(&mut hasher);
        value.hash(&mut hasher);
        hasher.finish()
    }

    /// Takes what waits.
    pub(crate) fn take_deferred(&self) -> VecDeque<Action> {
        std::mem::take(&mut *self.deferred.lock())
    }
}

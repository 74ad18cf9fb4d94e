//! Changes of a stack's configuration, told to one listener (the groups of rtnetlink).
//!
//! A change is told while the lock of the table that it is in is held, so the order is that of the changes.

use super::route::{Route, Rule};
use crate::device::iface::Iface;
use crate::ifaddr::Address;
use crate::neigh;
use crate::wire::eth::Mac;
use std::sync::Arc;

pub use super::change::How;

/// What has changed.
#[derive(Clone, Debug)]
pub enum What {
    /// An interface.
    Link(Arc<Iface>),
    /// An address of an interface.
    Address(Arc<Iface>, Address),
    /// A route.
    Route(Route),
    /// A rule.
    Rule(Rule),
    /// A neighbour.
    Neighbour(neigh::Key, Mac, neigh::State),
}

/// A change.
#[derive(Clone, Debug)]
pub struct Change {
    /// Of what.
    pub what: What,
    /// Which.
    pub how: How,
}

/// Receives changes.
///
/// Locks of the stack may be held: an implementation queues and returns; it must not call into the stack.
pub trait Monitor: Send + Sync {
    /// Something has changed.
    fn changed(&self, change: &Change);
}

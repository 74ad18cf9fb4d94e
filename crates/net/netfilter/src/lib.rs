//! Netfilter: chains of rules at the points of a packet's way, connection tracking and address translation.
//!
//! A [`Netfilter`] belongs to one network namespace, beside its stack. An owner of rules (iptables, nf_tables) registers chains and
//! keeps the [`Registration`]s; the first one puts the filter into the stack, the last one that goes takes it out. Without rules
//! the stack calls nothing.
//!
//! # A packet's way
//!
//! At each point the chains of the packet's family run in the order of their priorities ([`priority`]) until one does not accept.
//! Between the chains are tracking ([`track`]: the packet finds its connection), translation ([`nat`]: the connection's first packet
//! asks the chains of [`Netfilter::register_nat`], all packets are rewritten as the connection says), and at the end confirmation
//! (the connection enters the table). They are there while something holds a [`TrackingUse`] or has NAT chains.
//!
//! # Sending
//!
//! Locks of the stack may be held while a chain runs. What a rule wants to send or log is queued ([`Netfilter::defer`]), and carried
//! out at the end of the stack's operation.
//!
//! # Locks
//!
//! `NAT_USE` and `CONNTRACK_USE` while tracking begins, `HOOKS` while the first chain comes or the last one goes. The lists of chains
//! are leaves, and are not held while chains run. The queue of deferred actions is a leaf.
//!
//! # Bounds
//!
//! Connections by `nf_conntrack_max`, deferred actions by count, both dropped above it. The parsers of rules bound
//! them.

#![forbid(unsafe_code)]

mod action;
mod chain;
mod checksum;
pub mod nat;
mod packet;
pub mod recent;
mod registry;
mod reject;
mod state;
#[cfg(test)]
mod tests;
pub mod track;

pub use action::{Action, Log};
pub use chain::{Chain, priority};
pub use conntrack;
pub use netstack::frame::Owner;
pub use netstack::hooks::{Point, Verdict};
pub use packet::{CtState, Family, Packet};
pub use registry::{Netfilter, Registration, TrackingUse};
pub use state::FilterState;

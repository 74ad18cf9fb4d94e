//! nf_tables: tables of rules that programs such as nft(8) and iptables(8) set up over netlink, and that packets meet at netfilter's
//! points. See nft(8).
//!
//! [`Nftables`] belongs to one network namespace. It takes messages as bytes ([`Nftables::batch`], [`Nftables::get`]) and returns
//! messages; sockets, capabilities and clocks are its caller's.
//!
//! # Parts
//!
//! - `model`: the objects. `scope`, `attr`, `message`: reading and writing them.
//! - `api`: the messages, one file for each kind of object.
//! - `expr`: the expressions, one file for each.
//! - `set`: sets and maps.
//! - `run`: rules at work. `hooks`: base chains at netfilter's points.
//! - `batch`: many messages that succeed or fail as one.
//!
//! # Locks
//!
//! Batches come one after another (`Nftables::control`, rank `NFT_COMMIT`). Packets read the rules without a
//! lock, while a batch works on a copy. The elements of sets have the rank `NFT_SET`; the buckets of
//! limits are leaves.
//!
//! # Bounds
//!
//! All objects of a namespace count against [`budget::LIMIT`], and against the account of all namespaces
//! ([`Netfilter::account`]); more is ENOMEM. Jumps are 16 chains deep at most, which is checked before packets see a
//! rule. The work of a base chain for one packet is bounded as well.

#![forbid(unsafe_code)]

mod api;
mod attr;
mod batch;
pub mod budget;
mod compat;
mod counter;
mod ctnetlink;
mod data;
mod expr;
mod expression;
mod hooks;
mod message;
mod model;
mod points;
mod run;
mod saved;
mod scope;
mod set;
#[cfg(test)]
mod tests;
mod validate;

pub use attr::Failure;
pub use batch::BEGIN;
pub use ctnetlink::{CTNETLINK, CTNETLINK_EXP};
pub use message::{AckOptions, COMPAT, NFTABLES, Request, acknowledge};
pub use saved::{ItemState, NftablesState, TableState};

use api::get::Get;
use arc_swap::ArcSwap;
use budget::Budget;
use hooks::Hooks;
use lock_order::{Mutex, rank};
use message::Reply;
use model::Ruleset;
use netfilter::Netfilter;
use std::sync::Arc;

/// Longest name of a table, chain, set or object, with its NUL (`NFT_NAME_MAXLEN`).
pub(crate) const NAME_MAX: usize = 256;

/// Families of tables (`NFPROTO_*`).
pub(crate) mod family {
    pub const INET: u8 = 1;
    pub const IPV4: u8 = 2;
    pub const IPV6: u8 = 10;
}

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The address of its socket.
    pub port: u32,
    /// Its process, as listeners are told.
    pub pid: u32,
    /// The name of that process.
    pub name: &'a [u8],
    /// What it wants to know of errors.
    pub options: AckOptions,
    /// A socket listens to changes.
    pub listeners: bool,
    /// When it asks, in milliseconds of the kernel's clock.
    pub now: u64,
    /// Bytes of answers that it has room for.
    pub room: usize,
}

/// A message about a change.
#[derive(Clone, Debug)]
pub struct Event {
    /// For the listeners.
    pub message: Vec<u8>,
    /// For the asker as well.
    pub echo: bool,
}

/// What comes of a batch.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Errors, and acknowledgements that were asked for.
    pub answers: Vec<Vec<u8>>,
    /// What changed.
    pub events: Vec<Event>,
    /// Answers or echoes are missing, for they were too many.
    pub full: bool,
    /// Events are missing, for they were too many.
    pub lost: bool,
}

/// The rules of a network namespace.
pub struct Nftables {
    netfilter: Arc<Netfilter>,
    budget: Arc<Budget>,
    live: Arc<ArcSwap<Ruleset>>,
    control: Mutex<Control, { rank::NFT_COMMIT }>,
}

/// What batches share.
#[derive(Default)]
struct Control {
    batches: u64,
    hooks: Hooks,
}

/// The generation after another; 0 is none.
pub(crate) fn following(generation: u32) -> u32 {
    generation.checked_add(1).unwrap_or(1)
}

impl Nftables {
    /// No rules, for packets that this filter sees.
    pub fn new(netfilter: Arc<Netfilter>) -> Nftables {
        Nftables {
            budget: Arc::new(Budget::new(netfilter.account.clone())),
            netfilter,
            live: Arc::new(ArcSwap::from_pointee(Ruleset::new())),
            control: Mutex::default(),
        }
    }

    /// The number of the rules' present form, which every batch changes.
    pub fn generation(&self) -> u32 {
        self.live.load().generation
    }

    /// Answers a request that changes nothing: one message, or the datagrams of a dump.
    pub fn get(&self, request: &Request<'_>, asker: &Asker<'_>) -> Result<Vec<Vec<u8>>, Failure> {
        let rules = self.live.load();
        let reply = Reply::to(request, asker.port, rules.generation);
        let get = Get { rules: &rules, request: *request, reply, now: asker.now, asker };
        let items = get.answer()?;
        Ok(if request.dumps() { reply.dump(items, false) } else { items })
    }

    /// What the rules take of [`budget::LIMIT`].
    pub fn bytes(&self) -> usize {
        self.budget.used()
    }
}
